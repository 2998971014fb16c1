//! Chooses one of several audio tracks.

use super::codec::Codec;
use super::packet::Stream;

/// More channels than any codec here has.
const CHANNELS_MAX: usize = 64;

/// The index of the default track among those that can be decoded, the first of equals. Without any that can, an error names
/// the codec of the default.
pub(super) fn choose<'a>(tracks: impl Iterator<Item = (&'a Stream, bool)>) -> Option<usize> {
    let is_small = |stream: &Stream| {
        stream.params.channels.as_ref().is_none_or(|channels| channels.count() <= CHANNELS_MAX)
    };
    let ranks =
        tracks.map(|(stream, is_default)| (is_small(stream) && Codec::new(stream).is_ok(), is_default));
    let ranked: Vec<_> = ranks.enumerate().collect();
    ranked.into_iter().rev().max_by_key(|(_, rank)| *rank).map(|(index, _)| index)
}
