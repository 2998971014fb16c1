use super::*;
use crate::spelling::check::parse_toml;

const WYOMING: &str = "[[tcp]]\nprotocol = \"wyoming\"\nlisten = 10300\n";

fn config(toml: &str) -> Config {
    parse_toml("t", toml).unwrap()
}

const UPSTREAM: &str = "[[upstream]]\nurl = \"ws://gpu:8006/v1/realtime\"\n";

#[test]
fn configuration_survives_as_a_table() {
    let guide = include_str!("../../examples/operate/README.md");
    let shown = guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let further = "tts_models = [\"a\"]\nplayground = true\n[webrtc]\nlisten = \"127.0.0.1:3478\"\n[[tcp]]\nprotocol = \"wyoming\"\n\
                   listen = 10300\n[trace]\ndir = \"t\"\naudio = true\n[log]\nlevel = \"debug\"\n[admin.tls]\ncert = \"c\"\n\
                   [turn_judge]\nurl = \"https://turns.example.com/raw?key=secret\"\n";
    let (profiles, shown): (Vec<_>, Vec<_>) = shown.partition(|toml| toml.contains("kind = \"profile\""));
    for profile in profiles {
        Library::embedded().unwrap().add("shown.toml", profile).unwrap_or_else(|problem| panic!("{problem}"));
    }
    for toml in shown.into_iter().chain([further, ""]) {
        let read = config(toml);
        assert_eq!(read.with_changed_table(|_| ()), read, "{toml}");
    }
}

#[test]
fn invalid_config_is_rejected_with_a_hint() {
    for (toml, hint) in [
        (UPSTREAM.replace("url", "ulr").as_str(), "did you mean `url`"),
        ("profil = \"x\"", "did you mean `profile`"),
    ] {
        let problem = parse_toml::<Config>("t", toml).unwrap_err().to_string();
        assert!(problem.contains(hint), "{problem}");
    }
    for (toml, words) in [
        ("".to_owned(), "no upstream"),
        (format!("profile = \"speach\"\n{UPSTREAM}"), "did you mean `speech`"),
        (format!("language = \"xx\"\n{UPSTREAM}"), "no prompt for `xx`"),
        (format!("idle_timeout_ms = 99\n{UPSTREAM}"), "100 to 86400000"),
        (format!("idle_timeout_ms = 86400001\n{UPSTREAM}"), "100 to 86400000"),
        (format!("sessions_max = 0\n{UPSTREAM}"), "1 to 1000000"),
        (format!("workers = 1025\n{UPSTREAM}"), "workers: must be 1 to 1024"),
        (format!("listen = [8000, \"localhost:8000\"]\n{UPSTREAM}"), "127.0.0.1:8000 is given twice"),
        (
            format!("workers = 1025\nsessions_max = 0\n{UPSTREAM}"),
            "sessions_max: must be 1 to 1000000\nworkers: ",
        ),
        (UPSTREAM.replace("ws://", "http://"), "must be ws or wss"),
        (UPSTREAM.replace("ws://", "ws://me:secret@"), "credentials"),
        (UPSTREAM.replace("realtime", "realtime?mode=Audio"), "unknown mode \"Audio\""),
        (format!("{UPSTREAM}[voices]\na = \"/nowhere.wav\""), "voices.a: /nowhere.wav"),
        (UPSTREAM.replace("8006", "99999"), "the port must be 1 to 65535"),
        (UPSTREAM.replace("realtime", "realtime#x"), "behind `#`"),
        (format!("{UPSTREAM}[[route]]\npath = \"twilio\"\nprofile = \"speech\""), "begins with `/`"),
        (format!("{UPSTREAM}[[route]]\npath = \"http://x/a\"\nprofile = \"speech\""), "begins with `/`"),
        (format!("{UPSTREAM}[[route]]\npath = \"/a?b=c\"\nprofile = \"speech\""), "without their query"),
        (format!("{UPSTREAM}{WYOMING}{WYOMING}"), "tcp.listen: 127.0.0.1:10300 conflicts"),
        (
            format!("listen = 10300\n{UPSTREAM}{WYOMING}"),
            "conflicts with the address 127.0.0.1:10300 (`listen`)",
        ),
        (format!("{UPSTREAM}[admin]\nlisten = 10300\n{WYOMING}"), "(`admin.listen`)"),
    ] {
        let problem = config(&toml).build_service().err().unwrap_or_default();
        assert!(problem.contains(words), "{toml}: {problem}");
    }
    assert!(config(&UPSTREAM.replace("realtime", "realtime?mode=chat&x=1")).build_service().is_ok());
}

#[test]
fn dialect_without_chat_serves_profiles_that_need_none() {
    let with = |rest: &str| config(&format!("{rest}{UPSTREAM}dialect = \"minicpm-o-legacy\"\n"));
    for profile in ["conversation", "video"] {
        let config = with(&format!("profile = {profile:?}\n"));
        assert_eq!(config.check(), Ok(()));
        let notes = config.notes();
        let has_note =
            |of: &str, what: &str| notes.iter().any(|note| note.contains(of) && note.contains(what));
        assert!(has_note(profile, "texts to speak are rejected"), "{notes:?}");
        assert!(has_note("relay", "clients in mode chat are rejected"), "{notes:?}");
    }
    let problem = with("").check().unwrap_err();
    for words in [
        "profile \"speech\" needs mode chat (",
        "no upstream serves (dialects: `minicpm-o-legacy`)",
        "another profile",
    ] {
        assert!(problem.contains(words), "{problem}");
    }
    assert!(config(UPSTREAM).notes().is_empty());
}

