//! Mistakes in `[jobs]`, and the settings of jobs.

use super::JobSettings;
use crate::spelling::Library;

const ASSEMBLYAI: &str = include_str!("../../../../mappings/client/assemblyai.toml");
const SONIOX: &str = include_str!("../../../../mappings/client/soniox.toml");
const SPEECHMATICS: &str = include_str!("../../../../mappings/client/speechmatics.toml");

#[test]
fn mistakes_are_reported_with_their_words() {
    for (source, old, new, words) in [
        (ASSEMBLYAI, "audio_url = \"/audio_url\"", "", "says where a job names its upload"),
        (ASSEMBLYAI, "audio_url = \"/audio_url\"", "audio_url = \"audio_url\"", "begins with `/`"),
        (
            ASSEMBLYAI,
            "[jobs.uploads]\npath = \"/v2/upload\"",
            "",
            "either to `uploads` or in `recording_field`",
        ),
        (SPEECHMATICS, "settings_field = \"config\"", "", "fields of one form"),
        (SPEECHMATICS, "file = \"srt\"", "file = \"srtx\"", "srt"),
        (SONIOX, "[jobs.answers]\n", "[jobs.answers]\nfinished = '{}'\n", "finished"),
        (SONIOX, "running = '", "deleted = '", "needs `running`"),
        (SONIOX, "\"tokens\": ${words}", "\"tokens\": ${wrds}", "wrds"),
        (SONIOX, "answer = '{\"id\"", "file = \"srt\"\nanswer = '{\"id\"", "either a `file` or an `answer`"),
        (
            SONIOX,
            "context = { at = \"/context/text\", to = \"transcription_prompt\"",
            "context = { at = \"/context/text\", to = \"instructions\"",
            "a job has fields for model",
        ),
    ] {
        assert!(source.contains(old), "{old}");
        let problem = Library::default().add("f.toml", &source.replacen(old, new, 1)).unwrap_err();
        assert!(problem.to_string().contains(words), "{new}: {problem}");
    }
}

#[test]
fn settings_are_read_where_the_file_has_them() {
    let library = Library::embedded().unwrap();
    let read = |client: &str, json: &str| library.client(client).unwrap().jobs.as_ref().unwrap().read(json);
    let assemblyai = read(
        "assemblyai",
        r#"{"audio_url": "u", "speech_models": ["best", "nano"], "language_code": "de", "keyterms_prompt": ["a b"],
            "word_boost": ["c"], "prompt": "p", "webhook_url": null, "redact_pii": false, "more": {"x": 1}}"#,
    );
    let text = |words: &str| Some(words.to_owned());
    let expected = JobSettings {
        audio_url: text("u"),
        model: text("best"),
        language: text("de"),
        hot_words: vec!["a b".to_owned(), "c".to_owned()],
        prompt: text("p"),
        ..JobSettings::default()
    };
    assert_eq!(assemblyai, Ok(expected));
    let soniox = read("soniox", r#"{"file_id": "7", "model": "m", "language_hints": ["zh", "en"]}"#).unwrap();
    assert_eq!((soniox.upload_id, soniox.language), (text("7"), text("zh")));
    let gladia = r#"{"custom_vocabulary_config": {"vocabulary": ["a", {"value": "b"}]}}"#;
    assert_eq!(read("gladia", gladia).unwrap().hot_words, ["a", "b"]);
    for (client, json, words) in [
        ("assemblyai", r#"{"webhook_url": "https://x"}"#, "'webhook_url': results"),
        ("gladia", r#"{"language_config": {"languages": [7]}}"#, "'language'"),
        ("speechmatics", r#"{"fetch_data": {"url": "https://x"}}"#, "'fetch_data'"),
        ("soniox", "[]", "object"),
        ("soniox", "{", "EOF"),
    ] {
        let problem = read(client, json).unwrap_err();
        assert!(problem.contains(words), "{json}: {problem}");
    }
}
