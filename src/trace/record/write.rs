//! Makes lines of a trace from the inputs and outputs of a bridge.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{DisconnectKind, InputKind, OutputKind, TraceRecord};
use crate::{
    bridge::{Input, Output},
    session::Observation,
    trace::{
        redact::{AudioRetention, fnv1a_digest, wav_head},
        strip_audio::strip_audio,
    },
    vocabulary::{AnswerPart, DisconnectReason, FlowControl, Frame, HttpBody, HttpRequest, Lane, Message},
};

/// Audio of a frame that a record keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeptAudio {
    All,
    /// The head of a WAV file, without which a replay could not read the rest.
    Head,
    None,
}

impl TraceRecord {
    /// Record of an input, without audio that the trace does not keep; secrets are not yet redacted.
    pub fn from_input(ns: u64, input: &Input<'_>, audio: AudioRetention) -> Self {
        let record = |kind| Self { ns, input: Some(kind), ..Self::default() };
        let lane_record = |kind, lane: Lane| Self { lane: Some(lane.0), ..record(kind) };
        match input {
            Input::Client(frame) => {
                let kept = if audio == AudioRetention::None { KeptAudio::None } else { KeptAudio::All };
                record(InputKind::Client).with_frame(*frame, kept)
            }
            Input::ClientClosed => record(InputKind::ClientClosed),
            Input::LaneQueued(lane, position) => {
                Self { position: Some(*position), ..lane_record(InputKind::LaneQueued, *lane) }
            }
            Input::LaneDialect(lane, name) => {
                Self { words: Some((*name).to_owned()), ..lane_record(InputKind::LaneDialect, *lane) }
            }
            Input::PlaceFound(lane) => lane_record(InputKind::PlaceFound, *lane),
            Input::LaneReplaceable(lane) => lane_record(InputKind::LaneReplaceable, *lane),
            Input::LaneOpened(lane) => lane_record(InputKind::LaneOpened, *lane),
            Input::Lane(lane, frame) => {
                let kept = if audio == AudioRetention::All { KeptAudio::All } else { KeptAudio::Head };
                lane_record(InputKind::Lane, *lane).with_frame(*frame, kept)
            }
            Input::Answer(lane, part) => lane_record(InputKind::Answer, *lane).with_answer_part(part),
            Input::LaneClosed(lane, reason) => {
                lane_record(InputKind::LaneClosed, *lane).with_disconnect_reason(reason)
            }
            Input::Timeout => record(InputKind::Timeout),
            Input::Drain(within) => record(InputKind::Drain).with_time_limit(*within),
            Input::Close(within) => record(InputKind::Close).with_time_limit(*within),
            Input::Rollover => record(InputKind::Rollover),
            Input::TurnJudged(pause, probability) => Self {
                pause: Some(pause.0),
                words: probability.map(|probability| probability.to_string()),
                ..record(InputKind::TurnJudged)
            },
            Input::WorkerFound(pause) => Self { pause: Some(pause.0), ..record(InputKind::WorkerFound) },
            Input::Unwritten(turn, waiting, total) => {
                Self { words: Some(format!("{} {waiting} {total}", turn.0)), ..record(InputKind::Unwritten) }
            }
            Input::Flow(FlowControl { is_client_behind, are_lanes_held }) => {
                Self { held: Some((*is_client_behind, *are_lanes_held)), ..record(InputKind::Flow) }
            }
            Input::ToolServers(servers) => {
                Self { text: serde_json::to_string(&servers[..]).ok(), ..record(InputKind::ToolServers) }
            }
            Input::ToolResult(call, result) => Self {
                words: Some(call.0.to_string()),
                text: Some(result.output.clone()),
                failure: result.failure,
                ..record(InputKind::ToolResult)
            },
            Input::ToolList(number, list) => Self {
                words: Some(number.0.to_string()),
                text: serde_json::to_string(list).ok(),
                ..record(InputKind::ToolList)
            },
        }
    }

