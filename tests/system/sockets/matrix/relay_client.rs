//! Clients of the model's own protocol, in both dialects.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use voxbridge::simulator::READ_ALOUD_PROMPT;
use voxbridge_test_support::PICTURE;

use super::{
    bench::{Bench, Client, ClientFrame, events, recording},
    servers::ModelAnswer,
};

/// Limit for any answer, in seconds of audio sent.
const PATIENCE_S: usize = 60;

/// The client's dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayDialect {
    Legacy,
    Current,
}

/// Meaning of one event.
#[derive(Debug, Clone, PartialEq)]
enum ModelOutput {
    Text(String),
    Audio(Vec<i16>),
    /// The model listens: its turn is over, or none is open.
    Listening,
}

impl RelayDialect {
    pub(crate) fn opening(self) -> Value {
        let prompt = "You are a helpful assistant.";
        match self {
            Self::Legacy => json!({"type": "session.update", "session": {"instructions": prompt}}),
            Self::Current => json!({"type": "session.init", "payload": {"system_prompt": prompt}}),
        }
    }

    pub(crate) fn append(self, samples: &[i16], forced: bool, is_video: bool) -> Value {
        let bytes: Vec<u8> =
            samples.iter().flat_map(|sample| (f32::from(*sample) / 32_768.0).to_le_bytes()).collect();
        let mut input = json!({"audio": STANDARD.encode(bytes), "force_listen": forced});
        if is_video {
            input["video_frames"] = json!([PICTURE]);
        }
        match self {
            Self::Legacy => {
                input["type"] = json!("input_audio_buffer.append");
                input
            }
            Self::Current => json!({"type": "input.append", "input": input}),
        }
    }

    fn decode_event(self, event: &Value) -> Vec<ModelOutput> {
        let text = |event: &Value| ModelOutput::Text(event["text"].as_str().unwrap().to_owned());
        let audio = |event: &Value| ModelOutput::Audio(decode_audio(event["audio"].as_str().unwrap()));
        match (self, event["type"].as_str().unwrap(), event["kind"].as_str()) {
            (Self::Current, "response.output.delta", Some("listen")) => vec![ModelOutput::Listening],
            (Self::Current, "response.output.delta", Some("text")) => vec![text(event)],
            (Self::Current, "response.output.delta", Some("audio")) => vec![audio(event)],
            (Self::Legacy, "response.listen", None) => vec![ModelOutput::Listening],
            (Self::Legacy, "response.output_audio.delta", None) => {
                let mut outputs = vec![text(event)];
                outputs.extend(event["audio"].is_string().then(|| audio(event)));
                outputs.extend(event["end_of_turn"].as_bool().unwrap().then_some(ModelOutput::Listening));
                outputs
            }
            (Self::Current, "response.done", None) => Vec::new(),
            (_, "session.closed" | "error", None) => Vec::new(),
            _ => panic!("a {self:?} client does not know {event}"),
        }
    }
}

fn decode_audio(audio: &str) -> Vec<i16> {
    let bytes = STANDARD.decode(audio).unwrap();
    let sample = |four: &[u8]| f32::from_le_bytes(four.try_into().unwrap()) * 32_768.0;
    bytes.chunks_exact(4).map(|four| sample(four) as i16).collect()
}

/// The initial silence that the model expects, then a question, in seconds of audio.
fn question() -> Vec<Vec<i16>> {
    let mut samples = vec![0; 48_000];
    samples.extend(recording("goforward"));
    samples.resize(samples.len().next_multiple_of(16_000), 0);
    samples.chunks(16_000).map(<[i16]>::to_vec).collect()
}

/// A client with an open session.
pub(crate) struct RelayClient {
    pub(crate) client: Client,
    dialect: RelayDialect,
    is_video: bool,
    session_id: Value,
}