#[test]
fn conversation_needs_a_voice_only_with_a_server_that_says_so() {
    let dir = std::env::temp_dir().join(format!("voxbridge-voices-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let vllm = include_str!("../../mappings/upstream/vllm-omni.toml");
    let strict = vllm
        .replace("name = \"vllm-omni\"", "name = \"strict\"")
        .replace("\ncodec =", "\nvoice_required = true\ncodec =");
    fs::write(dir.join("strict.toml"), strict).unwrap();
    let with = |dialect: &str, rest: &str| {
        let upstream = format!("{UPSTREAM}dialect = {dialect:?}\n");
        config(&format!("profile = \"conversation\"\nmappings = {dir:?}\n{upstream}{rest}"))
    };
    let problem = with("strict", "").check().unwrap_err();
    assert!(problem.contains("needs a voice sample") && problem.contains("[voices] default"), "{problem}");
    let has_note =
        |config: &Config| config.notes().iter().any(|note| note.contains("may refuse conversations"));
    let without = with("vllm-omni", "");
    assert_eq!((without.check(), has_note(&without)), (Ok(()), true));
    let voice = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/speech/goforward_16k.wav");
    for dialect in ["strict", "vllm-omni"] {
        let with_voice = with(dialect, &format!("[voices]\ndefault = {voice:?}\n"));
        assert_eq!((with_voice.check(), has_note(&with_voice)), (Ok(()), false), "{dialect}");
    }
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn config_without_upstream_is_still_checked() {
    assert_eq!(config("").check(), Ok(()));
    for toml in ["profile = \"speach\"", "idle_timeout_ms = 99", "[voices]\na = \"/nowhere.wav\""] {
        assert!(config(toml).check().is_err(), "{toml}");
    }
    assert!(config(&UPSTREAM.replace("ws://", "http://")).check().is_err());
}

#[test]
fn outputs_that_cannot_be_written_are_rejected() {
    let root = std::env::temp_dir().join(format!("voxbridge-outputs-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("file"), "").unwrap();
    let path = |name: &str| root.join(name).display().to_string();
    let (log, trace) = (
        |path: &str| format!("[access_log]\npath = {path:?}"),
        |dir: &str| format!("[trace]\ndir = {dir:?}"),
    );
    for (toml, words) in [
        (log(&path("none/access.log")), "none does not exist; create it"),
        (log(&root.display().to_string()), "access_log.path"),
        (log(&path("file/access.log")), "access_log.path"),
        (trace(&path("file")), "cannot create a file in"),
        (trace(&path("file/a/b")), "trace.dir"),
    ] {
        let problem = config(&toml).check().unwrap_err();
        assert!(problem.contains(words), "{toml}: {problem}");
    }
    for toml in [log(&path("access.log")), log("-"), log("stderr"), trace(&path("a/b")), trace(&path(""))] {
        assert_eq!(config(&toml).check(), Ok(()), "{toml}");
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "the check left files behind");
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn route_behind_others_that_take_its_connections_is_warned_about() {
    let warnings = |routes: &[(&str, &str)]| {
        let route = |(keys, profile): &(&str, &str)| format!("[[route]]\n{keys}\nprofile = {profile:?}\n");
        let toml = UPSTREAM.to_owned() + &routes.iter().map(route).collect::<String>();
        Config::route_warnings(&config(&toml).build_service().unwrap_or_else(|problem| panic!("{problem}")))
    };
    for routes in [
        [("", "speech"), ("model = \"a\"", "live")],
        [("model = \"a*\"", "speech"), ("model = \"ab\"", "live")],
        [("client = \"macaw\"", "speech"), ("client = \"macaw\"\nmodel = \"x\"", "conversation")],
    ] {
        let found = warnings(&routes);
        assert!(found.len() == 1 && found[0].starts_with("[[route]] 2 "), "{routes:?}: {found:?}");
    }
    for routes in [
        [("model = \"a\"", "speech"), ("", "live")],
        [("client = \"macaw\"", "speech"), ("model = \"x\"", "live")],
        // A conversation serves fewer clients.
        [("", "conversation"), ("", "speech")],
        [("", "speech"), ("", "relay")],
    ] {
        assert_eq!(warnings(&routes), [""; 0], "{routes:?}");
    }
}

#[test]
fn expired_key_is_warned_about() {
    let keys = std::env::temp_dir().join(format!("voxbridge-expired-{}.toml", std::process::id()));
    let key =
        |name: &str, expires: &str| format!("[[key]]\nname = {name:?}\nkey = \"{name}-key\"\n{expires}\n");
    fs::write(
        &keys,
        key("old", "expires = 2027-01-15") + &key("new", "expires = 2027-01-16") + &key("none", ""),
    )
    .unwrap();
    let toml = format!("{UPSTREAM}[access]\nkeys = {keys:?}\n");
    let service = config(&toml).build_service().unwrap_or_else(|problem| panic!("{problem}"));
    fs::remove_file(keys).unwrap();
    // 2027-01-15T08:00:00Z.
    let warnings = Config::key_warnings(&service, 1_800_000_000);
    assert_eq!(warnings, ["access.keys: key \"old\" has expired; clients that use it are rejected"]);
}

#[test]
fn routes_without_catch_all_reject_unknown_models() {
    let routed = format!("{UPSTREAM}[[route]]\nmodel = \"whisper*\"\nprofile = \"speech\"\n");
    let service = config(&routed).build_service().unwrap_or_else(|problem| panic!("{problem}"));
    let macaw = service.library.client("macaw").unwrap();
    let has_route = |model: &str| service.routes.find("/v1/realtime", &macaw, model).is_some();
    assert!(has_route("whisper-tiny") && !has_route("nope"));
}
