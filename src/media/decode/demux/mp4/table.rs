//! Sample tables: where each sample of a track lies, and when it plays (ISO 14496-12 §8.6.1, §8.7).
//!
//! The tables are read as they are needed, and never copied.

use bytes::Bytes;
use symphonia::core::errors::Error;

use super::boxes::{Mp4Box, find};
use crate::media::decode::demux::blocks::Layout;
use crate::media::decode::fields::{be, be32, be64};

/// One sample, or blocks of one chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) offset: u64,
    pub(super) len: usize,
    /// Begin and length on the track's clock.
    pub(super) time: i64,
    pub(super) ticks: i64,
    /// Samples of the codec, if the table does not divide the audio.
    pub(super) samples: u64,
    /// Number of its sample entry, from 0.
    pub(super) entry: usize,
}

/// The tables of a track.
#[derive(Clone)]
pub(super) struct Tables {
    times: Bytes,
    chunks: Bytes,
    sizes: Sizes,
    offsets: Offsets,
}

#[derive(Clone)]
enum Sizes {
    Same {
        bytes: u32,
        count: u32,
    },
    /// Bits of each number.
    Table {
        bits: usize,
        count: u32,
        table: Bytes,
    },
}

#[derive(Clone)]
struct Offsets {
    bytes: usize,
    table: Bytes,
}

impl Offsets {
    fn get(&self, chunk: u32) -> Option<u64> {
        be(&self.table, (chunk as usize).checked_mul(self.bytes)?, self.bytes)
    }
}

impl Sizes {
    const fn count(&self) -> u32 {
        match self {
            Self::Same { count, .. } | Self::Table { count, .. } => *count,
        }
    }

    fn get(&self, sample: u32) -> Option<usize> {
        match self {
            Self::Same { bytes, .. } => Some(*bytes as usize),
            Self::Table { bits: 4, table, .. } => {
                let pair = table.get(sample as usize / 2)?;
                Some(usize::from(if sample % 2 == 0 { pair >> 4 } else { pair & 15 }))
            }
            Self::Table { bits, table, .. } => {
                let bytes = bits / 8;
                be(table, (sample as usize).checked_mul(bytes)?, bytes).map(|size| size as usize)
            }
        }
    }
}

impl Tables {
    pub(super) fn find(file: &Bytes, table: Mp4Box) -> Option<Self> {
        let body =
            |kind: &[u8; 4]| Some(file.slice_ref(find(file, table.body(), &[kind])?.versioned(file)?.1));
        let rest = |table: Bytes, from: usize| (table.len() >= from).then(|| table.slice(from..));
        let sizes = match (body(b"stsz"), body(b"stz2")) {
            (Some(sizes), _) => match (be32(&sizes, 0)?, be32(&sizes, 4)?) {
                (0, count) => Sizes::Table { bits: 32, count, table: rest(sizes, 8)? },
                (bytes, count) => Sizes::Same { bytes, count },
            },
            (None, Some(sizes)) => {
                let bits = Some(usize::from(*sizes.get(3)?)).filter(|bits| [4, 8, 16].contains(bits))?;
                Sizes::Table { bits, count: be32(&sizes, 4)?, table: rest(sizes, 8)? }
            }
            (None, None) => return None,
        };
        let offsets = match (body(b"stco"), body(b"co64")) {
            (Some(table), _) => Offsets { bytes: 4, table: rest(table, 4)? },
            (None, table) => Offsets { bytes: 8, table: rest(table?, 4)? },
        };
        Some(Self { times: rest(body(b"stts")?, 4)?, chunks: rest(body(b"stsc")?, 4)?, sizes, offsets })
    }

    /// True if the table has no samples, as in a file of fragments.
    pub(super) const fn is_empty(&self) -> bool {
        self.sizes.count() == 0
    }
}

/// A position in the tables.
pub(super) struct Cursor {
    tables: Tables,
    /// Blocks of one length, which the table of sizes does not count in bytes.
    layout: Option<Layout>,
    sample: u32,
    time: i64,
    /// The run of the time table, and samples left in it.
    time_run: usize,
    time_left: u32,
    ticks: u32,
    /// The run of the chunk table, the chunk, and samples left in it.
    chunk_run: usize,
    chunk: u32,
    chunk_left: u32,
    offset: u64,
    /// Steps that may still be taken: edits may read the same samples again and again.
    work_left: u64,
}

/// Steps beside those that read all samples once.
const WORK_MAX: u64 = 20_000_000;

