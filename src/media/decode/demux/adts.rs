//! AAC with ADTS headers (ISO 13818-7 §6.2).

use bytes::Bytes;
use symphonia::core::errors::Error;

use super::aac_config::AacConfig;
use super::frames::{Frames, Next};
use crate::audio::frame_headers::{Header, adts_header};
use crate::media::decode::packet::{Demuxer, Event, Packet, Stream, nanos};

/// The frames of a file.
pub(in crate::media::decode) struct Adts {
    frames: Frames,
    key: Option<u32>,
    /// A packet whose stream was announced before it.
    waiting: Option<Packet>,
}

impl Adts {
    pub(in crate::media::decode) const fn new(file: Bytes) -> Self {
        Self { frames: Frames::new(file, adts_header), key: None, waiting: None }
    }

    fn take(&mut self, header: &Header, frame: &Bytes) -> Event {
        // A checksum follows the header if a bit says so.
        let header_len = if frame[1] & 1 == 1 { 7 } else { 9 };
        let data = frame.slice(header_len.min(frame.len())..);
        let packet = Packet { data, samples: header.samples.into(), ..Packet::default() };
        if self.key == Some(header.key) {
            return Event::Packet(packet);
        }
        let stream = self.stream(header);
        self.key = Some(header.key);
        self.waiting = Some(packet);
        Event::Stream(stream)
    }

    fn stream(&self, header: &Header) -> Stream {
        let config = AacConfig {
            object_type: (header.key >> 14 & 3) as u8 + 1,
            rate_hz: header.rate_hz,
            channel_configuration: header.channels,
            has_short_frames: false,
        };
        let frames = self.frames.file.len() / header.len.max(1);
        let is_first = self.key.is_none();
        let duration = is_first.then(|| nanos(frames as i64 * 1024, header.rate_hz));
        Stream { duration, is_continued: !is_first, ..config.stream() }
    }
}

impl Demuxer for Adts {
    fn next(&mut self) -> Result<Option<Event>, Error> {
        if let Some(packet) = self.waiting.take() {
            return Ok(Some(Event::Packet(packet)));
        }
        Ok(match self.frames.next() {
            Next::Frame(header, frame) => Some(self.take(&header, &frame)),
            Next::Event(event) => Some(event),
            Next::End => None,
        })
    }
}
