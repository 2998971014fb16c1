//! Rules of the protocol, as the package answers them.

use voxbridge::audio::wav;

use super::*;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client that knows the protocol.
struct Peer {
    socket: WebSocketStream<TcpStream>,
    /// Last number of an event.
    sequence: u64,
}

/// How a connection ended: the code and reason of a close frame, if there was one.
type End = Option<(u16, String)>;

impl Peer {
    async fn connect(server: &VllmServer, query: &str) -> Self {
        let url = format!("ws://{}/v1/realtime{query}", server.address());
        let stream = TcpStream::connect(server.address()).await.unwrap();
        Self { socket: client_async(url, stream).await.unwrap().0, sequence: 0 }
    }

    /// A peer with an open session, and the event that opened it.
    async fn open(server: &VllmServer) -> (Self, Value) {
        let mut peer = Self::connect(server, "").await;
        peer.send(&update(json!({}))).await;
        let created = peer.next().await.unwrap();
        assert_eq!(created["type"], "session.created", "{}: {created}", server.name());
        assert_eq!(peer.next().await.unwrap()["type"], "session.updated");
        (peer, created)
    }

    async fn send(&mut self, message: &Value) {
        self.send_text(message.to_string()).await;
    }

    async fn send_text(&mut self, text: String) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// Sends a second of audio, loud or silent.
    async fn send_unit(&mut self, is_loud: bool) {
        self.send(&json!({"type": "input_audio_buffer.append", "audio": second(is_loud)})).await;
    }

