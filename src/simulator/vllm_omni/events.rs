//! Messages of the server, field for field (protocol/realtime/events.py and protocol/duplex/events.py). Nested objects are
//! sorted by name.

use serde_json::{Map, Value, json};

use crate::{hum_voice::SAMPLE_RATE_HZ, messages, session_context::SimContext};

/// Errors that are the server's, or of its load; all others are the client's (protocol/duplex/errors.py).
const OTHER_ERROR_TYPES: [(&str, &str); 4] = [
    ("resource_exhausted", "rate_limit_error"),
    ("input_backpressure", "rate_limit_error"),
    ("output_backpressure", "rate_limit_error"),
    ("runtime_data_plane_stream_failed", "server_error"),
];

/// Capabilities of MiniCPM-o 4.5 (model_executor/models/minicpmo_4_5/duplex/capabilities.py).
const CAPABILITIES: &str = r#"{
    "supports_session_adapter": true, "supports_model_native_turn_policy": true, "supports_external_turn_signal": true,
    "supports_client_commit": true, "supports_barge_in": true, "supports_playback_ack": true,
    "supports_input_append": true, "supports_replace_latest_chunk": false, "supports_reencode_context": false,
    "supports_rollback_to_checkpoint": false, "supports_turn_commit_only": false,
    "supports_model_internal_state": true, "supports_stage_resumption": true, "supports_core_resumable_request": true,
    "supports_concurrent_turn_requests": false, "required_input_modalities": ["audio"],
    "optional_input_modalities": ["video"], "supports_independent_io_streams": true,
    "supports_realtime_endpoint": true, "supports_multi_session": true, "supports_session_lease": true,
    "supports_session_resume": true, "session_admission_mode": "engine_managed", "supports_audio_truncate": true,
    "adapter_patterns": ["scheduler_data_plane"], "requires_model_runner_kv": true,
    "requires_native_stage_role": true, "signal_sources": ["model_native", "client_request", "server_policy"],
    "stage_handoff_transport": "scheduler_data_plane", "supports_core_kv_lease": false, "supports_kv_lease": false,
    "supports_multi_session_same_replica": true, "supports_scheduler_native_append": false,
    "supports_stage_connector_handoff": true, "supports_image_input": false, "supports_text_only_turn": false, "implementation_level": "model_native_duplex",
    "input_modes": ["append_audio_chunk"], "chunk_period_ms": 1000, "target_barge_in_latency_ms": null
}"#;

/// Name and members of an event.
type Event = (&'static str, Vec<(&'static str, Value)>);

pub(super) fn event_id(rng: &mut fastrand::Rng) -> String {
    format!("event_{:032x}", rng.u128(..))
}

/// A token of 32 random bytes.
pub(super) fn resume_token(rng: &mut fastrand::Rng) -> String {
    format!("{:032x}{:032x}", rng.u128(..), rng.u128(..))
}

/// An event; those without a number are not repeated.
pub(super) fn event<'n>(
    kind: &str,
    event_id: &str,
    members: impl IntoIterator<Item = (&'n str, Value)>,
    sequence: Option<u64>,
) -> String {
    let head = [("type", kind.into()), ("event_id", event_id.into())];
    let tail = sequence.map(|sequence| ("server_event_seq", sequence.into()));
    messages::to_json(head.into_iter().chain(members).chain(tail))
}

/// Sends an event of the transport, which has no number and is not repeated.
pub(super) fn send<'n>(
    ctx: &mut SimContext<'_>,
    kind: &str,
    members: impl IntoIterator<Item = (&'n str, Value)>,
) {
    let text = event(kind, &event_id(ctx.rng), members, None);
    ctx.send_text(text);
}

pub(super) fn send_error(ctx: &mut SimContext<'_>, code: &str, message: &str, event_id: Option<&str>) {
    send(ctx, "error", [("error", error_members(code, message, event_id))]);
}

