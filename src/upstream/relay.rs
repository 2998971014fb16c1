//! Upstream codec for relays: relay messages to templates. Audio passes as base64 text and is not decoded.
//!
//! A dialect without such templates gets the commands of a conversation instead, so that its lane's codec serves relays, too:
//! [`RelayUnits`] makes units of a client's input.

use std::sync::Arc;

use super::{
    Dialect,
    decode::{SampleFormat, decode_audio, end_reason, without_data_prefix},
};
use crate::{
    audio::{SPEECH_RATE_HZ, pcm, scratch},
    spelling::{
        UpstreamMapping,
        upstream::{SampleEncoding, SendName},
    },
    vocabulary::{
        EndKind, Mode, Node, SlotValue, UnitInput, UpstreamEnd, VideoFrame,
        relay::{RelayEndReason, RelayInput, RelayOpening},
    },
};

/// Samples of a unit.
const UNIT_SAMPLES: usize = SPEECH_RATE_HZ as usize;
/// Longest audio of a client's message that is decoded, s: as much as of a server's message.
const AUDIO_MAX_S: usize = 600;
/// The same as base64, characters.
const AUDIO_MAX_CHARS: usize = AUDIO_MAX_S * UNIT_SAMPLES * 4 / 3 * 4;

/// Makes units of one second from a client's input, whose messages may be shorter or longer.
#[derive(Debug, Default)]
pub struct RelayUnits {
    /// Input of the next unit. Its audio is shorter than a unit.
    rest: Vec<i16>,
    frame: Option<VideoFrame>,
    force_listen: bool,
}

impl RelayUnits {
    /// Adds the input of one message, and emits the units that are complete. A unit has the id of the message that
    /// completes it, and the last picture.
    ///
    /// # Errors
    /// The mistake in the audio or in a picture, or the bound on the audio's length. Nothing of audio that is too long is taken.
    pub fn push(&mut self, input: &RelayInput<'_>, mut emit: impl FnMut(UnitInput)) -> Result<(), String> {
        let audio = input.audio.unwrap_or_default();
        let chars = without_data_prefix(audio).len();
        if chars > AUDIO_MAX_CHARS {
            let seconds = chars / 4 * 3 / 4 / UNIT_SAMPLES;
            return Err(format!(
                "the audio is too long: {seconds} s in one message (expected at most {AUDIO_MAX_S} s)"
            ));
        }
        let mut samples = scratch::take();
        let format = SampleFormat { encoding: SampleEncoding::F32le, rate_hz: SPEECH_RATE_HZ };
        let decoded = decode_audio(audio, format, &mut samples);
        self.rest.extend(samples.iter().map(|sample| pcm::to_i16(*sample)));
        scratch::put_back(samples);
        decoded?;
        if let Some(picture) = input.frames.and_then(<[_]>::last).and_then(Node::as_str) {
            let mut bytes = Vec::new();
            pcm::decode_base64(without_data_prefix(picture), &mut bytes)
                .map_err(|error| format!("the picture: {error}"))?;
            self.frame = Some(VideoFrame(bytes.into()));
        }
        self.force_listen |= input.force_listen == Some(true);
        while self.rest.len() >= UNIT_SAMPLES {
            let later = self.rest.split_off(UNIT_SAMPLES);
            emit(UnitInput {
                audio: Arc::new(std::mem::replace(&mut self.rest, later)),
                input_id: input.input_id.unwrap_or_default().into(),
                force_listen: std::mem::take(&mut self.force_listen),
                frame: self.frame.take(),
            });
        }
        Ok(())
    }
}

/// Why a session ended that gets the commands of a conversation: its codec reports an error and a regular end alike.
pub(crate) fn end_reason_of(mapping: &UpstreamMapping, end: &UpstreamEnd) -> RelayEndReason {
    match (end_reason(mapping, end.detail.split(": ").next()), end.kind) {
        (RelayEndReason::Failed, EndKind::LimitReachedStillOpen) => RelayEndReason::ContextFull,
        (reason, _) => reason,
    }
}

impl Dialect {
    /// Encodes the message that opens a session in this mode.
    pub fn encode_relay_opening(&self, opening: &RelayOpening<'_>, mode: Mode) -> String {
        let capacity = [opening.prompt, opening.config, opening.voice, opening.speech_voice];
        let capacity = capacity.iter().flatten().map(|text| text.len()).sum::<usize>();
        self.render_message(SendName::RelayOpen, capacity, |slot| match slot {
            "prompt" => opening.prompt.into(),
            "config" => opening.config.map_or(SlotValue::Null, SlotValue::Raw),
            "voice" => opening.voice.into(),
            "speech_voice" => opening.speech_voice.into(),
            "slice_max" => opening.slice_max.map_or(SlotValue::Null, SlotValue::Int),
            "mode" => SlotValue::Str(self.mapping().mode_name(mode)),
            _ => SlotValue::Null,
        })
    }

    /// Encodes the input of one step.
    pub fn encode_relay_append(&self, input: &RelayInput<'_>) -> String {
        let frames = input.frames.iter().copied().flatten().filter_map(Node::as_str).map(str::len);
        let capacity = input.audio.map_or(0, str::len) + frames.sum::<usize>();
        self.render_message(SendName::RelayAppend, capacity, |slot| match slot {
            "audio" => input.audio.map(without_data_prefix).map_or(SlotValue::Null, base64_fill),
            "frames" => input.frames.map_or(SlotValue::Null, SlotValue::List),
            "force_listen" => input.force_listen.map_or(SlotValue::Null, SlotValue::Bool),
            "slice_max" => input.slice_max.map_or(SlotValue::Null, SlotValue::Int),
            "input_id" => input.input_id.into(),
            "response_id" => input.response_id.into(),
            _ => SlotValue::Null,
        })
    }

    /// Encodes the message that closes a session.
    pub fn encode_relay_close(&self, reason: Option<&str>) -> String {
        self.render_message(SendName::Close, 64, |_| SlotValue::Str(reason.unwrap_or("user_stop")))
    }
}

/// Fills a slot with base64. Valid base64 needs no JSON escapes; text that only claims to be base64 may need them.
fn base64_fill(text: &str) -> SlotValue<'_> {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) { SlotValue::Plain(text) } else { SlotValue::Str(text) }
}
