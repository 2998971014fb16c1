//! Tests of engine processes, whose Python is a shell script.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const READY: &str = r#"echo '{"ready":true,"recogniser":"r","synthesiser":"s"}'"#;

/// A directory that looks complete; its "Python" is a shell script.
struct FakeEngines(PathBuf);

impl FakeEngines {
    fn new(name: &str, script: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("voxbridge-{}-{name}", std::process::id()));
        for part in REQUIRED_PARTS {
            std::fs::create_dir_all(dir.join(part)).unwrap();
        }
        let python = dir.join("python3");
        std::fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(dir.join("stamp"), format!("{STAMP_HEADER}\nx=y\npython={}\n", python.display()))
            .unwrap();
        Self(dir)
    }

    async fn start(&self) -> Result<EngineProcess, EngineError> {
        EngineProcess::start(&self.0).await
    }
}

impl Drop for FakeEngines {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn setup_script_writes_expected_stamp() {
    let setup = include_str!("../../../examples/engines/setup");
    assert!(
        setup.lines().any(|line| line == STAMP_HEADER.to_uppercase()),
        "SET differs between setup and process.rs"
    );
}

#[test]
fn missing_directory_error_names_setup_command() {
    let error = find_engines(Path::new("/nowhere/engines")).unwrap_err().to_string();
    assert_eq!(
        error,
        "no speech engines in /nowhere/engines: the directory does not exist; \
         set them up with: examples/engines/setup /nowhere/engines"
    );
}

#[test]
fn incomplete_directory_error_names_missing_part() {
    let engines_dir = FakeEngines::new("incomplete", READY);
    find_engines(&engines_dir.0).unwrap();
    std::fs::remove_dir_all(engines_dir.0.join(REQUIRED_PARTS[3])).unwrap();
    assert!(find_engines(&engines_dir.0).unwrap_err().to_string().contains("python/onnxruntime is missing"));
    std::fs::write(engines_dir.0.join("stamp"), "set=0\n").unwrap();
    assert!(find_engines(&engines_dir.0).unwrap_err().to_string().contains("another version"));
    std::fs::remove_file(engines_dir.0.join("stamp")).unwrap();
    assert!(find_engines(&engines_dir.0).unwrap_err().to_string().contains("setup was not run"));
}

#[tokio::test]
async fn helper_start_failure_is_reported() {
    let engines_dir =
        FakeEngines::new("refusing", r#"echo '{"ready":false,"error":"flite is not installed"}'; exit 1"#);
    assert_eq!(engines_dir.start().await.unwrap_err(), EngineError::Start("flite is not installed".into()));
    let engines_dir = FakeEngines::new("failing", "echo 'no module' >&2; exit 3");
    assert_eq!(
        engines_dir.start().await.unwrap_err(),
        EngineError::Start("exit status: 3, no module".into())
    );
    let engines_dir = FakeEngines::new("babbling", "echo hello; exec sleep 100");
    assert!(matches!(engines_dir.start().await.unwrap_err(), EngineError::Start(_)));
}

#[tokio::test]
async fn answers_and_rejections_keep_request_order() {
    let engines_dir = FakeEngines::new(
        "answering",
        &format!(
            "{READY}\nread a; echo '{{\"id\":1,\"error\":\"not now\"}}'\n\
             read b; printf '{{\"id\":2,\"bytes\":8}}\\n\\0\\0\\200\\077\\0\\0\\0\\300'\ncat >/dev/null"
        ),
    );
    let engines = engines_dir.start().await.unwrap();
    assert_eq!((engines.recogniser(), engines.synthesiser()), ("r", "s"));
    let (first, second) = tokio::join!(engines.speak("one".into()), engines.speak("two".into()));
    assert_eq!(first.unwrap_err(), EngineError::Refused("not now".into()));
    assert_eq!(second.unwrap(), [1.0, -2.0]);
}

#[tokio::test]
async fn helper_exit_fails_pending_and_later_requests() {
    let engines_dir =
        FakeEngines::new("dying", &format!("{READY}\nread a\necho 'out of memory' >&2\nexit 9"));
    let engines = engines_dir.start().await.unwrap();
    let stopped = EngineError::Stopped("exit status: 9, out of memory".into());
    let (first, second) = tokio::join!(engines.speak("one".into()), engines.recognise(vec![0.0; 1 << 20]));
    assert_eq!(first.unwrap_err(), stopped);
    assert_eq!(second.unwrap_err(), stopped);
    assert_eq!(engines.speak("three".into()).await.unwrap_err(), stopped);
}

#[tokio::test]
async fn answer_with_wrong_id_stops_engines() {
    let engines_dir = FakeEngines::new(
        "mixing",
        &format!("{READY}\nread a; echo '{{\"id\":7,\"text\":\"x\"}}'\nexec sleep 100"),
    );
    let engines = engines_dir.start().await.unwrap();
    let error = engines.speak("one".into()).await.unwrap_err();
    assert_eq!(error, EngineError::Stopped("invalid answer (wrong id or size)".into()));
}
