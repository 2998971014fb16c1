//! The matrix: each client on each server in each mode, with a turn, an interruption, a close, an error and a
//! timeout.

use std::sync::Arc;

use tokio::sync::Semaphore;
use voxbridge::config::Config;

use super::{
    bench::{Bench, ClientFrame, events},
    macaw_client::MacawClient,
    relay_client::{RelayClient, RelayDialect, assert_close, describe_received},
    servers::{ModelAnswer, SERVERS, ServerKind, assert_sessions_closed, video_frame_count},
};

/// Combinations that run at a time. All at once would keep two busy processors from serving any of them in time.
const AT_ONCE: usize = 10;

/// Length of a turn in units. A Macaw client plays it in real time.
const MACAW_TURN_UNITS: usize = 3;
const RELAY_TURN_UNITS: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientKind {
    Macaw,
    Legacy,
    Current,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Audio,
    Video,
    Chat,
}

/// One client on one server in one mode.
#[derive(Debug, Clone, Copy)]
struct Combination {
    client: ClientKind,
    server: ServerKind,
    mode: Mode,
}

impl Combination {
    /// All possible combinations. Other tests show that the rest are rejected.
    fn all() -> Vec<Self> {
        let mut combinations = Vec::new();
        for client in [ClientKind::Macaw, ClientKind::Legacy, ClientKind::Current] {
            for server in SERVERS {
                for mode in [Mode::Audio, Mode::Video, Mode::Chat] {
                    if mode != Mode::Chat || (server.is_current() && client != ClientKind::Legacy) {
                        combinations.push(Self { client, server, mode });
                    }
                }
            }
        }
        combinations
    }

    async fn run(self) {
        match (self.client, self.mode) {
            (ClientKind::Macaw, Mode::Chat) => self.check_speech_profile().await,
            (ClientKind::Macaw, _) => {
                tokio::join!(self.check_barge_in(), self.check_rollover());
            }
            (_, Mode::Chat) => self.check_chat().await,
            (client, _) => {
                let dialect =
                    if client == ClientKind::Legacy { RelayDialect::Legacy } else { RelayDialect::Current };
                tokio::join!(
                    self.check_relayed_conversation(dialect),
                    self.check_fatal_error(dialect),
                    self.check_timeout(dialect)
                );
            }
        }
    }

    fn close_reason(&self) -> &str {
        self.server.close_reason("enough")
    }

    fn mode(self) -> &'static str {
        match self.mode {
            Mode::Audio => "audio",
            Mode::Video => "video",
            Mode::Chat => "chat",
        }
    }

    /// Interrupts a spoken answer by voice or by a command.
    async fn check_barge_in(self) {
        let bench = self.server.bench(MACAW_TURN_UNITS, &["late-audio"]).await;
        let is_video = self.mode == Mode::Video;
        let mut macaw = MacawClient::begin(&bench, if is_video { "see" } else { "talk" }).await;
        macaw.send_invalid_and_check().await;
        let (first, second) = if is_video {
            macaw.send_picture().await;
            macaw.cancel().await
        } else {
            macaw.barge_in().await
        };
        assert_interrupted(&first, MACAW_TURN_UNITS);
        second.assert_complete_turn(MACAW_TURN_UNITS);
        macaw.close_and_check(1).await;
        assert_eq!(video_frame_count(&bench) > 0, is_video);
        assert_sessions_closed(bench, 1).await;
    }

    /// Checks that the client does not notice the upstream's session limit. Where a server ends a session
    /// early, the client gets a notice and the conversation continues.
    async fn check_rollover(self) {
        let is_video = self.mode == Mode::Video;
        let (bench, errors) = if is_video {
            (self.server.bench(MACAW_TURN_UNITS, &["timeout=1.5,times=1"]).await, 1)
        } else {
            (self.server.short_bench(MACAW_TURN_UNITS).await, 0)
        };
        let mut macaw = MacawClient::begin(&bench, if is_video { "see" } else { "talk" }).await;
        macaw.wait_for_rollover(if is_video { "upstream_lost" } else { "time_limit" }).await;
        macaw.ask().await.assert_complete_turn(MACAW_TURN_UNITS);
        macaw.close_and_check(errors).await;
        MacawClient::assert_rejected_without_model(&bench).await;
    }

    async fn check_speech_profile(self) {
        let bench = self.server.chat_bench(None).await;
        let mut macaw = MacawClient::begin(&bench, "any").await;
        macaw.transcribe_question().await;
        macaw.speak_and_cancel().await;
        macaw.send_invalid_and_check().await;
        macaw.speak_text().await;
        macaw.close_and_check(1).await;
        assert_sessions_closed(bench, 3).await;
        // Longer than a busy machine takes to open the session.
        let bench = self.server.chat_bench(Some(2000)).await;
        MacawClient::begin(&bench, "any").await.wait_for_idle_timeout().await;
    }

    async fn check_relayed_conversation(self, dialect: RelayDialect) {
        let bench = self.server.bench(RELAY_TURN_UNITS, &[]).await;
        let mut client = RelayClient::begin(&bench, dialect, self.mode()).await;
        assert_interrupted(&client.interrupt().await, RELAY_TURN_UNITS);
        client.send_recoverable_error(self.server.is_current()).await;
        client.ask().await.assert_complete_turn(RELAY_TURN_UNITS);
        client.close_and_check(self.close_reason()).await;
        assert_eq!(video_frame_count(&bench) > 0, self.mode == Mode::Video);
        assert_sessions_closed(bench, 1).await;
    }

    async fn check_fatal_error(self, dialect: RelayDialect) {
        let bench = self.server.bench(RELAY_TURN_UNITS, &[]).await;
        RelayClient::begin(&bench, dialect, self.mode()).await.send_invalid_and_check().await;
        // After one session has ended, the next one starts normally.
        let mut next = RelayClient::begin(&bench, dialect, self.mode()).await;
        next.ask().await.assert_complete_turn(RELAY_TURN_UNITS);
        next.close_and_check(self.close_reason()).await;
        assert_sessions_closed(bench, 2).await;
    }

    async fn check_timeout(self, dialect: RelayDialect) {
        let bench = self.server.bench(RELAY_TURN_UNITS, &["timeout=2"]).await;
        RelayClient::begin(&bench, dialect, self.mode()).await.wait_for_timeout().await;
    }

    async fn check_chat(self) {
        let (bench, dialect) = (self.server.chat_bench(None).await, RelayDialect::Current);
        let mut client = RelayClient::begin(&bench, dialect, "chat").await;
        for _ in 0..2 {
            let answer = client.chat().await;
            // A back-end that drops unspeakable characters omits the colon.
            assert_eq!(answer.text.replace(':', ""), "simulated answer to Hello there");
            assert!(!answer.audio.is_empty());
        }
        client.close_and_check(self.close_reason()).await;
        RelayClient::begin(&bench, dialect, "chat").await.chat_and_close_early(self.close_reason()).await;
        RelayClient::begin(&bench, dialect, "chat").await.send_invalid_and_check().await;
        assert_sessions_closed(bench, 3).await;
        let bench = self.server.chat_bench(Some(300)).await;
        RelayClient::begin(&bench, dialect, "chat").await.wait_for_timeout().await;
    }
}

