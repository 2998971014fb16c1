//! Decodes an uploaded audio file to int16 mono at 16 kHz, in chunks.
//!
//! The caller holds the whole file in memory and bounds its size. [`Decoder::next_chunk`] is CPU work of some
//! milliseconds: call it off the async threads. [`demux`] takes containers apart into packets with their times, [`codec`]
//! decodes them, most with symphonia, and [`timeline`] places the audio and resamples it.
//!
//! CPU time for a minute of audio, release build, on one core of a server (a test in tests/speech/media_files.rs prints it):
//! wav 4 ms (48 kHz stereo: 36), flac 10, mp3 19 (44.1 kHz stereo: 67), AAC 30 (stereo: 67), Opus 45 to 50 (stereo, of which
//! both channels are decoded: 105), Vorbis stereo 67.
//!
//! All audio of a file is heard, at the time at which players show it: lengths that headers claim cut nothing off, further
//! recordings in the same file follow the first, and silence fills gaps. Encoder delay is removed where the file states it:
//! mp3 with a LAME tag, Opus, Vorbis, mp4 with an edit list. AAC with ADTS headers and most fragmented mp4 state none and begin
//! 21 to 64 ms late.
//!
//! An upload may come from anyone. Memory and work are bounded by the size of the file: the demultiplexers keep no tables and read
//! no metadata, and [`guard`] checks what symphonia would believe.

mod codec;
mod container;
mod demux;
mod fields;
mod guard;
mod opening;
mod other_formats;
mod packet;
mod search;
mod source;
#[cfg(test)]
mod tests;
mod timeline;
mod track;

use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use bytes::Bytes;
use symphonia::core::errors::Error;

use self::codec::Codec;
pub use self::container::Container;
use self::opening::{Opened, open};
use self::packet::{Demuxer, Event, Packet, Stream, samples_in};
pub use self::source::CancelFlag;
use self::timeline::Timeline;
pub use self::track::{DecodeLimits, MediaInfo};
use self::track::{Spec, open_stream};
use super::MediaError;
use crate::audio::{SPEECH_RATE_HZ, downmix::Downmix, pcm};

/// Decodes one file from its start to its end.
pub struct Decoder {
    info: MediaInfo,
    limits: DecodeLimits,
    demuxer: Box<dyn Demuxer>,
    codec: Codec,
    timeline: Timeline,
    cancel: CancelFlag,
    downmix: Downmix,
    /// The channel that is decoded in place of the mix of all.
    channel: Option<usize>,
    /// One packet, interleaved and mixed.
    interleaved: Vec<f32>,
    mono: Vec<f32>,
    /// Rate of the last packet.
    rate_hz: u32,
    /// Bytes that packets may still have: a damaged index can name the same bytes, or none, any number of times.
    packet_bytes_left: usize,
    /// Packets since the last audio, and those that the present stream has.
    packets_without_audio: u32,
    packets_of_stream: u32,
    /// Length that the headers state for certain.
    promised: Option<Duration>,
    /// First damage, returned after the audio.
    error: Option<MediaError>,
    is_ended: bool,
}

/// Audio in one chunk: half a second.
const CHUNK_SAMPLES: usize = SPEECH_RATE_HZ as usize / 2;

/// Packets read in one call at most. Half a second in the shortest packets are 200.
const PACKETS_PER_CALL: usize = 4000;

/// Longest packet. PCM takes up to 20 times its length while it is decoded. Packets of recordings have up to 100 KB.
const PACKET_MAX_BYTES: usize = 1 << 20;

/// More packets in a row than an intact file has without audio: 1.4 s of the longest pre-skip in the shortest Opus
/// packets are 546.
const MAX_PACKETS_WITHOUT_AUDIO: u32 = 1000;

/// A recording that was cut out of another begins with frames that refer to missing ones.
const FIRST_PACKETS: u32 = 10;

/// Longest silence in place of a packet that cannot be decoded, samples.
const LOST_PACKET_MAX_SAMPLES: u64 = 1 << 16;

impl Decoder {
    /// Recognizes the file by its first bytes and reads its headers.
    ///
    /// # Errors
    /// [`MediaError`] if the format or the codec is not supported, the headers are damaged, or a limit is exceeded.
    pub fn open(file: Bytes, limits: DecodeLimits) -> Result<Self, MediaError> {
        Self::open_cancellable(file, limits, CancelFlag::default())
    }

