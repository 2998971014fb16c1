//! File formats of uploads and answers: decodes audio files to speech input, and the tags of speech files.
//!
//! To change here: a new container or codec of files, bounded in memory and safe on damaged input. Not here: requests
//! and answers of REST ([`crate::server`]).
//!
//! Pure computation over bytes in memory, without sockets, clocks or tasks. [`decode`] reads any common audio file,
//! because clients upload what their platform records, and [`levelled`] raises quiet speech in it. [`id3`] writes the
//! chapters of speech, and [`transcript`] the formats of transcripts. [`crate::audio::encode`] encodes speech. [`book`] divides long texts. Formats of live audio
//! messages belong to [`crate::audio`].

pub mod book;
pub mod decode;
#[cfg(test)]
mod encode_tests;
pub mod id3;
pub mod levelled;
pub mod transcript;

use std::time::Duration;

/// Formats and codecs that [`decode::Decoder`] reads, as error messages list them.
pub const ACCEPTED: &str =
    "wav, mp3, m4a or mp4 (AAC-LC or ALAC), webm or ogg (Opus or Vorbis), flac, aiff, caf";

/// Advice for other formats, in error messages.
pub const CONVERSION: &str = "convert other files, for example with `ffmpeg -i FILE speech.wav`";

/// Audio file that cannot be decoded, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// The file has no bytes.
    #[error("the audio file is empty")]
    Empty,
    /// The first bytes are those of no supported container.
    #[error("the file is not audio in a known format (accepted: {ACCEPTED}; {CONVERSION})")]
    UnknownFormat,
    /// The file has a format that is known, and not read.
    #[error("the file has the format {format}, which is not supported (accepted: {ACCEPTED}; {CONVERSION})")]
    FormatNotSupported {
        /// Name of the format.
        format: &'static str,
    },
    /// The container is known, the codec inside is not.
    #[error(
        "the audio in this {container} file has the codec {codec}, which is not supported (accepted: {ACCEPTED}; {CONVERSION})"
    )]
    CodecNotSupported {
        /// Name of the container.
        container: &'static str,
        /// Name of the codec, or its number in symphonia.
        codec: String,
    },
    /// The container holds only other media, such as video.
    #[error("the {container} file has no audio track")]
    NoAudioTrack {
        /// Name of the container.
        container: &'static str,
    },
    /// Damaged or cut off. Audio that decodes was returned before.
    #[error("the {container} file is damaged or cut off after {:.2} s of audio: {problem}", at.as_secs_f64())]
    Broken {
        /// Name of the container.
        container: &'static str,
        /// Length of the audio decoded before the first damage.
        at: Duration,
        /// Description of the damage.
        problem: String,
    },
    /// The audio is longer than allowed. Audio up to the limit was returned before.
    #[error("the audio is longer than the limit of {} s", max.as_secs_f64())]
    TooLong {
        /// Longest audio allowed.
        max: Duration,
    },
    /// The audio has more channels than allowed.
    #[error("the audio has {actual} channels (accepted: at most {max})")]
    TooManyChannels {
        /// Channels in the file.
        actual: usize,
        /// Channels allowed.
        max: usize,
    },
    /// The sample rate is outside the supported range.
    #[error("the audio's sample rate is {actual} Hz (accepted: {min} to {max} Hz)")]
    RateNotSupported {
        /// Rate in the file.
        actual: u32,
        /// Lowest rate allowed.
        min: u32,
        /// Highest rate allowed.
        max: u32,
    },
}
