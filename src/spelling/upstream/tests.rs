//! Tests of required and optional parts of dialect files.

use super::*;

const LEGACY: &str = include_str!("../../../mappings/upstream/minicpm-o-legacy.toml");

fn compile(source: &str) -> Result<UpstreamMapping, FileError> {
    UpstreamMapping::compile(&Document::parse("f", source)?)
}

fn compile_error(old: &str, new: &str) -> String {
    assert!(LEGACY.contains(old), "{old}");
    compile(&LEGACY.replace(old, new)).unwrap_err().to_string()
}

#[test]
fn dialect_must_define_messages_of_its_modes() {
    assert!(compile(LEGACY).is_ok(), "chat messages are needed only in chat mode");
    let chat = compile_error("modes = {", "modes = { chat = \"chat\",");
    assert!(chat.contains("no `init`, which mode `chat`"), "{chat}");
    let append = compile_error("\nappend = ", "\n# ");
    assert!(append.contains("no `append`, which mode `audio`"), "{append}");
    let frame = "append_with_frame = '''{\n    \"type\": \"input_audio_buffer.append\",\n    \"audio\": ${audio}, \"force_listen\": ${force_listen},\n    \"video_frames\": [${frame}], \"max_slice_nums\": 1\n}'''";
    assert!(compile_error(frame, "").contains("no `append_with_frame`, which mode `video`"));
    let without_video = LEGACY.replace(frame, "").replace(", video = \"video\"", "");
    assert!(compile(&without_video).is_ok(), "picture messages are needed only in video mode");
}

#[test]
fn voice_encodings_must_be_non_empty_and_distinct() {
    for (new, words) in [
        ("[]", "list `f32le`, `wav` or `wav_url`"),
        ("[\"wav\", \"wav\"]", "each at most once"),
        ("[\"wave\"]", "did you mean `wav`"),
    ] {
        let problem = compile_error("[\"f32le\", \"wav\"]", new);
        assert!(problem.contains(words) && problem.starts_with("f:18:"), "{problem}");
    }
}
