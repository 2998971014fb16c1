//! Clients of the model's own protocol, in both dialects: how they speak, and what they understand.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use voxbridge::simulator::READ_ALOUD;

use super::{
    bench::{Bench, Client, Seen, events, recording},
    servers::Answer,
};

/// Something that begins as a JPEG file does.
const PICTURE: &str = "/9j/4AAQ";

/// More seconds than any answer is waited for.
const PATIENCE_S: usize = 60;

/// How a client spells things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tongue {
    Older,
    Current,
}

/// What an event tells.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Text(String),
    Audio(Vec<i16>),
    /// The turn is over, or there is none.
    Listens,
}

impl Tongue {
    pub(crate) fn opening(self) -> Value {
        let prompt = "You are a helpful assistant.";
        match self {
            Self::Older => json!({"type": "session.update", "session": {"instructions": prompt}}),
            Self::Current => json!({"type": "session.init", "payload": {"system_prompt": prompt}}),
        }
    }

    pub(crate) fn append(self, samples: &[i16], forced: bool, sees: bool) -> Value {
        let bytes: Vec<u8> =
            samples.iter().flat_map(|sample| (f32::from(*sample) / 32_768.0).to_le_bytes()).collect();
        let mut input = json!({"audio": STANDARD.encode(bytes), "force_listen": forced});
        if sees {
            input["video_frames"] = json!([PICTURE]);
        }
        match self {
            Self::Older => {
                input["type"] = json!("input_audio_buffer.append");
                input
            }
            Self::Current => json!({"type": "input.append", "input": input}),
        }
    }

    fn understands(self, event: &Value) -> Vec<Told> {
        let text = |event: &Value| Told::Text(event["text"].as_str().unwrap().to_owned());
        let audio = |event: &Value| Told::Audio(decoded(event["audio"].as_str().unwrap()));
        match (self, event["type"].as_str().unwrap(), event["kind"].as_str()) {
            (Self::Current, "response.output.delta", Some("listen")) => vec![Told::Listens],
            (Self::Current, "response.output.delta", Some("text")) => vec![text(event)],
            (Self::Current, "response.output.delta", Some("audio")) => vec![audio(event)],
            (Self::Older, "response.listen", None) => vec![Told::Listens],
            (Self::Older, "response.output_audio.delta", None) => {
                let mut told = vec![text(event)];
                told.extend(event["audio"].is_string().then(|| audio(event)));
                told.extend(event["end_of_turn"].as_bool().unwrap().then_some(Told::Listens));
                told
            }
            (Self::Current, "response.done", None) => Vec::new(),
            (_, "session.closed" | "error", None) => Vec::new(),
            _ => panic!("no {self:?} client knows {event}"),
        }
    }
}

fn decoded(audio: &str) -> Vec<i16> {
    let bytes = STANDARD.decode(audio).unwrap();
    let sample = |four: &[u8]| f32::from_le_bytes(four.try_into().unwrap()) * 32_768.0;
    bytes.chunks_exact(4).map(|four| sample(four) as i16).collect()
}

/// A question, after as much silence as the model wants to hear first; a second each.
fn question() -> Vec<Vec<i16>> {
    let mut samples = vec![0; 48_000];
    samples.extend(recording("goforward"));
    samples.resize(samples.len().next_multiple_of(16_000), 0);
    samples.chunks(16_000).map(<[i16]>::to_vec).collect()
}

/// A client whose session is open.
pub(crate) struct Talker {
    pub(crate) client: Client,
    tongue: Tongue,
    sees: bool,
    session_id: Value,
}

impl Talker {
    pub(crate) async fn begin(bench: &Bench, tongue: Tongue, mode: &str) -> Self {
        let mut client = bench.dial(&format!("/v1/realtime?mode={mode}")).await;
        client.event("session.queue_done").await;
        client.command(tongue.opening()).await;
        let created = client.event("session.created").await;
        match (tongue, mode) {
            (Tongue::Older, _) => assert!(created["prompt_length"].is_u64(), "{created}"),
            (Tongue::Current, "chat") => assert_eq!(created["mode"], "turn_based"),
            (Tongue::Current, _) => assert_eq!(created["mode"], "full_duplex"),
        }
        Self { client, tongue, sees: mode == "video", session_id: created["session_id"].clone() }
    }

    /// A second goes up, and something that answers an append is waited for.
    async fn second(&mut self, samples: &[i16], forced: bool) {
        self.client.command(self.tongue.append(samples, forced, self.sees)).await;
        loop {
            match self.client.next().await {
                Seen::Event(event) if event["type"] == "error" => panic!("{event}"),
                Seen::Event(event) if event["kind"] == "text" => {}
                Seen::Event(event) if event["type"].as_str().unwrap().starts_with("response.") => return,
                other => panic!("not an answer: {other:?}"),
            }
        }
    }

    /// What was told since then, one thing after the other.
    fn told(&self, from: usize) -> Vec<Told> {
        let events = self.client.seen[from..].iter().filter_map(|seen| match seen {
            Seen::Event(event) => Some(event),
            _ => None,
        });
        events.flat_map(|event| self.tongue.understands(event)).collect()
    }

    fn answer(&self, from: usize) -> Answer {
        let mut answer = Answer { text: String::new(), audio: Vec::new() };
        for told in self.told(from) {
            match told {
                Told::Text(text) => answer.text += &text,
                Told::Audio(samples) => answer.audio.extend(samples),
                Told::Listens => {}
            }
        }
        answer
    }

    fn speaks(&self, from: usize) -> bool {
        self.told(from).iter().any(|told| matches!(told, Told::Audio(_)))
    }

