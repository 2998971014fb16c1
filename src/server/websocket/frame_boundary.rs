//! Where in a peer's frames a stream of bytes stands (RFC 6455 §5.2). They are measured, not judged: that is the library's
//! business.

/// The most bytes of a frame before its payload.
const HEADER_MAX_BYTES: usize = 14;

/// The frames of one direction.
#[derive(Debug, Default)]
pub(super) struct FrameBoundary {
    header: [u8; HEADER_MAX_BYTES],
    /// Bytes of a header that has begun.
    header_bytes: usize,
    /// Bytes of the payload that are still to come.
    payload_left: u64,
    /// A message has begun of which not the last frame is there.
    message_is_open: bool,
    longest_payload: usize,
}

impl FrameBoundary {
    /// Takes the next bytes.
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

    /// Whether neither a frame nor a message has begun and not ended.
    pub(super) const fn is_at_boundary(&self) -> bool {
        self.header_bytes == 0 && self.payload_left == 0 && !self.message_is_open
    }

    /// Bytes of the longest payload so far.
    pub(super) const fn longest_payload(&self) -> usize {
        self.longest_payload
    }

    /// Finds out what the header says, if that is all of it.
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
        // Control frames come in between the frames of a message.
        if first & 0x08 == 0 {
            self.message_is_open = first & 0x80 == 0;
        }
    }
}
