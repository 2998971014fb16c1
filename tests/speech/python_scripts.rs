//! How tests run Python: `tests/support/run_python` does what `python3 SCRIPT` does, and imports packages once.

use std::fs;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use voxbridge_test_support::{programs::python, wait::wait_until};

use super::*;

/// Says which process imported its packages, and what it got; then ends, fails or waits, as it is told.
const SCRIPT: &str = r#"
import os
imported_in = os.getpid()
import json, sys, time

print(json.dumps([imported_in, os.getpid(), sys.argv[1:], os.environ["MARK"], os.getcwd()]), flush=True)
if sys.argv[1] == "fail":
    raise ValueError("as told")
if sys.argv[1] == "wait":
    time.sleep(1000)
sys.exit(int(sys.argv[1]))
"#;

/// The script, in the test's folder; `None` skips the test.
fn script(test: &str) -> Option<PathBuf> {
    installed(&ensure("command -v python3", "python3", "install Python 3.11 or newer"))?;
    let script = scratch(&format!("python-scripts-{test}")).join("script.py");
    fs::write(&script, SCRIPT).unwrap();
    Some(script)
}

/// A run with this argument and mark.
fn run(script: &Path, argument: &str, mark: &str) -> Command {
    let mut command: Command = python(script, &[]).into();
    command.arg(argument).env("MARK", mark).current_dir("/").kill_on_drop(true);
    command
}

#[tokio::test]
async fn runs_have_their_own_arguments_and_ends_and_share_imports() {
    let Some(script) = script("ends") else { return };
    let mut importers = Vec::new();
    for (argument, mark, code) in [("0", "one", 0), ("7", "two", 7), ("fail", "three", 1)] {
        let output = run(&script, argument, mark).output().await.unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        importers.push(said[0].as_u64().unwrap());
        assert_eq!(output.status.code(), Some(code), "{argument}");
        assert_eq!(said.as_array().unwrap()[2..], [json!([argument]), json!(mark), json!("/")]);
        let errors = String::from_utf8(output.stderr).unwrap();
        let (place, error) = (format!("{}\", line 8", script.display()), "ValueError: as told");
        let is_right = if argument == "fail" {
            errors.contains(&place) && errors.contains(error)
        } else {
            errors.is_empty()
        };
        assert!(is_right, "{argument}: {errors}");
    }
    importers.dedup();
    assert_eq!(importers.len(), 1, "{importers:?}");
}

#[tokio::test]
async fn run_ends_with_the_program_that_asked_for_it() {
    let Some(script) = script("killed") else { return };
    let mut client = run(&script, "wait", "killed").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(client.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let process = PathBuf::from(format!("/proc/{}", said[1]));
    assert!(process.exists());
    client.kill().await.unwrap();
    wait_until("the end of the run", || !process.exists()).await;
}