pub(super) fn error_members(code: &str, message: &str, answers: Option<&str>) -> Value {
    let kind = OTHER_ERROR_TYPES.iter().find(|(known, _)| *known == code);
    let kind = kind.map_or("invalid_request_error", |(_, kind)| kind);
    let mut error = json!({"type": kind, "code": code, "message": message});
    if let Some(answers) = answers {
        error["event_id"] = answers.into();
    }
    error
}

/// The session as clients see it: what they set, over the defaults.
pub(super) fn public_session(id: &str, epoch: u64, config: &Map<String, Value>) -> Value {
    let mut session = json!({
        "id": id, "object": "realtime.session", "type": "realtime", "state": "open", "epoch": epoch,
        "model": "openbmb/MiniCPM-o-4_5", "modalities": ["text", "audio"], "input_audio_format": "pcm16",
        "output_audio_format": "pcm16", "idle_timeout_s": 300.0, "overlap_policy": "listen_only",
        "turn_detection": null, "active_request_id": null, "active_response_id": null,
        "active_response_turn_id": null, "input_audio_transcription": null, "instructions": null, "max_tokens": null,
        "overlap_barge_in_ms": 1200, "overlap_short_ack_ms": 700, "overlap_silence_rms": 0.003,
        "playback": {"committed_ms": 0, "generated_ms": 0, "played_ms": 0, "sent_ms": 0}, "response_format": "pcm",
        "speed": null, "temperature": null, "tracing": null, "turn_id": 0, "turn_state": "idle", "voice": null,
    });
    for (key, value) in config.iter().filter(|(key, _)| *key != "extra_body" && *key != "type") {
        session[key] = value.clone();
    }
    let rate =
        config.get("sample_rate_hz").and_then(Value::as_u64).filter(|rate| *rate > 0).unwrap_or(16_000);
    let kind = |key: &str| match session[key].as_str() {
        Some(law @ ("g711_ulaw" | "g711_alaw" | "pcm_f32le")) => format!("audio/{law}"),
        _ => "audio/pcm".to_owned(),
    };
    let audio = json!({
        "input": {"format": {"type": kind("input_audio_format"), "rate": rate}, "sample_rate_hz": rate},
        "output": {"format": {"type": kind("output_audio_format")}},
    });
    if !config.get("audio").is_some_and(Value::is_object) {
        session["audio"] = audio;
    }
    session["output_modalities"] = session["modalities"].clone();
    // Forced, whatever the client set.
    session["playback_commit_policy"] = "ack_only".into();
    session["capabilities"] = serde_json::from_str(CAPABILITIES).unwrap_or_default();
    session
}

pub(super) fn listen_members(session_id: &str, epoch: u64) -> [(&'static str, Value); 3] {
    let metadata = json!({
        "type": "response.listen", "session_id": session_id, "epoch": epoch, "reason": "model_listen",
        "model_listen": true,
    });
    let response = json!({"object": "realtime.response", "status": "listening", "metadata": metadata});
    [("session_id", session_id.into()), ("epoch", epoch.into()), ("response", response)]
}

pub(super) fn playback_acknowledged(
    session_id: &str,
    epoch: u64,
    answer: Option<&(String, u64)>,
    played_ms: u64,
) -> Value {
    let sent_ms = answer.map_or(0, |(_, ms)| *ms);
    json!({
        "type": "playback.acknowledged", "session_id": session_id, "epoch": epoch,
        "item_id": answer.map(|(id, _)| format!("item_{id}")), "played_ms": played_ms, "committed_ms": played_ms,
        "truncate": false,
        "playback": {
            "generated_ms": sent_ms, "sent_ms": sent_ms, "played_ms": played_ms, "committed_ms": played_ms,
        },
    })
}

/// An answer that the model speaks.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) id: String,
    transcript: String,
    samples: usize,
}

impl Answer {
    pub(super) const fn new(id: String) -> Self {
        Self { id, transcript: String::new(), samples: 0 }
    }

    pub(super) fn item_id(&self) -> String {
        format!("item_{}", self.id)
    }

