//! WebM and Matroska files, and several of them in a row, as recorders that restart write them (RFC 9559).
//!
//! Clusters and blocks are read as they come: their lengths may be unknown, and a file may be cut off anywhere.

mod block;
mod element;
mod encoding;
mod track;

use std::collections::VecDeque;

use bytes::Bytes;
use symphonia::core::errors::Error;

use self::block::{Block, frames};
use self::element::*;
use self::track::{AudioTrack, audio_tracks};
use crate::media::decode::codec::choose_track;
use crate::media::decode::packet::{Demuxer, Event, Nanos, Packet, SECOND};

/// Latest first block that is late and not part of a stream that was recorded from its middle.
const LATE_MAX: Nanos = 60 * SECOND;

/// The elements of a file.
#[derive(Default)]
pub(in crate::media::decode) struct Webm {
    file: Bytes,
    at: usize,
    /// Nanoseconds of a tick.
    scale: i64,
    duration: Option<Nanos>,
    track: Option<AudioTrack>,
    /// The number of the chosen track among those with audio.
    choice: (usize, usize),
    cluster_ticks: i64,
    /// Time that counts as the start.
    origin: Option<Nanos>,
    events: VecDeque<Event>,
    /// Where elements whose length is known end.
    promised_end: usize,
    is_ended: bool,
}

impl Webm {
    pub(in crate::media::decode) fn new(file: Bytes) -> Self {
        Self { file, scale: 1_000_000, ..Self::default() }
    }

    /// Reads the element at the position.
    fn read_element(&mut self) -> Result<(), Error> {
        let Some(element) = Element::read(&self.file, self.at).filter(|element| is_known(element.id)) else {
            return self.find_cluster();
        };
        match element.id {
            SEGMENT | CLUSTER => {
                // The rest of a file that was cut off is read, and then reported.
                self.promised_end = self.promised_end.max(element.end.unwrap_or(0));
                self.at = element.body_at;
                if element.id == CLUSTER && self.track.is_none() {
                    self.find_tracks(element)?;
                }
                return Ok(());
            }
            EBML => self.restart(),
            _ => {}
        }
        let end = element.end.unwrap_or(usize::MAX);
        if end > self.file.len() {
            self.at = self.file.len();
            self.promised_end = usize::MAX;
            return Ok(());
        }
        self.at = end;
        self.take(element);
        Ok(())
    }

    fn take(&mut self, element: Element) {
        match element.id {
            INFO => self.read_info(element),
            TRACKS if self.track.is_none() => self.choose_track(element),
            TIMESTAMP => self.cluster_ticks = element.number(&self.file).min(1 << 52) as i64,
            SIMPLE_BLOCK => self.take_block(element, 0),
            BLOCK_GROUP => {
                let padding = element.child(&self.file, DISCARD_PADDING);
                let padding = padding.map_or(0, |padding| signed(padding.bytes(&self.file)));
                if let Some(block) = element.child(&self.file, BLOCK) {
                    self.take_block(block, padding);
                }
            }
            _ => {}
        }
    }

    /// Another file begins.
    fn restart(&mut self) {
        (self.track, self.origin, self.scale, self.duration) = (None, None, 1_000_000, None);
        self.cluster_ticks = 0;
    }

    fn read_info(&mut self, info: Element) {
        let scale = info.child(&self.file, TIMESTAMP_SCALE).map(|scale| scale.number(&self.file));
        self.scale = scale.filter(|scale| (1..=SECOND as u64).contains(scale)).unwrap_or(1_000_000) as i64;
        let duration =
            info.child(&self.file, DURATION).map(|duration| duration.float(&self.file) * self.scale as f64);
        self.duration = duration.filter(|duration| *duration > 0.0).map(|duration| duration as Nanos);
    }

