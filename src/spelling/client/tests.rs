use crate::{error::ErrorKind, spelling::Library};

const GEMINI: &str = include_str!("../../../mappings/client/gemini-live.toml");
const LISTEN: &str = include_str!("../../../mappings/client/deepgram-listen.toml");
const MACAW: &str = include_str!("../../../mappings/client/macaw.toml");
const RELAYED: &str = include_str!("../../../mappings/client/minicpm-o.toml");
const REST: &str = include_str!("../../../mappings/client/rest.toml");
const AGENTS: &str = include_str!("../../../mappings/client/elevenlabs-agents.toml");
const AUDIOSOCKET: &str = include_str!("../../../mappings/client/audiosocket.toml");
const SHERPA: &str = include_str!("../../../mappings/client/sherpa-onnx.toml");
const WHISPER: &str = include_str!("../../../mappings/client/whisper-live.toml");
const VOSK: &str = include_str!("../../../mappings/client/vosk.toml");

#[test]
fn invalid_entries_are_rejected_with_their_position() {
    for (source, old, new, place, words) in [
        (VOSK, "present = \"/eof\"", "", "[commands.eof]", "needs `present`"),
        (VOSK, "present = \"/eof\"", "present = \"eof\"", "present = \"eof\"", "begins with `/`"),
        (VOSK, "present = \"/eof\"", "presnt = \"/eof\"", "presnt", "did you mean `present`"),
        (VOSK, "present = \"/eof\"", "exactly = { txt = \"Done\" }", "exactly", "did you mean `text`"),
        (
            VOSK,
            "present = \"/config\"",
            "present = \"/config\"\nexactly = { text = \"Done\" }",
            "exactly",
            "has no fields",
        ),
        (
            VOSK,
            "present = \"/eof\"\n\n[commands.reset]\nverb = \"finalize\"\npresent = \"/reset\"",
            "exactly= { text = \"Done\" }\n\n[commands.reset]\nverb = \"finalize\"\nexactly = { text = \"Done\" }",
            "exactly = ",
            "`eof` and `reset` are the same message",
        ),
        (
            VOSK,
            "config = { type = \"object\",",
            "config = { same_as = \"task\", type = \"text\",",
            "config = {",
            "no remembered value `task`",
        ),
        (
            VOSK,
            "config = { type = \"object\",",
            "\"/data/chunk\" = { type = \"object\",",
            "\"/data/chunk\" = {",
            "write `chunk = { at = \"/data/chunk\", … }`",
        ),
        (AGENTS, "signature = \"conversation_", "signature = \"", "signature", "none of `key_parameters`"),
        (AUDIOSOCKET, "idle_ms = 60000", "idle_ms = 0", "idle_ms", "answers no pings"),
        (WHISPER, "segments_max = 10", "segments_max = 101", "segments_max", "must be 1 to 100"),
        (
            SHERPA,
            "completed = {",
            "transcript_word = ['1']\ncompleted = {",
            "transcript_word",
            "one element of JSON",
        ),
        (
            WHISPER,
            "[query]",
            "[query]\nlang = { at = \"/l\", to = \"language\", type = \"text\" }",
            "lang",
            "found by its name",
        ),
        (SHERPA, "completed = {", "flushed = {", "[events]", "answered by an event `completed`"),
        (
            SHERPA,
            "{ text = \"Done!\" }",
            "{ txt = \"Done!\" }",
            "completed",
            "a table of `message` or `text`",
        ),
        (
            SHERPA,
            "{ text = \"Done!\" }",
            "{ text = \"Done ${text}\" }",
            "completed",
            "unknown slot `${text}`",
        ),
        (SHERPA, "paths =", "command_syntax = \"words\"\npaths =", "command_syntax", "needs a `command_key`"),
        (SHERPA, "paths =", "lock_step = \"final\"\npaths =", "lock_step", "did you mean `finals`"),
        (VOSK, "paths = [\"/\"]", "paths = [\"vosk\"]", "paths", "write \"/vosk\""),
        (VOSK, "paths = [\"/\"]", "paths = [\"/?a\"]", "paths", "has no query"),
        (VOSK, "paths = [\"/\"]", "paths = []", "paths", "must not be empty"),
        (VOSK, "model = { to = \"model\", ", "modle = { to = \"voice\", ", "[query]", "default = \"vosk\""),
        (REST, "rest = true", "", "paths", "must not be empty"),
        (REST, "parallel_max = 4", "parallel_max = 0", "parallel_max", "must be 1 to 16"),
        (VOSK, "rate_hz = 8000", "rate_hz = 0", "rate_hz = 0", "0"),
        (MACAW, "rate_hz = 24000", "rate_hz = 7999", "rate_hz = 7999", "7999"),
        (
            MACAW,
            "[audio_out]\nencoding = \"s16le\"\nrate_hz = 24000\nframe_max_bytes = 65536",
            "",
            "[audio_in]",
            "needs a table [audio_out]",
        ),
        (
            MACAW,
            "rate_hz = 24000",
            "bit_rate = 9000\nrate_hz = 24000",
            "bit_rate",
            "no audio to the client is",
        ),
        (
            MACAW,
            "rate_hz = 24000",
            "rates_hz = { opus = 44100 }\nrate_hz = 24000",
            "rates_hz",
            "44100 Hz (it has",
        ),
        (
            MACAW,
            "rate_hz = 24000",
            "rates_hz = { opus = 8000 }\ncomplexity = 11\nrate_hz = 24000",
            "complexity",
            "0 to 10",
        ),
        (VOSK, "channels = 1", "channels = 0", "channels", "0 audio channels"),
        (VOSK, "message_max_bytes = 1048576", "message_max_bytes = 0", "message_max_bytes", "every message"),
        (VOSK, "eof\", code = 1000", "eof\", code = 1006", "client_close", "cannot send close code 1006"),
        (VOSK, "close = { code = 1007", "close = { code = 2000", "malformed_json", "close code 2000"),
        (LISTEN, "command_key = \"/type\"", "command_key = \"type\"", "command_key", "write \"/type\""),
        (
            MACAW,
            "text = { to = \"text\", ",
            "txt = { because = \"x\", ",
            "verb = \"speak\"",
            "`to = \"text\"`",
        ),
        (
            MACAW,
            "image = { to = \"image\", ",
            "image = { because = \"x\", ",
            "verb = \"frame\"",
            "`to = \"image\"`",
        ),
        (RELAYED, "paths = [\"", "paths = [\"x", "paths", "begins with `/`"),
        (RELAYED, "command_key = \"/", "command_key = \"", "command_key", "begins with `/`"),
        (RELAYED, "use_client_reason = true, code = 1000", "code = 999", "client_close", "close code 999"),
        (VOSK, "at = \"/config/words\"", "at = \"config/words\"", "words = { at", "no JSON pointer"),
        (VOSK, "verb = \"finish\"", "verb = \"finsh\"", "verb = \"finsh\"", "did you mean `finish`"),
        (LISTEN, "mulaw = \"mulaw\"", "mulaw = \"ulaw\"", "encoding = {", "did you mean `mulaw`"),
        (LISTEN, "default = \"false\" }", "default = \"never\" }", "interim_results", "refuse itself"),
        (LISTEN, "[\"token\", ", "[\"a token\", ", "subprotocols", "subprotocol"),
        (LISTEN, "rates_hz = { mulaw", "rates_hz = { ulaw", "rates_hz", "did you mean `mulaw`"),
        (
            MACAW,
            "text = { to = \"text\", ",
            "text = { default = \"a\", to = \"text\", ",
            "text = { default",
            "has a `default` and is `required`",
        ),
        (
            MACAW,
            "verb = \"speak\"",
            "verb = { verb = \"speak\", unless = \"${state}\" }",
            "verb = { verb = \"speak\"",
            "[values] has no remembered value `state`",
        ),
        (
            MACAW,
            "verb = \"speak\"",
            "verb = \"speak\"\nreply = '{\"id\": ${at_ms}}'",
            "reply = ",
            "unknown slot `${at_ms}`",
        ),
        (VOSK, "paths = [\"/\"]", "paths = [\"/\"]\nframing = \"json\"", "framing", "needs audio in JSON"),
        (GEMINI, "= \"camel_or_snake\"", "= \"camel\"", "field_names", "camel_or_snake"),
        (
            GEMINI,
            "\"tools\", type = \"list\"",
            "\"tools\", type = \"object\"",
            "tools =",
            "`type = \"list\"`",
        ),
        (
            GEMINI,
            "responses = {",
            "more = { at = \"/setup/tools\", type = \"object\", because = \"a test\" }\nresponses = {",
            "tools =",
            "another field with the same pointer",
        ),
        (GEMINI, ", output = \"/response\" }", " }", "responses =", "needs the path of `output`"),
        (
            GEMINI,
            "to = \"tool_results\", type = \"list\", items = { call_id = \"/id\", name = \"/name\", output = \"/response\" }",
            "to = \"call_id\", type = \"text\"",
            "verb = \"tool_result\"",
            "`to = \"tool_results\"`",
        ),
        (
            LISTEN,
            "features = { type",
            "features = { value_map = { a = \"b\" }, type",
            "features",
            "cannot have",
        ),
    ] {
        assert!(source.contains(old), "{old}");
        let source = source.replacen(old, new, 1);
        let problem = Library::default().add("f.toml", &source).unwrap_err();
        let line = source.lines().position(|line| line.starts_with(place)).map(|at| at + 1);
        assert!(problem.message.contains(words), "{new}: {problem}");
        assert_eq!(Some(problem.line), line, "{new}: {problem}");
    }
}

