//! Where the head and the body of a request end (RFC 9112 §2.1, §6, §7.1).
//!
//! hyper parses requests and rejects broken ones; this only finds their ends.

/// Finds the end of a head.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    /// Empty lines before the request do not count.
    has_begun: bool,
    line_is_blank: bool,
    ends_with_cr: bool,
    has_bare_lf: bool,
    is_complete: bool,
}

impl HeadScan {
    /// Takes the next bytes of the stream. Returns how many belong to the head.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' => {
                    self.has_bare_lf |= !self.ends_with_cr;
                    if self.has_begun && self.line_is_blank {
                        self.is_complete = true;
                        return at + 1;
                    }
                    self.line_is_blank = true;
                }
                b'\r' => {}
                _ => (self.has_begun, self.line_is_blank) = (true, false),
            }
            self.ends_with_cr = *byte == b'\r';
        }
        bytes.len()
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// True once a byte of the request has come.
    pub(super) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(super) const fn has_bare_lf(&self) -> bool {
        self.has_bare_lf
    }
}

/// Finds the end of a body.
#[derive(Debug)]
pub(in crate::server) enum BodyFraming {
    /// Bytes that are left.
    Length(u64),
    Chunked(Chunks),
}

/// Position in a body of chunks.
#[derive(Debug)]
pub(in crate::server) enum Chunks {
    /// In a line with the length of a chunk.
    Size {
        length: u64,
        in_digits: bool,
    },
    /// Bytes of the chunk that are left, with its line end.
    Data(u64),
    /// After the last chunk.
    Trailers {
        line_is_blank: bool,
    },
    Complete,
}

impl BodyFraming {
    /// A body of this length; of chunks if it is not known.
    pub(in crate::server) const fn new(length: Option<u64>) -> Self {
        match length {
            Some(length) => Self::Length(length),
            None => Self::Chunked(Chunks::START),
        }
    }

    /// Takes the next bytes of the stream. Returns how many belong to the body.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Length(left) => skip(left, bytes),
            Self::Chunked(chunks) => {
                let mut at = 0;
                while at < bytes.len() && !matches!(chunks, Chunks::Complete) {
                    at += chunks.advance(&bytes[at..]);
                }
                at
            }
        }
    }

    pub(super) const fn is_complete(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunks::Complete))
    }
}

impl Chunks {
    const START: Self = Self::Size { length: 0, in_digits: true };

    /// Takes at least one byte. Returns how many it took.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        let Some(byte) = bytes.first() else { return 0 };
        match self {
            Self::Size { length: 0, .. } if *byte == b'\n' => *self = Self::Trailers { line_is_blank: true },
            Self::Size { length, .. } if *byte == b'\n' => *self = Self::Data(length.saturating_add(2)),
            Self::Size { length, in_digits } => match char::from(*byte).to_digit(16) {
                Some(digit) if *in_digits => *length = length.saturating_mul(16).saturating_add(digit.into()),
                _ => *in_digits = false,
            },
            Self::Data(left) => {
                let skipped = skip(left, bytes);
                if *left == 0 {
                    *self = Self::START;
                }
                return skipped;
            }
            Self::Trailers { line_is_blank: true } if *byte == b'\n' => *self = Self::Complete,
            Self::Trailers { line_is_blank } if *byte != b'\r' => *line_is_blank = *byte == b'\n',
            Self::Trailers { .. } | Self::Complete => {}
        }
        1
    }
}

/// Subtracts the bytes from those that are left. Returns how many of them count.
fn skip(left: &mut u64, bytes: &[u8]) -> usize {
    let skipped = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    *left -= skipped as u64;
    skipped
}
