//! Follows the frames in a peer's byte stream (RFC 6455 §5.2) before the library sees them. It measures frames and refuses
//! binary messages that the protocol never needs; the library validates them.
//!
//! - A binary message above the bound is refused at the header that shows its length: the library gets the end of an empty
//!   frame instead, and the payload is skipped, so that nothing holds it.
//! - A long frame is passed on as fragments, one for each read: the library unmasks and checks a frame when it is complete,
//!   which takes milliseconds for megabytes.
//! - The library knows no close code 1014 ("bad gateway", IANA's registry) and would answer a protocol error. It gets 1013
//!   instead.

use std::{collections::VecDeque, io, ops::Range};

use tokio_tungstenite::tungstenite::Message;

/// The longest frame header, bytes.
pub(super) const HEADER_MAX_BYTES: usize = 14;
/// Frames of data above this length are given in pieces, bytes.
const WHOLE_MAX_BYTES: u64 = 64 * 1024;
/// The end of a message, empty and masked with zeros: what the library gets of a frame that is refused, after the first byte.
const EMPTY_FRAME_REST: [u8; 5] = [0x80, 0, 0, 0, 0];
/// Fragments that every message may have.
const FRAGMENTS_MAX: u64 = 1024;
/// Further fragments must bring this much on average, bytes. Empty ones cost work and bring nothing.
const FRAGMENT_MIN_BYTES: u64 = 64;
/// A close code that the library does not know.
pub(super) const BAD_GATEWAY: u16 = 1014;
/// The close code that the library gets instead.
const TRY_AGAIN_LATER: u16 = 1013;

/// Parts of a header's first byte.
const FIN: u8 = 0x80;
const RESERVED_BITS: u8 = 0x70;
const OPCODE: u8 = 0x0f;
/// In the opcode.
const CONTROL_BIT: u8 = 0x08;
/// Opcodes.
const CONTINUATION: u8 = 0x00;
const TEXT: u8 = 0x01;
const BINARY: u8 = 0x02;
const CLOSE: u8 = 0x08;
/// In the second byte.
const MASKED: u8 = 0x80;

/// The part of a frame that the library gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Give,
    /// In pieces with headers of their own.
    Split,
    Skip,
    /// The end of the message, without this frame's payload.
    Refuse,
}

/// Position within the frames of one direction.
#[derive(Debug, Default)]
pub(super) struct FrameBoundary {
    /// Longest binary message, and longest message of any kind. The library refuses what exceeds the second.
    binary_max: u64,
    message_max: u64,
    /// An incomplete header, which the library has not got yet.
    header: [u8; HEADER_MAX_BYTES],
    header_bytes: usize,
    /// The first byte of the current frame: FIN and opcode.
    first_byte: u8,
    is_masked: bool,
    mask: [u8; 4],
    /// The payload of the current frame is given in pieces.
    is_split: bool,
    /// Payload of the current frame, bytes.
    payload: u64,
    /// Payload bytes still to come.
    payload_left: u64,
    /// The payload of the current frame is skipped.
    is_skipped: bool,
    /// A fragmented message is incomplete.
    message_is_open: bool,
    /// The current message is binary.
    is_binary: bool,
    /// The current message is refused. The rest of its fragments is skipped.
    is_refused: bool,
    /// Length of the refused message so far, bytes.
    refused_bytes: u64,
    /// Payload of the frames of the incomplete message that have come to their end, bytes.
    fragment_bytes: u64,
    /// Frames of the incomplete message.
    fragments: u64,
    /// The longest payload that has come to its end since the library released its buffers, bytes.
    pub(super) longest_payload: u64,
    /// Messages that the library got to their end, and those that it returned.
    messages_given: u64,
    messages_returned: u64,
    /// Refused messages that the library has not returned: number, and length as far as it is known.
    refused: VecDeque<(u64, u64)>,
    /// The peer's close code was 1014.
    pub(super) is_bad_gateway: bool,
    /// The stream has no frames: every byte is given as it is.
    has_no_frames: bool,
}

impl FrameBoundary {
    /// The start of a stream whose messages have this length at most, bytes.
    pub(super) fn new(message_max: usize) -> Self {
        Self { binary_max: u64::MAX, message_max: message_max as u64, ..Self::default() }
    }

    /// The start of a stream that is no WebSocket's.
    pub(super) fn without_frames() -> Self {
        let mut boundary = Self::new(usize::MAX);
        boundary.has_no_frames = true;
        boundary
    }

    /// Begins anew, without bounds: what was read is forgotten.
    pub(super) fn restart(&mut self) {
        *self = if self.has_no_frames { Self::without_frames() } else { Self::new(usize::MAX) };
    }

    /// Notes the memory of the incomplete message of a stream without frames, bytes.
    pub(super) const fn note_held(&mut self, bytes: usize) {
        (self.payload, self.message_is_open) = (bytes as u64, bytes > 0);
        if self.payload > self.longest_payload {
            self.longest_payload = self.payload;
        }
    }