#[test]
fn backpressure_excludes_max_ahead() {
    let both = LISTEN.replace("max_ahead_ms = 0", "max_ahead_ms = 1");
    let problem = Library::default().add("f.toml", &both).unwrap_err();
    assert!(problem.message.contains("one of them must be 0"), "{problem}");
}

#[test]
fn example_of_a_command_has_a_value_of_the_field_that_identifies_it() {
    use super::Verb;
    let library = Library::embedded().unwrap();
    let start = library.client("jambonz").unwrap().example(Verb::Configure, "", "").unwrap();
    assert_eq!(start, r#"{"sampleRate":8000}"#);
    let config = library.client("vosk").unwrap().example(Verb::Configure, "", "").unwrap();
    assert_eq!(config, r#"{"config":{}}"#);
}

#[test]
fn wrong_settings_have_an_error_of_their_own_where_the_file_spells_it() {
    let own = "other = { code = \"error\", recoverable = true }";
    let spelled = format!("invalid_configure = {{ code = \"bad\", recoverable = false }}\n{own}");
    let twilio = include_str!("../../../mappings/client/twilio.toml");
    for (source, is_spelled) in [(twilio.to_owned(), false), (twilio.replace(own, &spelled), true)] {
        let mut library = Library::embedded().unwrap();
        library.add("twilio.toml", &source).unwrap();
        assert_eq!(library.client("twilio").unwrap().spells_configure_errors(), is_spelled);
    }
}

#[test]
fn protocol_without_audio_output_needs_no_table_for_it() {
    let table =
        "[audio_out]\nencoding = \"s16le\"\nrate_hz = 24000\nframe_max_bytes = 0\n\n[commands.config]";
    for source in [VOSK.to_owned(), VOSK.replacen("[commands.config]", table, 1)] {
        let mut library = Library::default();
        library.add("vosk.toml", &source).unwrap();
        let audio = &library.client("vosk").unwrap().audio_out;
        assert_eq!((audio.rate_hz, audio.frame_max_bytes), (24_000, 0));
    }
}

#[test]
fn every_protocol_has_a_code_for_every_error() {
    let library = Library::embedded().unwrap();
    for client in library.clients.values() {
        for kind in ErrorKind::SESSION_KINDS {
            let Some(spelling) = client.error(kind) else { continue };
            assert!(!spelling.code.is_empty(), "{}: {}", client.name, kind.name());
        }
    }
    let (old, new) = ("other = { code = \"failed\"", "other = { code = \"\"");
    let mut library = Library::default();
    let problem = library.add("f.toml", &WHISPER.replace(old, new)).unwrap_err();
    assert!(problem.to_string().contains("needs a code"), "{problem}");
}

/// A refusal is the client's error, in each protocol that has a word for one; only protocols whose clients wait for one answer
/// end with it.
#[test]
fn refusal_ends_only_sessions_that_a_failed_transcript_ends() {
    let library = Library::embedded().unwrap();
    for client in library.clients.values() {
        let recoverable = |kind| client.error(kind).is_none_or(|spelling| spelling.recoverable);
        let (refused, failed) = (recoverable(ErrorKind::Refused), recoverable(ErrorKind::TranscribeFailed));
        assert_eq!(refused, failed, "{}", client.name);
    }
}

#[test]
fn speechmatics_agents_have_a_profile_in_their_path() {
    let library = Library::embedded().unwrap();
    let at = |path| library.clients_at(path).map(|client| client.name.as_str()).collect::<Vec<_>>();
    for path in ["/v2/agent", "/v2/agent/adaptive"] {
        assert_eq!(at(path), ["speechmatics-agent"], "{path}");
    }
    assert_eq!(at("/v2/en"), ["speechmatics"]);
}
