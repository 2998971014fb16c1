//! The matrix: each client on each server in each mode; a turn, an interruption, a close, an error and a time-out.

use voxbridge::config::Config;

use super::{
    bench::{Bench, Seen, events},
    macaw::Macaw,
    relayed::{Talker, Tongue, assert_close, kinds},
    servers::{Answer, SERVERS, Server, assert_polite, frames},
};

/// Units of a turn: what a Macaw client hears takes as long as it lasts.
const HEARD_UNITS: usize = 3;
const TOLD_UNITS: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Macaw,
    Older,
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
struct Cell {
    who: Who,
    server: Server,
    mode: Mode,
}

impl Cell {
    /// All that can be; what cannot is refused, as other tests show.
    fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for who in [Who::Macaw, Who::Older, Who::Current] {
            for server in SERVERS {
                for mode in [Mode::Audio, Mode::Video, Mode::Chat] {
                    if mode != Mode::Chat || (server.is_current() && who != Who::Older) {
                        cells.push(Self { who, server, mode });
                    }
                }
            }
        }
        cells
    }

    async fn run(self) {
        match (self.who, self.mode) {
            (Who::Macaw, Mode::Chat) => self.dictated_and_spoken().await,
            (Who::Macaw, _) => {
                tokio::join!(self.heard(), self.rolled_over());
            }
            (_, Mode::Chat) => self.written().await,
            (who, _) => {
                let tongue = if who == Who::Older { Tongue::Older } else { Tongue::Current };
                tokio::join!(self.told(tongue), self.told_off(tongue), self.timed_out(tongue));
            }
        }
    }

    fn reason_told(&self) -> &str {
        self.server.reason_told("enough")
    }

    fn mode(self) -> &'static str {
        match self.mode {
            Mode::Audio => "audio",
            Mode::Video => "video",
            Mode::Chat => "chat",
        }
    }

    /// Microphone and loudspeaker, interrupted by voice or by a command.
    async fn heard(self) {
        let bench = self.server.bench(HEARD_UNITS, &["late-audio"]).await;
        let sees = self.mode == Mode::Video;
        let mut macaw = Macaw::begin(&bench, if sees { "see" } else { "talk" }).await;
        macaw.err().await;
        let (first, second) = if sees {
            macaw.show().await;
            macaw.cancel().await
        } else {
            macaw.barge_in().await
        };
        assert_interrupted(&first, HEARD_UNITS);
        second.assert_whole(HEARD_UNITS);
        macaw.leave(1).await;
        assert_eq!(frames(&bench) > 0, sees);
        assert_polite(bench, 1).await;
    }

    /// The time that a session may last is not for the client to notice; where a server ends one before, it is told so, and
    /// goes on.
    async fn rolled_over(self) {
        let sees = self.mode == Mode::Video;
        let (bench, errors) = if sees {
            (self.server.bench(HEARD_UNITS, &["timeout=1.5,times=1"]).await, 1)
        } else {
            (self.server.short_bench(HEARD_UNITS).await, 0)
        };
        let mut macaw = Macaw::begin(&bench, if sees { "see" } else { "talk" }).await;
        macaw.roll_over(if sees { "upstream_lost" } else { "time_limit" }).await;
        macaw.ask().await.assert_whole(HEARD_UNITS);
        macaw.leave(errors).await;
        Macaw::refused(&bench).await;
    }

    async fn dictated_and_spoken(self) {
        let bench = self.server.chat_bench(None).await;
        let mut macaw = Macaw::begin(&bench, "any").await;
        macaw.dictate().await;
        macaw.hear_a_little().await;
        macaw.err().await;
        macaw.hear().await;
        macaw.leave(1).await;
        assert_polite(bench, 3).await;
        let bench = self.server.chat_bench(Some(300)).await;
        Macaw::begin(&bench, "any").await.idle().await;
    }

    async fn told(self, tongue: Tongue) {
        let bench = self.server.bench(TOLD_UNITS, &[]).await;
        let mut talker = Talker::begin(&bench, tongue, self.mode()).await;
        assert_interrupted(&talker.interrupt().await, TOLD_UNITS);
        talker.err_and_go_on(self.server.is_current()).await;
        talker.ask().await.assert_whole(TOLD_UNITS);
        talker.leave(self.reason_told()).await;
        assert_eq!(frames(&bench) > 0, self.mode == Mode::Video);
        assert_polite(bench, 1).await;
    }

    async fn told_off(self, tongue: Tongue) {
        let bench = self.server.bench(TOLD_UNITS, &[]).await;
        Talker::begin(&bench, tongue, self.mode()).await.err().await;
        // With one session gone, the next one begins as if nothing had been.
        let mut next = Talker::begin(&bench, tongue, self.mode()).await;
        next.ask().await.assert_whole(TOLD_UNITS);
        next.leave(self.reason_told()).await;
        assert_polite(bench, 2).await;
    }

    async fn timed_out(self, tongue: Tongue) {
        let bench = self.server.bench(TOLD_UNITS, &["timeout=0.5"]).await;
        Talker::begin(&bench, tongue, self.mode()).await.wait_for_the_end().await;
    }

    async fn written(self) {
        let (bench, tongue) = (self.server.chat_bench(None).await, Tongue::Current);
        let mut talker = Talker::begin(&bench, tongue, "chat").await;
        for _ in 0..2 {
            let answer = talker.chat().await;
            // A back-end that leaves out what cannot be spoken says it without the colon.
            assert_eq!(answer.text.replace(':', ""), "simulated answer to Hello there");
            assert!(!answer.audio.is_empty());
        }
        talker.leave(self.reason_told()).await;
        Talker::begin(&bench, tongue, "chat").await.chat_and_leave(self.reason_told()).await;
        Talker::begin(&bench, tongue, "chat").await.err().await;
        assert_polite(bench, 3).await;
        let bench = self.server.chat_bench(Some(300)).await;
        Talker::begin(&bench, tongue, "chat").await.wait_for_the_end().await;
    }
}

