//! MP4 files as symphonia may read them: one track, no metadata, and tables that cost a bounded time for each packet.
//!
//! symphonia reads the boxes of all tracks, keeps the metadata, and walks all runs of a time table for each packet. Here
//! the boxes that a transcription does not need become free space, and long time tables two runs. Box sizes do not
//! change, because the tables hold positions in the file. Source: ISO 14496-12; sections are cited where they apply.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use symphonia::core::errors::Error;

use super::source::{Change, with_changes};

/// The file without its other tracks.
pub(super) struct Mp4 {
    pub(super) parts: Vec<Bytes>,
    /// Where playback begins, according to the track's edit list.
    pub(super) start: Option<MediaStart>,
}

/// A time on the track's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MediaStart {
    pub(super) ticks: u64,
    pub(super) ticks_per_s: u32,
}

impl MediaStart {
    pub(super) fn time(self) -> Duration {
        let seconds = self.ticks as f64 / f64::from(self.ticks_per_s.max(1));
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Samples at a rate before this time.
    pub(super) fn samples(self, rate_hz: u32) -> u64 {
        let samples = u128::from(self.ticks) * u128::from(rate_hz) / u128::from(self.ticks_per_s.max(1));
        u64::try_from(samples).unwrap_or(u64::MAX)
    }
}

/// Keeps the first audio track, and only what decoding needs of it.
pub(super) fn keep_audio_track(file: &Bytes) -> Result<Mp4, Error> {
    let mut inspector = Inspector { file, changes: Vec::new(), fragments: 0, unlisted_samples: 0, work: 0 };
    let start = inspector.inspect()?;
    let mut changes = inspector.changes;
    changes.sort_unstable_by_key(|(at, _)| *at);
    Ok(Mp4 { parts: with_changes(file, changes), start })
}

/// More fragments than 4 h of recordings have, at three a second. symphonia keeps the tables of all.
const FRAGMENTS_MAX: usize = 50_000;
/// Most boxes that become free space. Each fragment of a film has one.
const CHANGES_MAX: usize = 100_000;
/// Steps through the tables of all fragments: as much as a fragment of ten minutes takes.
const WORK_MAX: u64 = 2_000_000_000;

/// A box: its header and its contents.
#[derive(Debug, Clone, Copy)]
struct Mp4Box {
    kind: [u8; 4],
    start: usize,
    body_at: usize,
    end: usize,
}

impl Mp4Box {
    const fn body(self) -> Range<usize> {
        self.body_at..self.end
    }
}

/// The boxes in a range of the file, up to the first that does not fit into it (§4.2).
fn boxes(file: &[u8], range: Range<usize>) -> impl Iterator<Item = Mp4Box> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let kind = *file.get(at + 4..range.end)?.first_chunk()?;
        let (body_at, len) = match u32_at(file, at)? {
            // The size follows the type in 64 bits.
            1 => (at + 16, usize::try_from(u64_at(file, at + 8)?).ok()?),
            len => (at + 8, len as usize),
        };
        let start = at;
        at = at.checked_add(len)?;
        (body_at <= at && at <= range.end).then_some(Mp4Box { kind, start, body_at, end: at })
    })
}

fn find(file: &[u8], range: Range<usize>, path: &[&[u8; 4]]) -> Option<Mp4Box> {
    let (first, rest) = path.split_first()?;
    let found = boxes(file, range).find(|child| child.kind == **first)?;
    if rest.is_empty() { Some(found) } else { find(file, found.body(), rest) }
}

struct Inspector<'a> {
    file: &'a [u8],
    changes: Vec<Change>,
    fragments: usize,
    /// Samples of fragments that no table lists.
    unlisted_samples: u64,
    work: u64,
}