    /// Sets the longest message, and the longest binary message, bytes.
    pub(super) const fn set_max(&mut self, message_max: usize, binary_max: usize) {
        (self.message_max, self.binary_max) = (message_max as u64, binary_max as u64);
    }

    /// Advances by the bytes of `block` in `read`, and returns those that the library gets. Before `read`, the block has room
    /// for a header that was cut off.
    pub(super) fn advance(&mut self, block: &mut [u8], read: Range<usize>) -> Range<usize> {
        if self.has_no_frames {
            return read;
        }
        // A piece that continues a frame gets its header before the block.
        let room = if self.is_split { self.piece_header(read.len()).len() } else { self.header_bytes };
        let start = read.start - room;
        block[read.start - self.header_bytes..read.start].copy_from_slice(&self.header[..self.header_bytes]);
        let mut at = read.start - self.header_bytes;
        self.header_bytes = 0;
        while let Some(length) = self.take_whole_message(&block[at..read.end]) {
            at += length;
        }
        let mut given_end = if self.is_split { start } else { at };
        while at < read.end {
            let (length, verdict) = if self.payload_left > 0 {
                let left = usize::try_from(self.payload_left).unwrap_or(usize::MAX);
                let length = left.min(read.end - at);
                if self.is_split {
                    let header = self.piece_header(length);
                    block[given_end..given_end + header.len()].copy_from_slice(&header);
                    given_end += header.len();
                }
                self.payload_left -= length as u64;
                (length, if self.is_skipped { Verdict::Skip } else { Verdict::Give })
            } else if let Some(header) = self.begin_frame(&mut block[at..read.end]) {
                (header, self.judge_frame())
            } else {
                self.header_bytes = read.end - at;
                self.header[..self.header_bytes].copy_from_slice(&block[at..read.end]);
                break;
            };
            match verdict {
                // The pieces have headers of their own, which are shorter.
                Verdict::Skip | Verdict::Split => {}
                Verdict::Give => {
                    if at != given_end {
                        block.copy_within(at..at + length, given_end);
                    }
                    given_end += length;
                }
                // Shorter than the header that it replaces, which has a mask.
                Verdict::Refuse => {
                    block[given_end] = FIN | self.first_byte;
                    let rest = given_end + 1..given_end + 1 + EMPTY_FRAME_REST.len();
                    given_end = rest.end;
                    block[rest].copy_from_slice(&EMPTY_FRAME_REST);
                }
            }
            at += length;
            if self.payload_left == 0 {
                self.end_frame();
            }
        }
        start..given_end
    }

    /// True if the library has neither a frame nor a fragmented message that is incomplete.
    pub(super) const fn is_at_boundary(&self) -> bool {
        self.header_bytes == 0
            && (self.payload_left == 0 || self.is_skipped)
            && (!self.message_is_open || self.is_refused)
    }

    /// Memory that the library holds, bytes: the incomplete message as far as it has come, and the buffer of the longest
    /// frame, which the library keeps.
    pub(super) fn held_bytes(&self) -> usize {
        let frame = if self.is_skipped { 0 } else { self.payload - self.payload_left };
        let frame = self.longest_payload.max(frame);
        usize::try_from(self.fragment_bytes.saturating_add(frame)).unwrap_or(usize::MAX)
    }

    /// The library has released its buffers.
    pub(super) const fn forget_buffers(&mut self) {
        (self.longest_payload, self.payload) = (0, 0);
    }

    /// The error that ends the connection: the current message comes in more frames than it needs, or a refused message is
    /// longer than any message may be.
    pub(super) const fn violation(&self) -> Option<io::ErrorKind> {
        if self.fragments > FRAGMENTS_MAX + self.fragment_bytes / FRAGMENT_MIN_BYTES {
            Some(io::ErrorKind::QuotaExceeded)
        } else if self.refused_bytes > self.message_max {
            Some(io::ErrorKind::FileTooLarge)
        } else {
            None
        }
    }

