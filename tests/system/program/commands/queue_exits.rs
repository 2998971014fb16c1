//! Commands that wait in a gateway's queue when they end: each stays until it has a worker, and then closes its session. The
//! simulated gateway loses a worker, as the real ones do, when it assigns the worker to a client that has disconnected.

use voxbridge_test_support::{bench::gateway_status, programs::ignores_hangup};

use super::*;

/// Words of the message about the queue.
pub(crate) const WAITS: &str = "waiting in the upstream's queue, at most 30 min";

/// A gateway whose only worker another client holds. It notices only by an assignment that a queued client has left.
pub(crate) struct BusyGateway {
    address: SocketAddr,
    other: Client,
    running: RunningServer,
}

impl BusyGateway {
    pub(crate) async fn start() -> Self {
        let timing = SimTiming { queue_update_interval: Duration::from_secs(3600), ..SimTiming::instant() };
        let config = SimulatorConfig { timing, ..instant_simulator() };
        let (address, running, _) = start_simulator("127.0.0.1:0", config, None).await;
        let mut other = dial(address, "/v1/realtime?mode=audio").await;
        other.send_json(json!({"type": "session.init", "payload": {}})).await;
        other.wait_for_event("session.created").await;
        Self { address, other, running }
    }

    /// Frees the worker. The gateway runs until the returned value is dropped.
    pub(crate) async fn release(self) -> RunningServer {
        self.other.close().await;
        self.running
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    async fn status(&self) -> Value {
        gateway_status(self.address).await
    }

    async fn wait_for_queue(&self) {
        wait_until_async("a client is queued", async || self.status().await["queue_length"] != 0).await;
    }

    /// Starts the command, and waits until it is in the queue.
    pub(crate) async fn start_in_queue(&self, command: &[&str]) -> Running {
        let mut process = voxbridge(command).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        self.wait_for_queue().await;
        Running { process, lines, said: String::new() }
    }
}

/// A command with its standard error.
pub(crate) struct Running {
    process: Child,
    lines: Lines<BufReader<ChildStderr>>,
    pub(crate) said: String,
}

impl Running {
    fn signal(&self, signal: &str) {
        send_signal(self.process.id().unwrap(), signal);
    }

    pub(crate) async fn wait_for(&mut self, words: &str) {
        while !self.said.contains(words) {
            let line = timeout(PATIENCE, self.lines.next_line()).await;
            let line = line
                .unwrap_or_else(|_| panic!("no {words:?}, and nothing more, in {:?}", self.said))
                .unwrap();
            let line = line.unwrap_or_else(|| panic!("no {words:?} in {:?}", self.said));
            self.said.push_str(&line);
            self.said.push('\n');
        }
    }