    /// The next event, or the end. Checks the numbers.
    async fn next(&mut self) -> Result<Value, End> {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.expect("no event arrives") {
                Some(Ok(Message::Text(text))) => {
                    let event: Value = serde_json::from_str(&text).unwrap();
                    assert!(event["event_id"].as_str().unwrap().starts_with("event_"), "{event}");
                    if let Some(sequence) = event["server_event_seq"].as_u64() {
                        assert!(self.sequence == 0 || sequence == self.sequence + 1, "{event}");
                        self.sequence = sequence;
                    }
                    return Ok(event);
                }
                Some(Ok(Message::Close(frame))) => {
                    return Err(frame.map(|frame| (frame.code.into(), frame.reason.to_string())));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    async fn next_event(&mut self) -> Value {
        self.next().await.unwrap_or_else(|end| panic!("the connection ended: {end:?}"))
    }

    /// Events up to the first of this type.
    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            events.push(self.next_event().await);
            if events.last().unwrap()["type"] == kind {
                return events;
            }
        }
    }

    /// Asks a question, and waits for the first words of the answer.
    async fn ask(&mut self) -> Vec<Value> {
        self.send_unit(true).await;
        let mut events = self.until("response.listen").await;
        self.send_unit(false).await;
        events.extend(self.until("response.output_audio_transcript.delta").await);
        events
    }

    async fn close(&mut self) {
        self.send(&json!({"type": "session.close"})).await;
        while self.next().await.is_ok() {}
    }
}

fn second(is_loud: bool) -> String {
    let level: i16 = if is_loud { 8_000 } else { 0 };
    let samples = (0..16_000).flat_map(|at| if at % 8 < 4 { level } else { -level }.to_le_bytes());
    STANDARD.encode(samples.collect::<Vec<u8>>())
}

/// The message that opens a session, with these members of its own; null leaves one out.
fn update(changes: Value) -> Value {
    let voice = format!("data:audio/wav;base64,{}", STANDARD.encode(wav::write_s16(&[0; 3200], 16_000)));
    let mut session = json!({
        "modalities": ["audio", "text"], "instructions": "Be brief.", "ref_audio": voice,
        "input_audio_format": "pcm16", "output_audio_format": "pcm16", "sample_rate_hz": 16_000,
        "overlap_policy": "listen_only", "extra_body": {"auto_response": true},
    });
    for (key, value) in changes.as_object().unwrap() {
        session[key] = value.clone();
        if value.is_null() {
            session.as_object_mut().unwrap().remove(key);
        }
    }
    json!({"type": "session.update", "event_id": "open", "session": session})
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn first_message_opens_a_session_or_ends_the_connection_without_a_close_frame() {
    for server in servers(Setup { max_sessions: 40, ..Setup::default() }).await {
        let long_ago = json!({"type": "session.resume", "session_id": "x", "resume_token": "y"});
        let without_voice = [
            ("", update(json!({"ref_audio": null})).to_string(), "ref_audio_required"),
            ("", json!({"type": "input_audio_buffer.append", "audio": ""}).to_string(), "ref_audio_required"),
            ("?model=x", String::new(), "ref_audio_required"),
        ];
        let needs_voice = server.version() == VllmVersion::V0_30;
        for (query, first, expected) in without_voice.into_iter().filter(|_| needs_voice).chain([
            ("", "{".to_owned(), "invalid_json"),
            ("", "[]".to_owned(), "bad_event"),
            ("", update(json!({"input_audio_format": "opus"})).to_string(), "invalid_session_config"),
            (
                "",
                update(json!({"turn_detection": {"type": "semantic_vad"}})).to_string(),
                "invalid_session_config",
            ),
            ("", json!({"type": "session.resume", "session_id": "x"}).to_string(), "invalid_session_resume"),
            ("?autostart=0", long_ago.to_string(), "session_resume_expired"),
        ]) {
            let mut peer = Peer::connect(&server, query).await;
            if !first.is_empty() {
                peer.send_text(first).await;
            }
            let error = peer.next_event().await;
            assert_eq!(error["error"]["code"], expected, "{}: {error}", server.name());
            assert_eq!(
                (&error["error"]["type"], &error["server_event_seq"]),
                (&json!("invalid_request_error"), &Value::Null)
            );
            assert_eq!(peer.next().await, Err(None), "{}: {expected}", server.name());
        }
        let opens = [
            ("?model=x&autostart=0", json!({}), true),
            ("", json!({"modalities": ["text"], "ref_audio": null}), true),
            ("", json!({"ref_audio": null}), !needs_voice),
        ];
        for (query, changes, _) in opens.into_iter().filter(|(.., opens)| *opens) {
            let mut peer = Peer::connect(&server, query).await;
            peer.send(&update(changes)).await;
            assert_eq!(peer.next_event().await["type"], "session.created", "{}", server.name());
            peer.close().await;
        }
    }
}

/// Members of an opening, and the code of the refusal or the values that the session then shows.
#[tokio::test]
async fn openings_are_refused_or_read_as_the_package_does() {
    let refused = |changes: Value| (changes, Err("invalid_session_config"));
    let vad = |more: Value| {
        let mut detection = json!({"type": "server_vad"});
        more.as_object().unwrap().iter().for_each(|(key, value)| detection[key] = value.clone());
        json!({"turn_detection": detection, "overlap_policy": null})
    };
    let voice = update(json!({}))["session"]["ref_audio"].clone();
    let openings = [
        refused(json!({"input_audio_format": "opus"})),
        refused(json!({"output_audio_format": "opus"})),
        refused(json!({"turn_detection": "server_vad"})),
        refused(json!({"turn_detection": {}})),
        refused(vad(json!({"x": 1}))),
        refused(vad(json!({"interrupt_response": false}))),
        refused(vad(json!({"silence_duration_ms": -1}))),
        refused(json!({"turn_detection": {"type": "server_vad"}})),
        refused(json!({"overlap_policy": "barge_in_on_speech"})),
        (json!({"extra_body": {"initial_user_text": "Hi"}}), Err("invalid_duplex_runtime_config")),
        (json!({"extra_body": {"ref_audio_data": "x"}}), Err("invalid_duplex_runtime_config")),
        (json!({"ref_audio": null, "extra_body": {"ref_audio": voice}}), Ok(json!({"state": "open"}))),
        (json!({"ref_audio": null, "extra_body": {"tts_ref_audio": voice}}), Ok(json!({"state": "open"}))),
        (json!({"input_audio_format": "g711_ulaw"}), Ok(json!({"input_audio_format": "g711_ulaw"}))),
        (json!({"input_audio_format": "pcm_f32le"}), Ok(json!({"input_audio_format": "pcm_f32le"}))),
        (
            vad(json!({"threshold": 0.7})),
            Ok(json!({
                "overlap_policy": "barge_in_on_speech",
                "turn_detection": {
                    "type": "server_vad", "interrupt_response": true, "threshold": 0.7, "prefix_padding_ms": 300,
                    "silence_duration_ms": 500, "min_speech_duration_ms": 96,
                },
            })),
        ),
        (json!({"overlap_policy": "x"}), Ok(json!({"overlap_policy": "listen_only"}))),
        (json!({"modalities": "text"}), Ok(json!({"modalities": ["text", "audio"]}))),
        (json!({"modalities": []}), Ok(json!({"modalities": ["text", "audio"]}))),
        (
            json!({"modalities": null, "output_modalities": ["text"], "ref_audio": null}),
            Ok(json!({"modalities": ["text"], "output_modalities": ["text"]})),
        ),
        (json!({"idle_timeout_s": "x"}), Ok(json!({"idle_timeout_s": 300.0}))),
        (json!({"idle_timeout_s": 0}), Ok(json!({"idle_timeout_s": 300.0}))),
        (json!({"temperature": "hot"}), Ok(json!({"temperature": null}))),
        (json!({"instructions": 5}), Ok(json!({"instructions": null}))),
        (
            json!({"sample_rate_hz": 48_000}),
            Ok(json!({
                "audio": {
                    "input": {"format": {"type": "audio/pcm", "rate": 48_000}, "sample_rate_hz": 48_000},
                    "output": {"format": {"type": "audio/pcm"}},
                },
                "turn_state": "idle", "voice": null,
            })),
        ),
    ];
    for server in servers(Setup { max_sessions: 40, ..Setup::default() }).await {
        for (changes, expected) in &openings {
            let case = format!("{}: {changes}", server.name());
            let mut peer = Peer::connect(&server, "").await;
            peer.send(&update(changes.clone())).await;
            let first = peer.next_event().await;
            match expected {
                Err(code) => {
                    assert_eq!(first["error"]["code"], *code, "{case}: {first}");
                    assert_eq!(peer.next().await, Err(None), "{case}");
                }
                Ok(shown) => {
                    assert_eq!(first["type"], "session.created", "{case}: {first}");
                    for (key, value) in shown.as_object().unwrap() {
                        assert_eq!(first["session"].get(key), Some(value), "{case}: {key}");
                    }
                    peer.close().await;
                }
            }
        }
        let mut peer = Peer::connect(&server, "?duplex=0").await;
        let error = timeout(PATIENCE, peer.socket.next()).await.unwrap().unwrap().unwrap();
        let error: Value = serde_json::from_str(error.to_text().unwrap()).unwrap();
        assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("unsupported")), "{error}");
        assert_eq!(peer.next().await, Err(Some((1000, String::new()))), "{}", server.name());
    }
}

