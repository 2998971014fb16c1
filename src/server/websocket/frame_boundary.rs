//! Where in a peer's frames a stream of bytes stands (RFC 6455 §5.2). They are measured, not judged: that is the library's
//! business.

/// The most bytes of a frame before its payload.
const HEADER_MAX_BYTES: usize = 14;

/// The frames of one direction.
#[derive(Debug, Default)]
pub(super) struct Frames {
    header: [u8; HEADER_MAX_BYTES],
    /// Bytes of a header that has begun.
    begun: usize,
    /// Bytes of the payload that are still to come.
    left: u64,
    /// A message has begun of which not the last frame is there.
    open: bool,
    longest: usize,
}

impl Frames {
    /// Takes the next bytes.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let payload = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= payload as u64;
                bytes = &bytes[payload..];
            } else {
                self.header[self.begun] = *first;
                self.begun += 1;
                bytes = rest;
                self.end_header();
            }
        }
    }

    /// Whether neither a frame nor a message has begun and not ended.
    pub(super) const fn is_between(&self) -> bool {
        self.begun == 0 && self.left == 0 && !self.open
    }

    /// Bytes of the longest payload so far.
    pub(super) const fn longest(&self) -> usize {
        self.longest
    }

    /// Finds out what the header says, if that is all of it.
    fn end_header(&mut self) {
        let [first, second, ..] = self.header;
        let length_bytes = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_bytes = if second & 0x80 == 0 { 0 } else { 4 };
        if self.begun < 2 + length_bytes + mask_bytes {
            return;
        }
        let length = &self.header[2..2 + length_bytes];
        self.left = match length_bytes {
            0 => u64::from(second & 0x7f),
            _ => length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        self.longest = self.longest.max(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.begun = 0;
        // Control frames come in between the frames of a message.
        if first & 0x08 == 0 {
            self.open = first & 0x80 == 0;
        }
    }
}