impl RelayClient {
    pub(crate) async fn begin(bench: &Bench, dialect: RelayDialect, mode: &str) -> Self {
        let mut client = bench.dial(&format!("/v1/realtime?mode={mode}")).await;
        client.wait_for_event("session.queue_done").await;
        client.send_json(dialect.opening()).await;
        let created = client.wait_for_event("session.created").await;
        match (dialect, mode) {
            (RelayDialect::Legacy, _) => assert!(created["prompt_length"].is_u64(), "{created}"),
            (RelayDialect::Current, "chat") => assert_eq!(created["mode"], "turn_based"),
            (RelayDialect::Current, _) => assert_eq!(created["mode"], "full_duplex"),
        }
        Self { client, dialect, is_video: mode == "video", session_id: created["session_id"].clone() }
    }

    /// Sends a second of audio and waits for its answer.
    async fn send_second(&mut self, samples: &[i16], forced: bool) {
        self.client.send_json(self.dialect.append(samples, forced, self.is_video)).await;
        loop {
            match self.client.next().await {
                ClientFrame::Event(event) if event["type"] == "error" => panic!("{event}"),
                ClientFrame::Event(event) if event["kind"] == "text" => {}
                ClientFrame::Event(event) if event["type"].as_str().unwrap().starts_with("response.") => {
                    return;
                }
                other => panic!("not an answer: {other:?}"),
            }
        }
    }

    /// The outputs since that point, in order.
    fn outputs_since(&self, from: usize) -> Vec<ModelOutput> {
        let events = self.client.received[from..].iter().filter_map(|frame| match frame {
            ClientFrame::Event(event) => Some(event),
            _ => None,
        });
        events.flat_map(|event| self.dialect.decode_event(event)).collect()
    }

    fn answer(&self, from: usize) -> ModelAnswer {
        let mut answer = ModelAnswer { text: String::new(), audio: Vec::new() };
        for output in self.outputs_since(from) {
            match output {
                ModelOutput::Text(text) => answer.text += &text,
                ModelOutput::Audio(samples) => answer.audio.extend(samples),
                ModelOutput::Listening => {}
            }
        }
        answer
    }

    fn has_audio(&self, from: usize) -> bool {
        self.outputs_since(from).iter().any(|told| matches!(told, ModelOutput::Audio(_)))
    }

    /// True if the turn that began since that point has ended.
    fn is_over(&self, from: usize) -> bool {
        let outputs = self.outputs_since(from);
        let spoke = outputs.iter().position(|outputs| *outputs != ModelOutput::Listening);
        spoke.is_some_and(|at| outputs[at..].contains(&ModelOutput::Listening))
    }

    /// Sends silence until the condition holds.
    async fn send_silence_until(&mut self, forced: bool, condition: impl Fn(&Self) -> bool) {
        for _ in 0..PATIENCE_S {
            if condition(self) {
                return;
            }
            self.send_second(&[0; 16_000], forced).await;
        }
        panic!("the condition never holds: {}", describe_received(&self.client));
    }

    async fn send_question(&mut self) -> usize {
        let from = self.client.received.len();
        for second in question() {
            self.send_second(&second, false).await;
        }
        from
    }

    /// Asks a question and returns the whole answer.
    pub(crate) async fn ask(&mut self) -> ModelAnswer {
        let from = self.send_question().await;
        self.send_silence_until(false, |client| client.is_over(from)).await;
        self.answer(from)
    }

    /// Interrupts an answer and returns the received part. No audio of it may arrive later.
    pub(crate) async fn interrupt(&mut self) -> ModelAnswer {
        let from = self.send_question().await;
        self.send_silence_until(false, |client| client.has_audio(from)).await;
        self.send_silence_until(true, |client| client.is_over(from)).await;
        let (answer, end) = (self.answer(from), self.client.received.len());
        for _ in 0..3 {
            self.send_second(&[0; 16_000], false).await;
        }
        assert!(!self.has_audio(end), "the turn continues: {}", describe_received(&self.client));
        answer
    }

    /// Sends an invalid message that does not end the session, if the protocol has such messages.
    pub(crate) async fn send_recoverable_error(&mut self, native: bool) {
        let (invalid, code) = match self.dialect {
            RelayDialect::Legacy => (json!({"type": "input_audio_buffer.append"}), "missing_field"),
            RelayDialect::Current if !native => (json!({"type": "response.cancel"}), "unknown_event"),
            RelayDialect::Current => return,
        };
        self.client.send_json(invalid).await;
        assert_eq!(self.client.wait_for_event("error").await["error"]["code"], code);
    }