impl Inspector<'_> {
    fn inspect(&mut self) -> Result<Option<MediaStart>, Error> {
        let file = self.file;
        let movie = find(file, 0..file.len(), &[b"moov"]).map(|movie| (movie, Track::find(file, movie)));
        let id = movie.as_ref().and_then(|(_, track)| track.as_ref()).map(|track| track.id);
        let mut has_index = false;
        for top in boxes(file, 0..file.len()) {
            match &top.kind {
                b"moov" => match &movie {
                    Some((first, track)) if first.start == top.start => {
                        self.keep_movie(top, track.as_ref())?;
                    }
                    _ => self.free(top)?,
                },
                b"moof" => self.keep_fragment(top, id)?,
                b"sidx" if !has_index => has_index = true,
                b"meta" | b"sidx" => self.free(top)?,
                _ => {}
            }
        }
        Ok(movie.and_then(|(_, track)| track?.start))
    }

    /// Makes a box free space.
    fn free(&mut self, unneeded: Mp4Box) -> Result<(), Error> {
        self.change(unneeded.start + 4, b"free".to_vec())
    }

    fn change(&mut self, at: usize, bytes: Vec<u8>) -> Result<(), Error> {
        self.changes.push((at, bytes));
        if self.changes.len() > CHANGES_MAX { Err(TOO_MUCH) } else { Ok(()) }
    }

    fn keep_movie(&mut self, movie: Mp4Box, track: Option<&Track>) -> Result<(), Error> {
        for child in boxes(self.file, movie.body()) {
            match &child.kind {
                b"trak" if track.is_some_and(|track| track.at == child.start) => self.keep_track(child)?,
                b"trak" | b"udta" => self.free(child)?,
                b"mvex" => self.keep_extends(child, track.map(|track| track.id))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps the defaults of the track's fragments (§8.8.3).
    fn keep_extends(&mut self, extends: Mp4Box, id: Option<u32>) -> Result<(), Error> {
        let mut kept = false;
        for child in boxes(self.file, extends.body()).filter(|child| child.kind == *b"trex") {
            let is_tracks = id.is_some() && u32_at(self.file, child.body_at + 4) == id;
            if kept || !is_tracks {
                self.free(child)?;
            }
            kept |= is_tracks;
        }
        Ok(())
    }

    fn keep_track(&mut self, track: Mp4Box) -> Result<(), Error> {
        let mut level = vec![track];
        for kinds in TRACK_LEVELS {
            let parents = std::mem::take(&mut level);
            for parent in parents {
                level.extend(self.keep_one_of_each(parent, kinds)?);
            }
        }
        let times = find(self.file, track.body(), &[b"mdia", b"minf", b"stbl", b"stts"]);
        times.map_or(Ok(()), |times| self.shorten_times(times))
    }

    /// Keeps the first box of each of these types, and returns the containers among them. Further ones become free space,
    /// because symphonia would take the last.
    fn keep_one_of_each(&mut self, parent: Mp4Box, kinds: &[&[u8; 4]]) -> Result<Vec<Mp4Box>, Error> {
        let mut kept: Vec<Mp4Box> = Vec::new();
        for child in boxes(self.file, parent.body()).filter(|child| kinds.contains(&&child.kind)) {
            let is_further = kept.iter().any(|known| known.kind == child.kind);
            if is_further || child.kind == *b"edts" {
                self.free(child)?;
            } else {
                kept.push(child);
            }
        }
        kept.retain(|child| CONTAINERS.contains(&&child.kind));
        Ok(kept)
    }

    /// Replaces the runs of a time table by two of the same samples and the same length (§8.6.1.2).
    fn shorten_times(&mut self, times: Mp4Box) -> Result<(), Error> {
        let at = times.body_at + 4;
        let count = u32_at(self.file, at).unwrap_or(0);
        let runs = self.file.get(at + 4..times.end).unwrap_or_default();
        if count <= 2 || runs.len() / 8 < count as usize {
            return Ok(());
        }
        let (mut samples, mut ticks) = (0_u64, 0_u64);
        for run in runs.chunks_exact(8).take(count as usize) {
            let (len, delta) = (u32_at(run, 0).unwrap_or(0), u32_at(run, 4).unwrap_or(0));
            samples += u64::from(len);
            ticks = ticks.saturating_add(u64::from(len) * u64::from(delta));
        }
        let samples_u32 = u32::try_from(samples).map_err(|_| TOO_MUCH)?;
        let longer = ticks.checked_rem(samples).unwrap_or(0) as u32;
        let delta = u32::try_from(ticks.checked_div(samples).unwrap_or(0)).map_err(|_| TOO_MUCH)?;
        let table = [2, samples_u32 - longer, delta, longer, delta.saturating_add(1)];
        let table: Vec<u8> = table.iter().flat_map(|number| number.to_be_bytes()).collect();
        self.change(at, table)
    }

    /// Keeps the track's part of a fragment. A fragment without any is left out, because symphonia looks through all of
    /// them for each packet.
    fn keep_fragment(&mut self, fragment: Mp4Box, id: Option<u32>) -> Result<(), Error> {
        let file = self.file;
        let is_tracks = |child: &Mp4Box| {
            let header = find(file, child.body(), &[b"tfhd"]);
            child.kind == *b"traf"
                && id.is_some()
                && header.and_then(|tfhd| u32_at(file, tfhd.body_at + 4)) == id
        };
        let Some(kept) = boxes(file, fragment.body()).find(is_tracks) else { return self.free(fragment) };
        if self.count_samples(kept)? == 0 {
            return self.free(fragment);
        }
        let parts =
            boxes(file, fragment.body()).filter(|child| child.kind == *b"traf" && child.start != kept.start);
        let headers = boxes(file, kept.body()).filter(|child| child.kind == *b"tfhd").skip(1);
        for unneeded in parts.chain(headers) {
            self.free(unneeded)?;
        }
        self.fragments += 1;
        let is_too_much = self.fragments > FRAGMENTS_MAX || self.work > WORK_MAX;
        if is_too_much { Err(TOO_MUCH) } else { Ok(()) }
    }

    /// Counts the samples of a fragment, and the steps that symphonia takes through its tables (§8.8.8).
    fn count_samples(&mut self, fragment: Mp4Box) -> Result<u64, Error> {
        let (mut samples, mut runs) = (0_u64, 0_u64);
        for run in boxes(self.file, fragment.body()).filter(|child| child.kind == *b"trun") {
            let flags = u32_at(self.file, run.body_at).unwrap_or(0);
            let count = u32_at(self.file, run.body_at + 4).map_or(0, u64::from);
            // No table bounds the number. symphonia counts through all of them.
            self.unlisted_samples += if flags & TRUN_TABLES == 0 { count } else { 0 };
            if self.unlisted_samples > self.file.len() as u64 {
                return Err(Error::LimitError("more samples than the file has bytes"));
            }
            samples += count;
            runs += 1;
        }
        // Sums of the table up to each sample, some at a time.
        self.work = self.work.saturating_add(samples.saturating_mul(runs + samples / 8));
        Ok(samples)
    }
}

/// The containers of a track, from the outside to the inside, and what symphonia reads of each.
const TRACK_LEVELS: [&[&[u8; 4]]; 4] = [
    &[b"tkhd", b"edts", b"mdia"],
    &[b"mdhd", b"hdlr", b"minf"],
    &[b"smhd", b"stbl"],
    &[b"stsd", b"stts", b"stsc", b"stsz", b"stco", b"co64"],
];
const CONTAINERS: [&[u8; 4]; 3] = [b"mdia", b"minf", b"stbl"];

/// Flags of a run whose samples each have a duration, a size, flags or an offset.
const TRUN_TABLES: u32 = 0xf00;

const TOO_MUCH: Error = Error::LimitError("the tables are larger than those of any recording");

/// The track that is decoded: the first with a sound handler (§8.4.3).
struct Track {
    /// Position of its box.
    at: usize,
    id: u32,
    start: Option<MediaStart>,
}

impl Track {
    fn find(file: &[u8], movie: Mp4Box) -> Option<Self> {
        let handler = |track: Mp4Box| find(file, track.body(), &[b"mdia", b"hdlr"]);
        let is_sound = |track: &Mp4Box| {
            let kind =
                handler(*track).and_then(|handler| file.get(handler.body_at + 8..handler.body_at + 12));
            track.kind == *b"trak" && kind == Some(b"soun")
        };
        let track = boxes(file, movie.body()).find(is_sound)?;
        let header = find(file, track.body(), &[b"tkhd"])?;
        let id = u32_at(file, header.body_at + 4 + 2 * time_bytes(file, header))?;
        Some(Self { at: track.start, id, start: media_start(file, track) })
    }
}

/// Start of the first edit that plays anything (§8.6.6). Encoders state their delay in it.
fn media_start(file: &[u8], track: Mp4Box) -> Option<MediaStart> {
    let header = find(file, track.body(), &[b"mdia", b"mdhd"])?;
    let ticks_per_s = u32_at(file, header.body_at + 4 + 2 * time_bytes(file, header))?;
    let edits = find(file, track.body(), &[b"edts", b"elst"])?;
    let time_bytes = time_bytes(file, edits);
    let table = file.get(edits.body_at + 8..edits.end)?;
    let mut times = table.chunks_exact(2 * time_bytes + 4).filter_map(|edit| match time_bytes {
        4 => u32_at(edit, 4).map(|time| i64::from(time.cast_signed())),
        _ => u64_at(edit, 8).map(u64::cast_signed),
    });
    // A negative time stands for an edit without media.
    let ticks = times.find_map(|time| u64::try_from(time).ok())?;
    (ticks > 0).then_some(MediaStart { ticks, ticks_per_s })
}

/// Length of the times in a box, according to its version.
fn time_bytes(file: &[u8], full_box: Mp4Box) -> usize {
    if file.get(full_box.body_at) == Some(&1) { 8 } else { 4 }
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    file.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

fn u64_at(file: &[u8], at: usize) -> Option<u64> {
    file.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_box(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 8).to_be_bytes(), &kind[..], body].concat()
    }

    fn kept(file: Vec<u8>) -> Vec<u8> {
        keep_audio_track(&file.into()).unwrap_or_else(|error| panic!("{error}")).parts.concat()
    }

    fn count(file: &[u8], text: &[u8]) -> usize {
        memchr::memmem::find_iter(file, text).count()
    }

    #[test]
    fn only_the_audio_track_and_its_tables_are_kept() {
        let file = include_bytes!("../../../tests/media/video.mp4").to_vec();
        assert_eq!((count(&file, b"trak"), count(&file, b"edts"), count(&file, b"udta")), (2, 2, 1));
        let kept = kept(file.clone());
        // The boxes inside of the other track are still there, but no longer boxes.
        assert_eq!((count(&kept, b"trak"), count(&kept, b"edts"), count(&kept, b"udta")), (1, 1, 0));
        assert_eq!(kept.len(), file.len());
    }

    #[test]
    fn time_table_of_a_million_runs_becomes_two_runs_of_the_same_length() {
        let file = include_bytes!("../../../tests/media/moov_at_end.m4a").to_vec();
        let old =
            find(&file, 0..file.len(), &[b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stts"]).unwrap();
        let mut runs = vec![0; 8 * 1_000_000];
        // One run of 7 samples of 3 ticks, one of 4 samples of 5 ticks.
        runs.extend([0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5]);
        let times = new_box(b"stts", &[&[0; 4][..], &1_000_002_u32.to_be_bytes(), &runs].concat());
        let mut long = file.clone();
        long.splice(old.start..old.end, times.iter().copied());
        for path in [
            &[b"moov"][..],
            &[b"moov", b"trak"],
            &[b"moov", b"trak", b"mdia"],
            &[b"moov", b"trak", b"mdia", b"minf"],
            &[b"moov", b"trak", b"mdia", b"minf", b"stbl"],
        ] {
            let outer = find(&file, 0..file.len(), path).unwrap();
            let len = (outer.end - outer.start + times.len() - (old.end - old.start)) as u32;
            long[outer.start..outer.start + 4].copy_from_slice(&len.to_be_bytes());
        }
        let short = kept(long);
        // 41 ticks are 3 samples of 3 ticks and 8 of 4.
        let expected: Vec<u8> = [2_u32, 3, 3, 8, 4].iter().flat_map(|number| number.to_be_bytes()).collect();
        assert_eq!(short[old.start + 12..old.start + 32], expected);
    }

    #[test]
    fn fragments_of_other_tracks_are_left_out() {
        let file = include_bytes!("../../../tests/media/fragmented.mp4").to_vec();
        let first = boxes(&file, 0..file.len()).find(|top| top.kind == *b"moof").unwrap();
        let mut other = file[first.start..first.end].to_vec();
        let header = position_of(&other, b"tfhd") + 8;
        other[header..header + 4].copy_from_slice(&9_u32.to_be_bytes());
        let kept = kept([&file[..], &other.repeat(1000)].concat());
        assert_eq!(count(&kept, b"moof"), count(&file, b"moof"));
    }

    fn position_of(file: &[u8], text: &[u8]) -> usize {
        memchr::memmem::find(file, text).unwrap()
    }

    #[test]
    fn boxes_without_number_are_refused() {
        let movie = new_box(b"moov", &new_box(b"udta", &[]).repeat(CHANGES_MAX + 1));
        let error = keep_audio_track(&movie.into()).err().unwrap();
        assert!(error.to_string().contains("tables are larger"), "{error}");
    }

    #[test]
    fn fragment_with_costly_tables_is_refused() {
        let file = include_bytes!("../../../tests/media/fragmented.mp4").to_vec();
        let run = new_box(b"trun", &[[0; 4], 1_u32.to_be_bytes()].concat());
        let header = new_box(b"tfhd", &[[0; 4], 1_u32.to_be_bytes()].concat());
        let part = new_box(b"traf", &[header, run.repeat(60_000)].concat());
        let fragment = new_box(b"moof", &[new_box(b"mfhd", &[0; 8]), part].concat());
        let error = keep_audio_track(&[&file[..], &fragment].concat().into()).err().unwrap();
        assert!(error.to_string().contains("tables are larger"), "{error}");
    }

    #[test]
    fn start_is_that_of_the_first_edit_with_media() {
        let file: &[u8] = include_bytes!("../../../tests/media/moov_at_start.mp4");
        let start = keep_audio_track(&Bytes::from_static(file)).ok().and_then(|mp4| mp4.start).unwrap();
        assert_eq!(start, MediaStart { ticks: 1024, ticks_per_s: 44_100 });
        assert_eq!((start.samples(44_100), start.samples(16_000)), (1024, 371));
    }
}
