//! Unit tests of the behaviour, in virtual time.

mod errors;
mod transport;

use std::sync::Arc;

use super::*;
use crate::{
    spelling::Library,
    upstream::lane::{LaneCodec, LaneEnd, LaneOpening},
    vocabulary::{ConversationInit, EndKind, Frame, LanePurpose, Mode, UnitInput},
};

/// A codec with a clock, and everything that it sent or emitted.
struct Lane {
    codec: LaneCodec,
    now: Instant,
    sequence: u64,
    unit: u64,
    sent: Vec<Value>,
    events: Vec<String>,
    actions: Vec<CodecAction>,
}

impl Lane {
    /// A lane whose session the server has not opened yet.
    fn dial() -> Self {
        let mapping = Library::embedded().unwrap().upstream("vllm-omni").unwrap();
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let now = Instant::now();
        let codec = LaneCodec::new(mapping, Mode::Audio, LanePurpose::Converse);
        let mut lane = Self {
            codec,
            now,
            sequence: 0,
            unit: 0,
            sent: Vec::new(),
            events: Vec::new(),
            actions: Vec::new(),
        };
        assert_eq!(lane.codec.handle_opened(now), LaneOpening::Granted);
        let init =
            ConversationInit { prompt: "p".to_owned(), config: "{}".into(), voice: None, voice_name: None };
        lane.command(LaneRequest::InitConversation(Box::new(init)));
        lane
    }

    fn open() -> Self {
        let mut lane = Self::dial();
        lane.created("session.created", "token-1");
        assert_eq!(lane.take_events(), ["ready"]);
        lane.sent.clear();
        lane
    }

    fn created(&mut self, kind: &str, token: &str) {
        let capabilities = json!({"chunk_period_ms": 1000, "implementation_level": "model_native_duplex"});
        let session = json!({"id": "duplex-1", "capabilities": capabilities});
        self.receive(&json!({"type": kind, "session": session, "resume_token": token}));
    }

    fn command(&mut self, command: LaneRequest) {
        let sent = &mut self.sent;
        self.codec.encode(self.now, command, |message| match message {
            Message::Text(text) => sent.push(serde_json::from_str(&text).unwrap()),
            other => panic!("{other:?}"),
        });
        self.follow();
    }

    fn append(&mut self, force_listen: bool) {
        self.unit += 1;
        let audio = Arc::new(vec![self.unit as i16; 16_000]);
        let input_id = self.unit.to_string().into();
        self.command(LaneRequest::Append(UnitInput { audio, input_id, force_listen, frame: None }));
    }

    /// A message without a number.
    fn receive(&mut self, message: &Value) {
        let events = &mut self.events;
        let text = message.to_string();
        self.codec.decode(self.now, Frame::Text(&text), |event, meta| events.push(describe(&event, meta)));
        self.follow();
    }

    fn receive_numbered(&mut self, mut message: Value) {
        self.sequence += 1;
        message["server_event_seq"] = self.sequence.into();
        self.receive(&message);
    }

    fn listen(&mut self) {
        self.receive_numbered(json!({"type": "response.listen", "epoch": 0, "response": {}}));
    }

    fn delta(&mut self, id: &str, text: &str) {
        let audio = "AAAA".repeat(2 * 24_000 / 3);
        self.receive_numbered(
            json!({"type": "response.output_audio.delta", "response_id": id, "delta": audio}),
        );
        self.receive_numbered(
            json!({"type": "response.output_audio_transcript.delta", "response_id": id, "delta": text}),
        );
    }

    fn done(&mut self, id: &str) {
        self.receive_numbered(json!({"type": "response.done", "response_id": id, "response": {}}));
    }

    fn error(&mut self, code: &str, event_id: Option<&str>) {
        self.receive_numbered(
            json!({"type": "error", "error": {"code": code, "message": "words", "event_id": event_id}}),
        );
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.codec.deadline().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.codec.handle_timeout(self.now);
            self.follow();
        }
        self.now = end;
    }

    fn lose(&mut self) -> LaneEnd {
        let end = self.codec.handle_end(self.now, &DisconnectReason::Lost("reset".to_owned()));
        self.follow();
        end
    }

    fn follow(&mut self) {
        while let Some(action) = self.codec.pop_action() {
            match action {
                CodecAction::Send(Message::Text(text)) => {
                    self.sent.push(serde_json::from_str(&text).unwrap());
                }
                CodecAction::Event(_) => self.events.push("end".to_owned()),
                other => self.actions.push(other),
            }
        }
    }

    fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Types of the messages that were sent; appends with their ids.
    fn take_sent(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.sent);
        let name = |message: Value| {
            let kind = message["type"].as_str().unwrap().to_owned();
            match kind.as_str() {
                "input_audio_buffer.append" => format!("append {}", message["event_id"].as_str().unwrap()),
                "playback.ack" => format!("played {}", message["played_ms"]),
                _ => kind,
            }
        };
        sent.into_iter().map(name).filter(|name| name != "session.event_ack").collect()
    }
}