#[tokio::test]
async fn session_begins_with_its_token_and_capabilities_and_ends_with_a_reason() {
    for server in servers(Setup::default()).await {
        let (mut peer, created) = Peer::open(&server).await;
        let session = &created["session"];
        assert_has(&created, json!({"/attachment_generation": 1, "/server_event_seq": null}));
        assert!(created["resume_token"].as_str().unwrap().len() > 30);
        assert_eq!(session["playback_commit_policy"], "ack_only");
        let wanted = json!({
            "chunk_period_ms": 1000, "implementation_level": "model_native_duplex", "supports_barge_in": true,
            "supports_session_resume": true, "required_input_modalities": ["audio"],
            "optional_input_modalities": ["video"],
        });
        for (key, value) in wanted.as_object().unwrap() {
            assert_eq!(session["capabilities"][key], *value, "{}: {key}", server.name());
        }
        assert_eq!(peer.sequence, 1);
        peer.send(&json!({"type": "session.heartbeat"})).await;
        assert_eq!(peer.next_event().await["type"], "session.heartbeat_ack");
        peer.send(&json!({"type": "session.close", "reason": "done"})).await;
        let closed = peer.next_event().await;
        assert_eq!((&closed["type"], &closed["reason"]), (&json!("session.closed"), &json!("done")));
        assert_eq!(peer.next().await, Err(Some((1000, "done".to_owned()))), "{}", server.name());
    }
}

