//! The guarantees hold for random clients, random failures, and both ways to answer.

use proptest::prelude::*;

use super::*;

/// Next action of a client.
#[derive(Debug, Clone)]
enum Action {
    Speech(u64),
    Silence(u64),
    Wait(u64),
    /// Audio of this many bytes, with half a sample if the number is odd.
    Bytes(usize),
    /// A message; `$item` is the id of a known item, counted from the newest.
    Send(&'static str, usize),
    BreakLanes,
    /// Asks for an answer, and truncates it after a while.
    TruncateAnswer,
    /// The user speaks while the client does not read.
    SpeechUnread(u64),
}

const MESSAGES: [&str; 27] = [
    r#"{"type":"session.update","session":{"type":"realtime","instructions":"Be brief."}}"#,
    r#"{"type":"session.update","session":{"type":"realtime","output_modalities":["text"]}}"#,
    r#"{"type":"session.update","session":{"type":"realtime","output_modalities":["audio"]}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":null}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"type":"server_vad"}}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"type":"semantic_vad","eagerness":"high","interrupt_response":false}}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"type":"server_vad","create_response":false}}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"transcription":{"model":"whisper-1"}}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"transcription":null}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"output":{"format":{"type":"audio/pcmu"}}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"type":"none"}}}}}"#,
    r#"{"type":"input_audio_buffer.commit"}"#,
    r#"{"type":"input_audio_buffer.clear"}"#,
    r#"{"type":"output_audio_buffer.clear"}"#,
    r#"{"type":"input_audio_buffer.append","audio":"????"}"#,
    r#"{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"Tell me a long story about everything."}]}}"#,
    r#"{"type":"conversation.item.create","previous_item_id":"$item","item":{"type":"message","role":"system","content":[{"type":"input_text","text":"Hm."}]}}"#,
    r#"{"type":"conversation.item.create","item":{"id":"$item","type":"message","role":"user","content":[]}}"#,
    r#"{"type":"conversation.item.retrieve","item_id":"$item"}"#,
    r#"{"type":"conversation.item.truncate","item_id":"$item","content_index":0,"audio_end_ms":100}"#,
    r#"{"type":"conversation.item.delete","item_id":"$item"}"#,
    r#"{"type":"conversation.item.delete","item_id":"none"}"#,
    r#"{"type":"response.create"}"#,
    r#"{"type":"response.create","response":{"conversation":"none","output_modalities":["text"],"metadata":{"topic":"x"}}}"#,
    r#"{"type":"response.cancel"}"#,
    r#"{"type":"response.cancel","response_id":"none"}"#,
    r#"{"type":5}"#,
];

/// Messages that begin and end responses; random sessions need many of them.
const TURNS: [&str; 2] = [r#"{"type":"response.create"}"#, r#"{"type":"response.cancel"}"#];

const FAULTS: &str = "queue-full,times=3 busy,times=1 403-after-queue=2 stuck-queue,times=1 slow-init=7,times=1 \
    die-before-created,times=1 never-answers,times=1 die-mid-answer=1,times=2 \
    drop-mid-answer=0,times=1 no-audio,times=1";

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (100u64..2000).prop_map(Action::Speech),
        4 => (100u64..1500).prop_map(Action::Silence),
        2 => (0u64..3000).prop_map(Action::Wait),
        1 => (10_000u64..40_000).prop_map(Action::Wait),
        1 => (0usize..5000).prop_map(Action::Bytes),
        10 => (select(&MESSAGES[..]), 0usize..4).prop_map(|(text, back)| Action::Send(text, back)),
        2 => select(&TURNS[..]).prop_map(|text| Action::Send(text, 0)),
        1 => Just(Action::BreakLanes),
        1 => Just(Action::TruncateAnswer),
        1 => (100u64..3000).prop_map(Action::SpeechUnread),
    ]
}