/// Checks that a part of one turn was received, but not all of it.
#[track_caller]
fn assert_interrupted(answer: &ModelAnswer, turn_units: usize) {
    answer.assert_one_turn();
    assert!(!answer.audio.is_empty() && answer.audio.len() < (turn_units - 1) * 24_000 + 14_400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_works_on_every_server() {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let start = |combination: Combination| {
        let places = places.clone();
        let run = async move {
            let _place = places.acquire().await.unwrap();
            combination.run().await;
        };
        (combination, tokio::spawn(run))
    };
    let running: Vec<_> = Combination::all().into_iter().map(start).collect();
    assert_eq!(running.len(), 28);
    let mut failed = Vec::new();
    for (Combination { client, server, mode }, combination) in running {
        let name = format!("{client:?} on {}, {mode:?}", server.name);
        if let Err(problem) = combination.await {
            failed.push(format!("{name}: {problem}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[tokio::test]
async fn chat_on_server_without_chat_is_rejected() {
    for server in SERVERS.into_iter().filter(|server| !server.is_current()) {
        let bench = server.bench(1, &[]).await;
        let mut client = bench.dial("/v1/realtime?mode=chat").await;
        client.read_to_end().await;
        let words = events(&client.received, "error")[0]["error"]["message"].as_str().unwrap().to_owned();
        assert!(words.contains("has no mode chat; it has `audio` and `video`"), "{words}");
        assert_eq!(events(&client.received, "session.closed")[0]["reason"], "backend_error");
        assert_close(&client, 1000);
        assert!(
            !client.received.iter().any(|frame| matches!(frame, ClientFrame::Audio(_))),
            "{}",
            describe_received(&client)
        );
        assert!(bench.recorder.all().is_empty(), "the request reached the server");
    }
}

#[test]
fn speech_profile_on_server_without_chat_fails_configuration() {
    let config = |route: &str| -> Config {
        let upstream = "[[upstream]]\nurl = \"ws://gpu:8006/v1/realtime\"\ndialect = \"minicpm-o-legacy\"\n";
        toml::from_str(&format!("{upstream}{route}")).unwrap()
    };
    for route in ["", "profile = \"speech\"", "[[route]]\nclient = \"macaw\"\nprofile = \"speech\""] {
        let config = match route {
            "profile = \"speech\"" => Config { profile: Some("speech".into()), ..config("") },
            route => config(route),
        };
        for problem in [config.check().unwrap_err(), config.build_service().err().unwrap()] {
            assert!(problem.contains("profile \"speech\" needs mode chat"), "{route}: {problem}");
        }
    }
    assert_eq!(config("[[route]]\nprofile = \"conversation\"").check(), Ok(()));
}

/// A Macaw client on a server without chat gets an error for `tts.speak`.
#[tokio::test]
async fn speak_command_on_server_without_chat_is_rejected() {
    let bench: Bench = SERVERS[0].bench(1, &[]).await;
    let mut client = bench.client("model=talk").await;
    client.send_json(serde_json::json!({"type": "tts.speak", "text": "Hello."})).await;
    let words = client.wait_for_event("error").await["message"].as_str().unwrap().to_owned();
    assert!(words.contains("no chat mode"), "{words}");
    client.close().await;
}