    pub(crate) async fn wait_for_end(&mut self) -> i32 {
        let ended = timeout(PATIENCE, self.process.wait()).await.expect("the command does not end").unwrap();
        while let Some(line) = self.lines.next_line().await.unwrap() {
            self.said.push_str(&line);
            self.said.push('\n');
        }
        ended.code().unwrap()
    }
}

/// Cause of the end of a queued command.
#[derive(Debug, Clone, Copy)]
enum End {
    /// By its own limits.
    Itself,
    /// By a signal.
    Signal(&'static str),
}

#[tokio::test]
async fn command_that_ends_in_a_queue_stays_until_it_has_closed_its_session() {
    let recording = speech_dir().join("goforward_16k.wav").display().to_string();
    let dir = scratch("queue-exits");
    let (transcript, speech) =
        (dir.join("a.txt").display().to_string(), dir.join("a.wav").display().to_string());
    let report = dir.join("report.json").display().to_string();
    let transcribe = ["transcribe", "--upstream", "URL", "-o", &transcript, &recording];
    let speak = ["speak", "--upstream", "URL", "-o", &speech, "Hello there."];
    let verify = ["verify", "--upstream", "URL", "--report", &report, "--quick"];
    let ends = [
        (&["doctor", "--upstream", "URL", "--timeout", "1"][..], End::Itself, 1),
        (&["doctor", "--upstream", "URL"], End::Signal("-INT"), 1),
        (&["doctor", "--upstream", "URL"], End::Signal("-HUP"), 1),
        (&transcribe, End::Signal("-INT"), 130),
        (&transcribe, End::Signal("-TERM"), 143),
        (&transcribe, End::Signal("-QUIT"), 131),
        (&speak, End::Signal("-TERM"), 143),
        (&speak, End::Signal("-HUP"), 129),
        (&[&verify[..], &["--time-max", "1"]].concat(), End::Itself, 1),
        (&verify, End::Signal("-INT"), 130),
        (&[&verify[..], &["--only", "transcription"]].concat(), End::Signal("-TERM"), 143),
    ];
    let _ = (fs::remove_file(&transcript), fs::remove_file(&speech));
    for (command, end, code) in ends {
        if matches!(end, End::Signal("-HUP")) && ignores_hangup() {
            continue;
        }
        let case = format!("{command:?} ended by {end:?}");
        let gateway = BusyGateway::start().await;
        let url = gateway.url();
        let command: Vec<&str> =
            command.iter().map(|word| if *word == "URL" { &*url } else { word }).collect();
        let mut running = gateway.start_in_queue(&command).await;
        if let End::Signal(signal) = end {
            running.signal(signal);
        }
        running.wait_for(WAITS).await;
        // More than one if its recording had another utterance meanwhile.
        assert!(gateway.status().await["queue_length"].as_u64() >= Some(1), "{case}: {}", running.said);
        let address = gateway.address;
        let _running = gateway.release().await;
        let ended = running.wait_for_end().await;
        assert_eq!(ended, code, "{case}: {}", running.said);
        assert!(running.said.contains("left the upstream's queue after "), "{case}: {}", running.said);
        let after = gateway_status(address).await;
        assert_eq!(
            (&after["idle_workers"], &after["busy_workers"], &after["queue_length"]),
            (&json!(1), &json!(0), &json!(0)),
            "{case}: {after} {}",
            running.said
        );
    }
}

#[tokio::test]
async fn second_signal_ends_a_queued_command_at_once_and_says_what_it_may_cost() {
    let recording = speech_dir().join("goforward_16k.wav").display().to_string();
    let commands = [
        (&["doctor", "--upstream", "URL"][..], "stopping; closing open sessions"),
        (&["transcribe", "--upstream", "URL", &recording], WAITS),
        (&["speak", "--upstream", "URL", "-o", "-", "Hello."], WAITS),
        (&["verify", "--upstream", "URL", "--quick", "--report", "second-signal.json"], WAITS),
    ];
    for (command, first) in commands {
        let gateway = BusyGateway::start().await;
        let url = gateway.url();
        let command: Vec<&str> =
            command.iter().map(|word| if *word == "URL" { &*url } else { word }).collect();
        let mut running = gateway.start_in_queue(&command).await;
        running.signal("-INT");
        running.wait_for(first).await;
        running.wait_for(WAITS).await;
        running.signal("-TERM");
        assert_eq!(running.wait_for_end().await, 143, "{command:?}: {}", running.said);
        assert!(running.said.contains("the server may have lost a worker"), "{}", running.said);
    }
}

/// A command that has given up by itself still ends politely at the first signal.
#[tokio::test]
async fn first_signal_to_a_command_that_leaves_a_queue_does_not_cost_the_worker() {
    let gateway = BusyGateway::start().await;
    let mut running =
        gateway.start_in_queue(&["doctor", "--upstream", &gateway.url(), "--timeout", "1"]).await;
    running.wait_for(WAITS).await;
    running.said.clear();
    running.signal("-INT");
    running.wait_for(WAITS).await;
    assert_eq!(gateway.status().await["queue_length"], 1);
    let address = gateway.address;
    let _running = gateway.release().await;
    assert_eq!(running.wait_for_end().await, 1, "{}", running.said);
    let after = gateway_status(address).await;
    assert_eq!((&after["idle_workers"], &after["busy_workers"]), (&json!(1), &json!(0)), "{after}");
}
