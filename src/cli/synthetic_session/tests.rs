mod mutations;

use super::SyntheticSession;
use crate::{
    cli::synthetic_session::replay_epoch,
    spelling::{Library, compatibility::check_compatible},
};

const MACAW: &str = include_str!("../../../mappings/client/macaw.toml");
const VOSK: &str = include_str!("../../../mappings/client/vosk.toml");
const SPEECH: &str = include_str!("../../../mappings/profile/speech.toml");
const CONVERSATION: &str = include_str!("../../../mappings/profile/conversation.toml");
const MINICPM_O: &str = include_str!("../../../mappings/upstream/minicpm-o.toml");

fn problems(library: &Library, [client, profile, dialect]: [&str; 3]) -> Vec<String> {
    let session = SyntheticSession {
        client: library.client(client).unwrap(),
        profile: library.profile(profile).unwrap(),
        dialect: library.upstream(dialect).unwrap(),
    };
    session.find_problems(replay_epoch())
}

#[test]
fn built_in_mappings_work() {
    let library = Library::embedded().unwrap();
    for client in library.clients().filter(|client| !client.is_relayed()) {
        // A client notices nothing of the dialect but what these two have: transcripts and texts, and answers.
        let needs_all = ["macaw", "openai-realtime"].contains(&client.name.as_str());
        for profile in library.profiles() {
            let is_tried = |name: &str| needs_all || name == "minicpm-o";
            let dialects = library.upstreams().filter(|dialect| dialect.is_plain() || dialect.is_http());
            for dialect in dialects.filter(|dialect| is_tried(&dialect.name)) {
                if check_compatible(client, profile, dialect).is_ok() {
                    let names = [client.name.as_str(), &profile.name, &dialect.name];
                    assert_eq!(problems(&library, names), [""; 0], "{names:?}");
                }
            }
        }
    }
}

#[test]
fn mistakes_that_compile_are_found() {
    let talk = ["macaw", "conversation", "minicpm-o"];
    let speech = ["macaw", "speech", "minicpm-o"];
    let vosk = ["vosk", "speech", "minicpm-o"];
    let not_ready = "no transcript reaches the client (the upstream session never becomes ready)";
    let not_heard = "no transcript reaches the client (the detector finds no speech in the audio)";
    let no_effect = "no transcript reaches the client (the upstream's answer has no effect)";
    let not_spoken = "a text to speak gives no audio";
    for (source, old, new, names, problem) in [
        (MINICPM_O, r#"event = "ready""#, r#"event = "granted""#, speech, not_ready),
        (MINICPM_O, r#"event = "done""#, r#"event = "listen""#, speech, no_effect),
        (MINICPM_O, r#"event = "audio""#, r#"event = "text""#, speech, not_spoken),
        (SPEECH, "threshold = 0.55", "threshold = 1.0", speech, not_heard),
        (SPEECH, "start_ms = 250", "start_ms = 25000", speech, not_heard),
        (SPEECH, "init_max_ms = 60000", "init_max_ms = 0", speech, not_ready),
        (SPEECH, "answer_max_ms = 30000", "answer_max_ms = 0", speech, no_effect),
        (MACAW, "min = 1, max = 4096", "min = 1, max = 4", speech, not_spoken),
        (MACAW, r#""text": ${text}, "segment"#, r#""segment"#, speech, no_effect),
        (VOSK, r#""text": ${text}}'"#, r#""text": ""}'"#, vosk, no_effect),
        (CONVERSATION, "unit_min_ms = 500", "unit_min_ms = 86400000", talk, no_effect),
    ] {
        assert!(source.contains(old), "{old}");
        let mut library = Library::embedded().unwrap();
        library.add("changed.toml", &source.replace(old, new)).unwrap();
        let found = problems(&library, names);
        assert!(found.iter().any(|it| it == problem), "{new}: {found:?}");
    }
}

#[test]
fn transcripts_of_words_or_segments_count_as_transcripts() {
    for messages in [
        "transcript_final = '{\"result\": ${words}}'\ntranscript_word = '{\"word\": ${word}}'\n",
        "transcript_final = '{\"result\": ${last_segments}}'\ntranscript_segment = '{\"said\": ${text}}'\n",
    ] {
        let is_kept =
            |line: &&str| !line.starts_with("transcript_final") && !line.starts_with("transcript_word");
        let kept: String = VOSK.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect();
        let mut library = Library::embedded().unwrap();
        library.add("changed.toml", &kept.replace("[events]\n", &format!("[events]\n{messages}"))).unwrap();
        assert_eq!(problems(&library, ["vosk", "speech", "minicpm-o"]), [""; 0], "{messages}");
    }
}
