//! The answer to a request for an unknown path: a guess at what was meant, and a replacement for APIs that voxbridge does not
//! have.

use crate::{spelling::Library, suggestion::nearest};

/// The paths of REST requests, for people.
pub(in crate::server) const REST_PATHS: [&str; 18] = [
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
    "/v1/text-to-speech/{voice_id}/with-timestamps",
    "/v1/text-to-speech/{voice_id}/stream/with-timestamps",
    "/v1/speech-to-text",
    "/tts/bytes",
    "/tts/sse",
    "/v1/speech",
    "/generate/{voice}",
];

/// Length to which the path is cut in the message.
const SHOWN_PATH_MAX_CHARS: usize = 60;

/// The ends of paths of other APIs, and what to use instead.
const INSTEAD: [(&str, &str); 7] = [
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
        "/v1/realtime/translations",
        "OpenAI's translation sessions are not served; open a WebSocket at /v1/realtime on a route with a profile that translates",
    ),
    (
        "/v1/convai/conversation/token",
        "ElevenLabs' calls by LiveKit are not served; open a WebSocket at /v1/convai/conversation instead",
    ),
    ("/playground", "the playground is off; `voxbridge serve --playground` serves it"),
];

/// The commonest paths, for a client whose path resembles none.
const USUAL_PATHS: &str = "; usual are /v1/realtime and, for REST, /v1/audio/transcriptions";

/// Where to find all paths.
const ALL_PATHS: &str = "`voxbridge serve --log debug` logs all paths";

/// The message for an unknown path: at most three lines on a terminal.
pub(in crate::server) fn message(path: &str, library: &Library) -> String {
    let shown: String = path.chars().take(SHOWN_PATH_MAX_CHARS).collect();
    let guess = guess(path, library).map_or(USUAL_PATHS.to_owned(), |guess| format!(": {guess}"));
    let separator = if guess.ends_with('?') { " " } else { "; " };
    format!("There is nothing at {shown}{guess}{separator}{ALL_PATHS}")
}

/// A guess at the path that the client meant: a known one that is spelled almost alike, or else the longest that lies above or below.
fn guess(path: &str, library: &Library) -> Option<String> {
    let trimmed = path.trim_end_matches('/');
    if let Some((_, instead)) = INSTEAD.iter().find(|(end, _)| trimmed.ends_with(end)) {
        return Some((*instead).to_owned());
    }
    let of_clients = library
        .clients()
        .flat_map(|client| client.paths.iter().map(|path| (path.as_str(), client.title.as_str())));
    let with_jobs = library.clients().filter_map(|client| Some((client, client.jobs.as_ref()?)));
    let of_jobs: Vec<(String, &str)> =
        with_jobs.flat_map(|(client, jobs)| jobs.paths().map(|path| (path, client.title.as_str()))).collect();
    let known: Vec<(&str, &str)> = of_clients
        .chain(of_jobs.iter().map(|(path, title)| (path.as_str(), *title)))
        .chain(REST_PATHS.map(|path| (path, "REST requests")))
        .filter(|(path, _)| path.len() > 1)
        .collect();
    if let Some(near) = respelled(trimmed, known.iter().map(|(path, _)| *path)) {
        return Some(format!("did you mean `{near}`?"));
    }
    let is_below =
        |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('/'));
    let around = known.iter().filter(|(known, _)| is_below(trimmed, known) || is_below(known, trimmed));
    if let Some((known, title)) = around.max_by_key(|(known, _)| known.len()) {
        return Some(format!("{known} serves {title}"));
    }
    let near = nearest(trimmed, known.iter().map(|(path, _)| *path))?;
    Some(format!("did you mean `{near}`?"))
}

/// The known path that the wrong one misspells: it has as many parts, and all are alike.
fn respelled<'k>(wrong: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let spelled: Vec<(String, &str)> = known
        .filter_map(|known| Some((spell(wrong, known)?, known)))
        .filter(|(path, _)| path != wrong)
        .collect();
    let near = nearest(wrong, spelled.iter().map(|(path, _)| path.as_str()))?;
    spelled.iter().find(|(path, _)| path == near).map(|(_, known)| *known)
}

/// The path with its parts spelled as those of a known one, whose parts in braces can be any; `None` if the two are not alike.
fn spell(path: &str, known: &str) -> Option<String> {
    if path.split('/').count() != known.split('/').count() {
        return None;
    }
    let spell_part = |(part, known): (&str, &str)| {
        let is_any = known.starts_with('{');
        let is_near = |known| part == known || nearest(part, std::iter::once(known)).is_some();
        (is_any || is_near(known)).then(|| if is_any { part.to_owned() } else { known.to_owned() })
    };
    let parts: Option<Vec<String>> = path.split('/').zip(known.split('/')).map(spell_part).collect();
    parts.map(|parts| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_paths_get_a_guess_in_three_lines() {
        let library = Library::embedded().unwrap();
        for (path, guess) in [
            ("/v2/agent/x/y", "/v2/agent serves Speechmatics"),
            ("/proxy/v1/chat/completions", "the Chat Completions API is not served"),
            ("/v1/realtime/translations", "a profile that translates"),
            ("/playground/", "--playground"),
            ("/plivo/x", "/plivo serves Plivo audio streaming"),
            ("/stt", "serves Cartesia speech to text"),
            ("/v1/realtme", "did you mean `/v1/realtime`"),
            ("/v1/audio/transcription", "did you mean `/v1/audio/transcriptions`"),
            ("/v1/transcription", "did you mean `/v1/transcriptions`"),
            ("/v1/transcriptions/7/words", "serves Soniox"),
            ("/v2/transcrip", "did you mean `/v2/transcript`"),
            ("/v2/trnscript/7", "did you mean `/v2/transcript/{id}`"),
            ("/v2/job", "did you mean `/v2/jobs`"),
            ("/v2/pre-recordd", "did you mean `/v2/pre-recorded`"),
            ("/v1/transcriptions/7/transcrpt", "did you mean `/v1/transcriptions/{id}/transcript`"),
            ("/v1/text-to-speech/any/strem", "did you mean `/v1/text-to-speech/{voice_id}/stream`"),
            ("/v2/nothing", "/v2 serves Speechmatics"),
            ("/nothing-like-this", "There is nothing at /nothing-like-this; usual are /v1/realtime"),
        ] {
            let message = message(path, &library);
            assert!(message.contains(guess) && !message.contains("?;"), "{path}: {message}");
            assert!(message.len() <= 3 * 80, "{path}: {message}");
        }
        for long in ["/x".repeat(4000), format!("/v1/text-to-speech/{}/strem", "x".repeat(4000))] {
            assert!(message(&long, &library).len() <= 3 * 80);
        }
    }
}
