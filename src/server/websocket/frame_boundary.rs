//! Tracks frame boundaries in a peer's byte stream (RFC 6455 §5.2). It measures frames; the library validates them.

/// The longest frame header, bytes.
const HEADER_MAX_BYTES: usize = 14;

/// Position within the frames of one direction.
#[derive(Debug, Default)]
pub(super) struct FrameBoundary {
    header: [u8; HEADER_MAX_BYTES],
    /// Bytes of an incomplete header.
    header_bytes: usize,
    /// Payload of the current frame, bytes.
    payload: u64,
    /// Payload bytes still to come.
    payload_left: u64,
    /// A fragmented message is incomplete.
    message_is_open: bool,
    /// Payload of the frames of the incomplete message that have come to their end, bytes.
    fragment_bytes: u64,
    /// The longest payload that has come to its end, bytes.
    longest_payload: u64,
}

impl FrameBoundary {
    /// Advances by these bytes.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.payload_left > 0 {
                let payload = bytes.len().min(usize::try_from(self.payload_left).unwrap_or(usize::MAX));
                self.payload_left -= payload as u64;
                bytes = &bytes[payload..];
                self.complete_frame();
            } else {
                self.header[self.header_bytes] = *first;
                self.header_bytes += 1;
                bytes = rest;
                self.parse_header();
            }
        }
    }

    /// True if no frame and no fragmented message is incomplete.
    pub(super) const fn is_at_boundary(&self) -> bool {
        self.header_bytes == 0 && self.payload_left == 0 && !self.message_is_open
    }

    /// Memory that the library holds, bytes: the incomplete message as far as it has come, and the buffer of the longest
    /// frame, which the library keeps.
    pub(super) fn held_bytes(&self) -> usize {
        let frame = self.longest_payload.max(self.payload - self.payload_left);
        usize::try_from(self.fragment_bytes.saturating_add(frame)).unwrap_or(usize::MAX)
    }

    /// The longest payload so far, bytes.
    pub(super) fn longest_payload(&self) -> usize {
        usize::try_from(self.longest_payload).unwrap_or(usize::MAX)
    }

    /// Parses the header once it is complete.
    fn parse_header(&mut self) {
        let second = self.header[1];
        let length_bytes = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_bytes = if second & 0x80 == 0 { 0 } else { 4 };
        if self.header_bytes < 2 + length_bytes + mask_bytes {
            return;
        }
        let length = &self.header[2..2 + length_bytes];
        self.payload = match length_bytes {
            0 => u64::from(second & 0x7f),
            _ => length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        (self.payload_left, self.header_bytes) = (self.payload, 0);
        self.complete_frame();
    }

    /// Ends the frame if its payload is complete.
    fn complete_frame(&mut self) {
        if self.payload_left > 0 {
            return;
        }
        self.longest_payload = self.longest_payload.max(self.payload);
        // Control frames may come between the frames of a message.
        if self.header[0] & 0x08 == 0 {
            self.message_is_open = self.header[0] & 0x80 == 0;
            self.fragment_bytes =
                if self.message_is_open { self.fragment_bytes.saturating_add(self.payload) } else { 0 };
        }
    }
}
