//! Native FLAC: symphonia finds the frames, of one stream after another.

use bytes::Bytes;
use symphonia::core::codecs::CodecParameters;
use symphonia::core::errors::Error;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::default::formats::FlacReader;

use crate::media::decode::guard::flac::without_metadata;
use crate::media::decode::packet::{Demuxer, Event, Packet, Stream, nanos};
use crate::media::decode::source::{CancelFlag, Source};

/// The streams of a file.
pub(in crate::media::decode) struct Flac {
    file: Bytes,
    cancel: CancelFlag,
    reader: Option<FlacReader<'static>>,
    /// Position of the next stream.
    next: usize,
    is_first: bool,
    rate_hz: u32,
    /// Number of the stream's first sample, and of the next: frames count them.
    first_sample: Option<i64>,
    next_sample: i64,
    /// A frame behind missing ones.
    waiting: Option<Packet>,
}

impl Flac {
    pub(in crate::media::decode) const fn new(file: Bytes, cancel: CancelFlag) -> Self {
        Self {
            file,
            cancel,
            reader: None,
            next: 0,
            is_first: true,
            rate_hz: 0,
            first_sample: None,
            next_sample: 0,
            waiting: None,
        }
    }

    fn open_stream(&mut self) -> Result<Event, Error> {
        let found = without_metadata(&self.file, self.next)?;
        self.next = found.next;
        let source = Source::new(vec![found.head, self.file.slice(found.audio)], self.cancel.clone());
        let stream = MediaSourceStream::new(Box::new(source), MediaSourceStreamOptions::default());
        let reader = FlacReader::try_new(stream, FormatOptions::default())?;
        let track = reader.first_track(TrackType::Audio);
        let params = track.and_then(|track| match &track.codec_params {
            Some(CodecParameters::Audio(params)) => Some(params.clone()),
            _ => None,
        });
        let params = params.ok_or(Error::DecodeError("the stream information is missing"))?;
        let rate_hz = params.sample_rate.unwrap_or(0);
        let samples = track.and_then(|track| track.num_frames).filter(|samples| *samples > 0 && rate_hz > 0);
        let duration = samples.map(|samples| nanos(samples.min(1 << 40) as i64, rate_hz));
        self.reader = Some(reader);
        (self.rate_hz, self.first_sample) = (rate_hz, None);
        let is_duration_certain = std::mem::replace(&mut self.is_first, false);
        Ok(Event::Stream(Stream { params, duration, is_duration_certain, ..Stream::default() }))
    }

    /// A frame at its time, behind the start of the stream.
    fn take(&mut self, packet: symphonia::core::packet::Packet) -> Event {
        let (start, samples) = (packet.pts.get(), packet.dur.get());
        let first = *self.first_sample.get_or_insert(start);
        let is_gap = first != start && start > self.next_sample;
        self.next_sample = start.saturating_add(samples as i64);
        let packet = Packet {
            samples,
            at: Some(nanos(start.saturating_sub(first), self.rate_hz)),
            data: Vec::from(packet.data).into(),
            ..Packet::default()
        };
        if is_gap {
            self.waiting = Some(packet);
            return Event::Damage("frames are missing");
        }
        Event::Packet(packet)
    }
}

impl Demuxer for Flac {
    fn next(&mut self) -> Result<Option<Event>, Error> {
        if let Some(packet) = self.waiting.take() {
            return Ok(Some(Event::Packet(packet)));
        }
        let Some(reader) = &mut self.reader else {
            return if self.next >= self.file.len() { Ok(None) } else { self.open_stream().map(Some) };
        };
        match reader.next_packet() {
            Ok(Some(packet)) => Ok(Some(self.take(packet))),
            Ok(None) => {
                self.reader = None;
                Ok(Some(Event::Other))
            }
            Err(error) if self.next >= self.file.len() => Err(error),
            Err(_) => {
                self.reader = None;
                Ok(Some(Event::Damage("a stream ends in a frame")))
            }
        }
    }
}