#[tokio::test]
async fn units_are_answered_by_listen_or_by_pairs_of_audio_and_words() {
    for server in servers(Setup::default()).await {
        let (mut peer, _) = Peer::open(&server).await;
        let mut events = peer.ask().await;
        for _ in 0..2 {
            peer.send_unit(false).await;
            events.extend(peer.until("response.output_audio_transcript.delta").await);
        }
        events.extend(peer.until("rate_limits.updated").await);
        let pair = ["response.output_audio.delta", "response.output_audio_transcript.delta"];
        let wanted = [
            &["input_audio_buffer.speech_started", "response.listen", "response.created"][..],
            &["conversation.item.added", "conversation.item.created", "response.output_item.added"],
            &["response.content_part.added", "response.speak"],
            &pair,
            &pair,
            &pair,
            &["response.output_audio.done", "response.output_audio_transcript.done"],
            &["response.content_part.done", "response.output_item.done", "conversation.item.done"],
            &["response.done", "rate_limits.updated"],
        ]
        .concat();
        assert_eq!(kinds(&events), wanted, "{}", server.name());
        let id = events[2]["response_id"].as_str().unwrap();
        assert_eq!(events[2]["response"]["id"], id);
        let of_answer = events
            .iter()
            .filter(|event| event["type"].as_str().unwrap().starts_with("response.output_audio"));
        for event in of_answer {
            let item = format!("item_{id}");
            assert_eq!((&event["response_id"], &event["item_id"]), (&json!(id), &json!(item)), "{event}");
        }
        let delta = &events[8];
        assert_eq!((&delta["format"], &delta["sample_rate_hz"]), (&json!("pcm16"), &json!(24_000)));
        assert_eq!(STANDARD.decode(delta["delta"].as_str().unwrap()).unwrap().len(), 48_000);
        let done = events.iter().find(|event| event["type"] == "response.done").unwrap();
        assert_eq!((&done["response"]["status"], &done["response_id"]), (&json!("completed"), &json!(id)));
        peer.send_unit(false).await;
        assert_eq!(peer.next_event().await["type"], "response.listen", "the model listens again");
        peer.close().await;
    }
}

#[tokio::test]
async fn server_adds_silence_while_the_model_speaks_and_no_audio_waits() {
    for server in servers(Setup::default()).await {
        let (mut peer, _) = Peer::open(&server).await;
        peer.ask().await;
        let events = peer.until("rate_limits.updated").await;
        let deltas = events.iter().filter(|event| event["type"] == "response.output_audio.delta").count();
        assert_eq!(deltas, 2, "{}: the rest of the answer comes without input", server.name());
        peer.close().await;
    }
}

