//! An audio track of a movie (ISO 14496-12 §8.3 and §8.4).

use bytes::Bytes;
use symphonia::core::errors::Error;

use super::boxes::{Mp4Box, find};
use super::edits::{Edit, OPEN, edits};
use super::sample_entry::{SampleEntry, sample_entries};
use super::table::{Tables, versioned_number};
use crate::media::decode::fields::be32;
use crate::media::decode::packet::{Nanos, Stream, nanos};

/// A track with sound.
pub(super) struct AudioTrack {
    pub(super) id: u32,
    /// Players choose it by themselves.
    pub(super) is_enabled: bool,
    pub(super) ticks_per_s: u32,
    pub(super) entries: Vec<SampleEntry>,
    pub(super) tables: Option<Tables>,
    pub(super) edits: Vec<Edit>,
    /// The first, without end: fragments follow it.
    pub(super) first_edit: Edit,
    pub(super) duration: Option<Nanos>,
}

impl AudioTrack {
    /// Reads a track; `None` if it has no sound handler or no description.
    pub(super) fn parse(file: &Bytes, track: Mp4Box, movie_ticks_per_s: u32) -> Result<Option<Self>, Error> {
        let media = find(file, track.body(), &[b"mdia"]);
        let handler = media.and_then(|media| find(file, media.body(), &[b"hdlr"]));
        let is_sound = handler
            .is_some_and(|handler| file.get(handler.body_at + 8..handler.body_at + 12) == Some(b"soun"));
        let Some(media) = media.filter(|_| is_sound) else { return Ok(None) };
        let Some(ticks_per_s) = ticks_per_s(file, media, &[b"mdhd"]) else { return Ok(None) };
        let edits = edits(file, track, movie_ticks_per_s, ticks_per_s)?;
        let mut parsed = Self::describe(file, track, media).map(|(id, is_enabled, entries)| Self {
            id,
            is_enabled,
            ticks_per_s,
            entries,
            tables: None,
            first_edit: Edit { end: OPEN, ..edits[0] },
            edits,
            duration: None,
        });
        if let Some(track) = &mut parsed {
            let table = find(file, media.body(), &[b"minf", b"stbl"]);
            track.tables = table.and_then(|table| Tables::find(file, table));
            track.duration = track.length(file, media);
            track.leave_out_pre_skip();
        }
        Ok(parsed)
    }

    fn describe(file: &[u8], track: Mp4Box, media: Mp4Box) -> Option<(u32, bool, Vec<SampleEntry>)> {
        let header = find(file, track.body(), &[b"tkhd"])?;
        let (version, fields) = header.versioned(file)?;
        let id = be32(fields, if version == 1 { 16 } else { 8 })?;
        let is_enabled = be32(file, header.body_at)? & 1 == 1;
        let description = find(file, media.body(), &[b"minf", b"stbl", b"stsd"])?;
        let entries = sample_entries(file, description);
        (!entries.is_empty()).then_some((id, is_enabled, entries))
    }

    /// The end of the last edit, or the length of the media.
    fn length(&self, file: &[u8], media: Mp4Box) -> Option<Nanos> {
        let last = self.edits.last()?;
        if last.end != OPEN {
            return Some(
                last.at.saturating_add(nanos(last.end.saturating_sub(last.start), self.ticks_per_s)),
            );
        }
        let (version, fields) = find(file, media.body(), &[b"mdhd"])?.versioned(file)?;
        let ticks = versioned_number(fields, if version == 1 { 20 } else { 12 }, version)?;
        let ticks = i64::try_from(ticks).ok().filter(|ticks| *ticks > 0 && *ticks < i64::from(u32::MAX))?;
        Some(last.at.saturating_add(nanos(ticks.saturating_sub(last.start), self.ticks_per_s)))
    }

    /// Opus states its delay twice: in its header and in an edit ("Opus in ISOBMFF" §4.4).
    fn leave_out_pre_skip(&mut self) {
        if self.first_edit.start == 0 {
            return;
        }
        for entry in &mut self.entries {
            if let Some(head) =
                entry.stream.params.extra_data.as_deref_mut().filter(|head| head.starts_with(b"OpusHead"))
            {
                head[10..12].fill(0);
            }
        }
    }

    pub(super) fn first_stream(&self) -> &Stream {
        &self.entries[0].stream
    }

    /// Samples that a decoder needs before it is right.
    pub(super) fn pre_roll(&self, entry: usize) -> usize {
        self.entries.get(entry).map_or(0, |entry| entry.pre_roll as usize)
    }
}

/// Ticks of a second, according to a header.
pub(super) fn ticks_per_s(file: &[u8], parent: Mp4Box, path: &[&[u8; 4]]) -> Option<u32> {
    let (version, fields) = find(file, parent.body(), path)?.versioned(file)?;
    be32(fields, if version == 1 { 16 } else { 8 }).filter(|ticks| *ticks > 0)
}