/// Something was heard, of one turn, and not all of it.
#[track_caller]
fn assert_interrupted(answer: &Answer, turn_units: usize) {
    answer.assert_one_turn();
    assert!(!answer.audio.is_empty() && answer.audio.len() < (turn_units - 1) * 24_000 + 14_400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_lives_through_everything_on_every_server() {
    let running: Vec<_> = Cell::all().into_iter().map(|cell| (cell, tokio::spawn(cell.run()))).collect();
    assert_eq!(running.len(), 28);
    let mut failed = Vec::new();
    for (Cell { who, server, mode }, cell) in running {
        let name = format!("{who:?} on {}, {mode:?}", server.name);
        if let Err(problem) = cell.await {
            failed.push(format!("{name}: {problem}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[tokio::test]
async fn a_chat_on_a_server_without_one_is_refused_in_words() {
    for server in SERVERS.into_iter().filter(|server| !server.is_current()) {
        let bench = server.bench(1, &[]).await;
        let mut client = bench.dial("/v1/realtime?mode=chat").await;
        client.rest().await;
        let words = events(&client.seen, "error")[0]["error"]["message"].as_str().unwrap().to_owned();
        assert!(words.contains("has no mode chat; it has `audio` and `video`"), "{words}");
        assert_eq!(events(&client.seen, "session.closed")[0]["reason"], "backend_error");
        assert_close(&client, 1000);
        assert!(!client.seen.iter().any(|seen| matches!(seen, Seen::Audio(_))), "{}", kinds(&client));
        assert!(bench.recorder.all().is_empty(), "the server was troubled with it");
    }
}

#[test]
fn speech_on_a_server_without_chat_is_refused_by_the_configuration() {
    let config = |route: &str| -> Config {
        let upstream = "[[upstream]]\nurl = \"ws://gpu:8006/v1/realtime\"\ndialect = \"minicpm-o-legacy\"\n";
        toml::from_str(&format!("{upstream}{route}")).unwrap()
    };
    for route in ["", "profile = \"speech\"", "[[route]]\nclient = \"macaw\"\nprofile = \"speech\""] {
        let config = match route {
            "profile = \"speech\"" => Config { profile: Some("speech".into()), ..config("") },
            route => config(route),
        };
        for problem in [config.check().unwrap_err(), config.service().err().unwrap()] {
            assert!(problem.contains("profile \"speech\" needs mode chat"), "{route}: {problem}");
        }
    }
    assert_eq!(config("[[route]]\nprofile = \"conversation\"").check(), Ok(()));
}

/// What a server without chat says to a Macaw client who wants something spoken.
#[tokio::test]
async fn a_text_for_a_server_without_chat_is_refused_in_words() {
    let bench: Bench = SERVERS[0].bench(1, &[]).await;
    let mut client = bench.client("model=talk").await;
    client.command(serde_json::json!({"type": "tts.speak", "text": "Hello."})).await;
    let words = client.event("error").await["message"].as_str().unwrap().to_owned();
    assert!(words.contains("no chat mode"), "{words}");
    client.close().await;
}
