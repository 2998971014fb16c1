//! MP4, M4A and QuickTime files (ISO 14496-12): the chosen track's samples, at the times of its edit list.
//!
//! Players show what the edit list names, when it says so: what a person cut away is not heard. Fragments follow the tables of the
//! movie; of their edit list only the start counts, as in ffmpeg.

mod boxes;
mod edits;
mod fragments;
mod sample_entry;
mod table;
mod track;

use std::collections::VecDeque;

use bytes::Bytes;
use symphonia::core::errors::Error;

use self::boxes::boxes;
use self::edits::{Edit, OPEN};
use self::fragments::Fragments;
use self::table::{Cursor, Sample};
use self::track::AudioTrack;
use crate::media::decode::codec::choose_track;
use crate::media::decode::packet::{Demuxer, Event, Nanos, Packet, SECOND, Stream, nanos};

/// Latest first fragment that is late and not part of a stream that was recorded from its middle.
const LATE_MAX: Nanos = 60 * SECOND;
/// Most tracks.
const TRACKS_MAX: usize = 64;

/// The chosen track of a file, and files that follow it.
pub(in crate::media::decode) struct Mp4 {
    /// From the start of this file.
    file: Bytes,
    track: AudioTrack,
    choice: (usize, usize),
    cursor: Option<Cursor>,
    /// Samples that the cursor has passed.
    queue: VecDeque<Sample>,
    edits: std::vec::IntoIter<Edit>,
    edit: Option<Edit>,
    fragments: Fragments,
    /// Time on the track's clock that counts as the start of the fragments.
    fragment_origin: Option<i64>,
    /// Sample entry of the last packet.
    entry: Option<usize>,
    /// A packet whose stream was announced before it.
    waiting: Option<Packet>,
    is_after_jump: bool,
    /// The end of the file was found missing.
    is_cut_off: bool,
}

