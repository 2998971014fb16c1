//! Spans of sessions made of events, without a bridge.

use tokio::sync::mpsc;

use super::*;
use crate::{
    error::ErrorKind,
    vocabulary::{
        EndCause, Entry, EntryPlace, LanePurpose, Role, RolloverReason, Sound, TokenUsage, ToolCall,
        ToolResult, TranscribePrompt,
    },
};

/// A session, and its spans as they end.
struct Bench {
    spans: SessionSpans,
    queue: mpsc::Receiver<Span>,
    opened: Instant,
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const LANE: Lane = Lane(3);
const META: MessageMeta<'static> = MessageMeta {
    response_id: None,
    item_id: None,
    input_id: None,
    context_tokens: None,
    backend: None,
    sequence: None,
    resume_token: None,
    unit_ms: None,
    input_rate_hz: None,
    output_rate_hz: None,
    transcriber: None,
    turn_detector: None,
    input_format: None,
    output_format: None,
    held_samples: 0,
    usage: None,
    hit_limit: false,
    refused: None,
    retry_after: None,
    end_reason: None,
};

#[expect(clippy::disallowed_methods, reason = "an instant to count from")]
fn now() -> Instant {
    Instant::now()
}

impl Bench {
    fn new(has_content: bool) -> Self {
        let (sender, queue) = mpsc::channel(100);
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let context = TraceContext::from_headers(
            std::iter::once(parent.as_str()),
            std::iter::once("congo=t61"),
            &mut fastrand::Rng::with_seed(1),
        );
        let opened = now();
        let start = SessionStart {
            context: &context,
            id: "sess_1",
            client: "openai-realtime",
            profile: "assistant",
            peer: "192.0.2.1:5000".parse().unwrap(),
            path: "/v1/realtime",
            key: None,
            opened,
            opened_unix: Duration::from_secs(1_000_000),
        };
        let spans = SessionSpans::begin(&start, has_content, RecordQueue::new(sender, Arc::default()));
        Self { spans, queue, opened }
    }

    /// The instant this long after the start, ms.
    fn at(&self, ms: u64) -> Instant {
        self.opened + Duration::from_millis(ms)
    }

    fn event(&mut self, ms: u64, event: ClientEvent) {
        let at = self.at(ms);
        self.spans.client_event(at, &event);
    }

    fn dial(&self, ms: u64, lane: Lane, purpose: LanePurpose) {
        self.spans.measure(self.at(ms), &Measurement::LaneDialled { lane, purpose });
        self.spans.lane_connected(self.at(ms), lane, "gpu-1", "minicpm-o", Some("o-4.5"));
    }

    fn ask(&mut self, ms: u64, lane: Lane, request: &LaneRequest) {
        let at = self.at(ms);
        self.spans.lane_request(at, lane, request);
    }

    fn answer(&mut self, ms: u64, lane: Lane, event: &LaneEvent<'_>) {
        let at = self.at(ms);
        self.spans.lane_event(at, lane, event, &META);
    }

    /// Ends the session; returns all spans.
    fn finish(mut self, ms: u64) -> Vec<Span> {
        let record = AccessRecord { reason: "client_close", ended_by: "client", ..AccessRecord::default() };
        self.spans.finish(self.at(ms), &record);
        std::iter::from_fn(|| self.queue.try_recv().ok()).collect()
    }
}

fn span<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let mut named = spans.iter().filter(|span| span.name == name);
    let found = named.next().unwrap_or_else(|| panic!("no span {name}: {spans:#?}"));
    assert!(named.next().is_none(), "several spans {name}");
    found
}

/// Events of a span, with their times since the start of the session, ms.
fn events(span: &Span) -> Vec<(&str, u64)> {
    let ms = |unix_ns: u64| (unix_ns - 1_000_000_000_000_000) / 1_000_000;
    span.events.iter().map(|event| (event.name, ms(event.unix_ns))).collect()
}

fn text<'s>(span: &'s Span, name: &str) -> Option<&'s str> {
    span.attributes.iter().find_map(|attribute| match &attribute.value {
        Value::Text(text) if attribute.name == name => Some(text.as_ref()),
        _ => None,
    })
}

