//! The answer to a request for an unknown path: the paths that there are, and a replacement for APIs that voxbridge does not
//! have.

use crate::mapping::Library;
use std::collections::BTreeSet;

/// The paths of REST requests, for people.
pub(super) const REST_PATHS: [&str; 14] = [
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/audio/speech",
    "/v1/audio/models",
    "/v1/audio/voices",
    "/v1/models",
    "/v1/voices",
    "/v1/listen",
    "/v1/speak",
    "/v1/text-to-speech/{voice_id}",
    "/v1/text-to-speech/{voice_id}/stream",
    "/v1/speech-to-text",
    "/tts/bytes",
    "/generate/{voice}",
];

/// The ends of paths of other APIs, and what to use instead.
const INSTEAD: [(&str, &str); 5] = [
    (
        "/v1/realtime/calls",
        "calls by WebRTC are off ([webrtc] in the configuration), and SIP is not served; open a WebSocket at /v1/realtime instead",
    ),
    (
        "/api/offer",
        "calls by WebRTC are off ([webrtc] in the configuration); open a WebSocket at /ws-client instead",
    ),
    (
        "/v1/chat/completions",
        "the Chat Completions API is not served; use OpenAI's Realtime API, a WebSocket at /v1/realtime, which takes and \
         answers text as well",
    ),
    (
        "/v1/responses",
        "the Responses API is not served; use OpenAI's Realtime API, a WebSocket at /v1/realtime, which takes and answers \
         text as well",
    ),
    (
        "/v1/agent/converse",
        "Deepgram's Voice Agent API is not served; use OpenAI's Realtime API, a WebSocket at /v1/realtime, instead",
    ),
];

/// The message for an unknown path.
pub(super) fn message(path: &str, library: &Library) -> String {
    let paths = library.clients().flat_map(|client| &client.paths).map(String::as_str);
    // Some libraries double the first slash. People need not.
    let sockets: BTreeSet<_> = paths.filter(|path| !path.starts_with("//")).collect();
    let sockets = sockets.into_iter().collect::<Vec<_>>().join(", ");
    let instead = INSTEAD.iter().find(|(end, _)| path.trim_end_matches('/').ends_with(end));
    let problem = instead.map_or(String::new(), |(_, instead)| format!(": {instead}"));
    let rest = REST_PATHS.join(", ");
    format!(
        "There is nothing at {path}{problem}. WebSocket clients are served at {sockets}; REST clients at {rest}"
    )
}