impl Mp4 {
    /// Reads the movie. `None` if it has no audio track.
    pub(in crate::media::decode) fn open(file: Bytes) -> Result<Option<Self>, Error> {
        let movie = boxes(&file, 0..file.len()).find(|top| top.kind == *b"moov");
        let movie =
            movie.ok_or(Error::DecodeError("the index is missing, so the recording was not finished"))?;
        let ticks_per_s = track::ticks_per_s(&file, movie, &[b"mvhd"]).unwrap_or(1000);
        let tracks = boxes(&file, movie.body()).filter(|child| child.kind == *b"trak").take(TRACKS_MAX);
        let mut tracks = tracks
            .filter_map(|track| AudioTrack::parse(&file, track, ticks_per_s).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        let candidates = tracks.iter().map(|track| (track.first_stream(), track.is_enabled));
        let Some(chosen) = choose_track(candidates) else { return Ok(None) };
        let choice = (chosen + 1, tracks.len());
        let mut track = tracks.swap_remove(chosen);
        let defaults = fragments::Defaults::find(&file, movie, track.id);
        let layout = track.entries.first().and_then(|entry| entry.layout);
        let tables = track.tables.take().filter(|tables| !tables.is_empty());
        Ok(Some(Self {
            cursor: tables.map(|tables| Cursor::new(tables, layout)),
            edits: std::mem::take(&mut track.edits).into_iter(),
            queue: VecDeque::new(),
            edit: None,
            fragments: Fragments::new(track.id, defaults, movie.end),
            file,
            track,
            choice,
            fragment_origin: None,
            entry: None,
            waiting: None,
            is_after_jump: false,
            is_cut_off: false,
        }))
    }

    /// The next sample of the movie's tables that the edits name.
    fn next_of_table(&mut self) -> Result<Option<(Sample, Edit)>, Error> {
        loop {
            let Some(edit) = self.edit else {
                let Some(edit) = self.edits.next().filter(|_| self.cursor.is_some()) else { return Ok(None) };
                self.edit = Some(edit);
                self.seek(edit.start)?;
                continue;
            };
            match self.next_sample()? {
                Some(sample) if sample.time < edit.end => return Ok(Some((sample, edit))),
                Some(sample) => self.queue.push_front(sample),
                None => {}
            }
            self.edit = None;
        }
    }

    fn next_sample(&mut self) -> Result<Option<Sample>, Error> {
        match (self.queue.pop_front(), &mut self.cursor) {
            (None, Some(cursor)) => cursor.next(),
            (sample, _) => Ok(sample),
        }
    }

    /// Moves to the sample that contains this time, and some before it that its decoder needs.
    fn seek(&mut self, start: i64) -> Result<(), Error> {
        let pre_roll = self.track.pre_roll(self.entry.unwrap_or(0));
        let position = self.queue.front().map(|sample| sample.time);
        if let Some(cursor) = self.cursor.as_mut().filter(|cursor| position.unwrap_or(cursor.time()) > start)
        {
            cursor.rewind();
            self.queue.clear();
            self.is_after_jump = true;
        }
        let mut recent = VecDeque::new();
        while let Some(sample) = self.next_sample()? {
            recent.push_back(sample);
            if sample.time.saturating_add(sample.ticks) > start {
                break;
            }
            if recent.len() > pre_roll {
                recent.pop_front();
                self.is_after_jump = true;
            }
        }
        recent.append(&mut self.queue);
        self.queue = recent;
        Ok(())
    }

    /// The next sample of the fragments.
    fn next_of_fragments(&mut self) -> Result<Option<(Sample, Edit)>, Error> {
        loop {
            if let Some(sample) = self.fragments.next_sample(&self.file) {
                let edit = self.track.first_edit;
                let late = sample.time.saturating_sub(edit.start);
                let is_stream = nanos(late, self.track.ticks_per_s) > LATE_MAX;
                let origin = *self.fragment_origin.get_or_insert(if is_stream { late } else { 0 });
                let sample = Sample { time: sample.time.saturating_sub(origin), ..sample };
                return Ok(Some((sample, edit)));
            }
            if self.fragments.read_box(&self.file).is_none() {
                return Ok(None);
            }
        }
    }

    fn take(&mut self, sample: Sample, edit: Edit) -> Event {
        let end = usize::try_from(sample.offset).ok().and_then(|start| start.checked_add(sample.len));
        let data = end.and_then(|end| self.file.get(end - sample.len..end));
        let Some(data) = data.map(|data| self.file.slice_ref(data)) else { return self.cut_off() };
        let time = |ticks: i64| nanos(ticks, self.track.ticks_per_s);
        let end_ticks = sample.time.saturating_add(sample.ticks);
        let packet = Packet {
            data,
            at: Some(edit.at.saturating_add(time(sample.time.saturating_sub(edit.start)))),
            samples: sample.samples,
            trim_start: time(edit.start.saturating_sub(sample.time).clamp(0, sample.ticks.max(0))),
            trim_end: if edit.end == OPEN { 0 } else { time(end_ticks.saturating_sub(edit.end).max(0)) },
            is_after_jump: std::mem::take(&mut self.is_after_jump),
        };
        if self.entry == Some(sample.entry) || self.track.entries.get(sample.entry).is_none() {
            return Event::Packet(packet);
        }
        let is_continued = self.entry.replace(sample.entry).is_some();
        self.waiting = Some(packet);
        Event::Stream(Stream { is_continued, ..self.stream(sample.entry) })
    }

    fn stream(&mut self, entry: usize) -> Stream {
        let stream = std::mem::take(&mut self.track.entries[entry].stream);
        Stream { duration: self.track.duration, ..stream }
    }

    /// A sample lies behind the end of the file, as then the others of its table do.
    fn cut_off(&mut self) -> Event {
        self.cursor = None;
        self.queue.clear();
        self.fragments.skip_runs();
        if std::mem::replace(&mut self.is_cut_off, true) {
            return Event::Other;
        }
        Event::Damage("the end is missing")
    }

    /// Opens the file that follows this one.
    fn next_file(&mut self) -> Result<Option<Event>, Error> {
        let at = self.fragments.position();
        let is_file = self.file.get(at + 4..at + 8) == Some(b"ftyp");
        let rest = is_file.then(|| self.file.slice(at..));
        let Some(next) = rest.map(Self::open).transpose()?.flatten() else { return Ok(None) };
        *self = Self { choice: self.choice, ..next };
        Ok(Some(Event::Other))
    }
}

impl Demuxer for Mp4 {
    fn next(&mut self) -> Result<Option<Event>, Error> {
        if let Some(packet) = self.waiting.take() {
            return Ok(Some(Event::Packet(packet)));
        }
        let next = match self.next_of_table()? {
            Some(next) => Some(next),
            None => self.next_of_fragments()?,
        };
        match next {
            Some((sample, edit)) => Ok(Some(self.take(sample, edit))),
            None if self.entry.is_none() && !self.track.entries.is_empty() => {
                // A file without samples has a codec.
                self.entry = Some(0);
                let stream = self.stream(0);
                Ok(Some(Event::Stream(stream)))
            }
            None if self.fragments.is_cut_off && !self.is_cut_off => Ok(Some(self.cut_off())),
            None => self.next_file(),
        }
    }

    fn track(&self) -> Option<(usize, usize)> {
        (self.choice.1 > 1).then_some(self.choice)
    }
}
