//! The load generator (`examples/load`): a clean run is reported as clean, and injected faults are found. Its
//! modules are tested here too, because `cargo test` does not run an example's unit tests.

#[allow(dead_code, reason = "the example uses it all")]
#[path = "../../../examples/load/append.rs"]
mod append;
#[allow(dead_code, reason = "the example uses it all")]
#[path = "../../../examples/load/audio_matcher.rs"]
mod audio_matcher;
#[allow(dead_code, reason = "the example uses it all")]
#[path = "../../../examples/load/fault_schedule.rs"]
mod fault_schedule;
#[allow(dead_code, reason = "the example uses it all")]
#[path = "../../../examples/load/sample_tracker.rs"]
mod sample_tracker;
#[allow(dead_code, reason = "the example uses it all")]
#[path = "../../../examples/load/statistics.rs"]
mod statistics;
#[allow(dead_code, reason = "the example uses it all")]
#[path = "../../../examples/load/test_audio.rs"]
mod test_audio;

use super::*;

/// Longer than a run of a few seconds takes on a busy machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(120);

/// The example as built by `cargo test`.
pub(crate) fn generator_path() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let generator = own.parent().and_then(Path::parent).unwrap().join("examples/load");
    assert!(generator.exists(), "build it first, as `cargo test` does: cargo build --example load");
    generator
}

/// Runs the generator against the program, without heavy tests beside it.
async fn run_generator(name: &str, options: &[&str]) -> (Value, bool) {
    let _machine = calm_machine().await;
    run_beside_others(name, options).await
}

/// Runs the generator against the program; returns its report and whether the run was clean. Its exit code
/// for lateness of the generator itself is ignored, since that depends on the machine.
async fn run_beside_others(name: &str, options: &[&str]) -> (Value, bool) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("load-{name}.json"));
    let mut command = Command::new(generator_path());
    command.args(["--program", env!("CARGO_BIN_EXE_voxbridge"), "--warmup", "0.5"]).args(options);
    command.arg("--json").arg(&file).kill_on_drop(true);
    let output = timeout(RUN_TIMEOUT, command.output()).await.expect("the generator does not end").unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{:?}: {stderr}", output.status);
    let results: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let run = results["runs"][0].clone();
    let clean = run["clean"].as_bool().unwrap();
    assert!(clean || output.status.code() != Some(0), "{run:#}");
    (run, clean)
}

/// Options of a run in which the model answers within seconds: a second of speech, then silence.
const SHORT_CONVERSATION: [&str; 6] = ["--sessions", "8", "--speech", "0.1", "--seconds", "4"];

#[tokio::test]
async fn bridge_loses_no_samples_under_load() {
    let (run, clean) = run_generator("clean", &SHORT_CONVERSATION).await;
    assert!(clean, "{run:#}");
    for direction in ["up", "down"] {
        assert!(run["samples"][direction]["received"].as_u64() > Some(100_000), "{run:#}");
        assert!(run["latency_ms"][direction]["count"].as_u64() > Some(4), "{run:#}");
    }
    assert_eq!(run["units"]["strange"], 0, "{run:#}");
    assert!(run["cpu"]["us_per_session_second"].as_f64() > Some(0.0), "{run:#}");
    assert!(run["memory_kib"]["per_idle_session"].as_f64() > Some(0.0), "{run:#}");
}

#[tokio::test]
async fn bridge_loses_no_samples_with_any_server() {
    let _machine = calm_machine().await;
    let servers = ["sglang", "vllm", "legacy", "backend"];
    let runs = servers.map(async |server| {
        // One session is all that a back-end without a gateway has.
        let sessions = if server == "backend" { "1" } else { "4" };
        let options = ["--server", server, "--sessions", sessions, "--speech", "0.1", "--seconds", "4"];
        run_beside_others(server, &options).await
    });
    for (server, (run, clean)) in servers.into_iter().zip(join_all(runs).await) {
        assert!(clean && run["errors"] == 0 && run["units"]["strange"] == 0, "{server}: {run:#}");
        for direction in ["up", "down"] {
            assert!(run["samples"][direction]["received"].as_u64() >= Some(48_000), "{server}: {run:#}");
        }
    }
}

#[tokio::test]
async fn server_without_conversations_is_refused() {
    let mut command = Command::new(generator_path());
    let output = command.args(["--server", "sglang-http"]).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("the stub holds conversations"), "{stderr}");
}

#[tokio::test]
async fn clients_of_openai_are_answered_in_both_profiles() {
    let openai = ["--client", "openai-realtime", "--rate", "24000"];
    let (run, clean) = run_generator("openai", &[&SHORT_CONVERSATION[..], &openai].concat()).await;
    assert!(clean && run["errors"] == 0, "{run:#}");
    assert!(run["samples"]["down"]["received"].as_u64() > Some(100_000), "{run:#}");
    // Each client begins in another second of the loop, so that some of them speak at once.
    let assistant = ["--profile", "assistant", "--sessions", "14", "--speech", "0.1", "--seconds", "5"];
    let options = [&openai[..], &assistant].concat();
    let (run, clean) = run_generator("openai-assistant", &options).await;
    assert!(clean && run["errors"] == 0 && run["units"]["strange"] == 0, "{run:#}");
    assert!(run["samples"]["down"]["received"].as_u64() >= Some(48_000), "{run:#}");
    assert!(run["latency_ms"]["answer"]["count"].as_u64() > Some(0), "{run:#}");
}

#[tokio::test]
async fn injected_faults_are_counted() {
    // The model skips the second second of its turn, which a run on a busy machine may not reach. A run whose audio came seconds late
    // says nothing.
    for seconds in ["10", "40", "40"] {
        let options = ["--sessions", "2", "--speech", "0.1", "--seconds", seconds, "--spoil", "3"];
        let (run, clean) = run_generator("spoiled", &options).await;
        assert!(!clean, "{run:#}");
        if run["last_error"].as_str().is_some_and(|error| error.contains("session.frames_dropped")) {
            continue;
        }
        for count in ["lost", "duplicated", "reordered"] {
            assert_eq!(run["samples"]["up"][count], 320, "a frame of 20 ms, {count}: {run:#}");
        }
        if run["samples"]["down"]["lost"] == 24_000 {
            return;
        }
    }
    panic!("no second of the model was lost");
}