/// A random session.
#[derive(Debug, Clone)]
struct Session {
    actions: Vec<Action>,
    faults: Vec<&'static str>,
    profile: &'static str,
    rate_hz: usize,
    workers: usize,
    latency_ms: u64,
    /// Through two bridges.
    is_chained: bool,
}

fn any_session() -> impl Strategy<Value = Session> {
    (
        vec(any_action(), 1..20),
        prop::sample::subsequence(listed(FAULTS), 0..3),
        select(vec!["assistant", "assistant", "conversation"]),
        select(vec![16_000, 24_000]),
        1usize..3,
        0u64..60,
        prop::bool::weighted(0.3),
    )
        .prop_map(|(actions, faults, profile, rate_hz, workers, latency_ms, is_chained)| Session {
            actions,
            faults,
            profile,
            rate_hz,
            workers,
            latency_ms,
            is_chained,
        })
}

/// A client in a random session.
struct RandomClient {
    client: Realtime,
    rate_hz: usize,
    sent_bytes: usize,
    message_count: usize,
}

impl RandomClient {
    fn play(session: &Session) -> Self {
        let mut config = config("model=gpt-realtime").chained(session.is_chained);
        config.profile = session.profile;
        config.latency = Duration::from_millis(session.latency_ms);
        config.simulator.workers = session.workers;
        config.simulator.faults = session.faults.iter().map(|fault| fault.parse().unwrap()).collect();
        let (client, rate_hz) = (Realtime::with_config(config), session.rate_hz);
        let mut played = Self { client, rate_hz, sent_bytes: 0, message_count: 0 };
        let format = json!({"type": "audio/pcm", "rate": rate_hz});
        played.client.update(&json!({"audio": {"input": {"format": format}}}));
        session.actions.iter().for_each(|action| played.act(action));
        played
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Speech(ms) => self.say(&recording("librivox_0870_16k.wav")[16 * 200..16 * 6700], *ms),
            Action::SpeechUnread(ms) => {
                self.client.harness.stop_reading();
                self.act(&Action::Speech(*ms));
                self.client.harness.resume_reading();
                self.client.take_events();
            }
            Action::Silence(ms) => self.say(&[0], *ms),
            Action::Wait(ms) => self.client.pass(Duration::from_millis(*ms)),
            Action::Bytes(count) => self.append(&vec![7; *count]),
            Action::Send(text, back) => self.send(text, *back),
            Action::TruncateAnswer => {
                self.send(TURNS[0], 0);
                self.client.pass(Duration::from_millis(2500));
                let truncate = MESSAGES.iter().find(|text| text.contains("item.truncate"));
                self.send(truncate.expect("a message truncates"), 0);
            }
            Action::BreakLanes => {
                self.client.harness.break_lanes();
                self.client.take_events();
            }
        }
    }

    /// Sends audio in real time, repeated from these samples at 16 kHz.
    fn say(&mut self, samples: &[i16], ms: u64) {
        for start_ms in (0..ms).step_by(100) {
            let first = start_ms as usize * self.rate_hz / 1000;
            let chunk = (first..first + self.rate_hz / 10).map(|at| at * 16_000 / self.rate_hz);
            let chunk: Vec<i16> = chunk.map(|at| samples[at % samples.len()]).collect();
            self.append(&bytes_of(&chunk));
            self.client.pass(Duration::from_millis(100));
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.client.harness.is_closed() {
            return;
        }
        self.sent_bytes += bytes.len();
        let audio = STANDARD.encode(bytes);
        self.client.send(&json!({"type": "input_audio_buffer.append", "audio": audio}));
    }

    /// Sends a message with an id, and checks the immediate reply.
    fn send(&mut self, text: &str, back: usize) {
        if self.client.harness.is_closed() {
            return;
        }
        let mut items = self.client.of_type("conversation.item.added");
        if text.contains("item.truncate") {
            // Others are refused.
            items.retain(|event| event["item"]["role"] == "assistant");
        }
        let item =
            items.iter().rev().nth(back % items.len().max(1)).and_then(|event| event["item"]["id"].as_str());
        let mut message: Value =
            serde_json::from_str(&text.replace("$item", item.unwrap_or("none"))).unwrap();
        let name = format!("mine_{}", self.message_count);
        message["event_id"] = name.as_str().into();
        self.message_count += 1;
        let was_active = self.active_response().is_some();
        let before = self.client.events.len();
        self.client.send(&message);
        let events: Vec<&Value> = self.client.events[before..].iter().map(|(_, event)| event).collect();
        for error in events.iter().filter(|event| event["error"]["type"] == "invalid_request_error") {
            assert_eq!(error["error"]["event_id"], name, "{error} after {message}");
        }
        if text.contains(r#""response.cancel"}"#) && was_active {
            let done = events.iter().find(|event| event["type"] == "response.done");
            let response = &done.unwrap_or_else(|| panic!("no end after a cancel: {events:?}"))["response"];
            // An answer that has failed lasts until its audio so far is played. A cancel then only ends it sooner.
            let had_failed = response["status"] == "failed" && response["output"] != json!([]);
            let is_cancelled = response["status_details"]["reason"] == "client_cancelled";
            assert!(is_cancelled || had_failed, "{events:?}");
        }
    }

    /// Id of the response that has begun and not ended.
    fn active_response(&self) -> Option<&Value> {
        let created = self.client.of_type("response.created").last().map(|event| &event["response"]["id"]);
        let done = self.client.of_type("response.done").last().map(|event| &event["response"]["id"]);
        created.filter(|created| Some(*created) != done)
    }

    /// Lets the user be silent and the model finish, and checks that nothing is left open.
    fn settle(&mut self) {
        let detection = json!({"audio": {"input": {"turn_detection": {"type": "server_vad"}}}});
        self.client.update(&json!(detection));
        self.say(&[0], 2500);
        self.client.pass(Duration::from_secs(150));
        if self.client.harness.is_closed() {
            return;
        }
        assert_eq!(self.active_response(), None, "{:?}", self.client.types());
        let count = |kind: &str| self.client.of_type(kind).len();
        assert_eq!(
            count("input_audio_buffer.speech_started"),
            count("input_audio_buffer.speech_stopped"),
            "{:?}",
            self.client.types()
        );
    }

    /// Checks the events beside those that [`Realtime::check`] knows.
    fn check(&self) {
        self.client.check();
        let mut speech = None;
        let mut items = BTreeMap::<&str, BTreeSet<String>>::new();
        let mut words = BTreeMap::<&str, String>::new();
        for (_, event) in &self.client.events {
            let kind = event["type"].as_str().unwrap();
            let id = event["item_id"].as_str().or(event["item"]["id"].as_str());
            match kind {
                "input_audio_buffer.speech_started" => {
                    assert_eq!(speech.replace(id), None, "{:?}", self.client.types());
                }
                "input_audio_buffer.speech_stopped" => {
                    assert!(speech.take().is_some(), "{:?}", self.client.types());
                }
                "input_audio_buffer.committed"
                | "conversation.item.added"
                | "conversation.item.done"
                | "conversation.item.input_audio_transcription.completed"
                | "response.output_item.added"
                | "response.output_item.done" => {
                    assert!(items.entry(kind).or_default().insert(id.unwrap().to_owned()), "twice: {event}");
                }
                // The client may use the id again.
                "conversation.item.deleted" => {
                    for ids in items.values_mut() {
                        ids.remove(id.unwrap());
                    }
                }
                "response.output_audio_transcript.delta" | "response.output_text.delta" => {
                    let delta = event["delta"].as_str().unwrap();
                    words.entry(id.unwrap()).or_default().push_str(delta);
                }
                "response.output_audio_transcript.done" | "response.output_text.done" => {
                    let whole = event["transcript"].as_str().or(event["text"].as_str());
                    assert_eq!(whole.unwrap(), words.remove(id.unwrap()).unwrap_or_default(), "{event}");
                }
                _ => {}
            }
        }
        let of_kind = |kind: &str| items.get(kind).cloned().unwrap_or_default();
        let added = of_kind("conversation.item.added");
        assert!(of_kind("input_audio_buffer.committed").is_subset(&added));
        assert!(of_kind("conversation.item.done").is_subset(&added));
    }

    /// Checks that each sample of the client is accounted for.
    fn check_samples(&self) {
        let (counts, dropped) = self.client.harness.bridge().sample_counts();
        let accounted = counts.received + counts.muted + dropped;
        assert!(accounted.abs_diff(self.sent_bytes as u64 / 2) <= 1, "{counts:?}, {} bytes", self.sent_bytes);
        let placed = counts.recorded + counts.silent + counts.pending;
        let expected = counts.received * 16_000 / self.rate_hz as u64;
        // The resampler holds up to 30 ms back, and rounds at each end of the audio.
        let tolerance = if self.rate_hz == 16_000 { 0 } else { 480 };
        assert!(placed.abs_diff(expected) <= tolerance, "{expected} {counts:?}");
    }
}

