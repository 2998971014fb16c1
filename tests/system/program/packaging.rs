//! Files for operators in `examples/`: the container image, the nginx configuration, the dashboard and the alert
//! rules, numbers that several files share, and licences of dependencies.
//!
//! Checks that need other tools (`systemd-analyze`, Kubernetes schemas, Envoy, the static program) are
//! manual; `examples/README.md` describes them.

mod compare;
mod licences;
mod monitoring;

use std::{process::Command, sync::PoisonError};

use voxbridge_test_support::programs::set_up;

use super::*;

/// Serialises the tests, because package installations conflict.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(example(name)).unwrap_or_else(|error| panic!("examples/{name}: {error}"))
}

/// Runs a script with the program of this build. The script reports missing tools.
fn run_example_script(script: &str) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(example(script));
    command.arg(env!("CARGO_BIN_EXE_voxbridge"));
    clear_settings(&mut command);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "examples/{script} failed:\n{stderr}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with(": ok\n"), "{stderr}");
}

/// The image holds this build's program and its libraries; without libraries only a static program would run
/// there.
#[test]
#[ignore = "needs root on Debian, and installs podman"]
fn image_builds_serves_and_stops() {
    run_example_script("container/try");
}

#[test]
#[ignore = "needs root on Debian, and installs nginx and HAProxy"]
fn recordings_are_transcribed_through_each_proxy() {
    run_example_script("proxies/try");
}

/// Scripts that fetch tools for tests say in one line which tool the user must install.
#[test]
fn setup_names_the_missing_tool() {
    let programs = scratch("packaging-setup");
    for name in ["bash", "dirname", "id"] {
        let _ = std::os::unix::fs::symlink(Path::new("/usr/bin").join(name), programs.join(name));
    }
    for script in ["engines/setup", "../tests/clients/setup"] {
        let dir = programs.join("new");
        let missing = set_up(Command::new(example(script)).arg(&dir).env("PATH", &programs)).unwrap_err();
        assert!(missing.ends_with("s: util-linux is missing: install util-linux"), "{script}: {missing}");
        assert!(!dir.exists(), "{script}");
    }
}

/// The `vllm-omni serve` line that the compose file and the manifests run is the one that README shows.
#[test]
fn gpu_examples_start_the_server_as_readme_does() {
    let readme = read("../README.md");
    for name in ["container/compose.yaml", "kubernetes-gpu/model.yaml"] {
        let text = read(name);
        let command = value_after(&text, "command: [vllm-omni").trim_end_matches(']').replace(", ", " ");
        let command = format!("vllm-omni {}", command.trim_matches([',', ' ']).replace('"', ""));
        assert!(readme.contains(&format!("`{command}`")), "{name}: {command}");
    }
}

/// The parts of a release need cross compilers and minutes; `examples/release/try` tries them. This only reads the script.
#[test]
fn release_script_rejects_unknown_parts_and_options() {
    for (arguments, problem) in [
        (&["--only", "deb,rpm"][..], "there is no part rpm"),
        (&["--arm64", "x"], "there is no option --arm64"),
        (&["--out"], "--out needs a value"),
    ] {
        let output = Command::new(example("release/build")).args(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.starts_with(&format!("release: {problem}\n")), "{stderr}");
        assert!(stderr.contains("--only PART,PART") && !stderr.contains("pipefail"), "{stderr}");
    }
}

