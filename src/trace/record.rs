//! One line of a trace: an input or an output of the bridge, as a flat object that suits `jq` and `grep`.

use std::{fmt::Write as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{
    redact::{AudioRetention, AudioTreatment, Redactor, fnv1a_digest},
    strip_audio::strip_audio,
};
use crate::{
    bridge::{Input, Output},
    session::Observation,
    vocabulary::{
        AnswerPart, CallFailure, DisconnectReason, EntryId, FlowControl, Frame, HttpBody, HttpRequest, Lane,
        Message, Mode, PauseId, ServerCallResult, SpeechId, ToolServer,
    },
};

/// Line after the header. It has either `in` or `out`, which determines its other fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceRecord {
    /// Time since the start of the session, ns. A replay is exact only if the time is, too.
    pub ns: u64,
    /// Kind of an input.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub input: Option<InputKind>,
    /// Flow control of the driver: whether the client's audio is held back, and whether lanes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<(bool, bool)>,
    /// Kind of an output.
    #[serde(rename = "out", skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputKind>,
    /// Upstream connection of the input or output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<u32>,
    /// Position at which the lane waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Mode in which the lane is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Text frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Length of a binary frame or of discarded audio, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Received binary frame, if the trace keeps its audio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Digest of a sent binary frame, if the trace keeps all audio. The frame itself is not needed, because a replay
    /// creates it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Why a connection ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<DisconnectKind>,
    /// Close code, or HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// Close reason, or another text or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// Why a call of a tool has no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<CallFailure>,
    /// Pause in the user's speech.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<u32>,
    /// Time limit for finishing the session, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// True if the bridge got this input before the outputs of the previous one were drained.
    #[serde(skip_serializing_if = "is_false")]
    pub in_a_row: bool,
    /// Number of lines lost before this one, because the disk was slower than the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Size limit of the trace, bytes, at which the recording ended before the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Kind of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// Frame from the client.
    Client,
    /// The client disconnected.
    ClientClosed,
    /// A lane waits for a place at an upstream without a queue.
    LaneQueued,
    /// A lane's dialect.
    LaneDialect,
    /// Another upstream may serve a lane's requests.
    LaneReplaceable,
    /// A lane connected.
    LaneOpened,
    /// Frame from a lane.
    Lane,
    /// Beginning of the answer to an HTTP request, with its status; the end has none.
    Answer,
    /// A lane disconnected.
    LaneClosed,
    /// A timer expired.
    Timeout,
    /// voxbridge shuts down.
    Drain,
    /// An operator closes the session.
    Close,
    /// An operator requests a new upstream session.
    Rollover,
    /// The end-of-turn model's verdict; without a number there is none.
    TurnJudged,
    /// A worker is free in a pause.
    WorkerFound,
    /// The driver's flow control has changed.
    Flow,
    /// Part of a speech's messages that waits to be written to the client: its number, the bytes that wait, and all.
    Unwritten,
    /// Another upstream has room for a lane that waits in a queue.
    PlaceFound,
    /// The tool servers that can be called, as JSON.
    ToolServers,
    /// Result of a call on a tool server, with the number of the call. Pictures are not recorded.
    ToolResult,
    /// Tools of a client's server as JSON, with the number of their list.
    ToolList,
}

/// Kind of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputKind {
    /// Frame to the client.
    Client,
    /// Discard audio queued for the client.
    DropAudio,
    /// Open a lane.
    OpenLane,
    /// Connect a lane again.
    ReopenLane,
    /// Frame to a lane.
    Lane,
    /// HTTP request to a lane.
    Request,
    /// Close a lane.
    CloseLane,
    /// Ask the end-of-turn model.
    JudgeTurn,
    /// Withdraw the question to the end-of-turn model.
    WithdrawJudgement,
    /// Find out whether a worker is free.
    FindWorker,
    /// Call a tool: its number, server and name, and the arguments.
    CallTool,
    /// Connect to a tool server of the client: the number of its list and its label.
    ConnectTools,
    /// Leave a tool server of the client: the number of its list.
    LeaveTools,
    /// Observation for the log.
    Observe,
    /// End of the session.
    Finished,
}

