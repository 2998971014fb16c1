//! Memory that the sessions of a thread share: for audio that is processed before the next message comes, which takes no memory of
//! their own and stays in the processor's cache; and pieces for audio that is collected.

use std::{cell::RefCell, thread::LocalKey};

/// Buffers of a kind that are in use at the same time: a frame's resampled audio, and its part for the conversation.
const SPARES_MAX: usize = 2;
/// Longest buffer to keep, samples: 2 s of the model. The memory of a rare longer message is freed.
const SPARE_MAX_SAMPLES: usize = 48_000;

/// Length of a piece, samples: an eighth of a second at 16 kHz.
pub const PIECE_SAMPLES: usize = 2_000;
/// Most unused pieces of a thread, 256 kB: enough for sessions whose units end together.
const SPARE_PIECES_MAX: usize = 64;

type Spares<T> = RefCell<Vec<Vec<T>>>;

thread_local! {
    static INT16_SPARES: Spares<i16> = const { RefCell::new(Vec::new()) };
    static FLOAT32_SPARES: Spares<f32> = const { RefCell::new(Vec::new()) };
    static SPARE_PIECES: Spares<i16> = const { RefCell::new(Vec::new()) };
}

/// A kind of sample that has shared memory.
pub trait Shared: Sized + 'static {
    /// The unused buffers of this thread.
    fn spares() -> &'static LocalKey<Spares<Self>>;
}

impl Shared for i16 {
    fn spares() -> &'static LocalKey<Spares<Self>> {
        &INT16_SPARES
    }
}

impl Shared for f32 {
    fn spares() -> &'static LocalKey<Spares<Self>> {
        &FLOAT32_SPARES
    }
}

/// A buffer with its old samples, which the caller overwrites or clears.
pub fn take<T: Shared>() -> Vec<T> {
    T::spares().with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Puts a buffer back.
pub fn put_back<T: Shared>(buffer: Vec<T>) {
    T::spares().with_borrow_mut(|spares| {
        if spares.len() < SPARES_MAX && buffer.capacity() <= SPARE_MAX_SAMPLES {
            spares.push(buffer);
        }
    });
}

/// An empty buffer for [`PIECE_SAMPLES`].
pub fn take_piece() -> Vec<i16> {
    SPARE_PIECES.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(PIECE_SAMPLES))
}

/// Puts the buffer of a piece back. One of another size is freed.
pub fn put_back_piece(mut piece: Vec<i16>) {
    SPARE_PIECES.with_borrow_mut(|spares| {
        if spares.len() < SPARE_PIECES_MAX && piece.capacity() == PIECE_SAMPLES {
            piece.clear();
            spares.push(piece);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let mut buffer = take::<i16>();
        buffer.extend([7; 1_000]);
        let memory = buffer.as_ptr();
        put_back(buffer);
        let again = take::<i16>();
        assert_eq!(again.as_ptr(), memory);
    }

    #[test]
    fn long_or_many_buffers_are_freed() {
        put_back(Vec::<f32>::with_capacity(SPARE_MAX_SAMPLES + 1));
        assert_eq!(take::<f32>().capacity(), 0);
        (0..9).for_each(|_| put_back(vec![7.0_f32]));
        let kept = (0..9).filter(|_| take::<f32>().capacity() > 0).count();
        assert_eq!(kept, SPARES_MAX);
    }

    #[test]
    fn pieces_are_used_again_up_to_a_bound_and_others_are_freed() {
        (0..SPARE_PIECES_MAX + 9).for_each(|_| put_back_piece(Vec::with_capacity(PIECE_SAMPLES)));
        put_back_piece(vec![7; 16_000]);
        let spares = SPARE_PIECES.with_borrow(Vec::len);
        assert_eq!(spares, SPARE_PIECES_MAX);
        let pieces: Vec<_> = (0..=SPARE_PIECES_MAX).map(|_| take_piece()).collect();
        assert!(pieces.iter().all(|piece| piece.is_empty() && piece.capacity() == PIECE_SAMPLES));
    }
}