/// The list of dependencies has every crate of the program, once, with its checksum; and no crate of the tests.
#[test]
fn sbom_lists_the_crates_of_the_program() {
    if installed(&ensure("command -v python3", "python3", "install Python 3.11 or newer")).is_none() {
        return;
    }
    let output = Command::new(example("release/sbom")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bom: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(bom["metadata"]["component"]["name"], "voxbridge");
    let components = bom["components"].as_array().unwrap();
    let has = |name: &str| components.iter().any(|component| component["name"] == name);
    assert!(
        has("tokio") && has("str0m") && has("ring") && !has("proptest") && !has("voxbridge-test-support")
    );
    let names: BTreeSet<&str> =
        components.iter().map(|component| component["purl"].as_str().unwrap()).collect();
    assert_eq!(names.len(), components.len());
    assert!(has("voxbridge-audio") && has("voxbridge-simulator"));
    for component in components {
        // The project's own packages are in no registry.
        let is_own = component["name"].as_str().unwrap().starts_with("voxbridge-");
        let checksum = component["hashes"][0]["content"].as_str();
        assert_eq!(checksum.map(str::len), (!is_own).then_some(64), "{component}");
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
}

/// A copy of a configuration with dummy secrets.
fn config_with_secrets(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packaging").join(name.replace('/', "-"));
    fs::create_dir_all(&dir).unwrap();
    let keys = "[[key]]\nname = \"robots\"\nkey = \"no-secret-but-long-enough-for-one\"\n";
    fs::write(dir.join("keys.toml"), keys).unwrap();
    fs::write(dir.join("admin-token"), "no-secret-either-but-long-enough\n").unwrap();
    let text = read(name);
    let text = text.replace("/run/credentials/voxbridge.service/", "").replace("/etc/voxbridge-secrets/", "");
    let voice = example("speech/goforward_16k.wav").display().to_string();
    let text =
        text.replace("/etc/voxbridge-voice/voice.wav", &voice).replace("/etc/voxbridge/voice.wav", &voice);
    fs::write(dir.join("voxbridge.toml"), text).unwrap();
    dir.join("voxbridge.toml")
}

#[test]
fn example_configurations_are_valid() {
    for name in [
        "systemd/voxbridge.toml",
        "kubernetes/voxbridge.toml",
        "kubernetes/sidecar.toml",
        "kubernetes-gpu/voxbridge.toml",
        "container/gpu.toml",
    ] {
        let path = config_with_secrets(name);
        let config = Config::read(&path).unwrap_or_else(|problem| panic!("examples/{name}: {problem}"));
        config.check().unwrap_or_else(|problem| panic!("examples/{name}: {problem}"));
    }
}

/// The value of the first line that begins with this text, ignoring indentation.
fn value_after<'t>(text: &'t str, begins: &str) -> &'t str {
    let value_after = text.lines().find_map(|line| line.trim_start().strip_prefix(begins));
    value_after.unwrap_or_else(|| panic!("no line begins with {begins:?}")).trim()
}

fn number_after(text: &str, begins: &str) -> i64 {
    value_after(text, begins).parse().unwrap_or_else(|_| panic!("{begins:?} has no number"))
}

#[test]
fn kill_timeouts_exceed_drain_time() {
    let files = [
        ("kubernetes/deployment.yaml", "terminationGracePeriodSeconds: ", "kubernetes/voxbridge.toml"),
        ("kubernetes/deployment.yaml", "terminationGracePeriodSeconds: ", "kubernetes-gpu/voxbridge.toml"),
        ("kubernetes/sidecar.yaml", "terminationGracePeriodSeconds: ", "kubernetes/sidecar.toml"),
        ("systemd/voxbridge.service", "TimeoutStopSec=", "systemd/voxbridge.toml"),
    ];
    for (outer, key, inner) in files {
        let drain = &read(inner).parse::<toml::Table>().unwrap()["drain"];
        let ms = |key: &str| drain.get(key).map_or(0, |ms| ms.as_integer().unwrap());
        let (kill_s, drain_ms) = (number_after(&read(outer), key), ms("grace_ms") + ms("timeout_ms"));
        assert!(kill_s * 1000 >= drain_ms + 10_000, "{outer}: {kill_s} s for a drain of {drain_ms} ms");
    }
}

#[test]
fn image_has_program_name_and_version() {
    let wanted = format!("voxbridge:{}", env!("CARGO_PKG_VERSION"));
    for manifest in ["kubernetes/deployment.yaml", "kubernetes/sidecar.yaml", "container/compose.yaml"] {
        assert_eq!(value_after(&read(manifest), "image: "), wanted, "{manifest}");
    }
}
