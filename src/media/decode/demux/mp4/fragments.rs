//! Fragments: tables between the audio, as streams and recorders write them (ISO 14496-12 §8.8).

use std::collections::VecDeque;

use super::boxes::{Mp4Box, boxes, find, read_box};
use super::table::{Sample, versioned_number};
use crate::media::decode::fields::{be32, be64};

/// The defaults of a track's samples.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Defaults {
    entry: u32,
    ticks: u32,
    len: u32,
}

impl Defaults {
    /// Defaults that the movie states for a track (§8.8.3).
    pub(super) fn find(file: &[u8], movie: Mp4Box, track_id: u32) -> Self {
        let extends = find(file, movie.body(), &[b"mvex"]);
        let mut all = extends.into_iter().flat_map(|extends| boxes(file, extends.body()));
        let own = all.find(|child| child.kind == *b"trex" && be32(file, child.body_at + 4) == Some(track_id));
        let field = |at| own.and_then(|own| be32(file, own.body_at + at)).unwrap_or(0);
        Self { entry: field(8), ticks: field(12), len: field(16) }
    }
}

/// A run of samples (§8.8.8).
struct Run {
    /// Position of the table's next row, and what its rows have.
    at: usize,
    end: usize,
    flags: u32,
    left: u32,
    defaults: Defaults,
    /// Where it begins in the file, if it does not follow the run before.
    offset: Option<u64>,
    /// The time of its first sample, if it does not follow the run before.
    time: Option<i64>,
}

/// The samples of one track in all fragments.
pub(super) struct Fragments {
    track_id: u32,
    defaults: Defaults,
    /// Position of the next box.
    at: usize,
    runs: VecDeque<Run>,
    offset: u64,
    time: i64,
    /// The file ends in a box.
    pub(super) is_cut_off: bool,
}

impl Fragments {
    pub(super) const fn new(track_id: u32, defaults: Defaults, at: usize) -> Self {
        Self { track_id, defaults, at, runs: VecDeque::new(), offset: 0, time: 0, is_cut_off: false }
    }

    /// Position behind the boxes that were read.
    pub(super) const fn position(&self) -> usize {
        self.at
    }

    /// Leaves out the rest of the runs that were read.
    pub(super) fn skip_runs(&mut self) {
        self.runs.clear();
    }

    /// The next sample of the runs that were read.
    pub(super) fn next_sample(&mut self, file: &[u8]) -> Option<Sample> {
        while let Some(run) = self.runs.front_mut() {
            if let Some(offset) = run.offset.take() {
                self.offset = offset;
            }
            if let Some(time) = run.time.take() {
                self.time = time;
            }
            let Some((ticks, len)) = run.next(file) else {
                self.runs.pop_front();
                continue;
            };
            let entry = run.defaults.entry.saturating_sub(1) as usize;
            let sample = Sample { offset: self.offset, len, time: self.time, ticks, samples: 0, entry };
            self.offset = self.offset.saturating_add(len as u64);
            self.time = self.time.saturating_add(ticks);
            return Some(sample);
        }
        None
    }

    /// Reads the next box of the file. `None` at the end, or where another file begins.
    pub(super) fn read_box(&mut self, file: &[u8]) -> Option<()> {
        let next = read_box(file, self.at, file.len())?;
        if next.kind == *b"ftyp" || next.kind == *b"moov" {
            return None;
        }
        self.at = next.end;
        self.is_cut_off |= next.is_cut_off;
        if next.kind == *b"moof" {
            let parts = boxes(file, next.body()).filter(|child| child.kind == *b"traf");
            for part in parts {
                let _ = self.read_part(file, next.start, part);
            }
        }
        Some(())
    }

    /// Reads a track's part of a fragment (§8.8.6, §8.8.7, §8.8.12).
    fn read_part(&mut self, file: &[u8], fragment_at: usize, part: Mp4Box) -> Option<()> {
        let header = find(file, part.body(), &[b"tfhd"])?;
        let flags = be32(file, header.body_at)?;
        if be32(file, header.body_at + 4)? != self.track_id {
            return None;
        }
        let mut at = header.body_at + 8;
        let mut base = fragment_at as u64;
        if flags & 1 != 0 {
            base = be64(file, at)?;
            at += 8;
        }
        let mut defaults = self.defaults;
        for (flag, field) in [(2, &mut defaults.entry), (8, &mut defaults.ticks), (0x10, &mut defaults.len)] {
            if flags & flag != 0 {
                *field = be32(file, at)?;
                at += 4;
            }
        }
        let time = find(file, part.body(), &[b"tfdt"]).and_then(|time| time.versioned(file));
        let mut time =
            time.and_then(|(version, time)| versioned_number(time, 0, version)).map(|time| time as i64);
        let mut is_first = true;
        for run in boxes(file, part.body()).filter(|child| child.kind == *b"trun") {
            self.read_run(file, run, defaults, base, std::mem::take(&mut is_first), time.take());
        }
        Some(())
    }

    /// Notes a run. One without an offset follows the run before it, the first begins at the base.
    fn read_run(
        &mut self,
        file: &[u8],
        run: Mp4Box,
        defaults: Defaults,
        base: u64,
        is_first: bool,
        time: Option<i64>,
    ) {
        let flags = be32(file, run.body_at).unwrap_or(0);
        let mut at = run.body_at + 8;
        let mut offset = is_first.then_some(base);
        if flags & 1 != 0 {
            let difference = be32(file, at).unwrap_or(0).cast_signed();
            offset = Some(base.saturating_add_signed(difference.into()));
            at += 4;
        }
        at += if flags & 4 != 0 { 4 } else { 0 };
        let left = be32(file, run.body_at + 4).unwrap_or(0);
        self.runs.push_back(Run { at, end: run.end, flags, left, defaults, offset, time });
    }
}

impl Run {
    /// Length of the next sample, in ticks and in bytes.
    fn next(&mut self, file: &[u8]) -> Option<(i64, usize)> {
        self.left = self.left.checked_sub(1)?;
        let (mut ticks, mut len) = (self.defaults.ticks, self.defaults.len);
        for (flag, field) in
            [(0x100, Some(&mut ticks)), (0x200, Some(&mut len)), (0x400, None), (0x800, None)]
        {
            if self.flags & flag != 0 {
                let number = be32(file.get(..self.end)?, self.at)?;
                self.at += 4;
                if let Some(field) = field {
                    *field = number;
                }
            }
        }
        Some((ticks.into(), len as usize))
    }
}