impl Cursor {
    pub(super) fn new(tables: Tables, layout: Option<Layout>) -> Self {
        // Each step reads at least a byte of some table.
        let table_len = tables.times.len() + tables.chunks.len() + tables.offsets.table.len();
        let work_left = WORK_MAX + table_len as u64 + 4 * u64::from(tables.sizes.count());
        let mut cursor = Self {
            tables,
            layout,
            sample: 0,
            time: 0,
            time_run: 0,
            time_left: 0,
            ticks: 0,
            chunk_run: 0,
            chunk: 0,
            chunk_left: 0,
            offset: 0,
            work_left,
        };
        cursor.rewind();
        cursor
    }

    pub(super) fn rewind(&mut self) {
        (self.sample, self.time, self.time_run, self.time_left) = (0, 0, 0, 0);
        (self.chunk_run, self.chunk, self.chunk_left, self.offset) = (0, 0, 0, 0);
    }

    pub(super) const fn time(&self) -> i64 {
        self.time
    }

    fn work(&mut self) -> Result<(), Error> {
        self.work_left = self.work_left.checked_sub(1).ok_or(TOO_MUCH)?;
        Ok(())
    }

    /// The next sample; `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<Sample>, Error> {
        if self.sample >= self.tables.sizes.count() || !self.find_chunk()? {
            return Ok(None);
        }
        self.find_time()?;
        let entry =
            be32(&self.tables.chunks, 12 * self.chunk_run + 8).unwrap_or(1).saturating_sub(1) as usize;
        let Some((len, count, samples)) = self.extent() else { return Ok(None) };
        let ticks = i64::from(self.ticks) * i64::from(count);
        let sample = Sample { offset: self.offset, len, time: self.time, ticks, samples, entry };
        self.sample += count;
        self.chunk_left -= count;
        self.time_left = self.time_left.saturating_sub(count);
        self.time = self.time.saturating_add(ticks);
        self.offset = self.offset.saturating_add(len as u64);
        self.work()?;
        Ok(Some(sample))
    }

    /// Bytes and number of the samples that are read as one, and samples of the codec in them.
    fn extent(&self) -> Option<(usize, u32, u64)> {
        let size = self.tables.sizes.get(self.sample)?;
        let is_divided = matches!(self.tables.sizes, Sizes::Table { .. });
        let layout = self.layout.filter(|layout| !is_divided && size <= layout.bytes);
        let Some(layout) = layout else { return Some((size, 1, 0)) };
        // The table counts blocks, or their samples.
        let unit = if size == layout.bytes { 1 } else { layout.samples as u32 };
        let most = layout.blocks_in_packet() as u32 * unit;
        let blocks = (most.min(self.chunk_left).min(self.time_left) / unit).max(1);
        let count = (blocks * unit).min(self.chunk_left);
        Some((blocks as usize * layout.bytes, count, u64::from(blocks) * layout.samples))
    }

    /// Enters the chunk of the sample. False behind the last.
    fn find_chunk(&mut self) -> Result<bool, Error> {
        while self.chunk_left == 0 {
            self.work()?;
            let first_of_run =
                |run: usize| be32(&self.tables.chunks, 12 * run).map(|first| first.saturating_sub(1));
            while first_of_run(self.chunk_run + 1).is_some_and(|first| first <= self.chunk) {
                self.chunk_run += 1;
            }
            let count = be32(&self.tables.chunks, 12 * self.chunk_run + 4);
            let (Some(count), Some(offset)) = (count, self.tables.offsets.get(self.chunk)) else {
                return Ok(false);
            };
            (self.chunk_left, self.offset) = (count, offset);
            self.chunk += 1;
        }
        Ok(true)
    }

    fn find_time(&mut self) -> Result<(), Error> {
        while self.time_left == 0 {
            self.work()?;
            let Some(count) = be32(&self.tables.times, 8 * self.time_run) else {
                // The last length goes on behind the table.
                self.time_left = u32::MAX;
                break;
            };
            self.time_left = count;
            self.ticks = be32(&self.tables.times, 8 * self.time_run + 4).unwrap_or(0);
            self.time_run += 1;
        }
        Ok(())
    }
}

pub(super) const TOO_MUCH: Error = Error::LimitError("the tables are larger than those of any recording");

/// Reads a number whose length depends on the version of its box.
pub(super) fn versioned_number(bytes: &[u8], at: usize, version: u8) -> Option<u64> {
    if version == 1 { be64(bytes, at) } else { be32(bytes, at).map(u64::from) }
}
