//! Clients of OpenAI's Realtime protocol: their messages, and what they read of the bridge's events.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    append::{find_string_value, has_type},
    client::Client,
    options::Options,
    run_context::RunContext,
};

/// The protocol's only PCM rate, Hz.
pub(crate) const RATE_HZ: u32 = 24_000;
/// Path that no other protocol shares.
pub(crate) const PATH: &str = "/openai/v1/realtime";
/// An append is this, the base64 of the frame, and [`APPEND_END`].
pub(crate) const APPEND_START: &str = r#"{"type":"input_audio_buffer.append","audio":""#;
pub(crate) const APPEND_END: &str = r#""}"#;
/// Instructions of a client: this and its number, by which the upstream knows it.
const CLIENT_NAME: &str = "load client ";

/// First message of a client. Only an assistant's instructions reach the upstream with every question.
pub(crate) fn first_message(options: &Options, number: usize) -> Option<String> {
    let update = format!(
        r#"{{"type":"session.update","session":{{"type":"realtime","instructions":"{CLIENT_NAME}{number}"}}}}"#
    );
    options.is_assistant().then_some(update)
}

/// Number of the client whose instructions a question begins with.
pub(crate) fn client_number(question: &[u8]) -> Option<usize> {
    /// The instructions are within this prefix.
    const PREFIX_BYTES: usize = 400;
    let head = String::from_utf8_lossy(&question[..question.len().min(PREFIX_BYTES)]);
    let (_, rest) = head.split_once(CLIENT_NAME)?;
    rest.split('"').next()?.parse().ok()
}

/// Handles an event.
pub(crate) fn handle_event(context: &RunContext, client: &Client, payload: &[u8], now: u64) {
    client.is_ready.set(true);
    if has_type(payload, r#""response.output_audio.delta""#) {
        let delta = find_string_value(payload, r#""delta""#).unwrap_or_default();
        let audio = STANDARD.decode(delta).unwrap_or_default();
        client.receiver.borrow_mut().receive_audio(context, now, &audio);
        return;
    }
    let text = String::from_utf8_lossy(payload);
    let contains = |part: &str| text.contains(part);
    if contains(r#""type":"response.done""#) && contains(r#""status":"cancelled""#) {
        context.tally.borrow_mut().interrupted_turns += 1;
        client.receiver.borrow_mut().cancel_pending();
    } else if contains(r#""type":"error""#) || contains(r#""status":"failed""#) {
        context.tally.borrow_mut().record_error(&text);
    }
}
