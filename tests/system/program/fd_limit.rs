//! The limit on open files: raised at the start, and reported if it is too low.

use super::*;

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a server with these limits after a shell command.
async fn start_server(dir: &Path, first: &str, sessions: usize, connections: usize) -> Child {
    let toml = format!(
        "listen = \"127.0.0.1:0\"\nworkers = 2\nsessions_max = {sessions}\n[limits]\nhandshakes_max = {connections}\n\
         [[upstream]]\nurl = \"ws://127.0.0.1:9/v1/realtime\"\n"
    );
    let config = dir.join(format!("{sessions}.toml"));
    fs::write(&config, toml).unwrap();
    let line = format!("{first}; exec \"$0\" serve --config \"$1\"");
    let mut process = Command::new("sh")
        .args(["-c", &line, env!("CARGO_BIN_EXE_voxbridge")])
        .arg(config)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.expect("the server does not start").unwrap();
    assert!(line.unwrap().starts_with("listening on "));
    process
}

/// Soft and hard limit of the process's open files.
fn descriptor_limits(process: &Child) -> (u64, u64) {
    let descriptor_limits = fs::read_to_string(format!("/proc/{}/limits", process.id().unwrap())).unwrap();
    let line = descriptor_limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap_or(u64::MAX));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Stops the server and returns the lines of its log about descriptors. The server is not killed: a thread writes the
/// log, and only a clean stop writes all of it.
async fn stderr_lines(mut process: Child) -> Vec<String> {
    send_signal(process.id().unwrap(), "-TERM");
    let mut all = String::new();
    let reading = process.stderr.as_mut().unwrap().read_to_string(&mut all);
    timeout(PATIENCE, reading).await.expect("the log does not end").unwrap();
    all.lines().filter(|line| line.contains("descriptors")).map(str::to_owned).collect()
}

#[tokio::test]
async fn soft_limit_is_raised_only_as_needed() {
    let dir = scratch("descriptors-raised");
    let process = start_server(&dir, "set -e; ulimit -Sn 100; ulimit -Hn 1500", 300, 40).await;
    // Three per session, one per connection, and a few for the server itself.
    assert_eq!(descriptor_limits(&process), (3 * 300 + 40 + 64 + 2 * 3, 1500));
    assert_eq!(stderr_lines(process).await, [""; 0]);
    // A higher limit is kept.
    let process = start_server(&dir, "ulimit -n 400", 20, 10).await;
    assert_eq!(descriptor_limits(&process), (400, 400));
    assert_eq!(stderr_lines(process).await, [""; 0]);
}

#[tokio::test]
async fn low_hard_limit_is_explained_with_figures() {
    let dir = scratch("descriptors-few");
    let process = start_server(&dir, "ulimit -n 200", 500, 100).await;
    assert_eq!(descriptor_limits(&process), (200, 200));
    let stderr_lines = stderr_lines(process).await;
    assert_eq!(stderr_lines.len(), 1, "{stderr_lines:?}");
    let words = [
        "500 sessions (sessions_max)",
        "100 pending connections (limits.handshakes_max)",
        "may need 1670 file descriptors",
        "the hard limit is 200",
        "LimitNOFILE=1670",
        "ulimit -n 1670",
        "lower sessions_max",
    ];
    for words in words {
        assert!(stderr_lines[0].contains(words), "{words}: {stderr_lines:?}");
    }
}
