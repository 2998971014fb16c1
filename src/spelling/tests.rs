use super::*;

fn profile(name: &str, extends: &str, rest: &str) -> (String, String) {
    let head = format!("kind = \"profile\"\nname = {name:?}\ntitle = \"t\"\nextends = {extends:?}\n");
    (format!("{name}.toml"), format!("{head}mode = \"audio\"\n{rest}"))
}

const BARGE_IN_SECTION: &str =
    "[barge_in]\nstart_ms = 1\nquiet_ms = 2\nsuppress_max_ms = 3\nyield_max_ms = 4\n";

#[test]
fn profiles_inherit_missing_sections_in_any_file_order() {
    let mut library = Library::embedded().unwrap();
    library.add_all(vec![profile("a", "b", ""), profile("b", "conversation", BARGE_IN_SECTION)]).unwrap();
    let a = library.profile("a").unwrap();
    assert_eq!(a.dialogue.as_ref().map(|talk| talk.barge_in.start_ms), Some(1));
    assert_eq!(a.listen.start_ms, 250, "inherited from `speech` through two profiles");
}

#[test]
fn profiles_inherit_missing_keys_of_every_table() {
    let mut library = Library::embedded().unwrap();
    let (file, source) = profile("mine", "speech", "");
    let rest = "[hear]\ninterim_ms = 500\n[listen.sensitivity]\nnormal = { threshold = 0.5 }\n";
    library.add(&file, &(source.replace("mode = \"audio\"\n", "") + rest)).unwrap();
    let (mine, speech) = (library.profile("mine").unwrap(), library.profile("speech").unwrap());
    assert_eq!((mine.hear.interim.as_millis(), speech.hear.interim.as_millis()), (500, 0));
    let request = profile::PromptRequest { language: "zh", ..Default::default() };
    assert_eq!(mine.hear.prompt(&request), speech.hear.prompt(&request));
    assert_eq!((mine.mode, mine.listen.start_ms), (speech.mode, speech.listen.start_ms));
    let sensitivity = mine.listen.sensitivity.normal;
    assert_eq!((sensitivity.threshold, sensitivity.gate_dbfs), (0.5, -65.0));
    let problem = library.add("f.toml", &(profile("f", "mine", "[hear]\nintrim_ms = 1\n").1)).unwrap_err();
    assert!(problem.to_string().starts_with("f.toml:7:1: unknown key `intrim_ms`"), "{problem}");
    let relay = "[relay]\nidle_ms = 5000\n";
    let (file, source) = profile("r", "relay", relay);
    library.add(&file, &source.replace("mode = \"audio\"\n", "")).unwrap();
    let relay = library.profile("r").unwrap().relay.unwrap();
    assert_eq!((relay.idle_ms, relay.open_attempts), (5000, 2));
}

#[test]
fn live_profile_is_speech_with_interim_transcripts() {
    let library = Library::embedded().unwrap();
    let (live, speech) = (library.profile("live").unwrap(), library.profile("speech").unwrap());
    assert!(live.hear.interim > std::time::Duration::ZERO && live.hear.partials);
    assert_eq!((live.mode, live.lanes.dial_max_ms), (speech.mode, speech.lanes.dial_max_ms));
}

