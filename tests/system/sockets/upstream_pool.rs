//! Several upstreams behind one bridge: load balancing, failover and readmission.

use futures_util::future::join;
use voxbridge::simulator::DuplexUnit;
use voxbridge_test_support::bench::macaw_with_ten_minute_lead;

use super::*;

const SESSIONS: usize = 50;
/// Longer than a recovered upstream stays excluded in these tests on a busy machine.
const READMISSION_MAX: Duration = Duration::from_secs(40);

/// A simulated upstream with a count of its questions.
struct Upstream {
    address: SocketAddr,
    running: RunningServer,
    recorder: InputRecorder,
}

impl Upstream {
    async fn start(address: &str, config: SimulatorConfig) -> Self {
        let (address, running, recorder) = start_simulator(address, config, None).await;
        Self { address, running, recorder }
    }

    /// Number of questions since the last call.
    fn question_count(&self) -> usize {
        let question = |received: &RecordedInput| matches!(received, RecordedInput::Message(_, text) if text.contains("input.append"));
        self.recorder.take().iter().filter(|received| question(received)).count()
    }

    /// Number of conversations opened since the last call.
    fn session_count(&self) -> usize {
        let opened = |received: &RecordedInput| matches!(received, RecordedInput::DuplexOpened(..));
        self.recorder.take().iter().filter(|received| opened(received)).count()
    }

    /// True if a conversation received speech since the last call.
    fn has_heard_speech(&self) -> bool {
        let is_loud = |unit: &DuplexUnit| unit.samples.iter().any(|sample| sample.abs() > 0.1);
        self.recorder
            .take()
            .iter()
            .any(|received| matches!(received, RecordedInput::DuplexUnit(_, unit) if is_loud(unit)))
    }
}

fn config(upstreams: [&Upstream; 2]) -> Config {
    let named = |upstream: &Upstream, name: &str| UpstreamConfig {
        name: Some(name.into()),
        ..upstream_at(upstream.address)
    };
    let upstream = vec![named(upstreams[0], "first"), named(upstreams[1], "second")];
    Config { upstream, ..Config::default() }
}

/// Several workers whose answers take a moment, so that they can be interrupted.
fn reliable_simulator() -> SimulatorConfig {
    let moment = Duration::from_millis(50);
    let timing = SimTiming { first_delta: moment, text_delta: moment / 10, ..SimTiming::instant() };
    SimulatorConfig { workers: 4, timing, ..instant_simulator() }
}

fn faulty_simulator(fault: &str) -> SimulatorConfig {
    SimulatorConfig { workers: 4, faults: vec![fault.parse().unwrap()], ..instant_simulator() }
}

/// Says an utterance and checks its transcript; no error may occur.
async fn send_utterance_and_check(client: &mut Client) {
    let from = client.received.len();
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("vad.speech_end").await;
    let frames = &client.received[from..];
    assert_pairs_closed(frames);
    assert!(events(frames, "error").is_empty(), "{frames:#?}");
    let finals = events(frames, "transcript.final");
    assert_eq!(finals.len(), 1, "{frames:#?}");
    assert!(finals[0]["text"].as_str().unwrap().starts_with("simulated transcript: "), "{}", finals[0]);
}

/// Has a text spoken and waits for its end or an error.
async fn speak_and_check(client: &mut Client) {
    let from = client.received.len();
    client.send_json(json!({"type": "tts.speak", "text": "Something of some length, please."})).await;
    loop {
        let kind = client.next().await.kind().to_owned();
        let frames = &client.received[from..];
        if kind == "tts.speaking_end" || (kind == "error" && events(frames, "tts.speaking_start").is_empty())
        {
            return assert_pairs_closed(frames);
        }
    }
}

/// All clients say something at once; one in ten has a text spoken first.
async fn run_round(clients: &mut [Client]) {
    let each = clients.iter_mut().enumerate().map(|(index, client)| async move {
        if index % 10 == 9 {
            speak_and_check(client).await;
        }
        send_utterance_and_check(client).await;
    });
    join_all(each).await;
}