fn transcribe() -> LaneRequest {
    LaneRequest::Transcribe { prompt: TranscribePrompt::default(), audio: Arc::default() }
}

fn speak() -> LaneRequest {
    LaneRequest::Speak {
        before_voice: String::new(),
        after_voice: String::new(),
        request: String::new(),
        text: "Hello".to_owned(),
        voice: None,
        voice_name: None,
    }
}

fn chat() -> LaneRequest {
    LaneRequest::Chat(Box::new(crate::vocabulary::ChatTurn {
        before_voice: String::new(),
        instructions: String::new(),
        messages: Vec::new(),
        speaks: true,
        voice: None,
        voice_name: None,
        max_tokens: 300,
        temperature: None,
        tools: Default::default(),
    }))
}

fn transcript(speaker: Speaker, segment_id: u32, text: &str) -> ClientEvent {
    ClientEvent::TranscriptFinal {
        speaker,
        text: text.to_owned(),
        segment_id,
        duration_ms: 500,
        start_ms: 0,
        speech_ms: (0, 500),
        utterance_ended: true,
        finalized: false,
        language: Some("en".to_owned()),
        words: Vec::new(),
    }
}

fn speaking_started(request_id: &str, is_requested: bool) -> ClientEvent {
    ClientEvent::SpeakingStarted {
        request_id: request_id.to_owned(),
        at_ms: 200,
        text: "Hello".to_owned(),
        is_requested,
    }
}

fn answer_ended(segment_id: u32, cancelled: bool) -> ClientEvent {
    let usage = TokenUsage { input_text: 5, output_audio: 7, ..TokenUsage::default() };
    ClientEvent::AnswerEnded { segment_id, cancelled, audio_ms: 1500, usage, hit_limit: false }
}

/// A turn: the user speaks, is transcribed, and hears an answer with two calls of tools.
fn converse(bench: &mut Bench) {
    bench.dial(0, LANE, LanePurpose::Transcribe);
    bench.event(300, ClientEvent::SpeechStarted { at_ms: 300, from_ms: 100, segment_id: 1 });
    bench.event(1000, ClientEvent::SpeechEnded { at_ms: 1000, segment_id: 1 });
    bench.ask(1010, LANE, &transcribe());
    bench.event(
        1010,
        ClientEvent::AudioCommitted { segment_id: 1, audio_ms: 900, is_transcribed: true, silence_ms: None },
    );
    bench.event(1020, ClientEvent::AnswerStarted { segment_id: 2, by_client: false });
    bench.dial(1020, Lane(4), LanePurpose::Answer);
    bench.ask(1030, Lane(4), &chat());
    bench.answer(1100, LANE, &LaneEvent::Text("Is it warm?"));
    bench.answer(1110, LANE, &LaneEvent::Done { text: None, audio: Sound::NONE });
    bench.event(1120, transcript(Speaker::User, 1, "Is it warm?"));
    bench.event(
        1120,
        ClientEvent::TurnEnded {
            text: String::new(),
            segment_id: 1,
            confidence: 1.0,
            cause: EndCause::Timeout,
            start_ms: 0,
            audio_ms: 900,
        },
    );
    let call = ServerCall {
        id: EntryId(9),
        list: None,
        server: "house".to_owned(),
        tool: "temperature".to_owned(),
        arguments: "{\"room\":\"hall\"}".to_owned(),
        timeout: Duration::from_secs(1),
    };
    let at = bench.at(1130);
    bench.spans.tool_called(at, &call);
    let at = bench.at(1160);
    bench.spans.tool_ended(at, EntryId(9), &ServerCallResult::failed("the valve is stuck"));
    bench.answer(1200, Lane(4), &LaneEvent::Text(" "));
    bench.answer(1210, Lane(4), &LaneEvent::Text("Yes."));
    bench.event(1250, speaking_started("turn_1", false));
    bench.answer(1300, Lane(4), &LaneEvent::Done { text: None, audio: Sound::NONE });
    bench.event(2700, transcript(Speaker::Assistant, 2, "Yes."));
    let call = ToolCall { call_id: "call_1".to_owned(), name: "lamp".to_owned(), arguments: "{}".to_owned() };
    bench.event(2700, ClientEvent::ToolCalled { segment_id: 2, entry_id: 10, call });
    bench.event(2700, answer_ended(2, false));
    let result = ToolResult { call_id: "call_1".to_owned(), output: "on".to_owned() };
    let entry = Entry { id: EntryId(11), role: Role::User, parts: vec![EntryPart::Result(result)] };
    let at = bench.at(2900);
    bench.spans.client_request(at, &ClientRequest::AddEntry(Box::new(entry), EntryPlace::End));
}