/// Kind of a [`DisconnectReason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisconnectKind {
    /// The connection failed.
    Unreachable,
    /// The server rejected the upgrade.
    Refused,
    /// The peer sent a close frame.
    Closed,
    /// The connection broke.
    Lost,
}

impl TraceRecord {
    /// Record of an input, without audio that the trace does not keep; secrets are not yet redacted.
    pub fn from_input(ns: u64, input: &Input<'_>, audio: AudioRetention) -> Self {
        let record = |kind| Self { ns, input: Some(kind), ..Self::default() };
        let lane_record = |kind, lane: Lane| Self { lane: Some(lane.0), ..record(kind) };
        match input {
            Input::Client(frame) => {
                record(InputKind::Client).with_frame(*frame, audio != AudioRetention::None)
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
                lane_record(InputKind::Lane, *lane).with_frame(*frame, audio == AudioRetention::All)
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

    fn with_frame(mut self, frame: Frame<'_>, keep_audio: bool) -> Self {
        match frame {
            Frame::Text(text) if keep_audio => self.text = Some(text.to_owned()),
            Frame::Text(text) => self.text = Some(strip_audio(text)),
            Frame::Binary(bytes) if keep_audio => self.base64 = Some(STANDARD.encode(bytes)),
            Frame::Binary(bytes) => self.bytes = Some(bytes.len() as u64),
        }
        self
    }

    fn with_message(mut self, message: &Message, keep_audio: bool) -> Self {
        match message {
            Message::Text(text) if keep_audio => self.text = Some(text.clone()),
            Message::Text(text) => self.text = Some(strip_audio(text)),
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

    fn answer_part(&self) -> AnswerPart {
        match self.code {
            Some(status) => AnswerPart::Head { status, content_type: self.words.clone().unwrap_or_default() },
            None => AnswerPart::End,
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

    /// Time limit, with the default of older traces that did not record it.
    fn time_limit(&self) -> Duration {
        const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(15);
        self.within_ms.map_or(DEFAULT_TIME_LIMIT, Duration::from_millis)
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

    /// Removes secrets, and audio that the trace does not keep.
    pub fn redact(&mut self, redactor: &mut Redactor) {
        let treatment = match (redactor.audio, self.input) {
            (AudioRetention::All, Some(_)) | (AudioRetention::Client, Some(InputKind::Client)) => {
                AudioTreatment::Keep
            }
            (AudioRetention::All, None) => AudioTreatment::Digest,
            _ => AudioTreatment::Measure,
        };
        for text in [&mut self.text, &mut self.words].into_iter().flatten() {
            *text = redactor.redact_text(text, treatment);
        }
    }

    /// Approximate memory of the record while it waits to be written, bytes.
    pub fn memory_bytes(&self) -> usize {
        let texts = [&self.text, &self.base64, &self.words];
        128 + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }

    /// Passes the input of this record to `handle`.
    ///
    /// # Errors
    /// The record is not an input, or a field is missing or malformed.
    pub fn with_input(&self, handle: impl FnOnce(Input<'_>)) -> Result<(), String> {
        let lane = || self.lane.map(Lane).ok_or_else(|| "the field `lane` is missing".to_owned());
        match self.input.ok_or("the record is not an input")? {
            InputKind::Client => self.with_frame_input(|frame| handle(Input::Client(frame)))?,
            InputKind::Lane => {
                let lane = lane()?;
                self.with_frame_input(|frame| handle(Input::Lane(lane, frame)))?;
            }
            InputKind::ClientClosed => handle(Input::ClientClosed),
            InputKind::LaneQueued => handle(Input::LaneQueued(lane()?, self.position.unwrap_or(1))),
            InputKind::PlaceFound => handle(Input::PlaceFound(lane()?)),
            InputKind::LaneDialect => {
                handle(Input::LaneDialect(lane()?, self.words.as_deref().unwrap_or_default()));
            }
            InputKind::LaneReplaceable => handle(Input::LaneReplaceable(lane()?)),
            InputKind::LaneOpened => handle(Input::LaneOpened(lane()?)),
            InputKind::Answer => handle(Input::Answer(lane()?, self.answer_part())),
            InputKind::LaneClosed => handle(Input::LaneClosed(lane()?, self.disconnect_reason())),
            InputKind::Timeout => handle(Input::Timeout),
            InputKind::Drain => handle(Input::Drain(self.time_limit())),
            InputKind::Close => handle(Input::Close(self.time_limit())),
            InputKind::Rollover => handle(Input::Rollover),
            InputKind::TurnJudged => {
                let probability = self.words.as_ref().map(|words| words.parse()).transpose();
                let probability = probability.map_err(|error| format!("`words`: {error}"))?;
                handle(Input::TurnJudged(self.pause()?, probability));
            }
            InputKind::WorkerFound => handle(Input::WorkerFound(self.pause()?)),
            InputKind::Unwritten => {
                let (turn, waiting, total) = self.unwritten().ok_or("`words` must be three numbers")?;
                handle(Input::Unwritten(turn, waiting, total));
            }
            InputKind::Flow => {
                let (is_client_behind, are_lanes_held) = self.held.ok_or("the field `held` is missing")?;
                handle(Input::Flow(FlowControl { is_client_behind, are_lanes_held }));
            }
            InputKind::ToolServers => {
                let servers: Vec<ToolServer> = serde_json::from_str(self.text.as_deref().unwrap_or_default())
                    .map_err(|error| format!("`text`: {error}"))?;
                handle(Input::ToolServers(servers.into()));
            }
            InputKind::ToolResult => {
                let output = self.text.clone().unwrap_or_default();
                let result = ServerCallResult { output, pictures: Vec::new(), failure: self.failure };
                handle(Input::ToolResult(self.entry()?, result));
            }
            InputKind::ToolList => {
                let list = serde_json::from_str(self.text.as_deref().unwrap_or_default())
                    .map_err(|error| format!("`text`: {error}"))?;
                handle(Input::ToolList(self.entry()?, list));
            }
        }
        Ok(())
    }

    fn unwritten(&self) -> Option<(SpeechId, u64, u64)> {
        let mut numbers = self.words.as_deref()?.split(' ');
        let turn = SpeechId(numbers.next()?.parse().ok()?);
        Some((turn, numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// The number in `words`.
    fn entry(&self) -> Result<EntryId, String> {
        let number = self.words.as_deref().and_then(|number| number.parse().ok());
        number.map(EntryId).ok_or_else(|| "`words` must be the number of a call or list".to_owned())
    }

    fn pause(&self) -> Result<PauseId, String> {
        self.pause.map(PauseId).ok_or_else(|| "the field `pause` is missing".to_owned())
    }

    fn with_frame_input(&self, handle: impl FnOnce(Frame<'_>)) -> Result<(), String> {
        // Silence replaces missing audio. No real frame is larger than this.
        const FRAME_MAX_BYTES: u64 = 256 << 20;
        match (&self.text, &self.base64, self.bytes) {
            (Some(text), ..) => handle(Frame::Text(text)),
            (_, Some(base64), _) => {
                let bytes = STANDARD.decode(base64).map_err(|error| format!("`base64`: {error}"))?;
                handle(Frame::Binary(&bytes));
            }
            (.., Some(bytes)) if bytes <= FRAME_MAX_BYTES => handle(Frame::Binary(&vec![0; bytes as usize])),
            (.., Some(bytes)) => return Err(format!("`bytes`: {bytes} exceeds the size of any frame")),
            _ => return Err("a frame needs `text`, `base64` or `bytes`".to_owned()),
        }
        Ok(())
    }

    fn disconnect_reason(&self) -> DisconnectReason {
        let (code, words) = (self.code.unwrap_or(0), self.words.clone().unwrap_or_default());
        match self.why {
            Some(DisconnectKind::Unreachable) => DisconnectReason::Unreachable(words),
            Some(DisconnectKind::Refused) => DisconnectReason::HttpRejected(code),
            Some(DisconnectKind::Closed) => DisconnectReason::Closed(code, words),
            Some(DisconnectKind::Lost) | None => DisconnectReason::Lost(words),
        }
    }

    /// Describes the kind of the record.
    pub fn description(&self) -> String {
        let lane = self.lane.map_or(String::new(), |lane| format!(" lane {lane}"));
        match (self.input, self.output) {
            (Some(InputKind::Client), _) => "from the client".to_owned(),
            (_, Some(OutputKind::Client)) => "to the client".to_owned(),
            (Some(InputKind::Lane), _) => format!("from{lane}"),
            (_, Some(OutputKind::Lane | OutputKind::Request)) => format!("to{lane}"),
            (Some(InputKind::Answer), _) => format!("answer:{lane}"),
            (_, Some(OutputKind::OpenLane)) => format!("open{lane}"),
            (_, Some(OutputKind::ReopenLane)) => format!("reopen{lane}"),
            (_, Some(OutputKind::CloseLane)) => format!("close{lane}"),
            (_, Some(OutputKind::DropAudio)) => "discard audio for the client".to_owned(),
            (_, Some(OutputKind::Observe)) => "observation".to_owned(),
            (_, Some(OutputKind::Finished)) => "end of session".to_owned(),
            (Some(InputKind::ClientClosed), _) => "client disconnected".to_owned(),
            (Some(InputKind::LaneQueued), _) => format!("waits for a place:{lane}"),
            (Some(InputKind::PlaceFound), _) => format!("another upstream has room:{lane}"),
            (Some(InputKind::LaneDialect), _) => format!("dialect:{lane}"),
            (Some(InputKind::LaneReplaceable), _) => format!("another upstream may serve:{lane}"),
            (Some(InputKind::LaneOpened), _) => format!("connected:{lane}"),
            (Some(InputKind::LaneClosed), _) => format!("disconnected:{lane}"),
            (Some(InputKind::Timeout), _) => "timeout".to_owned(),
            (Some(InputKind::Drain), _) => "drain".to_owned(),
            (Some(InputKind::Close), _) => "close requested by an operator".to_owned(),
            (Some(InputKind::Rollover), _) => "rollover requested by an operator".to_owned(),
            (Some(InputKind::TurnJudged), _) => "the end-of-turn model's verdict".to_owned(),
            (Some(InputKind::WorkerFound), _) => "a worker is free".to_owned(),
            (Some(InputKind::Unwritten), _) => {
                "speech, and its bytes that wait for the client, of all".to_owned()
            }
            (Some(InputKind::Flow), _) => "flow control".to_owned(),
            (_, Some(OutputKind::JudgeTurn)) => "ask the end-of-turn model".to_owned(),
            (_, Some(OutputKind::WithdrawJudgement)) => {
                "withdraw the question to the end-of-turn model".to_owned()
            }
            (_, Some(OutputKind::FindWorker)) => "look for a free worker".to_owned(),
            (Some(InputKind::ToolServers), _) => "tool servers".to_owned(),
            (Some(InputKind::ToolList), _) => "tools of a client's server".to_owned(),
            (Some(InputKind::ToolResult), _) => "result of a tool".to_owned(),
            (_, Some(OutputKind::CallTool)) => "call a tool".to_owned(),
            (_, Some(OutputKind::ConnectTools)) => "connect to a client's tool server".to_owned(),
            (_, Some(OutputKind::LeaveTools)) => "leave a client's tool server".to_owned(),
            (None, None) => "note".to_owned(),
        }
    }

    /// Describes the content of the record.
    pub fn content(&self) -> String {
        let mut words = self.text.clone().unwrap_or_default();
        if let Some(bytes) = self.bytes {
            let _ = write!(words, "{bytes} bytes");
        }
        if let Some(digest) = &self.digest {
            let _ = write!(words, " ({digest})");
        }
        if let Some(position) = self.position {
            let _ = write!(words, "position {position}");
        }
        if let Some((is_client_behind, are_lanes_held)) = self.held {
            let _ = write!(words, "client behind: {is_client_behind}, lanes held: {are_lanes_held}");
        }
        if let Some(mode) = self.mode {
            let _ = write!(words, "mode {}", mode.name());
        }
        if let Some(code) = self.code {
            let _ = write!(words, "{code} ");
        }
        words.push_str(self.words.as_deref().unwrap_or_default());
        words
    }
}
