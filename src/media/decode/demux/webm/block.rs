//! Blocks of Matroska: packets of one track with their time (RFC 9559 §10).

use bytes::Bytes;

use super::element::read_size;
use crate::media::decode::fields::be16;

/// Header of a block, and its contents.
pub(super) struct Block {
    pub(super) track: u64,
    /// Time since its cluster.
    pub(super) ticks: i16,
    lacing: Lacing,
    body: Bytes,
}

#[derive(Clone, Copy)]
enum Lacing {
    None,
    Xiph,
    Ebml,
    Fixed,
}

impl Block {
    pub(super) fn parse(block: &Bytes) -> Option<Self> {
        let (track, len) = read_size(block)?;
        let ticks = be16(block, len)?.cast_signed();
        let lacing = match block.get(len + 2)? >> 1 & 3 {
            0 => Lacing::None,
            1 => Lacing::Xiph,
            2 => Lacing::Fixed,
            _ => Lacing::Ebml,
        };
        Some(Self { track: track?, ticks, lacing, body: block.slice(len + 3..) })
    }
}

/// The packets of a block; `None` at damage.
pub(super) fn frames(block: &Block) -> Option<Vec<Bytes>> {
    let mut body = block.body.clone();
    if matches!(block.lacing, Lacing::None) {
        return Some(vec![body]);
    }
    let count = usize::from(*body.first()?) + 1;
    let _ = body.split_to(1);
    let lens = match block.lacing {
        Lacing::Xiph => xiph_lens(&mut body, count - 1)?,
        Lacing::Ebml => ebml_lens(&mut body, count - 1)?,
        _ => vec![body.len() / count; count - 1],
    };
    let mut frames = Vec::with_capacity(count);
    for len in lens {
        frames.push(take(&mut body, len)?);
    }
    frames.push(body);
    Some(frames)
}

fn take(body: &mut Bytes, len: usize) -> Option<Bytes> {
    (len <= body.len()).then(|| body.split_to(len))
}

/// Lengths as sums of bytes; 255 is continued.
fn xiph_lens(body: &mut Bytes, count: usize) -> Option<Vec<usize>> {
    let mut lens = vec![0; count];
    for len in &mut lens {
        loop {
            let byte = *take(body, 1)?.first()?;
            *len += usize::from(byte);
            if byte < 255 {
                break;
            }
        }
    }
    Some(lens)
}

/// The first length, and differences.
fn ebml_lens(body: &mut Bytes, count: usize) -> Option<Vec<usize>> {
    let (mut lens, mut last) = (Vec::with_capacity(count), 0_i64);
    for index in 0..count {
        let (value, len) = read_size(body)?;
        let value = i64::try_from(value?).ok()?;
        take(body, len)?;
        // Differences are signed by a bias.
        last = if index == 0 { value } else { last + value - ((1 << (7 * len - 1)) - 1) };
        lens.push(usize::try_from(last).ok()?);
    }
    Some(lens)
}
