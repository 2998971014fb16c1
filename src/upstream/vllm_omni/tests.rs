//! Unit tests of the behaviour, in virtual time.

use super::*;
use crate::{
    spelling::Library,
    upstream::lane::{LaneCodec, LaneEnd, LaneOpening},
    vocabulary::{ConversationInit, EndKind, Frame, LanePurpose, Mode},
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

#[test]
fn refused_append_is_sent_again_before_the_next_and_more_slowly() {
    let mut lane = Lane::open();
    lane.append(false);
    lane.error("input_backpressure", Some("1"));
    assert_eq!(lane.take_events(), [r#"Unknown("input_backpressure: words")"#]);
    lane.take_sent();
    lane.append(false);
    assert_eq!(lane.take_sent(), [""; 0], "the next one waits");
    lane.wait(MS(500));
    assert_eq!(lane.take_sent(), ["append 1"]);
    lane.error("input_backpressure", None);
    lane.wait(MS(499));
    assert_eq!(lane.take_sent(), [""; 0]);
    lane.wait(MS(1_501));
    assert_eq!(lane.take_sent(), ["append 1", "append 2"]);
    lane.listen();
    lane.append(false);
    assert_eq!(lane.take_sent(), ["append 3"], "the server has room");
}

#[test]
fn refused_unit_is_one_error_whatever_its_code() {
    for code in ["bad_audio", "bad_event", "invalid_input_modality", "unknown_event", "runtime_append_failed"]
    {
        let mut lane = Lane::open();
        lane.append(false);
        lane.error(code, Some("1"));
        let refused = if code == "runtime_append_failed" { "" } else { " (Whole)" };
        assert_eq!(lane.take_events(), [format!("error {code}: words{refused}")]);
        lane.error("bad_audio", Some("1"));
        assert!(!lane.take_events().iter().any(|event| event.starts_with("error")), "{code}");
        lane.append(false);
        lane.take_sent();
        lane.error("input_backpressure", None);
        lane.wait(MS(500));
        assert_eq!(lane.take_sent(), ["append 2"], "{code}: the refused one is not sent again");
    }
}

#[test]
fn harmless_errors_are_no_refusals() {
    let mut lane = Lane::open();
    lane.append(false);
    for (code, id) in
        [("playback_ack_unknown", None), ("bad_event", Some("cancel")), ("journal_overflow", None)]
    {
        lane.error(code, id);
    }
    assert_eq!(lane.take_events(), [""; 0]);
}

#[test]
fn lost_transport_is_replaced_and_repeated_events_are_dropped() {
    let mut lane = Lane::open();
    lane.append(false);
    lane.listen();
    lane.append(false);
    lane.take_events();
    assert_eq!(lane.lose(), LaneEnd::Resumes);
    assert_eq!(lane.actions, [CodecAction::Redial]);
    lane.append(false);
    lane.take_sent();
    assert_eq!(lane.codec.handle_opened(lane.now), LaneOpening::Resumed);
    lane.follow();
    let resume = lane.sent.pop().unwrap();
    assert_eq!(
        resume,
        json!({
            "type": "session.resume", "session_id": "duplex-1", "resume_token": "token-1",
            "last_received_server_event_seq": 1,
        })
    );
    lane.created("session.resumed", "token-2");
    assert_eq!(
        lane.take_sent(),
        ["append 3"],
        "what was never sent follows; the unit in flight is not repeated"
    );
    lane.sequence = 0;
    lane.listen();
    assert_eq!(lane.take_events(), [""; 0], "an event that was handled before");
    lane.wait(MS(1_000));
    assert_eq!(lane.take_events(), ["end"]);
    lane.lose();
    lane.codec.handle_opened(lane.now);
    lane.follow();
    assert_eq!(lane.sent.pop().unwrap()["resume_token"], "token-2");
}

#[test]
fn cancellation_that_may_be_lost_is_repeated() {
    let mut lane = Lane::open();
    lane.append(true);
    lane.lose();
    lane.codec.handle_opened(lane.now);
    lane.follow();
    lane.take_sent();
    lane.created("session.resumed", "token-2");
    assert_eq!(lane.take_sent(), ["response.cancel"]);
    lane.delta("r", "Stale.");
    lane.done("r");
    assert_eq!(lane.take_events(), ["listen 1"]);
}

#[test]
fn messages_that_wait_follow_although_the_server_has_room_again() {
    let mut lane = Lane::open();
    lane.append(false);
    lane.error("input_backpressure", Some("1"));
    lane.append(false);
    lane.append(false);
    lane.take_sent();
    lane.wait(MS(500));
    lane.listen();
    lane.wait(MS(500));
    assert_eq!(lane.take_sent(), ["append 1", "append 2", "append 3"]);
}

#[test]
fn session_is_given_up_when_the_server_has_forgotten_it() {
    let mut lane = Lane::open();
    assert_eq!(lane.lose(), LaneEnd::Resumes);
    let (mut redials, lost_at) = (0, lane.now);
    while lane.actions == [CodecAction::Redial] {
        redials += 1;
        lane.actions.clear();
        lane.lose();
        lane.wait(lane.codec.deadline().unwrap() - lane.now);
    }
    assert_eq!((redials, lane.now - lost_at), (11, MS(30_000)));
    assert!(matches!(lane.actions[..], [CodecAction::End(_)]), "{:?}", lane.actions);
    let mut refused = Lane::open();
    refused.lose();
    refused.codec.handle_opened(refused.now);
    refused.receive(&json!({"type": "error", "error": {"code": "invalid_resume_token", "message": "m"}}));
    assert_eq!(refused.take_events(), ["closed Other invalid_resume_token: m"]);
    assert_eq!(refused.lose(), LaneEnd::Over(None));
}

#[test]
fn session_is_over_at_once_when_the_server_is_gone_or_it_is_closed_without_a_transport() {
    let mut gone = Lane::open();
    assert_eq!(gone.lose(), LaneEnd::Resumes);
    let refused = DisconnectReason::Unreachable("connection refused".to_owned());
    assert_eq!(gone.codec.handle_end(gone.now, &refused), LaneEnd::Over(None));
    for is_asked in [false, true] {
        let mut lane = Lane::open();
        lane.lose();
        lane.actions.clear();
        if is_asked {
            lane.codec.handle_opened(lane.now);
        }
        lane.follow();
        lane.take_sent();
        lane.command(LaneRequest::Close);
        let ends = matches!(lane.actions[..], [CodecAction::End(DisconnectReason::Lost(_))]);
        assert_eq!((ends, lane.take_sent().len()), (!is_asked, usize::from(is_asked)));
        assert_eq!((lane.codec.deadline(), lane.lose()), (None, LaneEnd::Over(None)));
    }
}

#[test]
fn session_that_was_closed_before_it_opened_is_not_resumed() {
    let mut lane = Lane::dial();
    lane.command(LaneRequest::Close);
    lane.created("session.created", "token-1");
    assert_eq!(lane.take_events(), [""; 0]);
    assert_eq!(lane.lose(), LaneEnd::Over(None));
    assert_eq!((lane.actions.len(), lane.codec.deadline()), (0, None));
}

#[test]
fn end_of_the_session_is_no_loss_and_a_full_server_is_busy() {
    let mut lane = Lane::open();
    lane.command(LaneRequest::Close);
    assert_eq!(lane.lose(), LaneEnd::Over(None));
    let mut full = Lane::open();
    full.receive(&json!({"type": "error", "error": {"code": "resource_exhausted", "message": "m"}}));
    assert_eq!(full.take_events(), ["closed QueueFull resource_exhausted: m"]);
}

#[test]
fn error_says_whether_another_attempt_may_succeed() {
    for (code, retryable, end) in [
        ("resource_exhausted", json!(true), "QueueFull"),
        ("ref_audio_required", json!(null), "RefusedForGood"),
        ("ref_audio_required", json!(false), "RefusedForGood"),
        ("engine_error", json!(null), "Other"),
        ("engine_error", json!(true), "Other"),
        ("engine_error", json!(false), "Other"),
        ("output_backpressure", json!(null), "LimitReached"),
        ("output_backpressure", json!(false), "LimitReached"),
    ] {
        let mut lane = Lane::dial();
        let error = json!({"code": code, "message": "m", "retryable": retryable});
        lane.receive(&json!({"type": "error", "error": error}));
        assert_eq!(lane.take_events(), [format!("closed {end} {code}: m")]);
    }
    for code in ["tool_call_registration_failed", "semantic_vad_unavailable", "invalid_function_call"] {
        let mut lane = Lane::open();
        lane.error(code, None);
        lane.append(false);
        lane.listen();
        let events = lane.take_events();
        assert!(events[0].starts_with(&format!("error {code}: words")), "{code}: {events:?}");
        assert_eq!(events[1..], ["listen 1"], "{code} ends no session");
    }
    let mut ended = Lane::open();
    ended.receive(&json!({"type": "session.closed", "reason": "output_backpressure"}));
    assert_eq!(ended.take_events(), ["closed LimitReached output_backpressure"]);
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
fn only_refusals_of_a_unit_say_which_part_of_it_was_refused() {
    let whole = " (Whole)";
    for (code, id, refused) in [
        ("invalid_video_frames", None, whole),
        ("invalid_video_frames", Some("1"), whole),
        ("bad_audio", Some("1"), whole),
        ("invalid_video_frames", Some("7"), ""),
        ("runtime_append_failed", Some("1"), ""),
        ("internal_error", None, ""),
    ] {
        let mut lane = Lane::open();
        lane.append(false);
        lane.error(code, id);
        assert_eq!(lane.take_events(), [format!("error {code}: words{refused}")], "{id:?}");
    }
    for (id, refused) in [(Some("1.0"), " (Piece)"), (Some("1.3"), ""), (None, "")] {
        let mut lane = Lane::dial();
        let capabilities = json!({"chunk_period_ms": 200, "implementation_level": "model_native_duplex"});
        let session = json!({"id": "duplex-1", "capabilities": capabilities});
        lane.receive(&json!({"type": "session.created", "session": session, "resume_token": "t"}));
        lane.take_events();
        lane.append(false);
        lane.error("invalid_video_frames", id);
        assert_eq!(lane.take_events(), [format!("error invalid_video_frames: words{refused}")], "{id:?}");
    }
}

#[test]
fn unit_that_is_refused_for_its_rate_is_sent_again_at_the_rate_of_the_model() {
    let mut lane = Lane::dial();
    let capabilities = json!({"chunk_period_ms": 80, "implementation_level": "model_native_duplex"});
    let session = json!({"id": "duplex-1", "capabilities": capabilities});
    lane.receive(&json!({"type": "session.created", "session": session, "resume_token": "t"}));
    lane.take_events();
    lane.sent.clear();
    lane.append(false);
    let refused = std::mem::take(&mut lane.sent);
    assert!(refused.len() > 1 && refused.iter().all(|append| append.get("sample_rate_hz").is_none()));
    let error = json!({"code": "bad_event", "message": "PersonaPlex sample_rate_hz must be 24000"});
    for _ in &refused {
        lane.receive_numbered(json!({"type": "error", "error": error}));
    }
    assert_eq!(lane.take_events(), [""; 0], "the session knows nothing of it");
    let samples = |append: &Value| {
        assert_eq!((&append["format"], &append["sample_rate_hz"]), (&json!("pcm_f32le"), &json!(24_000)));
        append["audio"].as_str().unwrap().len() * 3 / 4 / 4
    };
    let again = std::mem::take(&mut lane.sent);
    let lengths: Vec<usize> = again.iter().map(samples).collect();
    assert!(lengths.iter().all(|length| *length <= 1920), "{lengths:?}");
    let said = (16_000 + LEAD_SAMPLES) * 3 / 2;
    assert!((said - 480..=said).contains(&lengths.iter().sum::<usize>()), "{lengths:?}");
    // The output of the model answers it, and the next unit has its format at once.
    lane.delta("r", "One.");
    assert_eq!(lane.take_events(), ["done 1", "text One.", "audio 24000"]);
    lane.append(false);
    lane.sent.retain(|message| message["type"] == "input_audio_buffer.append");
    assert!(lane.sent.iter().map(samples).sum::<usize>().abs_diff(24_000) <= 480);
    // A model that refuses that, too, cannot be served.
    lane.receive_numbered(json!({"type": "error", "error": error}));
    assert_eq!(lane.take_events(), ["error bad_event: PersonaPlex sample_rate_hz must be 24000"]);
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