#[test]
fn conversation_is_one_trace_whose_spans_have_their_parents() {
    let mut bench = Bench::new(false);
    converse(&mut bench);
    let spans = bench.finish(3000);
    let session = span(&spans, "session");
    assert_eq!((session.id, session.parent), (session_span_id("sess_1"), Some(0x00f0_67aa_0ba9_02b7)));
    assert_eq!(session.trace_state.as_deref(), Some("congo=t61"));
    assert!(spans.iter().all(|span| format!("{:032x}", span.trace_id) == TRACE));
    assert_eq!(session.end_unix_ns - session.start_unix_ns, 3_000_000_000);
    let (utterance, turn) = (span(&spans, "utterance"), span(&spans, "invoke_agent assistant"));
    for (name, parent) in [
        ("utterance", session.id),
        ("invoke_agent assistant", session.id),
        ("transcribe", utterance.id),
        ("chat", turn.id),
        ("execute_tool temperature", turn.id),
        ("execute_tool lamp", turn.id),
    ] {
        assert_eq!(span(&spans, name).parent, Some(parent), "{name}");
    }
    let lanes = spans.iter().filter(|span| span.name == "lane" && span.parent == Some(session.id));
    assert_eq!(lanes.count(), 2);
    assert_eq!(events(utterance), [("end_of_speech", 1000), ("transcribed", 1120)]);
    assert_eq!(utterance.start_unix_ns, 1_000_000_100_000_000, "the first sound");
    let moments = [("asked", 1030), ("first_delta", 1210), ("first_audio", 1250), ("heard", 2700)];
    assert_eq!(events(turn), moments);
    assert_eq!(events(span(&spans, "chat")), [("first_delta", 1210)]);
    assert_eq!(text(span(&spans, "chat"), "gen_ai.provider.name"), Some("minicpm-o"));
    assert_eq!(text(span(&spans, "chat"), "gen_ai.request.model"), Some("o-4.5"));
    let failed: Vec<_> = spans.iter().filter(|span| span.error.is_some()).map(|span| &*span.name).collect();
    assert_eq!(failed, ["execute_tool temperature"]);
}

#[test]
fn words_are_recorded_only_if_the_operator_wants_them() {
    for has_content in [false, true] {
        let mut bench = Bench::new(has_content);
        converse(&mut bench);
        let all = format!("{:?}", bench.finish(3000));
        for words in ["Is it warm?", "Yes.", "valve", "hall", "\"on\""] {
            assert_eq!(all.contains(words), has_content, "{words}");
        }
    }
}

#[test]
fn question_before_its_turn_becomes_a_part_of_it() {
    let mut bench = Bench::new(false);
    bench.dial(0, LANE, LanePurpose::Answer);
    bench.ask(10, LANE, &chat());
    bench.answer(20, LANE, &LaneEvent::Text("Yes"));
    bench.event(30, ClientEvent::AnswerStarted { segment_id: 2, by_client: false });
    bench.spans.observe(bench.at(40), &Observation::Interrupted);
    bench.ask(40, LANE, &LaneRequest::Cancel);
    bench.event(40, answer_ended(2, true));
    let spans = bench.finish(50);
    let turn = span(&spans, "invoke_agent assistant");
    assert_eq!(span(&spans, "chat").parent, Some(turn.id));
    assert_eq!(events(span(&spans, "chat")), [("first_delta", 20), ("cancelled", 40)]);
    assert_eq!(events(turn), [("asked", 10), ("first_delta", 20), ("interrupted", 40)]);
}