#[test]
fn errors_of_every_file_in_a_directory_are_reported() {
    let file = |name: &str, source: String| (format!("{name}.toml"), source);
    let client = |name: &str| {
        scaffold::generate(&Library::embedded().unwrap(), MappingKind::Client, name, true).unwrap()
    };
    let twice = client("two").replace("\"/two\"", "\"/elsewhere\"");
    let copy = scaffold::generate_from(&Library::embedded().unwrap(), MappingKind::Client, "macaw", "three")
        .unwrap();
    let same_path = copy.replace("\"/three\"", "\"/v1/realtime\"");
    let files = vec![
        file("a", client("one").replace("idle_ms", "idel_ms")),
        file("b", client("two")),
        file("c", twice),
        file("d", same_path),
        file("e", "kind = ".to_owned()),
        profile("f", "conversatoin", ""),
        file("g", client("six").replace("[closes]", "[cloeses]")),
    ];
    let told = Library::embedded().unwrap().add_all(files).unwrap_err().flatten();
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    for (file, words) in [
        ("a.toml:", "did you mean `idle_ms`?"),
        ("c.toml:4:", "b.toml already defines client \"two\""),
        ("d.toml:", "client macaw is served at the same path"),
        ("e.toml:1:", ""),
        ("g.toml:", "did you mean `closes`?"),
    ] {
        assert!(
            told.iter().any(|problem| problem.starts_with(file) && problem.contains(words)),
            "{file}: {told:#?}"
        );
    }
}

#[test]
fn jobs_of_two_files_at_one_path_are_rejected_unless_a_key_or_a_form_tells_them_apart() {
    let embedded = Library::embedded().unwrap();
    let conflict = |from: &str, changes: &[(&str, &str)]| {
        let mut source = scaffold::generate_from(&embedded, MappingKind::Client, from, "mine").unwrap();
        for (old, new) in changes {
            assert!(source.contains(old), "{old}");
            source = source.replacen(old, new, 1);
        }
        let line = |key: &str| source.lines().position(|line| line == key).map_or(0, |at| at + 1);
        let [jobs, uploads] = [line("path = \"/v2/transcript\""), line("path = \"/v2/upload\"")];
        let added = embedded.clone().add_all(vec![("mine.toml".to_owned(), source)]);
        let told = added.err().map(|problem| problem.to_string());
        told.map(|told| {
            assert!(told.contains("is served at the same path"), "{told}");
            let is_at = |line: usize| line > 0 && told.starts_with(&format!("mine.toml:{line}:"));
            if is_at(jobs) {
                "jobs"
            } else if is_at(uploads) {
                "uploads"
            } else {
                "elsewhere"
            }
        })
    };
    let jobs = ("\"/mine/v2/transcript\"", "\"/v2/transcript\"");
    let uploads = ("\"/mine/v2/upload\"", "\"/v2/upload\"");
    let key = ("paths = ", "key_headers = [\"x-mine\"]\npaths = ");
    let form = ("\"/v2/upload\"", "\"/v2/upload\"\nfield = \"file\"");
    for (from, changes, at) in [
        ("assemblyai", vec![], None),
        ("assemblyai", vec![jobs], Some("jobs")),
        ("assemblyai", vec![jobs, key], Some("jobs")),
        ("assemblyai", vec![uploads], Some("uploads")),
        // As Gladia's, from which a key tells it apart.
        ("assemblyai", vec![uploads, key, form], None),
        ("assemblyai", vec![uploads, form], Some("uploads")),
        ("gladia", vec![uploads], Some("uploads")),
    ] {
        assert_eq!(conflict(from, &changes), at, "{from}: {changes:?}");
    }
}

#[test]
fn replaced_profile_changes_its_dependents() {
    let mut library = Library::embedded().unwrap();
    let (file, source) = profile("conversation", "conversation", BARGE_IN_SECTION);
    library.add(&file, &source).unwrap();
    for dependent in ["conversation", "video"] {
        let talk = library.profile(dependent).unwrap().dialogue.clone();
        assert_eq!(talk.map(|talk| talk.barge_in.start_ms), Some(1), "{dependent}");
    }
}

#[test]
fn unknown_base_and_inheritance_cycle_are_rejected() {
    let mut library = Library::embedded().unwrap();
    let problem = library.add_all(vec![profile("a", "conversatoin", "")]).unwrap_err();
    assert!(
        problem.to_string().contains("a.toml:4") && problem.message.contains("`conversation`"),
        "{problem}"
    );
    let (file, source) = profile("speech", "video", "");
    let problem = library.add(&file, &source).unwrap_err();
    assert!(problem.message.contains("would extend itself through `conversation`"), "{problem}");
}
