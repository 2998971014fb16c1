//! Queue of encoded audio that waits for playout.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Encoded audio in the pieces in which it was made. A frame within a piece shares its memory.
#[derive(Debug, Default)]
pub struct PlayoutQueue {
    /// None is empty.
    pieces: VecDeque<Bytes>,
    /// Number of queued bytes.
    pub len: usize,
}

impl PlayoutQueue {
    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// True if no bytes are queued.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Discards the audio.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes out the oldest bytes, at most this many. Copies them only if they are of several pieces.
    pub fn take(&mut self, max_bytes: usize) -> Bytes {
        let count = max_bytes.min(self.len);
        let frame = self.take_from_front(count);
        if frame.len() == count {
            return frame;
        }
        let mut joined = BytesMut::with_capacity(count);
        joined.extend_from_slice(&frame);
        while joined.len() < count {
            joined.extend_from_slice(&self.take_from_front(count - joined.len()));
        }
        joined.freeze()
    }

    /// Takes the oldest bytes of the front piece, at most this many.
    fn take_from_front(&mut self, max_bytes: usize) -> Bytes {
        let Some(piece) = self.pieces.front_mut() else { return Bytes::new() };
        let frame = piece.split_to(max_bytes.min(piece.len()));
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        self.len -= frame.len();
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_within_a_piece_share_its_memory_and_others_are_joined() {
        let mut queue = PlayoutQueue::default();
        let first = Bytes::from_static(b"abcdef");
        for piece in [first.clone(), Bytes::new(), Bytes::from_static(b"gh"), Bytes::from_static(b"ijkl")] {
            queue.push(piece);
        }
        let frame = queue.take(4);
        assert_eq!((&frame[..], frame.as_ptr(), queue.len), (&b"abcd"[..], first.as_ptr(), 8));
        assert_eq!(&queue.take(5)[..], b"efghi");
        assert_eq!((&queue.take(9)[..], queue.is_empty()), (&b"jkl"[..], true));
        assert_eq!(&queue.take(9)[..], b"");
        queue.push(first);
        queue.clear();
        assert_eq!((queue.len, &queue.take(1)[..]), (0, &b""[..]));
    }
}