async fn open_clients(bench: &Bench, count: usize) -> Vec<Client> {
    join_all((0..count).map(|_| bench.client("model=x"))).await
}

async fn close_all(clients: Vec<Client>) {
    for frames in join_all(clients.into_iter().map(Client::close)).await {
        assert_eq!(events(&frames, "session.closed")[0]["reason"], "client_request");
        assert!(!frames.iter().any(|frame| matches!(frame, ClientFrame::Close(code, _) if *code != 1000)));
    }
}

#[tokio::test]
async fn load_is_balanced_and_sessions_survive_upstream_loss() {
    let (mut first, second) = join(
        Upstream::start(KEPT_PORT, reliable_simulator()),
        Upstream::start("127.0.0.1:0", reliable_simulator()),
    )
    .await;
    let mappings = Some(macaw_with_ten_minute_lead("upstreams-shared"));
    let bench =
        Bench::with_config(instant_simulator(), Config { mappings, ..config([&first, &second]) }).await;
    let mut clients = open_clients(&bench, SESSIONS).await;
    run_round(&mut clients).await;
    let shares = [first.question_count(), second.question_count()];
    assert!(shares.iter().sum::<usize>() >= SESSIONS && shares.iter().all(|share| *share >= SESSIONS / 3));

    // One upstream dies under load: no session ends, and every utterance is transcribed.
    let mut question_count = 0;
    let killing = async {
        let is_loaded = || {
            question_count += first.question_count();
            question_count >= 3
        };
        wait_until("the upstream has questions", is_loaded).await;
        first.running.stop();
    };
    join(run_round(&mut clients), killing).await;
    first.running.wait_for_end().await;
    assert!(second.question_count() >= SESSIONS - question_count);
    run_round(&mut clients).await;
    assert!(second.question_count() >= SESSIONS, "one of two upstreams is enough");

    // The upstream returns, and load is balanced again after a while.
    let first = Upstream::start(&first.address.to_string(), reliable_simulator()).await;
    let start = Instant::now();
    loop {
        run_round(&mut clients).await;
        let shares = [first.question_count(), second.question_count()];
        if shares.iter().all(|share| *share >= SESSIONS / 3) {
            break;
        }
        assert!(start.elapsed() < READMISSION_MAX, "the upstream gets no load: {shares:?}");
    }
    close_all(clients).await;
}

#[tokio::test]
async fn upstream_killing_its_sessions_is_avoided() {
    let short_timeouts = profile_with_numbers("upstreams", &[("answer_max_ms", 30_000, 500)]);
    for fault in ["die-mid-answer", "drop-mid-answer=0", "never-answers"] {
        let dying = Upstream::start("127.0.0.1:0", faulty_simulator(fault)).await;
        let working = Upstream::start("127.0.0.1:0", reliable_simulator()).await;
        let config = Config { mappings: Some(short_timeouts.clone()), ..config([&dying, &working]) };
        let bench = Bench::with_config(instant_simulator(), config).await;
        let start = Instant::now();
        for _ in 0..20 {
            let mut client = bench.client("model=x").await;
            send_utterance_and_check(&mut client).await;
            close_all(vec![client]).await;
        }
        // Three failures before exclusion and one at each readmission: at most one in 750 ms.
        let max_questions = 3 + (start.elapsed().as_secs_f64() / 0.75).ceil() as usize;
        let questions = dying.question_count();
        assert!((3..=max_questions.min(9)).contains(&questions), "{questions} of {max_questions} at most");
        assert_eq!(working.question_count(), 20, "{fault}");
    }
}