#[test]
fn text_to_speak_has_a_span_from_its_request_to_its_end() {
    for (cancelled, end) in [(false, "heard"), (true, "interrupted")] {
        let mut bench = Bench::new(false);
        bench.dial(0, LANE, LanePurpose::Speak);
        bench.ask(300, LANE, &speak());
        bench.answer(400, LANE, &LaneEvent::Audio(Sound::Samples(&[0.5])));
        bench.answer(400, LANE, &LaneEvent::Done { text: None, audio: Sound::NONE });
        bench.event(410, speaking_started("tts_1", true));
        let request_id = "tts_1".to_owned();
        bench.event(900, ClientEvent::SpeakingEnded { request_id, at_ms: 700, cancelled, audio_ms: 480 });
        let spans = bench.finish(1000);
        let speech = span(&spans, "speech");
        assert_eq!(events(speech), [("asked", 300), ("first_delta", 400), ("first_audio", 410), (end, 900)]);
        assert_eq!(speech.start_unix_ns, 1_000_000_210_000_000, "the request");
        assert_eq!(span(&spans, "speak").parent, Some(speech.id));
    }
}

#[test]
fn lanes_end_with_their_failure_and_rollovers_have_a_span() {
    let bench = Bench::new(false);
    bench.dial(0, LANE, LanePurpose::Converse);
    bench.spans.measure(bench.at(1), &Measurement::LaneGranted { lane: LANE, after: Duration::ZERO });
    bench.spans.observe(
        bench.at(2),
        &Observation::LaneReady { lane: LANE, session_id: Some("u1".to_owned()), waited_ms: 2 },
    );
    let lost = DisconnectReason::Lost("reset".to_owned());
    bench.spans.lane_closed(bench.at(500), LANE, Some(&lost));
    let rollover = Observation::RolledOver {
        reason: RolloverReason::UpstreamLost,
        gap_ms: 300,
        standby: false,
        kept_ms: 280,
        known_lines: 4,
        missing_lines: 0,
    };
    bench.spans.observe(bench.at(800), &rollover);
    let error = Error::new(ErrorKind::Invalid, "a client's words");
    bench.spans.observe(bench.at(900), &Observation::ErrorTold(error));
    let spans = bench.finish(1000);
    let lane = span(&spans, "lane");
    assert_eq!(events(lane), [("connected", 0), ("worker_granted", 1), ("ready", 2)]);
    assert_eq!(lane.error.as_deref(), Some("lost the connection: reset"));
    let rollover = span(&spans, "rollover");
    let [start, end] = [rollover.start_unix_ns, rollover.end_unix_ns].map(|ns| ns - 1_000_000_000_000_000);
    assert_eq!((start, end), (500_000_000, 800_000_000));
    assert_eq!(events(span(&spans, "session")), [("error", 900)]);
    assert!(!format!("{spans:?}").contains("a client's words"));
}

#[test]
fn spans_that_never_end_are_bounded() {
    let mut bench = Bench::new(false);
    for segment_id in 0..500 {
        bench.event(1, ClientEvent::AnswerStarted { segment_id, by_client: true });
        bench.event(1, ClientEvent::SpeechStarted { at_ms: 1, from_ms: 1, segment_id });
        let call =
            ToolCall { call_id: segment_id.to_string(), name: "a".to_owned(), arguments: "{}".to_owned() };
        bench.event(1, ClientEvent::ToolCalled { segment_id, entry_id: 1, call });
        bench.spans.observe(bench.at(1), &Observation::Interrupted);
    }
    let recorder = bench.spans.recorder();
    assert!(recorder.answers.open_count() <= 2 * OPEN_MAX && recorder.session.events.is_empty());
    drop(recorder);
    assert_eq!(bench.queue.len(), 100, "the queue is full, and nothing waits for it");
}
