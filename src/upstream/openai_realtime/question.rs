//! Messages of a question: its settings, the conversation as items, the user's new audio, and the request for the response. And
//! those of the requests without a conversation, for a transcript and for a text.

use super::message;
use crate::{
    audio::SPEECH_RATE_HZ,
    spelling::upstream::SendName,
    upstream::{Dialect, chat::write_list, input_rate::at_rate},
    vocabulary::{ChatMessage, ChatTurn, EntryPart, JsonWriter, LaneRequest, Message, Mode, Role, SlotValue},
};

/// Length of a piece of audio that is appended, ms.
const PIECE_MS: u32 = 1000;

/// Shortest audio that OpenAI commits, ms (mappings/notes/openai-realtime-servers.md#conversation). Shorter audio gets silence
/// behind it.
const COMMIT_MIN_MS: u32 = 100;

/// Sends a question to a server that takes audio at this rate, and perhaps ignores a commit.
pub(super) fn ask(
    dialect: &Dialect,
    turn: &ChatTurn,
    rate_hz: u32,
    ignores_commits: bool,
    emit: &mut dyn FnMut(Message),
) {
    emit(Message::Text(dialect.encode_turn(SendName::Chat, turn)));
    for (at, ChatMessage { role, parts }) in turn.messages.iter().enumerate() {
        let is_newest = at + 1 == turn.messages.len();
        // Speech behind everything else is sent as from a microphone, which most servers take.
        match parts.split_last() {
            Some((EntryPart::Audio(audio), before))
                if is_newest && *role == Role::User && !ignores_commits =>
            {
                send_items(dialect, *role, before, rate_hz, emit);
                append_and_commit(dialect, audio, rate_hz, emit);
            }
            _ => send_items(dialect, *role, parts, rate_hz, emit),
        }
    }
    emit(message(dialect, SendName::Respond));
}

/// Sends a request for a transcript or for a text. `is_plain` if the server has answers and nothing else: it transcribes by an
/// answer, and has no responses outside the conversation.
pub(super) fn request(
    dialect: &Dialect,
    request: &LaneRequest,
    rate_hz: u32,
    is_plain: bool,
    emit: &mut dyn FnMut(Message),
) {
    emit(Message::Text(match request {
        LaneRequest::Transcribe { prompt, audio } if is_plain => {
            let audio = at_rate(audio, rate_hz);
            dialect.render_message(SendName::TranscribeByAnswer, 3 * audio.len(), |slot| match slot {
                "prompt" => SlotValue::Str(&prompt.instruction),
                _ => dialect.mapping().audio_value(&audio),
            })
        }
        LaneRequest::Transcribe { audio, .. } => {
            emit(Message::Text(dialect.encode(request, Mode::Chat)));
            return append_and_commit(dialect, audio, rate_hz, emit);
        }
        LaneRequest::Speak { after_voice, request, text, .. } => {
            dialect.render_message(SendName::Speak, after_voice.len() + request.len(), |slot| match slot {
                "system" => SlotValue::Str(after_voice),
                "text" => SlotValue::Str(request),
                "words" => SlotValue::Str(text),
                _ if is_plain => SlotValue::Null,
                _ => SlotValue::Str("none"),
            })
        }
        _ => return,
    }));
}

/// Sends a message of the conversation: calls and results are items of their own, and the parts between them share one.
pub(super) fn send_items(
    dialect: &Dialect,
    role: Role,
    parts: &[EntryPart],
    rate_hz: u32,
    emit: &mut dyn FnMut(Message),
) {
    let concerns_tools = |part: &EntryPart| matches!(part, EntryPart::Call(_) | EntryPart::Result(_));
    for group in parts.chunk_by(|part, next| !concerns_tools(part) && !concerns_tools(next)) {
        emit(Message::Text(match group {
            [EntryPart::Call(call)] => dialect.render_message(SendName::ChatCall, 0, |slot| match slot {
                "call_id" => SlotValue::Str(&call.call_id),
                "name" => SlotValue::Str(&call.name),
                _ => SlotValue::Str(&call.arguments),
            }),
            [EntryPart::Result(result)] => {
                dialect.render_message(SendName::ChatResult, 0, |slot| match slot {
                    "call_id" => SlotValue::Str(&result.call_id),
                    _ => SlotValue::Str(&result.output),
                })
            }
            parts => {
                let encode = |out: &mut String| {
                    parts.iter().for_each(|part| dialect.encode_part(role, part, rate_hz, out));
                };
                let content = |out: &mut String| write_list(out, encode);
                dialect.render_message(SendName::ChatMessage, 0, |slot| match slot {
                    "role" => SlotValue::Plain(role.name()),
                    _ => SlotValue::Written(JsonWriter(&content)),
                })
            }
        }));
    }
}

/// Sends audio as from a microphone, and ends it: it is the conversation's next item.
pub(super) fn append_and_commit(
    dialect: &Dialect,
    audio: &[i16],
    rate_hz: u32,
    emit: &mut dyn FnMut(Message),
) {
    let missing = samples_of(COMMIT_MIN_MS, SPEECH_RATE_HZ).saturating_sub(audio.len());
    append(dialect, &at_rate(&[audio, &vec![0; missing]].concat(), rate_hz), rate_hz, emit);
    emit(message(dialect, SendName::Commit));
}

/// Sends audio at the server's rate, as from a microphone.
pub(super) fn append(dialect: &Dialect, audio: &[i16], rate_hz: u32, emit: &mut dyn FnMut(Message)) {
    for piece in audio.chunks(samples_of(PIECE_MS, rate_hz)) {
        let value = |_: &str| dialect.mapping().audio_value(piece);
        emit(Message::Text(dialect.render_message(SendName::Append, 3 * piece.len(), value)));
    }
}

const fn samples_of(ms: u32, rate_hz: u32) -> usize {
    (rate_hz as u64 * ms as u64 / 1000) as usize
}