fn describe(event: &LaneEvent<'_>, meta: MessageMeta<'_>) -> String {
    let unit = meta.input_id.map(|id| format!(" {id}")).unwrap_or_default();
    match event {
        LaneEvent::Ready { .. } => "ready".to_owned(),
        LaneEvent::Listen if meta.hit_limit => format!("cut{unit}"),
        LaneEvent::Listen => format!("listen{unit}"),
        LaneEvent::Done { .. } => format!("done{unit}"),
        LaneEvent::Text(text) => format!("text {text}"),
        LaneEvent::Audio(samples) => format!("audio {}", samples.len()),
        LaneEvent::RecoverableError(words) => {
            let refused = meta.refused.map(|part| format!(" ({part:?})")).unwrap_or_default();
            format!("error {words}{refused}")
        }
        LaneEvent::Closed(end) => format!("closed {:?} {}", end.kind, end.detail),
        other => format!("{other:?}"),
    }
}

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn unit_is_answered_once_by_the_first_output_after_it() {
    let mut lane = Lane::open();
    lane.append(false);
    lane.listen();
    lane.append(false);
    lane.delta("r", "One.");
    lane.delta("r", "Two.");
    lane.append(false);
    lane.done("r");
    lane.listen();
    assert_eq!(
        lane.take_events(),
        ["listen 1", "done 2", "text One.", "audio 24000", "text Two.", "audio 24000", "listen 3",]
    );
}

#[test]
fn unit_is_one_append_and_the_first_begins_with_a_lead() {
    let mut lane = Lane::open();
    let samples = |lane: &mut Lane| {
        lane.append(false);
        let message = lane.sent.pop().unwrap();
        lane.listen();
        message["audio"].as_str().unwrap().len() * 3 / 4 / 2
    };
    assert_eq!([samples(&mut lane), samples(&mut lane)], [LEAD_SAMPLES + 16_000, 16_000]);
}

#[test]
fn unit_in_the_middle_of_an_answer_ends_by_itself_and_a_silent_server_is_noticed() {
    let mut lane = Lane::open();
    lane.append(false);
    lane.wait(MS(9_000));
    assert_eq!(lane.take_events(), [""; 0], "a server that says nothing has stalled");
    lane.delta("r", "");
    lane.take_events();
    for _ in 2..=5 {
        lane.append(false);
        lane.wait(MS(1_000));
        assert_eq!(lane.take_events(), ["end"]);
    }
    lane.append(false);
    lane.wait(MS(9_000));
    assert_eq!(lane.take_events(), [""; 0], "the answer has stalled");
}

#[test]
fn forced_listen_cancels_and_fences_what_was_in_flight() {
    let mut lane = Lane::open();
    lane.append(false);
    lane.delta("r", "One.");
    lane.wait(MS(400));
    lane.take_events();
    lane.take_sent();
    lane.append(true);
    assert_eq!(lane.take_sent(), ["played 400", "response.cancel", "append 2"]);
    lane.delta("r", "Stale.");
    lane.append(true);
    assert_eq!(lane.take_sent(), ["append 3"], "one cancellation at a time");
    lane.done("r");
    lane.delta("s", "New.");
    assert_eq!(lane.take_events(), ["listen 3", "text New.", "audio 24000"]);
}

#[test]
fn cancellation_that_comes_too_late_is_an_answer_too() {
    let mut lane = Lane::open();
    lane.append(true);
    assert_eq!(lane.take_sent(), ["response.cancel", "append 1"]);
    lane.error("response_not_active", Some("cancel"));
    lane.error("response_not_active", Some("cancel"));
    assert_eq!(lane.take_events(), ["listen 1"]);
}

#[test]
fn playback_is_reported_when_the_answer_has_been_played() {
    let mut lane = Lane::open();
    lane.append(false);
    lane.delta("r", "One.");
    lane.delta("r", "Two.");
    lane.done("r");
    lane.take_sent();
    lane.wait(MS(1_999));
    assert_eq!(lane.take_sent(), [""; 0]);
    lane.wait(MS(1));
    assert_eq!(lane.take_sent(), ["played 2000"]);
}

#[test]
fn quiet_session_sends_heartbeats() {
    let mut lane = Lane::open();
    lane.wait(MS(59_000));
    assert_eq!(lane.take_sent(), ["session.heartbeat"]);
}

