//! Purposes of lanes, and modes of upstream sessions.

use serde::Deserialize;

use crate::named_enum::named_enum;

named_enum! {
    /// Working mode of an upstream session.
    #[derive(Default)]
    pub enum Mode {
        /// One question, one answer.
        #[default]
        Chat = "chat",
        /// Full-duplex audio.
        Audio = "audio",
        /// Full-duplex audio and video.
        Video = "video",
    }
}

named_enum! {
    /// The purpose of a lane.
    pub enum LanePurpose {
        /// Speech to text.
        Transcribe = "transcribe",
        /// Text to speech.
        Speak = "speak",
        /// A conversation with the model.
        Converse = "converse",
        /// An answer in a conversation that takes turns.
        Answer = "answer",
        /// A client's own upstream session.
        Relay = "relay",
    }
}

/// Encoding of a voice sample, inside base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoiceEncoding {
    /// Raw little-endian float32, 16 kHz mono.
    F32le,
    /// A WAV file, int16, 16 kHz mono.
    Wav,
    /// A WAV file as a data URL.
    WavUrl,
}