    /// As [`Self::open`]. After `cancel`, this and later calls end within some milliseconds.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_cancellable(
        file: Bytes,
        limits: DecodeLimits,
        cancel: CancelFlag,
    ) -> Result<Self, MediaError> {
        if file.is_empty() {
            return Err(MediaError::Empty);
        }
        let (container, file) = Container::recognize(&file)?;
        // An edit list may play parts twice.
        let packet_bytes_left = 2 * file.len();
        let opened = catch_panic(|| open(container, file, limits, &cancel));
        let opened = opened.unwrap_or_else(|| Err(container.broken(Duration::ZERO, &DECODER_PANIC)))?;
        let Opened { demuxer, info, codec, promised } = opened;
        Ok(Self {
            info,
            limits,
            demuxer,
            codec,
            timeline: Timeline::default(),
            cancel,
            downmix: Downmix::default(),
            channel: None,
            interleaved: Vec::new(),
            mono: Vec::new(),
            rate_hz: 0,
            packet_bytes_left,
            packets_without_audio: 0,
            packets_of_stream: 0,
            promised,
            error: None,
            is_ended: false,
        })
    }

    /// Decodes one channel, counted from 0, in place of the mix of all. It is silent where the file has fewer.
    #[must_use]
    pub fn only_channel(mut self, channel: usize) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Properties according to the headers.
    pub const fn info(&self) -> &MediaInfo {
        &self.info
    }

    /// The next half second of audio; less at the end of the file and after many packets without audio, perhaps nothing.
    ///
    /// Damaged packets are skipped. After the last audio, the first damage is returned as an error, then `None`. `None`
    /// after the request was cancelled.
    pub fn next_chunk(&mut self) -> Option<Result<Vec<i16>, MediaError>> {
        for _ in 0..PACKETS_PER_CALL {
            if self.is_ended || self.timeline.pending_len() >= CHUNK_SAMPLES {
                break;
            }
            if self.cancel.is_cancelled() {
                self.is_ended = true;
                return None;
            }
            if catch_panic(|| self.advance()).is_none() {
                self.note_damage(&DECODER_PANIC);
                self.is_ended = true;
            }
        }
        if self.timeline.pending_len() == 0 && self.is_ended {
            return self.error.take().map(Err);
        }
        let chunk = self.timeline.take_chunk(CHUNK_SAMPLES);
        Some(Ok(chunk.into_iter().map(pcm::to_i16).collect()))
    }

    fn advance(&mut self) {
        if self.timeline.advance() {
            return self.check_length();
        }
        match self.demuxer.next() {
            Ok(Some(Event::Packet(packet))) => self.take_packet(&packet),
            Ok(Some(Event::Stream(stream))) => self.start_stream(&stream),
            Ok(Some(Event::Damage(problem))) => self.note_damage(&Error::DecodeError(problem)),
            Ok(Some(Event::Other)) => {}
            Ok(None) => self.end(),
            Err(error) => {
                self.note_damage(&error);
                self.end();
            }
        }
    }

    /// Makes the decoder of a further stream.
    fn start_stream(&mut self, stream: &Stream) {
        if !stream.is_continued {
            self.timeline.restart_clock();
            self.promised = None;
        }
        self.packets_of_stream = 0;
        match open_stream(self.info.container, stream, self.limits) {
            Ok((_, codec)) => self.codec = codec,
            Err(error) => self.fail(error),
        }
    }

    fn take_packet(&mut self, packet: &Packet) {
        let left = self.packet_bytes_left.checked_sub(packet.data.len().max(1));
        let Some(left) = left.filter(|_| self.packets_without_audio < MAX_PACKETS_WITHOUT_AUDIO) else {
            self.note_damage(&Error::LimitError("more packets than the file can hold"));
            return self.end();
        };
        self.packet_bytes_left = left;
        self.packets_without_audio += 1;
        self.packets_of_stream = self.packets_of_stream.saturating_add(1);
        if packet.data.len() > PACKET_MAX_BYTES {
            return self.note_damage(&Error::LimitError("a packet is longer than 1 MiB"));
        }
        self.decode_packet(packet);
    }

    fn decode_packet(&mut self, packet: &Packet) {
        if packet.is_after_jump {
            self.codec.reset();
        }
        let decoded = self.codec.decode(packet, &mut self.interleaved);
        if let Ok(decoded) = &decoded {
            self.mix(decoded.channels);
        }
        match decoded {
            Ok(decoded) if self.mono.is_empty() => self.rate_hz = decoded.rate_hz,
            Ok(decoded) => {
                match self.limits.check(Spec { rate_hz: decoded.rate_hz, channels: decoded.channels }) {
                    Ok(()) => {
                        self.packets_without_audio = 0;
                        self.rate_hz = decoded.rate_hz;
                        self.place(packet, decoded.skipped);
                    }
                    Err(error) => self.fail(error),
                }
            }
            Err(error) => self.lose_packet(packet, &error),
        }
    }

    /// Makes one channel of a packet with so many.
    fn mix(&mut self, channels: usize) {
        let Self { downmix, channel, interleaved, mono, .. } = self;
        match *channel {
            None => downmix.mix(interleaved, channels, mono),
            Some(channel) => {
                mono.clear();
                let groups = interleaved.chunks_exact(channels.max(1));
                mono.extend(groups.map(|group| group.get(channel).copied().unwrap_or_default()));
            }
        }
    }

    /// Removes what the container does not play, and hands the rest to the timeline.
    fn place(&mut self, packet: &Packet, skipped: usize) {
        let trim_start =
            samples_in(packet.trim_start, self.rate_hz).saturating_sub(skipped).min(self.mono.len());
        let kept = self.mono.len().saturating_sub(samples_in(packet.trim_end, self.rate_hz));
        self.mono.truncate(kept);
        self.mono.drain(..trim_start.min(kept));
        if !self.mono.is_empty() {
            let left_out = packet::nanos((skipped + trim_start) as i64, self.rate_hz);
            let at = packet.at.map(|at| at.saturating_add(left_out));
            self.timeline.take(&mut self.mono, at, self.rate_hz);
        }
    }

    /// Keeps the time of a packet that cannot be decoded.
    fn lose_packet(&mut self, packet: &Packet, error: &Error) {
        if self.packets_of_stream > FIRST_PACKETS {
            self.note_damage(error);
        } else {
            self.note_damage_at(Duration::ZERO, error);
        }
        let is_silent = self.rate_hz > 0 && packet.samples <= LOST_PACKET_MAX_SAMPLES;
        if is_silent && self.timeline.total_samples() > 0 {
            self.timeline.take_silence(packet.at, packet.samples as usize, self.rate_hz);
        }
    }

    fn check_length(&mut self) {
        let max = self.limits.decoded_max;
        let max_samples = (max.as_secs_f64() * f64::from(SPEECH_RATE_HZ)) as u64;
        if self.timeline.truncate(max_samples) {
            self.fail(MediaError::TooLong { max });
        }
    }

    fn end(&mut self) {
        if !self.is_ended {
            self.is_ended = true;
            self.timeline.flush();
            self.check_length();
            self.check_complete();
            self.forgive_start();
        }
    }

    /// Damage before any audio counts only if none follows: an mp3 stream that was recorded from its middle begins with
    /// frames that refer to earlier ones.
    fn forgive_start(&mut self) {
        let is_at_start = matches!(&self.error, Some(MediaError::Broken { at, .. }) if at.is_zero());
        if is_at_start && self.timeline.total_samples() > 0 {
            self.error = None;
        }
    }

    /// Ends with an error that takes precedence over damage.
    fn fail(&mut self, error: MediaError) {
        self.error = Some(error);
        self.is_ended = true;
    }

    /// Reports audio that the headers promise and that did not come.
    fn check_complete(&mut self) {
        let decoded = self.decoded();
        if let Some(expected) = self.promised.filter(|expected| *expected > decoded + MISSING_MIN)
            && self.error.is_none()
        {
            let problem = format!("the headers announce {:.2} s", expected.as_secs_f64());
            self.error =
                Some(MediaError::Broken { container: self.info.container.name(), at: decoded, problem });
        }
    }

    fn note_damage(&mut self, error: &Error) {
        self.note_damage_at(self.decoded(), error);
    }

    /// Keeps the first damage that is not at the start.
    fn note_damage_at(&mut self, at: Duration, error: &Error) {
        match &self.error {
            Some(MediaError::Broken { at: first, .. }) if at.is_zero() || !first.is_zero() => {}
            _ => self.error = Some(self.info.container.broken(at, error)),
        }
    }

    fn decoded(&self) -> Duration {
        Duration::from_secs_f64(self.timeline.total_samples() as f64 / f64::from(SPEECH_RATE_HZ))
    }
}

/// Headers count the encoder's delay and padding in different ways; less than this is not missing.
const MISSING_MIN: Duration = Duration::from_millis(250);

/// Reported when a decoder panics.
const DECODER_PANIC: Error = Error::DecodeError("the decoder cannot handle this damage");

/// Runs a decoder; `None` if it panics, after which it must not run again. symphonia's Vorbis decoder divides by zero
/// for a setup header whose floor has two equal points (symphonia-codec-vorbis 0.6.1, `render_line`).
fn catch_panic<T>(decode: impl FnOnce() -> T) -> Option<T> {
    panic::catch_unwind(AssertUnwindSafe(decode)).ok()
}
