//! A Macaw client with microphone and loudspeaker for any server.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{
    bench::{Bench, Client, ClientFrame, assert_pairs_closed, audio, events, recording},
    relay_client::assert_close,
    servers::ModelAnswer,
};
use voxbridge_test_support::bench::is;

/// A client with an open session.
pub(crate) struct MacawClient {
    client: Client,
}

impl MacawClient {
    pub(crate) async fn begin(bench: &Bench, model: &str) -> Self {
        Self { client: bench.client(&format!("model={model}&rollover_events=true")).await }
    }

    /// Sends a picture for the next question.
    pub(crate) async fn send_picture(&mut self) {
        self.client.send_json(json!({"type": "video.frame", "image": voxbridge_test_support::PICTURE})).await;
    }

    /// Asks a question and returns the whole answer.
    pub(crate) async fn ask(&mut self) -> ModelAnswer {
        self.listen_to(&recording("goforward")).await
    }

    /// Says the question, then stays silent until the answer has been played, and returns the answer.
    async fn listen_to(&mut self, question: &[i16]) -> ModelAnswer {
        let from = self.client.received.len();
        let frames = self.client.stream_until(question, is("tts.speaking_end")).await;
        assert_eq!(events(frames, "tts.speaking_end")[0]["cancelled"], false);
        let finals = |frame: &[ClientFrame]| -> String {
            let finals = events(frame, "transcript.final").into_iter();
            finals.filter(|it| it["speaker"] == "assistant").map(|it| it["text"].as_str().unwrap()).collect()
        };
        while finals(&self.client.received[from..]).is_empty() {
            self.client.stream_until(&[], is("transcript.final")).await;
        }
        ModelAnswer {
            text: finals(&self.client.received[from..]),
            audio: audio(&self.client.received[from..]),
        }
    }

    /// Interrupts an answer with another question. Returns the received part of the first answer and all of
    /// the second.
    pub(crate) async fn barge_in(&mut self) -> (ModelAnswer, ModelAnswer) {
        let from = self.ask_until_audio().await;
        self.client.stream_until(&recording("cards_005"), is("tts.speaking_end")).await;
        let first = self.interrupted_answer(from);
        (first, self.listen_to(&[]).await)
    }

    /// Like `barge_in`, but with a cancel command.
    pub(crate) async fn cancel(&mut self) -> (ModelAnswer, ModelAnswer) {
        let from = self.ask_until_audio().await;
        self.client.send_json(json!({"type": "tts.cancel"})).await;
        self.client.wait_for_event("tts.speaking_end").await;
        let first = self.interrupted_answer(from);
        (first, self.ask().await)
    }

    async fn ask_until_audio(&mut self) -> usize {
        let from = self.client.received.len();
        self.client.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
        self.client.stream_until(&[], is("audio")).await;
        from
    }

    #[track_caller]
    fn interrupted_answer(&self, from: usize) -> ModelAnswer {
        let frames = &self.client.received[from..];
        assert_eq!(events(frames, "tts.speaking_end")[0]["cancelled"], true, "{frames:?}");
        ModelAnswer { text: String::new(), audio: audio(frames) }
    }

    /// Checks that invalid input gets an error and has no other effect.
    pub(crate) async fn send_invalid_and_check(&mut self) {
        self.client.send(Message::text("{")).await;
        let error = self.client.wait_for_event("error").await;
        assert_eq!((&error["code"], &error["recoverable"]), (&json!("malformed_json"), &json!(true)));
    }

    /// Waits for the upstream's time limit and checks that the conversation continues.
    pub(crate) async fn wait_for_rollover(&mut self, reason: &str) {
        let frames = self.client.stream_until(&[], is("session.rollover")).await;
        assert_eq!(events(frames, "session.rollover")[0]["reason"], reason);
        for error in events(frames, "error") {
            assert_eq!(error["recoverable"], true, "{error}");
        }
    }

    /// Closes the session; the client must have received this many errors.
    pub(crate) async fn close_and_check(mut self, errors: usize) {
        self.client.send_json(json!({"type": "session.close"})).await;
        self.client.read_to_end().await;
        assert_eq!(self.closed_event()["reason"], "client_request");
        assert_close(&self.client, 1000);
        assert_pairs_closed(&self.client.received);
        assert_eq!(
            events(&self.client.received, "error").len(),
            errors,
            "{}",
            self.client.describe_received()
        );
    }

    fn closed_event(&self) -> &Value {
        events(&self.client.received, "session.closed")[0]
    }

    /// Checks that a session without a model is rejected.
    pub(crate) async fn assert_rejected_without_model(bench: &Bench) {
        let mut client = bench.dial("/v1/realtime?language=en&model=").await;
        client.read_to_end().await;
        assert_eq!(events(&client.received, "error").len(), 1);
        assert_close(&client, 1008);
    }

    /// Says a question and checks its transcript.
    pub(crate) async fn transcribe_question(&mut self) {
        self.client.send_utterance(&recording("goforward")).await;
        let text = self.client.wait_for_event("transcript.final").await["text"].as_str().unwrap().to_owned();
        assert!(text.starts_with("simulated transcript: "), "{text}");
    }

    /// Has a text spoken to its end.
    pub(crate) async fn speak_text(&mut self) {
        let from = self.client.received.len();
        self.client.send_json(json!({"type": "tts.speak", "text": "Hello there, who are you?"})).await;
        let end = self.client.wait_for_event("tts.speaking_end").await;
        let samples = audio(&self.client.received[from..]).len() as u64;
        assert_eq!(end["cancelled"], false);
        assert!(samples > 0 && end["audio_ms"] == samples / 24, "{end}");
    }

    /// Has a text spoken and cancels it.
    pub(crate) async fn speak_and_cancel(&mut self) {
        let from = self.client.received.len();
        self.client.send_json(json!({"type": "tts.speak", "text": "A long story. ".repeat(20)})).await;
        while !self.client.next().await.kind().contains("audio") {}
        self.client.send_json(json!({"type": "tts.cancel"})).await;
        let end = self.client.wait_for_event("tts.speaking_end").await;
        assert_eq!(end["cancelled"], true);
        // The whole text would last more than ten seconds.
        assert!(audio(&self.client.received[from..]).len() < 10 * 24_000);
    }

    /// Checks that a silent client is disconnected.
    pub(crate) async fn wait_for_idle_timeout(mut self) {
        self.client.read_to_end().await;
        assert_eq!(self.closed_event()["reason"], "inactivity_timeout");
        assert_close(&self.client, 1000);
    }
}