    pub(super) const fn audio_ms(&self) -> u64 {
        (self.samples * 1000 / SAMPLE_RATE_HZ) as u64
    }

    fn part(&self, more: Vec<(&'static str, Value)>) -> Vec<(&'static str, Value)> {
        let mut members = vec![
            ("response_id", self.id.as_str().into()),
            ("item_id", self.item_id().into()),
            ("output_index", 0.into()),
            ("content_index", 0.into()),
        ];
        members.extend(more);
        members
    }

    fn item(&self, status: &str) -> Value {
        let content = match self.samples {
            0 => json!([]),
            _ => json!([{
                "type": "output_audio", "transcript": self.transcript, "audio_duration_ms": self.audio_ms(),
            }]),
        };
        json!({
            "id": self.item_id(), "object": "realtime.item", "type": "message", "role": "assistant",
            "status": status, "content": content,
        })
    }

    fn response(&self, status: &str, details: Value, output: Value) -> Value {
        json!({
            "id": self.id, "object": "realtime.response", "status": status, "status_details": details,
            "output": output, "modalities": ["audio", "text"], "metadata": {},
        })
    }

    /// Events before the first delta.
    pub(super) fn opening(&self, session_id: &str, epoch: u64, previous: Option<&str>) -> Vec<Event> {
        let item = self.item("in_progress");
        let in_conversation = vec![("previous_item_id", previous.into()), ("item", item.clone())];
        let metadata = json!({"session_id": session_id, "epoch": epoch, "model_speak": true});
        let response = self.response("in_progress", Value::Null, json!([]));
        vec![
            ("response.created", vec![("response", response), ("response_id", self.id.as_str().into())]),
            ("conversation.item.added", in_conversation.clone()),
            ("conversation.item.created", in_conversation),
            ("response.output_item.added", self.output_item(item)),
            (
                "response.content_part.added",
                self.part(vec![("part", json!({"type": "audio", "transcript": ""}))]),
            ),
            ("response.speak", self.part(vec![("metadata", metadata)])),
        ]
    }

    fn output_item(&self, item: Value) -> Vec<(&'static str, Value)> {
        vec![("response_id", self.id.as_str().into()), ("output_index", 0.into()), ("item", item)]
    }

    /// Audio and its words, which come as a pair.
    pub(super) fn delta(&mut self, text: &str, audio: &[f32], epoch: u64) -> Vec<Event> {
        self.transcript.push_str(text);
        self.samples += audio.len();
        let metadata = json!({"epoch": epoch, "model_speak": true, "audio_duration_ms": self.audio_ms()});
        let more = vec![
            ("delta", messages::base64_s16le(audio).into()),
            ("format", "pcm16".into()),
            ("sample_rate_hz", SAMPLE_RATE_HZ.into()),
            ("metadata", metadata),
        ];
        vec![
            ("response.output_audio.delta", self.part(more)),
            ("response.output_audio_transcript.delta", self.part(vec![("delta", text.into())])),
        ]
    }

    /// Events after the last delta.
    pub(super) fn ending(&self, status: &'static str, reason: &'static str) -> Vec<Event> {
        let details = json!({"type": status, "reason": reason});
        let item = self.item(status);
        let transcript: Value = self.transcript.as_str().into();
        let part = json!({"type": "audio", "transcript": transcript});
        let response = self.response(status, details, json!([item]));
        let mut events = vec![("response.output_audio.done", self.part(Vec::new()))];
        if !self.transcript.is_empty() {
            let done = self.part(vec![("transcript", transcript)]);
            events.push(("response.output_audio_transcript.done", done));
        }
        events.extend([
            ("response.content_part.done", self.part(vec![("part", part)])),
            ("response.output_item.done", self.output_item(item.clone())),
            ("conversation.item.done", vec![("previous_item_id", Value::Null), ("item", item)]),
            ("response.done", vec![("response", response), ("response_id", self.id.as_str().into())]),
            ("rate_limits.updated", vec![("rate_limits", json!([]))]),
        ]);
        events
    }
}