    /// Record of an output, without audio that the trace does not keep; secrets are not yet redacted. Binary frames get a
    /// digest if the trace keeps all audio. Returns `None` for waiting and for measurements.
    pub fn from_output(ns: u64, output: &Output, audio: AudioRetention) -> Option<Self> {
        let keep_audio = audio == AudioRetention::All;
        let record = |kind| Self { ns, output: Some(kind), ..Self::default() };
        let lane_record = |kind, lane: Lane| Self { lane: Some(lane.0), ..record(kind) };
        Some(match output {
            Output::ToClient(message, _) => record(OutputKind::Client).with_message(message, keep_audio),
            Output::DropTurn { audio_bytes, .. } => {
                Self { bytes: Some(*audio_bytes), ..record(OutputKind::DropAudio) }
            }
            Output::OpenLane(lane, mode, _) => {
                Self { mode: Some(*mode), ..lane_record(OutputKind::OpenLane, *lane) }
            }
            Output::ReopenLane(lane, mode, _) => {
                Self { mode: Some(*mode), ..lane_record(OutputKind::ReopenLane, *lane) }
            }
            Output::ToLane(lane, message) => {
                lane_record(OutputKind::Lane, *lane).with_message(message, keep_audio)
            }
            Output::Request(lane, request) => {
                lane_record(OutputKind::Request, *lane).with_request(request, keep_audio)
            }
            Output::CloseLane(lane) => lane_record(OutputKind::CloseLane, *lane),
            Output::JudgeTurn(pause, _) => Self { pause: Some(pause.0), ..record(OutputKind::JudgeTurn) },
            Output::WithdrawJudgement => record(OutputKind::WithdrawJudgement),
            Output::FindWorker(pause, lane) => {
                Self { pause: Some(pause.0), ..lane_record(OutputKind::FindWorker, *lane) }
            }
            Output::CallTool(call) => Self {
                words: Some(format!("{} {} {}", call.id.0, call.server, call.tool)),
                text: Some(call.arguments.clone()),
                ..record(OutputKind::CallTool)
            },
            Output::ConnectTools(number, server) => Self {
                words: Some(format!("{} {}", number.0, server.label)),
                ..record(OutputKind::ConnectTools)
            },
            Output::LeaveTools(number) => {
                Self { words: Some(number.0.to_string()), ..record(OutputKind::LeaveTools) }
            }
            // Measurements depend on the machine, so they are not part of a trace. An event is recorded as its messages.
            Output::Observe(Observation::Measured(_)) | Output::Event(_) | Output::Record(_) => return None,
            Output::Observe(observation) => {
                Self { words: Some(observation.to_string()), ..record(OutputKind::Observe) }
            }
            Output::Finished => record(OutputKind::Finished),
            Output::Wait(_) => return None,
        })
    }

    fn with_frame(mut self, frame: Frame<'_>, kept: KeptAudio) -> Self {
        match (frame, kept) {
            (Frame::Text(text), KeptAudio::All) => self.text = Some(text.to_owned()),
            (Frame::Text(text), _) => self.text = Some(strip_audio(text, kept == KeptAudio::Head)),
            (Frame::Binary(bytes), KeptAudio::All) => self.base64 = Some(STANDARD.encode(bytes)),
            (Frame::Binary(bytes), _) => {
                self.bytes = Some(bytes.len() as u64);
                let head = wav_head(bytes).filter(|_| kept == KeptAudio::Head);
                self.base64 = head.map(|head| STANDARD.encode(head));
            }
        }
        self
    }

    fn with_message(mut self, message: &Message, keep_audio: bool) -> Self {
        match message {
            Message::Text(text) if keep_audio => self.text = Some(text.clone()),
            Message::Text(text) => self.text = Some(strip_audio(text, false)),
            Message::Binary(bytes) => {
                self.bytes = Some(bytes.len() as u64);
                self.digest = keep_audio.then(|| fnv1a_digest(bytes));
            }
            Message::Close(code, reason) => {
                self.code = Some(*code);
                self.words = Some(reason.clone());
            }
        }
        self
    }

    fn with_answer_part(self, part: &AnswerPart) -> Self {
        match part {
            AnswerPart::Head { status, content_type } => {
                Self { code: Some(*status), words: Some(content_type.clone()), ..self }
            }
            AnswerPart::End => self,
        }
    }

    /// A form is recorded as the object of its texts, and its file like a binary frame.
    fn with_request(self, request: &HttpRequest, keep_audio: bool) -> Self {
        let record = Self { words: Some(request.path.clone()), ..self };
        match &request.body {
            HttpBody::Json(json) => record.with_message(&Message::Text(json.clone()), keep_audio),
            HttpBody::Form { fields, file, .. } => {
                let fields = fields.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
                let fields = serde_json::Value::Object(fields.collect());
                let record = record.with_message(&Message::Binary(file.clone()), keep_audio);
                Self { text: Some(fields.to_string()), ..record }
            }
        }
    }

    fn with_time_limit(self, time_limit: Duration) -> Self {
        Self { within_ms: u64::try_from(time_limit.as_millis()).ok(), ..self }
    }

    fn with_disconnect_reason(self, reason: &DisconnectReason) -> Self {
        let (name, code, words) = match reason {
            DisconnectReason::Unreachable(words) => (DisconnectKind::Unreachable, None, Some(words.clone())),
            DisconnectReason::HttpRejected(status) => (DisconnectKind::Refused, Some(*status), None),
            DisconnectReason::Closed(code, words) => {
                (DisconnectKind::Closed, Some(*code), Some(words.clone()))
            }
            DisconnectReason::Lost(words) => (DisconnectKind::Lost, None, Some(words.clone())),
        };
        Self { why: Some(name), code, words, ..self }
    }
}
