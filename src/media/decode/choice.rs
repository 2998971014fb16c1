//! Chooses one of several audio tracks.

use super::codec::Codec;
use super::packet::Stream;

/// The index of the default track among those that can be decoded, the first of equals. Without any that can, an error names
/// the codec of the default.
pub(super) fn choose<'a>(tracks: impl Iterator<Item = (&'a Stream, bool)>) -> Option<usize> {
    let ranks = tracks.map(|(stream, is_default)| (Codec::new(stream).is_ok(), is_default));
    let ranked: Vec<_> = ranks.enumerate().collect();
    ranked.into_iter().rev().max_by_key(|(_, rank)| *rank).map(|(index, _)| index)
}
