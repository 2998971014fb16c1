//! All client protocols: their paths, how a session begins, and a probe that a session still works.

use super::*;

/// A client protocol with its way to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Macaw,
    Current,
    Legacy,
    Vosk,
    Listen,
    Speak,
}

pub(crate) const PROTOCOLS: [Protocol; 6] =
    [Protocol::Macaw, Protocol::Current, Protocol::Legacy, Protocol::Vosk, Protocol::Listen, Protocol::Speak];

/// Outcome of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The session answers a valid exchange.
    Works,
    /// The session ended with this close code.
    Closed(u16),
    /// The connection ended without a close frame.
    Lost,
}

/// A bridge with all protocols and enough upstream workers.
pub(crate) async fn bench() -> Bench {
    let routes = r#"
        [[route]]
        path = "/older"
        protocol = "minicpm-o-legacy"
        profile = "relay"

        [[route]]
        path = "/newer"
        protocol = "minicpm-o"
        profile = "relay"

        [[route]]
        profile = "speech"
    "#;
    let simulator = SimulatorConfig { workers: 64, record: false, ..instant_simulator() };
    Bench::with_config(simulator, toml::from_str::<Config>(routes).unwrap()).await
}

impl Protocol {
    /// Opens a session.
    pub(crate) async fn open_session(self, bench: &Bench) -> Client {
        let path = match self {
            Self::Macaw => "/v1/realtime?model=x",
            Self::Current => "/newer?mode=audio",
            Self::Legacy => "/older?mode=audio",
            Self::Vosk => "/",
            Self::Listen => "/v1/listen",
            Self::Speak => "/v1/speak",
        };
        let mut client = bench.dial(path).await;
        match self {
            Self::Macaw => drop(client.wait_for_event("session.created").await),
            Self::Current => {
                client.send_json(RelayDialect::Current.opening()).await;
                client.wait_for_event("session.created").await;
            }
            Self::Legacy => {
                client.send_json(RelayDialect::Legacy.opening()).await;
                client.wait_for_event("session.created").await;
            }
            Self::Speak => drop(client.wait_for_event("Metadata").await),
            Self::Vosk | Self::Listen => {}
        }
        client
    }

    /// Checks whether a valid exchange is answered, or how the session ended.
    pub(crate) async fn probe_session(self, client: &mut Client) -> Outcome {
        for message in self.probe_messages() {
            send_ignoring_errors(client, Message::text(message.to_string())).await;
        }
        loop {
            match client.next().await {
                ClientFrame::Event(event) if self.is_probe_answer(&event) => return Outcome::Works,
                ClientFrame::Close(code, _) => return Outcome::Closed(code),
                ClientFrame::End(_) => return Outcome::Lost,
                ClientFrame::Event(_) | ClientFrame::Audio(_) => {}
            }
        }
    }

    fn probe_messages(self) -> Vec<Value> {
        match self {
            Self::Macaw => vec![json!({"type": "tts.speak", "text": "Hello.", "request_id": "probe"})],
            Self::Current => {
                let mut append = RelayDialect::Current.append(&[0; 16_000]);
                append["input"]["input_id"] = json!("probe");
                vec![append]
            }
            Self::Legacy => vec![RelayDialect::Legacy.opening()],
            Self::Vosk => vec![json!({"eof": 1})],
            Self::Listen => vec![json!({"type": "CloseStream"})],
            Self::Speak => vec![json!({"type": "Speak", "text": "Hello."}), json!({"type": "Flush"})],
        }
    }

    fn is_probe_answer(self, event: &Value) -> bool {
        match self {
            Self::Macaw => event["type"] == "tts.speaking_end" && event["request_id"] == "probe",
            Self::Current => event["input_id"] == "probe",
            Self::Legacy => event["type"] == "session.created",
            Self::Vosk => event.get("text").is_some(),
            Self::Listen => event["type"] == "Metadata",
            Self::Speak => event["type"] == "Flushed",
        }
    }

    /// The code of the first error the client received.
    pub(crate) fn first_error_code(self, client: &Client) -> Option<String> {
        let code = |frame: &ClientFrame| match frame {
            ClientFrame::Event(event) if event["type"] == "error" => {
                let code = if self == Self::Macaw { &event["code"] } else { &event["error"]["code"] };
                code.as_str().map(str::to_owned)
            }
            _ => None,
        };
        client.received.iter().find_map(code)
    }

    /// Valid client messages as input for mutations.
    pub(crate) fn valid_messages(self) -> Vec<String> {
        let audio = "AAAAAAAAAD8AAAC/AACAPwAAgL8AAAA/AAAAvwAAAAA=";
        let messages = match self {
            Self::Macaw => vec![
                json!({"type": "session.configure", "language": "en", "hot_words": ["PIX", "a"],
                    "input_sample_rate": 8000, "silence_timeout_ms": 300, "vad": {"sensitivity": "low"}}),
                json!({"type": "tts.speak", "text": "Hello there.", "request_id": "r", "speed": 1.5,
                    "ref_audio": "AAABAAIA", "instruction": "Calmly"}),
                json!({"type": "tts.cancel", "request_id": "r"}),
                json!({"type": "input_audio_buffer.commit"}),
                json!({"type": "video.frame", "image": PICTURE}),
                json!({"type": "session.close"}),
            ],
            Self::Current => vec![
                json!({"type": "session.init", "payload": {"system_prompt": "p", "config": {"top_k": 5},
                    "voice": {"ref_audio_base64": audio, "tts_ref_audio_base64": audio}}}),
                json!({"type": "input.append", "input": {"audio": audio, "force_listen": false, "input_id": "1",
                    "hints": {"max_slice_nums": 1}, "response_id": "r"}}),
                json!({"type": "session.close", "reason": "user_stop"}),
            ],
            Self::Legacy => vec![
                json!({"type": "session.update", "session": {"instructions": "p", "ref_audio": audio,
                    "tts_ref_audio": audio, "max_slice_nums": 1, "voice_config": {"top_k": 5}}}),
                json!({"type": "input_audio_buffer.append", "audio": audio, "force_listen": true,
                    "video_frames": [PICTURE]}),
                json!({"type": "session.close", "reason": "user_stop"}),
            ],
            Self::Vosk => vec![
                json!({"config": {"sample_rate": 16000, "phrase_list": ["a", "b c"], "words": 1, "model": "m"}}),
                json!({"reset": 1}),
                json!({"eof": 1}),
            ],
            Self::Listen => vec![
                json!({"type": "Configure", "keyterms": ["a", "b"], "features": {"x": [1]}}),
                json!({"type": "Finalize", "channel": 0}),
                json!({"type": "KeepAlive"}),
                json!({"type": "CloseStream"}),
            ],
            Self::Speak => vec![
                json!({"type": "Speak", "text": "Hello there."}),
                json!({"type": "Flush"}),
                json!({"type": "Clear"}),
                json!({"type": "Close"}),
            ],
        };
        messages.iter().map(Value::to_string).collect()
    }
}

/// Sends a message; the connection may already be closed.
pub(crate) async fn send_ignoring_errors(client: &mut Client, message: Message) {
    let sent = timeout(Duration::from_secs(20), client.socket.send(message)).await;
    drop(sent.expect("sending hangs"));
}