proptest! {
    #![proptest_config(crate::properties::config())]

    #[test]
    fn any_session_keeps_its_guarantees(session in any_session(), leaves in any::<bool>()) {
        let mut played = RandomClient::play(&session);
        played.check();
        if !leaves {
            played.settle();
            played.check();
        }
        played.check_samples();
        let harness = &mut played.client.harness;
        if !harness.is_closed() {
            harness.close_client();
        }
        harness.advance(Duration::from_secs(120));
        prop_assert!(harness.is_over(), "the bridge never finishes");
        played.check_samples();
    }

    #[test]
    fn same_inputs_give_same_bytes(session in any_session()) {
        let [one, other] = [(); 2].map(|()| RandomClient::play(&session).client.harness);
        prop_assert!(one.texts == other.texts && one.log == other.log && one.traffic == other.traffic);
    }
}

/// Guards against vacuous properties: the random sessions must contain every kind of event.
#[test]
fn generated_sessions_cover_all_events() {
    let mut runner = TestRunner::deterministic();
    let mut counts = BTreeMap::<String, u32>::new();
    for _ in 0..120 {
        let session = any_session().new_tree(&mut runner).unwrap().current();
        for (_, event) in &RandomClient::play(&session).client.events {
            let kind = event["type"].as_str().unwrap().to_owned();
            *counts.entry(kind).or_default() += 1;
            let status = [&event["response"]["status"], &event["response"]["status_details"]["reason"]];
            for name in [status[0], status[1], &event["error"]["code"]].into_iter().filter_map(Value::as_str)
            {
                *counts.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    println!("{counts:#?}");
    for name in listed(
        "input_audio_buffer.speech_started input_audio_buffer.committed \
        input_audio_buffer.cleared conversation.item.input_audio_transcription.completed \
        conversation.item.truncated conversation.item.deleted response.output_audio.delta \
        response.output_text.delta completed client_cancelled turn_detected failed \
        conversation_already_has_active_response response_cancel_not_active \
        item_create_duplicate_item_id",
    ) {
        assert!(counts.contains_key(name), "{name}: {counts:#?}");
    }
}

/// Random sessions found it: the second bridge breaks an answer off before its words are heard, but the client has some already.
#[test]
fn end_of_an_answer_that_was_broken_off_has_the_words_of_its_deltas() {
    let mut played = RandomClient::play(&Session {
        actions: vec![
            Action::SpeechUnread(301),
            Action::Silence(301),
            Action::Send(MESSAGES[3], 0),
            Action::Speech(401),
        ],
        faults: Vec::new(),
        profile: "conversation",
        rate_hz: 24_000,
        workers: 1,
        latency_ms: 0,
        is_chained: true,
    });
    played.settle();
    let words = played.client.of_type("response.output_audio_transcript.delta").len();
    assert!(words > 0);
    played.check();
}