#[tokio::test]
async fn rejecting_upstream_is_avoided() {
    for fault in ["queue-full", "busy", "403-after-queue", "die-before-created"] {
        let rejecting = Upstream::start("127.0.0.1:0", faulty_simulator(fault)).await;
        let accepting = Upstream::start("127.0.0.1:0", reliable_simulator()).await;
        let bench = Bench::with_config(instant_simulator(), config([&rejecting, &accepting])).await;
        let mut clients = open_clients(&bench, 8).await;
        let start = Instant::now();
        run_round(&mut clients).await;
        // One attempt, a pause of at most 250 ms, and an attempt elsewhere without a second pause.
        assert!(start.elapsed() < Duration::from_secs(10), "{fault}: {:?}", start.elapsed());
        assert_eq!(accepting.question_count(), clients.len(), "{fault}");
        close_all(clients).await;
    }
}

#[tokio::test]
async fn unreachable_upstream_costs_no_session() {
    let there = Upstream::start(KEPT_PORT, reliable_simulator()).await;
    let mut lost = Upstream::start(KEPT_PORT, reliable_simulator()).await;
    lost.running.stop();
    let config = config([&lost, &there]);
    lost.running.wait_for_end().await;
    let bench = Bench::with_config(instant_simulator(), config).await;
    let mut clients = open_clients(&bench, 10).await;
    run_round(&mut clients).await;
    assert!(there.question_count() >= 10);
    close_all(clients).await;
}

/// A worker for every conversation.
fn simulator_with_workers() -> SimulatorConfig {
    SimulatorConfig { workers: 2 * SESSIONS, ..instant_simulator() }
}

/// Asks the model a question and plays its answer.
async fn ask_question(client: &mut Client) {
    client.send_utterance(&recording("goforward")).await;
    while client.wait_for_event("tts.speaking_end").await["cancelled"] == true {}
}

/// Asks a question that may be lost with its upstream.
async fn ask_unanswered(client: &mut Client) {
    client.send_utterance(&recording("goforward")).await;
    while !matches!(client.next().await.kind(), "tts.speaking_end" | "error") {}
}

#[tokio::test]
async fn conversations_survive_upstream_loss() {
    let (mut first, second) = join(
        Upstream::start(KEPT_PORT, simulator_with_workers()),
        Upstream::start("127.0.0.1:0", simulator_with_workers()),
    )
    .await;
    // Each upstream session rolls over after ten seconds, at the next quiet moment.
    let mappings =
        conversation_profile_with("upstreams-talk", &[("soft_before_ms = 50000", "soft_before_ms = 590000")]);
    let config = Config {
        profile: Some("conversation".into()),
        mappings: Some(mappings),
        ..config([&first, &second])
    };
    let bench = Bench::with_config(instant_simulator(), config).await;
    let mut clients = open_clients(&bench, SESSIONS).await;
    join_all(clients.iter_mut().map(ask_question)).await;
    let shares = [first.session_count(), second.session_count()];
    assert!(shares.iter().all(|share| *share >= SESSIONS / 3), "{shares:?}");

    // One upstream dies while all users speak: no session ends, and the next question is answered.
    let killing = async {
        wait_until("the model hears the users", || first.has_heard_speech()).await;
        first.running.stop();
    };
    join(join_all(clients.iter_mut().map(ask_unanswered)), killing).await;
    first.running.wait_for_end().await;
    join_all(clients.iter_mut().map(ask_question)).await;
    // On a slow machine, conversations roll over before the loss, so that any of them may have been there.
    assert!(clients.iter().any(|client| !events(&client.received, "error").is_empty()), "no error");

    // The upstream returns: new clients and rollovers use it.
    let first = Upstream::start(&first.address.to_string(), simulator_with_workers()).await;
    let (start, mut opened) = (Instant::now(), 0);
    while opened < SESSIONS / 3 {
        assert!(start.elapsed() < READMISSION_MAX, "the upstream gets no load: {opened}");
        join_all(clients.iter_mut().map(ask_question)).await;
        opened += first.session_count();
    }
    for frames in join_all(clients.into_iter().map(Client::close)).await {
        assert_pairs_closed(&frames);
        assert_eq!(events(&frames, "session.closed")[0]["reason"], "client_request");
        assert!(events(&frames, "error").iter().all(|error| error["recoverable"] == true), "{frames:?}");
    }
}
