//! Tracks frame boundaries in a peer's byte stream (RFC 6455 §5.2). It measures frames; the library validates them.

/// The longest frame header, bytes.
const HEADER_MAX_BYTES: usize = 14;

/// Position within the frames of one direction.
#[derive(Debug, Default)]
pub(super) struct FrameBoundary {
    header: [u8; HEADER_MAX_BYTES],
    /// Bytes of an incomplete header.
    header_bytes: usize,
    /// Payload bytes still to come.
    payload_left: u64,
    /// A fragmented message is incomplete.
    message_is_open: bool,
    longest_payload: usize,
    /// Payload bytes of the incomplete message, as announced so far.
    message_bytes: u64,
}

impl FrameBoundary {
    /// Advances by these bytes.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.payload_left > 0 {
                let payload = bytes.len().min(usize::try_from(self.payload_left).unwrap_or(usize::MAX));
                self.payload_left -= payload as u64;
                bytes = &bytes[payload..];
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

    /// Payload of the incomplete message that has come, bytes; 0 between messages.
    pub(super) fn incomplete_bytes(&self) -> usize {
        let bytes =
            if self.is_at_boundary() { 0 } else { self.message_bytes.saturating_sub(self.payload_left) };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// The longest payload so far, bytes.
    pub(super) const fn longest_payload(&self) -> usize {
        self.longest_payload
    }

    /// Parses the header once it is complete.
    fn parse_header(&mut self) {
        let [first, second, ..] = self.header;
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
        self.payload_left = match length_bytes {
            0 => u64::from(second & 0x7f),
            _ => length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        self.longest_payload =
            self.longest_payload.max(usize::try_from(self.payload_left).unwrap_or(usize::MAX));
        self.header_bytes = 0;
        // Control frames may come between the frames of a message.
        if first & 0x08 == 0 {
            let earlier_frames = if self.message_is_open { self.message_bytes } else { 0 };
            self.message_bytes = earlier_frames.saturating_add(self.payload_left);
            self.message_is_open = first & 0x80 == 0;
        }
    }
}
