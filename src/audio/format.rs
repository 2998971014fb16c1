//! Audio formats that are not supported.

use super::resample::UnsupportedRate;

/// Most channels a client may send. All but the first one are ignored.
pub const MAX_CHANNELS: u16 = 8;

/// Unsupported audio format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The sample rate is out of range.
    #[error(transparent)]
    Rate(#[from] UnsupportedRate),
    /// Zero channels, or too many.
    #[error("{actual} audio channels are not supported (expected 1 to {MAX_CHANNELS})")]
    Channels {
        /// The requested number of channels.
        actual: u16,
    },
    /// A file format at a sample rate that it does not have.
    #[error(transparent)]
    FileRate(#[from] UnsupportedFileRate),
    /// A file format, in which clients send no audio.
    #[error("audio from a client cannot be {name}")]
    OutputOnly {
        /// Name of the encoding.
        name: &'static str,
    },
    /// Opus at a sample rate that it does not have.
    #[error("Opus has no sample rate of {actual} Hz (it has 8000, 12000, 16000, 24000 and 48000 Hz)")]
    OpusRate {
        /// The requested rate in Hz.
        actual: u32,
    },
}

/// Sample rate that a file format does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audio's sample rate is {actual} Hz (accepted: {min} to {max} Hz)")]
pub struct UnsupportedFileRate {
    /// The requested rate in Hz.
    pub actual: u32,
    /// Lowest rate of the format.
    pub min: u32,
    /// Highest rate of the format.
    pub max: u32,
}