    /// Whether the turn that began since then has ended.
    fn is_over(&self, from: usize) -> bool {
        let told = self.told(from);
        let spoke = told.iter().position(|told| *told != Told::Listens);
        spoke.is_some_and(|at| told[at..].contains(&Told::Listens))
    }

    /// Goes on in silence until it is so.
    async fn quiet_until(&mut self, forced: bool, so: impl Fn(&Self) -> bool) {
        for _ in 0..PATIENCE_S {
            if so(self) {
                return;
            }
            self.second(&[0; 16_000], forced).await;
        }
        panic!("it does not come: {}", kinds(&self.client));
    }

    async fn say(&mut self) -> usize {
        let from = self.client.seen.len();
        for second in question() {
            self.second(&second, false).await;
        }
        from
    }

    /// A question, and its whole answer.
    pub(crate) async fn ask(&mut self) -> Answer {
        let from = self.say().await;
        self.quiet_until(false, |talker| talker.is_over(from)).await;
        self.answer(from)
    }

    /// A question whose answer is interrupted: what was heard of it. Nothing of it comes later.
    pub(crate) async fn interrupt(&mut self) -> Answer {
        let from = self.say().await;
        self.quiet_until(false, |talker| talker.speaks(from)).await;
        self.quiet_until(true, |talker| talker.is_over(from)).await;
        let (heard, end) = (self.answer(from), self.client.seen.len());
        for _ in 0..3 {
            self.second(&[0; 16_000], false).await;
        }
        assert!(!self.speaks(end), "it goes on: {}", kinds(&self.client));
        heard
    }

    /// A message that is wrong and ends nothing, where the protocol has one.
    pub(crate) async fn err_and_go_on(&mut self, native: bool) {
        let (wrong, code) = match self.tongue {
            Tongue::Older => (json!({"type": "input_audio_buffer.append"}), "missing_field"),
            Tongue::Current if !native => (json!({"type": "response.cancel"}), "unknown_event"),
            Tongue::Current => return,
        };
        self.client.command(wrong).await;
        assert_eq!(self.client.event("error").await["error"]["code"], code);
    }

    /// A message that is wrong and ends the session.
    pub(crate) async fn err(mut self) {
        self.client.send(Message::text("{")).await;
        self.client.rest().await;
        match self.tongue {
            Tongue::Older => {
                assert_close(&self.client, 1003);
                assert!(events(&self.client.seen, "session.closed").is_empty());
            }
            Tongue::Current => {
                let closed = self.closed();
                assert_eq!(closed["reason"], "backend_error");
                assert!(closed["diagnostic"]["message"].as_str().unwrap().starts_with("invalid JSON"));
                assert_close(&self.client, 1000);
            }
        }
    }

    /// Says goodbye, and is told that it is over in its own words; a server of the current dialect tells this reason.
    pub(crate) async fn leave(mut self, told: &str) {
        self.client.command(json!({"type": "session.close", "reason": "enough"})).await;
        self.client.rest().await;
        let reason = if self.tongue == Tongue::Older { "stopped" } else { told };
        let closed = self.closed();
        assert_eq!(closed["reason"], reason);
        if self.tongue == Tongue::Current {
            assert_eq!(closed["session_id"], self.session_id);
        }
        assert_close(&self.client, 1000);
    }

    /// The session's time is up.
    pub(crate) async fn wait_for_the_end(mut self) {
        self.client.rest().await;
        assert_eq!(self.closed()["reason"], "timeout");
        assert_close(&self.client, 1000);
    }

    /// The one event that says so.
    #[track_caller]
    fn closed(&self) -> &Value {
        let closed = events(&self.client.seen, "session.closed");
        assert_eq!(closed.len(), 1, "{}", kinds(&self.client));
        assert!(self.tongue == Tongue::Current || closed[0].get("session_id").is_none());
        closed[0]
    }

    /// A chat's question and its whole answer.
    pub(crate) async fn chat(&mut self) -> Answer {
        let from = self.client.seen.len();
        self.client.command(asked("Hello there")).await;
        let done = self.client.event("response.done").await;
        assert_eq!(done["reason"], "turn_end");
        let answer = self.answer(from);
        assert_eq!(done["text"], answer.text);
        answer
    }

    /// Leaves in the middle of an answer, which is the only way to interrupt one.
    pub(crate) async fn chat_and_leave(mut self, told: &str) {
        // What is read aloud is as long as it is written: seconds, also where the machine is busy.
        self.client.command(asked(&format!("{READ_ALOUD} {}", "A long story. ".repeat(40)))).await;
        self.client.event("response.output.delta").await;
        self.client.command(json!({"type": "session.close", "reason": "enough"})).await;
        self.client.rest().await;
        assert!(events(&self.client.seen, "response.done").is_empty(), "{}", kinds(&self.client));
        assert_eq!(self.closed()["reason"], told);
        assert_close(&self.client, 1000);
    }
}

/// A question in a chat.
pub(crate) fn asked(text: &str) -> Value {
    json!({"type": "input.append", "input": {
        "messages": [{"role": "user", "content": text}], "streaming": true, "tts": {"enabled": true},
        "use_tts_template": true,
    }})
}

#[track_caller]
pub(crate) fn assert_close(client: &Client, code: u16) {
    let last: Vec<_> = client.seen.iter().rev().take(2).collect();
    assert!(
        matches!(last[..], [Seen::End(None), Seen::Close(came, _)] if *came == code),
        "{}",
        kinds(client)
    );
}

/// What came, in short: events may have megabytes of audio.
pub(crate) fn kinds(client: &Client) -> String {
    let short = |seen: &Seen| match seen {
        Seen::Event(event) => {
            let whole = event.to_string();
            whole.chars().take(200).collect()
        }
        other => format!("{other:?}"),
    };
    client.seen.iter().map(short).collect::<Vec<_>>().join("\n")
}