    /// Counts a message of the library. In place of a refused one, whose payload is skipped, it returns zeros, so that the session
    /// answers as if it had come. Nothing reads them, so they take no memory.
    pub(super) fn restore_refused(&mut self, message: Message) -> Message {
        if !(message.is_binary() || message.is_text()) {
            return message;
        }
        self.messages_returned += 1;
        match self.refused.front() {
            Some(&(number, bytes)) if number == self.messages_returned => {
                self.refused.pop_front();
                Message::binary(vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)])
            }
            _ => message,
        }
    }

    /// Takes a frame that is a whole message, as most are. Returns its length with its header; `None` for everything that needs a
    /// closer look.
    fn take_whole_message(&mut self, bytes: &[u8]) -> Option<usize> {
        let [first, second, rest @ ..] = bytes else { return None };
        let (length_bytes, payload) = match (second & !MASKED, rest) {
            (length @ 0..126, _) => (0, usize::from(length)),
            (126, [high, low, ..]) => (2, usize::from(u16::from_be_bytes([*high, *low]))),
            _ => return None,
        };
        let length = 2 + length_bytes + if second & MASKED == 0 { 0 } else { 4 } + payload;
        let is_message = *first == FIN | TEXT || *first == FIN | BINARY && payload as u64 <= self.binary_max;
        if self.payload_left > 0 || self.message_is_open || !is_message || length > bytes.len() {
            return None;
        }
        (self.payload, self.is_skipped, self.is_refused) = (payload as u64, false, false);
        self.longest_payload = self.longest_payload.max(self.payload);
        self.messages_given += 1;
        Some(length)
    }

    /// Begins a frame if its header is complete, and returns the header's length. The code of a close frame counts as part of
    /// its header.
    fn begin_frame(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let (first, second) = (*bytes.first()?, *bytes.get(1)?);
        let length_bytes = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_bytes = if second & MASKED == 0 { 0 } else { 4 };
        let header = 2 + length_bytes + mask_bytes;
        let payload = match bytes.get(2..2 + length_bytes)? {
            [] => u64::from(second & 0x7f),
            length => length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        // A close frame is short (RFC 6455 §5.5), so its length is in the second byte; the library refuses others.
        let is_short_close = first & OPCODE == CLOSE && length_bytes == 0;
        let code_bytes = if is_short_close && payload >= 2 { 2 } else { 0 };
        let header_and_code = bytes.get_mut(..header + code_bytes)?;
        if code_bytes > 0 {
            let (mask, code) = header_and_code[header - mask_bytes..].split_at_mut(mask_bytes);
            self.replace_close_code(mask, code);
        }
        if let Some(mask) = header_and_code[..header].last_chunk().filter(|_| mask_bytes > 0) {
            self.mask = *mask;
        }
        (self.first_byte, self.is_masked) = (first, mask_bytes > 0);
        (self.payload, self.payload_left) = (payload, payload - code_bytes as u64);
        Some(header + code_bytes)
    }

    fn replace_close_code(&mut self, mask: &[u8], code: &mut [u8]) {
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes));
        let key = number(mask);
        if number(code) ^ key == BAD_GATEWAY {
            self.is_bad_gateway = true;
            code.copy_from_slice(&(TRY_AGAIN_LATER ^ key).to_be_bytes());
        }
    }

    /// Header of the next piece of the current frame. This many bytes of the piece have arrived.
    fn piece_header(&self, bytes: usize) -> Vec<u8> {
        let left = usize::try_from(self.payload_left).unwrap_or(usize::MAX);
        let (length, given) = (bytes.min(left), self.payload - self.payload_left);
        let opcode = if given == 0 { self.first_byte & !FIN } else { CONTINUATION };
        let end = if length == left { self.first_byte & FIN } else { 0 };
        let mut mask = self.mask;
        mask.rotate_left((given % 4) as usize);
        let mut header = vec![opcode | end];
        match u8::try_from(length) {
            Ok(short @ 0..126) => header.push(MASKED | short),
            _ => {
                header.push(MASKED | 126);
                // A read never returns more bytes than that.
                header.extend(u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
            }
        }
        header.extend(mask);
        header
    }

    /// Decides about the frame that has begun.
    fn judge_frame(&mut self) -> Verdict {
        let opcode = self.first_byte & OPCODE;
        self.is_skipped = self.is_refused && opcode == CONTINUATION;
        if self.is_skipped {
            self.refused_bytes = self.refused_bytes.saturating_add(self.payload);
            return Verdict::Skip;
        }
        if opcode & CONTROL_BIT != 0 {
            return Verdict::Give;
        }
        if opcode != CONTINUATION {
            (self.is_binary, self.is_refused) = (opcode == BINARY, false);
        }
        let length = self.fragment_bytes.saturating_add(self.payload);
        // The library answers what is not valid, and what is too long whatever it is.
        let is_valid = self.is_masked
            && self.first_byte & RESERVED_BITS == 0
            && self.message_is_open == (opcode == CONTINUATION);
        if !(is_valid && self.is_binary && length > self.binary_max && length <= self.message_max) {
            self.is_split = is_valid && self.payload > WHOLE_MAX_BYTES && length <= self.message_max;
            return if self.is_split { Verdict::Split } else { Verdict::Give };
        }
        (self.is_skipped, self.is_refused, self.refused_bytes) = (true, true, length);
        self.messages_given += 1;
        self.refused.push_back((self.messages_given, length));
        Verdict::Refuse
    }

    /// Ends the frame, whose payload is complete.
    fn end_frame(&mut self) {
        self.is_split = false;
        if !self.is_skipped {
            self.longest_payload = self.longest_payload.max(self.payload);
        }
        // Control frames may come between the frames of a message.
        if self.first_byte & CONTROL_BIT != 0 {
            return;
        }
        self.message_is_open = self.first_byte & FIN == 0;
        if self.is_refused {
            (self.fragment_bytes, self.fragments) = (0, 0);
            self.is_refused = self.message_is_open;
        } else if self.message_is_open {
            self.fragment_bytes = self.fragment_bytes.saturating_add(self.payload);
            self.fragments += 1;
        } else {
            (self.fragment_bytes, self.fragments) = (0, 0);
            self.messages_given += 1;
        }
    }
}

#[cfg(test)]
mod tests;
