//! `voxbridge serve` in its own process, so that its memory can be measured.

use super::*;

const PROCESS_TIMEOUT: Duration = Duration::from_secs(20);

/// A running `voxbridge serve --profile conversation`.
pub(crate) struct Bridge {
    process: Child,
    pub(crate) address: String,
    pub(crate) log: PathBuf,
}

impl Bridge {
    pub(crate) async fn start(name: &str, upstream: SocketAddr) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&dir).unwrap();
        let log = dir.join("log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_voxbridge"));
        clear_settings(command.as_std_mut());
        let mut process = command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--profile",
                "conversation",
                "--log",
                "voxbridge=debug",
            ])
            .args(["--upstream", &format!("ws://{upstream}/v1/realtime")])
            .arg("--mappings")
            .arg(write_shortened_mappings(&dir))
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = timeout(PROCESS_TIMEOUT, lines.next_line()).await.unwrap().unwrap().unwrap();
        Self { process, address: line.trim_start_matches("listening on ").to_owned(), log }
    }

    /// Resident memory, KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.id().expect("the process runs"));
        let status = fs::read_to_string(path).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn stop(mut self) {
        send_signal(self.process.id().expect("the process runs"), "-TERM");
        let ended =
            timeout(PROCESS_TIMEOUT, self.process.wait()).await.expect("the process does not stop").unwrap();
        assert!(ended.success(), "{ended}");
    }
}

/// Built-in mappings with short limits, so that a minute covers what normally takes an hour. Upstream
/// sessions last [`MAX_SESSION_DURATION`].
fn write_shortened_mappings(dir: &Path) -> PathBuf {
    let dir = dir.join("mappings");
    fs::create_dir_all(&dir).unwrap();
    let tuned = |source: &str, numbers: &[(&str, &str)]| {
        numbers.iter().fold(source.to_owned(), |source, (from, to)| {
            assert_eq!(source.matches(from).count(), 1, "{from}");
            source.replace(from, to)
        })
    };
    let profile = tuned(
        include_str!("../../../../mappings/profile/conversation.toml"),
        &[
            ("soft_before_ms = 50000", "soft_before_ms = 20000"),
            ("hard_before_ms = 20000", "hard_before_ms = 8000"),
            ("unit_reply_max_ms = 12000", "unit_reply_max_ms = 4000"),
            ("retry_max_ms = 8000", "retry_max_ms = 1000"),
            ("dial_max_ms = 5000", "dial_max_ms = 1000"),
            ("queue_stuck_ms = 15000", "queue_stuck_ms = 1500"),
            ("init_max_ms = 60000", "init_max_ms = 3000"),
            ("close_max_ms = 3000", "close_max_ms = 1000"),
        ],
    );
    fs::write(dir.join("conversation.toml"), profile).unwrap();
    let max = format!("audio = {}", MAX_SESSION_DURATION.as_millis());
    let dialect =
        tuned(include_str!("../../../../mappings/upstream/minicpm-o.toml"), &[("audio = 600000", &max)]);
    fs::write(dir.join("minicpm-o.toml"), dialect).unwrap();
    dir
}

/// Lifetime limit of an upstream session.
pub(crate) const MAX_SESSION_DURATION: Duration = Duration::from_secs(40);