    /// Sends an invalid message that ends the session.
    pub(crate) async fn send_invalid_and_check(mut self) {
        self.client.send(Message::text("{")).await;
        self.client.read_to_end().await;
        match self.dialect {
            RelayDialect::Legacy => {
                assert_close(&self.client, 1003);
                assert!(events(&self.client.received, "session.closed").is_empty());
            }
            RelayDialect::Current => {
                let closed = self.closed_event();
                assert_eq!(closed["reason"], "backend_error");
                assert!(closed["diagnostic"]["message"].as_str().unwrap().starts_with("invalid JSON"));
                assert_close(&self.client, 1000);
            }
        }
    }

    /// Closes the session and checks the answer; a current server answers with this reason.
    pub(crate) async fn close_and_check(mut self, told: &str) {
        self.client.send_json(json!({"type": "session.close", "reason": "enough"})).await;
        self.client.read_to_end().await;
        let reason = if self.dialect == RelayDialect::Legacy { "stopped" } else { told };
        let closed = self.closed_event();
        assert_eq!(closed["reason"], reason);
        if self.dialect == RelayDialect::Current {
            assert_eq!(closed["session_id"], self.session_id);
        }
        assert_close(&self.client, 1000);
    }

    /// Waits for the session's time limit.
    pub(crate) async fn wait_for_timeout(mut self) {
        self.client.read_to_end().await;
        assert_eq!(self.closed_event()["reason"], "timeout");
        assert_close(&self.client, 1000);
    }

    /// The only `session.closed` event.
    #[track_caller]
    fn closed_event(&self) -> &Value {
        let closed = events(&self.client.received, "session.closed");
        assert_eq!(closed.len(), 1, "{}", describe_received(&self.client));
        assert!(self.dialect == RelayDialect::Current || closed[0].get("session_id").is_none());
        closed[0]
    }

    /// Asks a chat question and returns the whole answer.
    pub(crate) async fn chat(&mut self) -> ModelAnswer {
        let from = self.client.received.len();
        self.client.send_json(chat_message("Hello there")).await;
        let done = self.client.wait_for_event("response.done").await;
        assert_eq!(done["reason"], "turn_end");
        let answer = self.answer(from);
        assert_eq!(done["text"], answer.text);
        answer
    }

    /// Leaves during a chat answer, which is the only way to interrupt one.
    pub(crate) async fn chat_and_close_early(mut self, told: &str) {
        // Reading a text aloud takes seconds in proportion to its length, even on a busy machine.
        self.client
            .send_json(chat_message(&format!("{READ_ALOUD_PROMPT} {}", "A long story. ".repeat(40))))
            .await;
        self.client.wait_for_event("response.output.delta").await;
        self.client.send_json(json!({"type": "session.close", "reason": "enough"})).await;
        self.client.read_to_end().await;
        assert!(
            events(&self.client.received, "response.done").is_empty(),
            "{}",
            describe_received(&self.client)
        );
        assert_eq!(self.closed_event()["reason"], told);
        assert_close(&self.client, 1000);
    }
}

/// A chat question.
pub(crate) fn chat_message(text: &str) -> Value {
    json!({"type": "input.append", "input": {
        "messages": [{"role": "user", "content": text}], "streaming": true, "tts": {"enabled": true},
        "use_tts_template": true,
    }})
}

#[track_caller]
pub(crate) fn assert_close(client: &Client, code: u16) {
    let last: Vec<_> = client.received.iter().rev().take(2).collect();
    assert!(
        matches!(last[..], [ClientFrame::End(None), ClientFrame::Close(came, _)] if *came == code),
        "{}",
        describe_received(client)
    );
}

/// Short description of the received frames; events may hold megabytes of audio.
pub(crate) fn describe_received(client: &Client) -> String {
    let short = |frame: &ClientFrame| match frame {
        ClientFrame::Event(event) => {
            let whole = event.to_string();
            whole.chars().take(200).collect()
        }
        other => format!("{other:?}"),
    };
    client.received.iter().map(short).collect::<Vec<_>>().join("\n")
}
