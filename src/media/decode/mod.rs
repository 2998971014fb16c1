//! Decodes an uploaded audio file to int16 mono at 16 kHz, in chunks.
//!
//! The caller holds the whole file in memory and bounds its size. [`Decoder::next_chunk`] is CPU work of some
//! milliseconds: call it off the async threads. Demultiplexing and most codecs are symphonia's, Opus is opus-pure's.
//!
//! CPU time for a minute of audio, release build, on one core of an AMD EPYC (a test in tests/speech/media_files.rs
//! prints it): wav 2 ms (48 kHz stereo: 30), flac 8, mp3 25 (44.1 kHz stereo: 66), AAC 46 (stereo: 67), Opus 27 to 35
//! (stereo at 96 kb/s: 69), Vorbis stereo 69.
//!
//! Encoder delay is removed where the file states it: mp3 with a LAME tag, Opus, Vorbis, mp4 with an edit list. AAC with
//! ADTS headers and most fragmented mp4 state none and begin 21 to 64 ms late.
//!
//! An upload may come from anyone, and symphonia trusts it. Before symphonia reads a file, one module for each container
//! checks its headers and leaves out what decoding does not need. Memory and work are then bounded by the size of the file:
//! no metadata is read, no other track, and no table that costs more with each packet.

mod codec;
mod container;
mod flac;
mod lengths;
mod mp4;
mod ogg;
mod source;
#[cfg(test)]
mod tests;
mod track;
mod vorbis;
mod wav;
mod webm;

use std::io::ErrorKind;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use bytes::Bytes;
use symphonia::core::errors::Error;
use symphonia::core::formats::FormatReader;
use symphonia::core::packet::Packet;

use self::codec::Codec;
pub use self::container::Container;
use self::container::Opened;
use self::mp4::MediaStart;
pub use self::source::CancelFlag;
use self::track::open_track;
pub use self::track::{DecodeLimits, MediaInfo};
use super::MediaError;
use crate::audio::resample::Resampler;
use crate::audio::{SPEECH_RATE_HZ, pcm};

