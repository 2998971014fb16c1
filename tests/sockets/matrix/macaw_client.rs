//! A Macaw client, which plugs a microphone and a loudspeaker into whatever there is.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{
    bench::{Bench, Client, ClientFrame, assert_pairs_closed, audio, events, recording},
    relay_client::assert_close,
    servers::ModelAnswer,
};

fn has_kind(kind: &'static str) -> impl Fn(&ClientFrame) -> bool {
    move |seen| seen.kind() == kind
}

/// A client whose session is open.
pub(crate) struct MacawClient {
    client: Client,
}

impl MacawClient {
    pub(crate) async fn begin(bench: &Bench, model: &str) -> Self {
        Self { client: bench.client(&format!("model={model}&rollover_events=true")).await }
    }

    /// A picture goes with what is said next.
    pub(crate) async fn send_picture(&mut self) {
        self.client.send_json(json!({"type": "video.frame", "image": "/9j/4AAQ"})).await;
    }

    /// A question, and its whole answer.
    pub(crate) async fn ask(&mut self) -> ModelAnswer {
        self.listen_to(&recording("goforward")).await
    }

    /// Says this, and then nothing until the answer has been heard: the answer.
    async fn listen_to(&mut self, question: &[i16]) -> ModelAnswer {
        let from = self.client.seen.len();
        let seen = self.client.stream_until(question, has_kind("tts.speaking_end")).await;
        assert_eq!(events(seen, "tts.speaking_end")[0]["cancelled"], false);
        let finals = |seen: &[ClientFrame]| -> String {
            let finals = events(seen, "transcript.final").into_iter();
            finals.filter(|it| it["speaker"] == "assistant").map(|it| it["text"].as_str().unwrap()).collect()
        };
        while finals(&self.client.seen[from..]).is_empty() {
            self.client.stream_until(&[], has_kind("transcript.final")).await;
        }
        ModelAnswer { text: finals(&self.client.seen[from..]), audio: audio(&self.client.seen[from..]) }
    }

    /// A question whose answer is interrupted by another one: what was heard of the first, and all of the second.
    pub(crate) async fn barge_in(&mut self) -> (ModelAnswer, ModelAnswer) {
        let from = self.ask_until_audio().await;
        self.client.stream_until(&recording("cards_005"), has_kind("tts.speaking_end")).await;
        let first = self.interrupted_answer(from);
        (first, self.listen_to(&[]).await)
    }

    /// The same with a command.
    pub(crate) async fn cancel(&mut self) -> (ModelAnswer, ModelAnswer) {
        let from = self.ask_until_audio().await;
        self.client.send_json(json!({"type": "tts.cancel"})).await;
        self.client.wait_for_event("tts.speaking_end").await;
        let first = self.interrupted_answer(from);
        (first, self.ask().await)
    }

    async fn ask_until_audio(&mut self) -> usize {
        let from = self.client.seen.len();
        self.client.stream_until(&recording("goforward"), has_kind("tts.speaking_start")).await;
        self.client.stream_until(&[], has_kind("audio")).await;
        from
    }

    #[track_caller]
    fn interrupted_answer(&self, from: usize) -> ModelAnswer {
        let seen = &self.client.seen[from..];
        assert_eq!(events(seen, "tts.speaking_end")[0]["cancelled"], true, "{seen:?}");
        ModelAnswer { text: String::new(), audio: audio(seen) }
    }

    /// Bad input is told, and nothing more comes of it.
    pub(crate) async fn send_invalid_and_check(&mut self) {
        self.client.send(Message::text("{")).await;
        let error = self.client.wait_for_event("error").await;
        assert_eq!((&error["code"], &error["recoverable"]), (&json!("malformed_json"), &json!(true)));
    }

    /// The upstream's time is up, and the conversation goes on.
    pub(crate) async fn wait_for_rollover(&mut self, reason: &str) {
        let seen = self.client.stream_until(&[], has_kind("session.rollover")).await;
        assert_eq!(events(seen, "session.rollover")[0]["reason"], reason);
        for error in events(seen, "error") {
            assert_eq!(error["recoverable"], true, "{error}");
        }
    }

    /// Says goodbye; so many errors were told until then.
    pub(crate) async fn close_and_check(mut self, errors: usize) {
        self.client.send_json(json!({"type": "session.close"})).await;
        self.client.read_to_end().await;
        assert_eq!(self.closed_event()["reason"], "client_request");
        assert_close(&self.client, 1000);
        assert_pairs_closed(&self.client.seen);
        assert_eq!(events(&self.client.seen, "error").len(), errors, "{}", self.client.describe_received());
    }

    fn closed_event(&self) -> &Value {
        events(&self.client.seen, "session.closed")[0]
    }

    /// Without a model's name there is no session.
    pub(crate) async fn assert_rejected_without_model(bench: &Bench) {
        let mut client = bench.dial("/v1/realtime?language=en&model=").await;
        client.read_to_end().await;
        assert_eq!(events(&client.seen, "error").len(), 1);
        assert_close(&client, 1008);
    }

    /// What is said comes back as text.
    pub(crate) async fn transcribe_question(&mut self) {
        self.client.send_utterance(&recording("goforward")).await;
        let text = self.client.wait_for_event("transcript.final").await["text"].as_str().unwrap().to_owned();
        assert!(text.starts_with("simulated transcript: "), "{text}");
    }

    /// A text is spoken to its end.
    pub(crate) async fn speak_text(&mut self) {
        let from = self.client.seen.len();
        self.client.send_json(json!({"type": "tts.speak", "text": "Hello there, who are you?"})).await;
        let end = self.client.wait_for_event("tts.speaking_end").await;
        let samples = audio(&self.client.seen[from..]).len() as u64;
        assert_eq!(end["cancelled"], false);
        assert!(samples > 0 && end["audio_ms"] == samples / 24, "{end}");
    }

    /// A text is spoken until it is enough.
    pub(crate) async fn speak_and_cancel(&mut self) {
        let from = self.client.seen.len();
        self.client.send_json(json!({"type": "tts.speak", "text": "A long story. ".repeat(20)})).await;
        while !self.client.next().await.kind().contains("audio") {}
        self.client.send_json(json!({"type": "tts.cancel"})).await;
        let end = self.client.wait_for_event("tts.speaking_end").await;
        assert_eq!(end["cancelled"], true);
        // Whole it would be more than ten seconds.
        assert!(audio(&self.client.seen[from..]).len() < 10 * 24_000);
    }

    /// Who sends nothing is closed.
    pub(crate) async fn wait_for_idle_timeout(mut self) {
        self.client.read_to_end().await;
        assert_eq!(self.closed_event()["reason"], "inactivity_timeout");
        assert_close(&self.client, 1000);
    }
}