#[tokio::test]
async fn cancellation_ends_the_answer_and_begins_an_epoch() {
    for server in servers(Setup { turn_units: 20, ..Setup::default() }).await {
        let (mut peer, _) = Peer::open(&server).await;
        let events = peer.ask().await;
        let id = events.last().unwrap()["response_id"].clone();
        peer.send(&json!({"type": "playback.ack", "played_ms": 400, "response_id": id})).await;
        let acknowledged = peer.next_event().await;
        assert_eq!(
            acknowledged["event"]["playback"],
            json!({
                "generated_ms": 1000, "sent_ms": 1000, "played_ms": 400, "committed_ms": 400,
            }),
            "{}",
            server.name()
        );
        peer.send(&json!({"type": "response.cancel"})).await;
        let events = peer.until("rate_limits.updated").await;
        let done = &events[events.len() - 2];
        assert_eq!(
            done["response"]["status_details"],
            json!({"type": "cancelled", "reason": "client_cancelled"})
        );
        assert_eq!((&done["response_id"], &done["response"]["status"]), (&id, &json!("cancelled")));
        // Before 0.31 an answer that the server does not know is passed over in silence.
        for named in [json!("other"), id] {
            peer.send(&json!({"type": "response.cancel", "event_id": "c2", "response_id": named})).await;
        }
        let words: &[&str] = match server.version() {
            VllmVersion::V0_30 => &["already complete"],
            VllmVersion::V0_32 => &["not active: other", "not active: resp"],
        };
        for words in words {
            let error = peer.next_event().await["error"].clone();
            assert_eq!((&error["code"], &error["event_id"]), (&json!("response_not_active"), &json!("c2")));
            assert!(error["message"].as_str().unwrap().contains(words), "{}: {error}", server.name());
        }
        peer.send_unit(true).await;
        let listen = peer.next_event().await;
        assert_has(&listen, json!({"/type": "response.listen", "/epoch": 1}));
        peer.close().await;
    }
}

#[tokio::test]
async fn mistakes_do_not_end_a_session() {
    for server in servers(Setup::default()).await {
        let (mut peer, _) = Peer::open(&server).await;
        let append = |more: Value| {
            let mut message =
                json!({"type": "input_audio_buffer.append", "event_id": "m", "audio": second(false)});
            message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            message.to_string()
        };
        let one = |message: Value| message.to_string();
        for (text, code, is_numbered) in [
            ("{".to_owned(), "invalid_json", false),
            ("[]".to_owned(), "bad_event", false),
            ("{}".to_owned(), "bad_event", false),
            (one(json!({"type": "nope"})), "unknown_event", false),
            (one(json!({"type": "session.resume"})), "unsupported_session_resume", false),
            (one(json!({"type": "session.event_ack", "server_event_seq": 99})), "invalid_event_ack", false),
            (one(json!({"type": "session.event_ack", "server_event_seq": -1})), "invalid_event_ack", false),
            (one(json!({"type": "playback.ack"})), "bad_event", false),
            (append(json!({"audio": null})), "bad_event", false),
            (append(json!({"video_frames": ["a", "b", "c"]})), "invalid_video_frames", false),
            (append(json!({"video_frames": ["AAAA"]})), "invalid_video_frames", false),
            (append(json!({"audio": "QQ=="})), "bad_audio", true),
            (one(json!({"type": "response.cancel"})), "response_not_active", true),
            (one(json!({"type": "response.create"})), "response_create_without_input", true),
            (one(json!({"type": "input_audio_buffer.commit"})), "input_audio_buffer_empty", true),
            (one(json!({"type": "input.text.append", "text": "x"})), "native_text_append_unsupported", true),
            (
                one(json!({"type": "playback.ack", "played_ms": 1, "response_id": "x"})),
                "playback_item_not_found",
                true,
            ),
            (update(json!({})).to_string(), "ref_audio_update_unsupported", true),
            (
                update(json!({"ref_audio": null, "instructions": "New."})).to_string(),
                "instructions_update_unsupported",
                true,
            ),
        ] {
            peer.send_text(text.clone()).await;
            let error = peer.next_event().await;
            assert_eq!(error["error"]["code"], code, "{}: {text:.80}: {error}", server.name());
            assert_eq!(error["server_event_seq"].is_u64(), is_numbered, "{}: {error}", server.name());
        }
        peer.send_unit(false).await;
        assert_eq!(peer.next_event().await["type"], "response.listen", "{}", server.name());
        peer.close().await;
    }
}

