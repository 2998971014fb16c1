//! MPEG audio: mp3, and its older layers (ISO 11172-3 §2.4, 13818-3 §2.4).
//!
//! The tag of an encoder in the first frame (Xing, Info) counts frames, but often wrongly: streams are joined, cut and written
//! without a second pass. So all frames are heard. The count only tells where the padding is that a LAME tag states.

use bytes::Bytes;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_MP1, CODEC_ID_MP2, CODEC_ID_MP3};
use symphonia::core::errors::Error;

use super::frames::{Frames, Header, Next};
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
            frames: Frames::new(file, parse_header),
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
        let codec = match layer(header.key) {
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

/// Layer by the bits of a header.
const fn layer(header: u32) -> u32 {
    4 - (header >> 17 & 3)
}

/// Bit rates in kbit/s, by their number in the header: of MPEG-1 layers I to III, of MPEG-2 layer I, and of its others.
const BIT_RATES: [[u16; 15]; 5] = [
    [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];
const SAMPLE_RATES_HZ: [u32; 3] = [44_100, 48_000, 32_000];

/// Version, layer and sample rate.
const KEY_BITS: u32 = 0xfffe_0c00;

/// Parses a header; `None` for a free bit rate, which states no length.
pub(in crate::media::decode) fn parse_header(bytes: &[u8]) -> Option<Header> {
    let header = be32(bytes, 0).filter(|header| header >> 21 == 0x7ff)?;
    // 0 is version 2.5, 2 is version 2, 3 is version 1.
    let (version, layer) = (header >> 19 & 3, layer(header));
    let rate_divisor = [4, 0, 2, 1][version as usize];
    if rate_divisor == 0 || layer == 4 || header & 3 == 2 {
        return None;
    }
    let rate_hz = SAMPLE_RATES_HZ.get((header >> 10 & 3) as usize)? / rate_divisor;
    let is_version_1 = version == 3;
    let table = if is_version_1 { layer - 1 } else { 2 + layer.min(2) };
    let bit_rate = 1000 * u32::from(*BIT_RATES[table as usize].get((header >> 12 & 15) as usize)?);
    let padding = header >> 9 & 1;
    let (samples, len) = match layer {
        1 => (384, (12 * bit_rate / rate_hz + padding) * 4),
        3 if !is_version_1 => (576, 72 * bit_rate / rate_hz + padding),
        _ => (1152, 144 * bit_rate / rate_hz + padding),
    };
    let channels = if header >> 6 & 3 == 3 { 1 } else { 2 };
    (bit_rate > 0).then_some(Header { key: header & KEY_BITS, len: len as usize, samples, rate_hz, channels })
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