/// Events of a lane of this mode that is given a session with these capabilities.
fn first_event(mode: Mode, capabilities: &Value) -> LaneEvent<'static> {
    let mapping = Library::embedded().unwrap().upstream("vllm-omni").unwrap();
    #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
    let now = Instant::now();
    let mut codec = LaneCodec::new(mapping, mode, LanePurpose::Converse);
    let session = json!({"id": "duplex-1", "capabilities": capabilities});
    let created = json!({"type": "session.created", "session": session, "resume_token": "t"}).to_string();
    let mut first = None;
    codec.decode(now, Frame::Text(&created), |event, _| {
        first = Some(match event {
            LaneEvent::Ready { .. } => LaneEvent::Ready { session_id: None },
            LaneEvent::Closed(end) => LaneEvent::Closed(end),
            other => panic!("{other:?}"),
        });
    });
    first.unwrap()
}

#[test]
fn session_of_a_model_that_the_lane_cannot_use_is_refused_with_the_reason() {
    // The capabilities of MiniCPM-o 4.5, PersonaPlex and Nemotron VoiceChat, AURA, and Qwen3-Omni.
    let native = |inputs: Value, unit_ms: u32| {
        json!({
            "implementation_level": "model_native_duplex", "required_input_modalities": inputs,
            "chunk_period_ms": unit_ms,
        })
    };
    let committed = |inputs: Value| {
        json!({
            "implementation_level": "turn_based_duplex", "required_input_modalities": inputs, "chunk_period_ms": 1000,
        })
    };
    for (mode, capabilities, problem) in [
        (Mode::Audio, native(json!(["audio"]), 1000), None),
        (Mode::Video, native(json!(["audio"]), 1000), None),
        (Mode::Audio, native(json!(["audio"]), 80), None),
        (Mode::Video, native(json!(["video"]), 1000), None),
        (Mode::Audio, native(json!(["video"]), 1000), Some("the model requires video")),
        (Mode::Audio, native(json!(["audio", "text"]), 1000), Some("the model requires text")),
        (Mode::Video, committed(json!(["video"])), Some("implementation_level is 'turn_based_duplex'")),
        (Mode::Audio, committed(json!(["audio"])), Some("the model must speak unasked")),
        (Mode::Audio, native(json!(["audio"]), 0), Some("chunk_period_ms is 0")),
        // A deployment in turns of 0.31 and later opens OpenAI's own session.
        (Mode::Audio, json!(null), Some("implementation_level is not named")),
        (Mode::Audio, json!({}), Some("implementation_level is not named")),
        (Mode::Audio, json!({"implementation_level": null}), Some("implementation_level is not named")),
        (
            Mode::Audio,
            json!({"implementation_level": "model_native_duplex"}),
            Some("chunk_period_ms is not named"),
        ),
    ] {
        match (first_event(mode, &capabilities), problem) {
            (LaneEvent::Ready { .. }, None) => {}
            (LaneEvent::Closed(end), Some(problem)) => {
                assert_eq!(end.kind, EndKind::UnfitStillOpen);
                assert!(end.detail.contains(problem), "{}", end.detail);
            }
            (event, _) => panic!("{capabilities}: {event:?}"),
        }
    }
}

#[test]
fn answer_that_the_server_broke_off_is_cut() {
    for (status, end) in
        [("completed", "listen 2"), ("failed", "cut 2"), ("incomplete", "cut 2"), ("cancelled", "cut 2")]
    {
        let mut lane = Lane::open();
        lane.append(false);
        lane.delta("r", "One.");
        lane.append(false);
        lane.take_events();
        let response = json!({"id": "r", "status": status});
        lane.receive(&json!({"type": "response.done", "response_id": "r", "response": response}));
        assert_eq!(lane.take_events(), [end], "{status}");
    }
    // The session has cancelled it itself.
    let mut lane = Lane::open();
    lane.append(false);
    lane.delta("r", "One.");
    lane.append(true);
    lane.take_events();
    let response = json!({"id": "r", "status": "cancelled"});
    lane.receive(&json!({"type": "response.done", "response_id": "r", "response": response}));
    assert_eq!(lane.take_events(), ["listen 2"]);
}

#[test]
fn answer_at_another_rate_keeps_its_length() {
    let mut lane = Lane::open();
    lane.append(false);
    let audio = "AAAA".repeat(2 * 1764 / 3);
    for _ in 0..25 {
        lane.receive_numbered(json!({
            "type": "response.output_audio.delta", "response_id": "r", "delta": audio, "sample_rate_hz": 22_050,
        }));
        lane.receive_numbered(
            json!({"type": "response.output_audio_transcript.delta", "response_id": "r", "delta": ""}),
        );
    }
    lane.done("r");
    let events = lane.take_events();
    let samples: usize =
        events.iter().filter_map(|event| event.strip_prefix("audio ")?.parse::<usize>().ok()).sum();
    assert_eq!(samples, 2 * 24_000, "{events:?}");
    assert_eq!(events.last().unwrap(), "listen");
}