#[tokio::test]
async fn refused_append_is_named_and_not_heard() {
    for server in servers(Setup::default()).await {
        let (mut peer, _) = Peer::open(&server).await;
        server.refuse_appends(1).await;
        for id in ["one", "two"] {
            peer.send(&json!({"type": "input_audio_buffer.append", "event_id": id, "audio": second(false)}))
                .await;
        }
        let error = peer.next_event().await["error"].clone();
        assert_eq!(
            (&error["code"], &error["type"], &error["event_id"]),
            (&json!("input_backpressure"), &json!("rate_limit_error"), &json!("one")),
            "{}",
            server.name()
        );
        assert_eq!(peer.next_event().await["type"], "response.listen");
        peer.close().await;
    }
}

#[tokio::test]
async fn session_beyond_the_limit_is_refused_until_one_has_left() {
    for server in servers(Setup { max_sessions: 2, ..Setup::default() }).await {
        let (mut first, _) = Peer::open(&server).await;
        let (mut second, _) = Peer::open(&server).await;
        let mut third = Peer::connect(&server, "").await;
        third.send(&update(json!({}))).await;
        let error = third.next_event().await["error"].clone();
        assert_has(&error, json!({"/code": "resource_exhausted", "/type": "rate_limit_error"}));
        assert_eq!(error["message"], "duplex_session_capacity_exhausted: limit=2", "{}", server.name());
        let is_flagged = server.version() == VllmVersion::V0_32;
        assert_eq!(error.get("retryable").and_then(Value::as_bool), is_flagged.then_some(true), "{error}");
        assert_eq!(third.next().await, Err(None));
        first.close().await;
        let (mut fourth, _) = Peer::open(&server).await;
        fourth.close().await;
        second.close().await;
    }
}

#[tokio::test]
async fn lost_session_is_resumed_with_its_token_and_what_was_missed() {
    for server in servers(Setup::default()).await {
        let (mut peer, created) = Peer::open(&server).await;
        peer.send_unit(true).await;
        let events = peer.until("response.listen").await;
        drop(peer);
        let resume = |token: &Value, last: u64| {
            json!({
                "type": "session.resume", "session_id": created["session"]["id"], "resume_token": token,
                "last_received_server_event_seq": last,
            })
        };
        let mut second = Peer::connect(&server, "").await;
        second.send(&resume(&created["resume_token"], 1)).await;
        let resumed = second.next_event().await;
        assert_has(&resumed, json!({"/type": "session.resumed", "/attachment_generation": 2}));
        assert_ne!(resumed["resume_token"], created["resume_token"]);
        second.sequence = 1;
        for event in events {
            assert_eq!(second.next_event().await, event, "{}", server.name());
        }
        second.send(&json!({"type": "session.event_ack", "server_event_seq": 2})).await;
        second.send_unit(true).await;
        second.until("response.listen").await;
        let token = &resumed["resume_token"];
        let mut refusals = BTreeMap::new();
        for (token, last) in [(&created["resume_token"], 2), (token, 99), (token, 1)] {
            let mut other = Peer::connect(&server, "").await;
            other.send(&resume(token, last)).await;
            let event = other.next_event().await;
            refusals.insert(
                last,
                event["error"]["code"].as_str().or(event["reason"].as_str()).unwrap().to_owned(),
            );
            assert_eq!(other.next().await, Err(None), "{}", server.name());
        }
        let wanted = [(1, "journal_gap"), (2, "invalid_resume_token"), (99, "session_resume_conflict")];
        assert_eq!(refusals, wanted.map(|(last, code)| (last, code.to_owned())).into(), "{}", server.name());
        let mut third = Peer::connect(&server, "").await;
        third.send(&resume(token, second.sequence)).await;
        assert_eq!(third.next_event().await["type"], "session.resumed", "{}", server.name());
        assert_eq!(second.next_event().await["type"], "session.replaced", "{}", server.name());
        assert_eq!(second.next().await, Err(Some((1000, "session_replaced".to_owned()))));
        third.close().await;
    }
}