    fn choose_track(&mut self, tracks: Element) {
        let mut found = audio_tracks(&self.file, tracks);
        let candidates = found.iter().map(|track| (&track.stream, track.is_default));
        let Some(chosen) = choose_track(candidates) else { return };
        self.choice = (chosen + 1, found.len());
        let mut track = found.swap_remove(chosen);
        let mut stream = std::mem::take(&mut track.stream);
        stream.duration = self.duration;
        self.track = Some(track);
        self.events.push_back(Event::Stream(stream));
    }

    /// Finds tracks that stand behind the clusters, if the lengths of these are known.
    fn find_tracks(&mut self, first_cluster: Element) -> Result<(), Error> {
        let mut at = first_cluster.end;
        while let Some(element) = at.and_then(|at| Element::read(&self.file, at)) {
            if element.id == TRACKS {
                self.choose_track(element);
                break;
            }
            at = element.end;
        }
        if self.track.is_none() { Err(Error::DecodeError("the headers name no tracks")) } else { Ok(()) }
    }

    fn take_block(&mut self, element: Element, padding: i64) {
        let Some(block) = Block::parse(&self.file.slice(element.body(&self.file))) else {
            return self.events.push_back(Event::Damage("a block is damaged"));
        };
        let time = self.cluster_ticks.saturating_add(block.ticks.into()).saturating_mul(self.scale);
        let origin = *self.origin.get_or_insert(if time > LATE_MAX { time } else { 0 });
        let Some(track) = self.track.as_ref().filter(|track| track.number == block.track) else {
            return;
        };
        let Some(mut packets) = frames(&block) else {
            return self.events.push_back(Event::Damage("a block is damaged"));
        };
        let at = time.saturating_sub(origin).saturating_sub(track.delay);
        let last = packets.len().saturating_sub(1);
        for (index, data) in packets.drain(..).enumerate() {
            let Some(data) = track.encoding.decode(data) else {
                self.events.push_back(Event::Damage("a compressed packet is damaged"));
                continue;
            };
            self.events.push_back(Event::Packet(Packet {
                data,
                at: (index == 0).then_some(at),
                trim_start: if index == 0 { padding.saturating_neg().max(0) } else { 0 },
                trim_end: if index == last { padding.max(0) } else { 0 },
                ..Packet::default()
            }));
        }
    }

    /// Skips damage up to the next cluster or file.
    fn find_cluster(&mut self) -> Result<(), Error> {
        let rest = &self.file[self.at..];
        let is_padding = rest.iter().all(|byte| *byte == 0);
        if rest.is_empty() || is_padding {
            self.at = self.file.len();
            return Ok(());
        }
        let ids = [CLUSTER, EBML].map(u32::to_be_bytes);
        let mut candidates = memchr::memchr2_iter(ids[0][0], ids[1][0], rest).filter(|at| *at > 0);
        let found = candidates.find(|at| ids.iter().any(|id| rest[*at..].starts_with(id)));
        self.at = found.map_or(self.file.len(), |at| self.at + at);
        self.events.push_back(Event::Damage("there are bytes that are no element"));
        Ok(())
    }

    fn finish(&mut self) -> Option<Event> {
        let is_cut_off = self.promised_end > self.file.len() && !std::mem::replace(&mut self.is_ended, true);
        is_cut_off.then_some(Event::Damage("the end is missing"))
    }
}

/// Reads a signed number of up to eight bytes.
fn signed(bytes: &[u8]) -> i64 {
    let is_negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    bytes.iter().take(8).fold(-i64::from(is_negative), |number, byte| number << 8 | i64::from(*byte))
}

impl Demuxer for Webm {
    fn next(&mut self) -> Result<Option<Event>, Error> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        if self.at >= self.file.len() {
            return Ok(self.finish());
        }
        self.read_element()?;
        Ok(Some(self.events.pop_front().unwrap_or(Event::Other)))
    }

    fn track(&self) -> Option<(usize, usize)> {
        (self.choice.1 > 1).then_some(self.choice)
    }
}
