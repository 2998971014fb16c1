//! What the file of a dialect may leave out, and what it may not.

use super::*;

const LEGACY: &str = include_str!("../../../mappings/upstream/minicpm-o-legacy.toml");

fn compile_error(old: &str, new: &str) -> String {
    assert!(LEGACY.contains(old), "{old}");
    UpstreamMapping::compile("f", &LEGACY.replace(old, new)).unwrap_err().to_string()
}

#[test]
fn dialect_must_define_messages_of_its_modes() {
    assert!(UpstreamMapping::compile("f", LEGACY).is_ok(), "without chat nothing of chat is needed");
    let chat = compile_error("modes = {", "modes = { chat = \"chat\",");
    assert!(chat.contains("nothing about `init`, which mode `chat`"), "{chat}");
    let append = compile_error("\nappend = ", "\n# ");
    assert!(append.contains("nothing about `append`, which mode `audio`"), "{append}");
    let frame = "append_with_frame = '''{\n    \"type\": \"input_audio_buffer.append\",\n    \"audio\": ${audio}, \"force_listen\": ${force_listen},\n    \"video_frames\": [${frame}], \"max_slice_nums\": 1\n}'''";
    assert!(compile_error(frame, "").contains("nothing about `append_with_frame`, which mode `video`"));
    let without_video = LEGACY.replace(frame, "").replace(", video = \"video\"", "");
    assert!(UpstreamMapping::compile("f", &without_video).is_ok(), "who sees nothing is sent no pictures");
}

#[test]
fn voice_encodings_must_be_non_empty_and_distinct() {
    for (new, words) in [
        ("[]", "at least one of `f32le` and `wav`"),
        ("[\"wav\", \"wav\"]", "each once"),
        ("[\"wave\"]", "did you mean `wav`"),
    ] {
        let problem = compile_error("[\"f32le\", \"wav\"]", new);
        assert!(problem.contains(words) && problem.starts_with("f:18:"), "{problem}");
    }
}
