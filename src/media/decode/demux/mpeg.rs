//! MPEG audio: mp3, and its older layers (ISO 11172-3 §2.4, 13818-3 §2.4).
//!
//! The tag of an encoder in the first frame (Xing, Info) counts frames, but often wrongly: streams are joined, cut and written
//! without a second pass. So all frames are heard. The count only tells where the padding is that a LAME tag states.

use bytes::Bytes;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_MP1, CODEC_ID_MP2, CODEC_ID_MP3};
use symphonia::core::errors::Error;

use super::frames::{Frames, Next};
use crate::audio::frame_headers::{Header, mpeg_header, mpeg_layer};
use crate::media::decode::fields::be32;
use crate::media::decode::packet::{Demuxer, Event, Nanos, Packet, Stream, nanos};

/// Samples by which a decoder is late, in addition to the encoder.
const DECODER_DELAY: i64 = 529;
/// Most frames with padding of the encoder.
const PADDED_FRAMES_MAX: u64 = 4;

/// The frames of a file.
pub(in crate::media::decode) struct MpegAudio {
    frames: Frames,
    tag: Tag,
    /// Frames so far.
    count: u64,
    /// Format of the last frame: rate and channels.
    format: Option<(u32, u32, u8)>,
    /// The first frame, if a stream was announced before it.
    waiting: Option<Packet>,
}

/// The tag in the first frame, in place of audio.
#[derive(Default)]
struct Tag {
    frames: Option<u64>,
    /// Samples before and behind the audio.
    delay: i64,
    padding: i64,
}

impl MpegAudio {
    pub(in crate::media::decode) fn new(file: Bytes) -> Self {
        Self {
            frames: Frames::new(file, mpeg_header),
            tag: Tag::default(),
            count: 0,
            format: None,
            waiting: None,
        }
    }

    fn take(&mut self, header: Header, frame: Bytes) -> Event {
        if self.format.is_none()
            && let Some(tag) = Tag::parse(&header, &frame)
        {
            self.tag = tag;
            let stream = self.stream(&header);
            self.format = Some(format(&header));
            return Event::Stream(stream);
        }
        let packet = self.packet(&header, frame);
        self.count += 1;
        if self.format == Some(format(&header)) {
            return Event::Packet(packet);
        }
        let stream = self.stream(&header);
        self.format = Some(format(&header));
        self.waiting = Some(packet);
        Event::Stream(stream)
    }

    fn packet(&self, header: &Header, data: Bytes) -> Packet {
        let samples = i64::from(header.samples);
        let time = |samples: i64| nanos(samples.max(0), header.rate_hz);
        let first = self.count as i64 * samples;
        Packet {
            data,
            samples: header.samples.into(),
            trim_start: time((self.tag.delay - first).min(samples)),
            trim_end: time(self.padding_in(header)),
            ..Packet::default()
        }
    }

    /// Samples of this frame that are the encoder's padding: only where the stream ends with the frames that its tag counts.
    fn padding_in(&self, header: &Header) -> i64 {
        let left = self.tag.frames.and_then(|frames| frames.checked_sub(self.count));
        let Some(left) = left.filter(|left| (1..=PADDED_FRAMES_MAX).contains(left)) else { return 0 };
        let samples = i64::from(header.samples);
        let padding = (self.tag.padding - (left as i64 - 1) * samples).min(samples);
        if padding > 0 && self.frames_ahead() + 1 == left { padding } else { 0 }
    }

    /// Frames of this stream behind the last, up to a few.
    fn frames_ahead(&self) -> u64 {
        let (mut at, mut count) = (self.frames.at, 0);
        while let Some(header) =
            self.frames.header_at(at).filter(|header| Some(header.key) == self.frames.key())
        {
            let frame = self.frames.file.get(at..at + header.len);
            if count > PADDED_FRAMES_MAX || frame.is_none_or(|frame| Tag::parse(&header, frame).is_some()) {
                break;
            }
            (at, count) = (at + header.len, count + 1);
        }
        count
    }

    fn stream(&self, header: &Header) -> Stream {
        let codec = match mpeg_layer(header.key) {
            1 => CODEC_ID_MP1,
            2 => CODEC_ID_MP2,
            _ => CODEC_ID_MP3,
        };
        Stream {
            duration: self.duration(header),
            is_duration_certain: self.tag.frames.is_some(),
            is_continued: self.format.is_some(),
            ..Stream::of(codec, header.rate_hz, header.channels.into(), &[])
        }
    }

    /// Length by the tag, or as if all frames were as long as the first.
    fn duration(&self, header: &Header) -> Option<Nanos> {
        let frames = self.tag.frames.unwrap_or_else(|| (self.frames.file.len() / header.len.max(1)) as u64);
        let samples = i64::try_from(frames).ok()?.checked_mul(header.samples.into())?;
        let samples = samples - self.tag.delay - self.tag.padding;
        (samples > 0 && self.format.is_none()).then(|| nanos(samples, header.rate_hz))
    }
}

impl Demuxer for MpegAudio {
    fn next(&mut self) -> Result<Option<Event>, Error> {
        if let Some(packet) = self.waiting.take() {
            return Ok(Some(Event::Packet(packet)));
        }
        Ok(match self.frames.next() {
            Next::Frame(header, frame) => Some(self.take(header, frame)),
            Next::Event(event) => Some(event),
            Next::End => None,
        })
    }
}

const fn format(header: &Header) -> (u32, u32, u8) {
    (header.key, header.rate_hz, header.channels)
}

impl Tag {
    /// Reads the tag of a frame that has one instead of audio.
    fn parse(header: &Header, frame: &[u8]) -> Option<Self> {
        let is_version_1 = header.key >> 19 & 3 == 3;
        let side_info = match (is_version_1, header.channels) {
            (true, 1) | (false, 2) => 17,
            (true, _) => 32,
            (false, _) => 9,
        };
        let tag = frame.get(4 + side_info..)?;
        if tag.starts_with(b"Xing") || tag.starts_with(b"Info") {
            return Some(Self::parse_xing(tag));
        }
        let is_vbri = frame.get(36..40) == Some(b"VBRI");
        is_vbri.then(|| Self { frames: be32(frame, 50).map(u64::from), ..Self::default() })
    }

    /// Reads the fields that the flags announce: frames, bytes, table and quality. The encoder's follow.
    fn parse_xing(tag: &[u8]) -> Self {
        let flags = be32(tag, 4).unwrap_or(0);
        let lens = [4, 4, 100, 4];
        let encoder_at: usize =
            8 + (0..4).filter(|bit| flags >> bit & 1 == 1).map(|bit| lens[bit]).sum::<usize>();
        let frames = (flags & 1 == 1).then(|| be32(tag, 8).map(u64::from)).flatten();
        let mut parsed = Self { frames, ..Self::default() };
        let encoder = tag.get(encoder_at..).unwrap_or_default();
        let states_delay = [b"LAME", b"Lavf", b"Lavc"].iter().any(|name| encoder.starts_with(*name));
        if states_delay && let Some(delays) = be32(encoder, 20).map(|delays| i64::from(delays & 0xff_ffff)) {
            parsed.delay = (delays >> 12) + DECODER_DELAY;
            parsed.padding = ((delays & 0xfff) - DECODER_DELAY).max(0);
        }
        parsed
    }
}
