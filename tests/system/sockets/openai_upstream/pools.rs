//! Pools of a MiniCPM-o-Demo gateway, which speaks and is prompted for calls, and a turn deployment of vLLM-Omni, which calls tools
//! itself and speaks no given text.

use super::{turns::assert_whole, *};

const GATEWAY: SimDialect = SimDialect::Current;
const TURNS: SimDialect = SimDialect::OpenaiRealtime(RealtimeServer::VllmOmni);

/// Questions before a server is lost, and after it.
const BEFORE: [&str; 2] = ["Ada?", "Bob?"];
const AFTER: [&str; 2] = ["Cid?", "Dan?"];

/// A simulated server.
struct Server {
    upstream: UpstreamConfig,
    running: RunningServer,
    recorder: InputRecorder,
}

impl Server {
    async fn start(dialect: SimDialect) -> Self {
        let config = SimulatorConfig { dialect, workers: 2, ..instant_simulator() };
        let (address, running, recorder) = start_simulator("127.0.0.1:0", config, None).await;
        Self { upstream: upstream_of(dialect, address), running, recorder }
    }

    async fn kill(&mut self) {
        self.running.stop();
        self.running.wait_until_ended().await;
    }

    /// All that it has got since the last call.
    fn take_messages(&self) -> String {
        let texts = self.recorder.take().into_iter().filter_map(|input| match input {
            RecordedInput::Message(_, text) => Some(text),
            _ => None,
        });
        texts.collect()
    }
}

/// A client with tools, at a bridge before these upstreams.
async fn client_of(upstream: Vec<UpstreamConfig>) -> (Bench, Client) {
    let bench = Bench::of(Config { upstream, ..Config::default() }).await;
    let client = openai_client(&bench, weather_tools()).await;
    (bench, client)
}

/// What a client gets from this server alone.
async fn answers_of(dialect: SimDialect) -> Vec<Answered> {
    let server = Server::start(dialect).await;
    let (_bench, mut client) = client_of(vec![server.upstream.clone()]).await;
    let mut answers = Vec::new();
    for question in BEFORE.into_iter().chain(AFTER) {
        answers.push(ask(&mut client, question).await);
    }
    answers
}

/// One of these is the answer, which lacks nothing.
#[track_caller]
fn assert_one_of(answers: &[Vec<Answered>; 2], number: usize, answered: &Answered, client: &Client) {
    assert!(!answered.audio.is_empty(), "{number}: {}", client.describe_received());
    let is_known = answers.iter().any(|alone| alone[number] == *answered);
    assert!(is_known, "{number}: {}", client.describe_received());
}

#[tokio::test]
async fn conversation_goes_on_whole_when_either_server_is_lost() {
    let answers: [_; 2] = join_all([GATEWAY, TURNS].map(answers_of)).await.try_into().unwrap();
    let cases = [(0, 0), (0, 1), (1, 0), (1, 1)];
    join_all(cases.map(|(first, lost)| lose_a_server(&answers, first, lost))).await;
}

/// A conversation whose server with the number `lost` is lost. The one with the number `first` is the pool's first.
async fn lose_a_server(answers: &[Vec<Answered>; 2], first: usize, lost: usize) {
    let mut servers = [Server::start(GATEWAY).await, Server::start(TURNS).await];
    let upstream = [first, 1 - first].map(|at| servers[at].upstream.clone());
    let (_bench, mut client) = client_of(upstream.into()).await;
    // The pool spreads its questions, so that each server gets one.
    for (number, question) in BEFORE.into_iter().enumerate() {
        let answered = ask(&mut client, question).await;
        assert_one_of(answers, number, &answered, &client);
    }
    let called = ask(&mut client, "What is the weather in Rome").await;
    let [(call_id, arguments)] = &called.calls[..] else { panic!("{called:?}") };
    assert_eq!(arguments, r#"{"city":"Rome"}"#);
    servers[lost].kill().await;
    servers[1 - lost].take_messages();
    let result = json!({"type": "function_call_output", "call_id": call_id, "output": "sunny"});
    add_item(&mut client, &result).await;
    let told = respond(&mut client).await;
    assert_eq!((&*told.status, told.text.trim()), ("completed", "The tool says sunny."), "{first} {lost}");
    let asked = servers[1 - lost].take_messages();
    for words in BEFORE.into_iter().chain(["weather in Rome", "get_weather", "sunny"]) {
        assert!(asked.contains(words), "{first} {lost}: {words} is not in {asked}");
    }
    for (number, question) in AFTER.into_iter().enumerate() {
        let answered = ask(&mut client, question).await;
        assert_one_of(answers, BEFORE.len() + number, &answered, &client);
    }
    assert!(events(&client.received, "error").is_empty(), "{first} {lost}");
}

#[tokio::test]
async fn conversation_moves_to_the_real_turn_handler_when_its_gateway_is_lost() {
    let Some(turns) = PackageServer::vllm_omni_turns(&[]) else { return };
    let mut gateway = Server::start(GATEWAY).await;
    let upstream = vec![gateway.upstream.clone(), realtime_upstream(turns.address())];
    let (_bench, mut client) = client_of(upstream).await;
    for question in BEFORE {
        let answered = ask(&mut client, question).await;
        assert_eq!(answered.status, "completed", "{}", client.describe_received());
        assert!(!answered.audio.is_empty(), "{}", client.describe_received());
    }
    gateway.kill().await;
    for question in AFTER {
        let answered = ask(&mut client, question).await;
        assert_eq!(answered.status, "completed", "{}", client.describe_received());
        assert_whole(&answered.audio, 72_000);
    }
    let asked = turns.record().await;
    let last = asked.last().unwrap();
    for question in BEFORE.into_iter().chain(AFTER) {
        assert!(last["messages"].to_string().contains(question), "{question}: {last}");
    }
    assert_eq!(last["tools"][0]["function"]["name"], "get_weather");
    assert!(events(&client.received, "error").is_empty(), "{}", client.describe_received());
}