/// Decodes one file from its start to its end.
pub struct Decoder {
    info: MediaInfo,
    limits: DecodeLimits,
    format: Box<dyn FormatReader>,
    track_id: u32,
    codec: Codec,
    /// Input rate and resampler, from the first audio on. Rates may change within a file.
    resampler: Option<(u32, Resampler)>,
    /// Where playback begins, unless the decoder knows.
    start: Option<MediaStart>,
    /// Samples still to be skipped before it, at the file's rate; `None` before the first packet.
    skip_samples: Option<u64>,
    cancel: CancelFlag,
    /// One packet, interleaved and mixed.
    interleaved: Vec<f32>,
    mono: Vec<f32>,
    /// Resampled audio that was not returned yet.
    pending: Vec<f32>,
    returned_samples: u64,
    /// Bytes that packets may still have: a damaged index can name the same bytes, or none, any number of times.
    packet_bytes_left: usize,
    /// Packets of the track since the last audio.
    packets_without_audio: u32,
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
        let (file, has_id3) = container::skip_id3(file);
        // Padding may follow an ID3 tag; the mp3 reader searches for the first frame.
        let container =
            Container::sniff(&file).or(has_id3.then_some(Container::Mp3)).ok_or(MediaError::UnknownFormat)?;
        // Containers may compress a few bytes of every packet away.
        let packet_bytes_left = 2 * file.len();
        let (format, start, (info, track_id, codec)) = catch_panic(|| {
            let opened = container.open(file, cancel.clone());
            let Opened { format, start } =
                opened.map_err(|error| container.broken(Duration::ZERO, &error))?;
            let format = format.ok_or(MediaError::NoAudioTrack { container: container.name() })?;
            let track = open_track(container, &*format, limits)?;
            Ok((format, start, track))
        })
        .unwrap_or_else(|| Err(container.broken(Duration::ZERO, &DECODER_PANIC)))?;
        let is_opus = matches!(codec, Codec::Opus(_));
        Ok(Self {
            info,
            limits,
            format,
            track_id,
            codec,
            resampler: None,
            // Opus skips by its own header, which says the same ("Opus in ISOBMFF" §4.4).
            start: start.filter(|_| !is_opus),
            skip_samples: None,
            cancel,
            interleaved: Vec::new(),
            mono: Vec::new(),
            pending: Vec::new(),
            returned_samples: 0,
            packet_bytes_left,
            packets_without_audio: 0,
            error: None,
            is_ended: false,
        })
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
            if self.is_ended || self.pending.len() >= CHUNK_SAMPLES {
                break;
            }
            if self.cancel.is_cancelled() {
                self.is_ended = true;
                return None;
            }
            if catch_panic(|| self.read_packet()).is_none() {
                self.note_damage(&DECODER_PANIC);
                self.is_ended = true;
            }
        }
        if self.pending.is_empty() && self.is_ended {
            return self.error.take().map(Err);
        }
        let rest = self.pending.split_off(self.pending.len().min(CHUNK_SAMPLES));
        let chunk = std::mem::replace(&mut self.pending, rest);
        self.returned_samples += chunk.len() as u64;
        Some(Ok(chunk.into_iter().map(pcm::to_i16).collect()))
    }

    fn read_packet(&mut self) {
        match self.format.next_packet() {
            Ok(Some(packet)) => self.take_packet(&packet),
            Ok(None) => self.end(),
            // A second stream follows in the same Ogg file.
            Err(Error::ResetRequired) => self.restart(),
            Err(Error::IoError(error)) if self.is_end_of_stream(&error) => self.end(),
            Err(error) => {
                self.note_damage(&error);
                self.end();
            }
        }
    }

    fn take_packet(&mut self, packet: &Packet) {
        let left = self.packet_bytes_left.checked_sub(packet.data.len().max(1));
        let Some(left) = left.filter(|_| self.packets_without_audio < MAX_PACKETS_WITHOUT_AUDIO) else {
            self.note_damage(&Error::LimitError("more packets than the file can hold"));
            return self.end();
        };
        self.packet_bytes_left = left;
        if packet.track_id == self.track_id {
            self.packets_without_audio += 1;
            if packet.data.len() > PACKET_MAX_BYTES {
                return self.note_damage(&Error::LimitError("a packet is longer than 1 MiB"));
            }
            self.decode_packet(packet);
        }
    }

    fn decode_packet(&mut self, packet: &Packet) {
        match self.codec.decode(packet, &mut self.interleaved, &mut self.mono) {
            Ok(spec) => {
                if let Err(error) = self.limits.check(spec) {
                    self.fail(error);
                } else if !self.mono.is_empty() {
                    self.packets_without_audio = 0;
                    self.skip_start(spec.rate_hz);
                    self.resample(spec.rate_hz);
                }
            }
            Err(error) => self.note_damage(&error),
        }
    }

    /// Removes samples before the start of playback.
    fn skip_start(&mut self, rate_hz: u32) {
        let left =
            self.skip_samples.get_or_insert_with(|| self.start.map_or(0, |start| start.samples(rate_hz)));
        let skipped = self.mono.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= skipped as u64;
        self.mono.drain(..skipped);
    }

    fn resample(&mut self, rate_hz: u32) {
        if self.resampler.as_ref().is_some_and(|(known, _)| *known != rate_hz) {
            self.flush();
        }
        if self.resampler.is_none() {
            self.resampler = Resampler::new(rate_hz, SPEECH_RATE_HZ).ok().map(|new| (rate_hz, new));
        }
        if let Some((_, resampler)) = &mut self.resampler {
            resampler.push(&self.mono, &mut self.pending);
        }
        self.check_length();
    }

    fn flush(&mut self) {
        if let Some((_, mut resampler)) = self.resampler.take() {
            resampler.flush(&mut self.pending);
        }
    }

    fn check_length(&mut self) {
        let max = self.limits.decoded_max;
        let max_samples = (max.as_secs_f64() * f64::from(SPEECH_RATE_HZ)) as u64;
        let room = max_samples.saturating_sub(self.returned_samples);
        if self.pending.len() as u64 > room {
            self.pending.truncate(room as usize);
            self.fail(MediaError::TooLong { max });
        }
    }

    /// True at the end of a webm file of unknown length, as browsers record it. One that was cut off looks alike.
    fn is_end_of_stream(&self, error: &std::io::Error) -> bool {
        self.info.container == Container::Webm && error.kind() == ErrorKind::UnexpectedEof
    }

    /// Opens the track of the next stream in a chained Ogg file.
    fn restart(&mut self) {
        self.flush();
        match open_track(self.info.container, &*self.format, self.limits) {
            Ok((_, track_id, codec)) => (self.track_id, self.codec) = (track_id, codec),
            Err(error) => self.fail(error),
        }
    }

    fn end(&mut self) {
        if !self.is_ended {
            self.is_ended = true;
            self.flush();
            self.check_length();
            self.check_complete();
        }
    }

    /// Ends with an error that takes precedence over damage.
    fn fail(&mut self, error: MediaError) {
        self.error = Some(error);
        self.is_ended = true;
    }

    /// Reports audio that the headers promise and that did not come.
    fn check_complete(&mut self) {
        let states_length = matches!(self.info.container, Container::Wav | Container::Mp4 | Container::Flac);
        let decoded = self.decoded();
        if let Some(expected) = self.info.duration
            && states_length
            && self.error.is_none()
            && expected
                > (decoded + MISSING_MIN).saturating_add(self.start.map_or(Duration::ZERO, MediaStart::time))
        {
            let problem = format!("the headers announce {:.2} s", expected.as_secs_f64());
            self.error =
                Some(MediaError::Broken { container: self.info.container.name(), at: decoded, problem });
        }
    }

    /// Keeps the first damage. Damage before any audio counts only if none follows: an mp3 stream that was recorded
    /// from its middle begins with frames that refer to earlier ones.
    fn note_damage(&mut self, error: &Error) {
        let at = self.decoded();
        match &self.error {
            Some(MediaError::Broken { at: first, .. }) if at.is_zero() || !first.is_zero() => {}
            _ => self.error = Some(self.info.container.broken(at, error)),
        }
    }

    fn decoded(&self) -> Duration {
        let samples = self.returned_samples + self.pending.len() as u64;
        Duration::from_secs_f64(samples as f64 / f64::from(SPEECH_RATE_HZ))
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
