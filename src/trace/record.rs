//! One line of a trace: an input or an output of the bridge, flat, so that `jq` and `grep` are tools enough.

use std::{fmt::Write as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{redact::AudioRetention, strip_audio::strip_audio};
use crate::{
    bridge::{Input, Output},
    event::{DisconnectReason, Frame, Lane, Message, Mode},
    session::Observation,
};

/// One line after the first. Which fields there are depends on `in` and `out`, of which there is one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceRecord {
    /// Since the session was opened, ns: what the bridge was given, to the last digit, or a replay could not be exact.
    pub ns: u64,
    /// An input, by its kind.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub input: Option<InputKind>,
    /// An output, by its kind.
    #[serde(rename = "out", skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputKind>,
    /// The upstream connection it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<u32>,
    /// The mode an upstream is dialled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// A text frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Length of a binary frame, or of audio to be dropped, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// A binary frame that came, where audio is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// What a binary frame that went is told from others by, where audio is kept: what came makes it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Why a transport is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<DisconnectKind>,
    /// Close code, or HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// A close reason, or anything else in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// Within which time a session is to finish what goes on, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// The input before this one was not yet drained: the bridge got both in a row.
    #[serde(skip_serializing_if = "is_false")]
    pub in_a_row: bool,
    /// So many lines before this one are lost: the disk was slower than the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// The trace ends here because it reached this size, bytes; the session went on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Kinds of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// A frame from the client.
    Client,
    /// The client is gone.
    ClientClosed,
    /// A lane is up.
    LaneOpened,
    /// A frame from a lane.
    Lane,
    /// A lane is gone.
    LaneClosed,
    /// Time has come.
    Timeout,
    /// voxbridge stops.
    Drain,
    /// An operator ends the session.
    Close,
    /// An operator wants another upstream session.
    Rollover,
}

/// Kinds of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputKind {
    /// A frame to the client.
    Client,
    /// Audio for the client is dropped.
    DropAudio,
    /// A lane is dialled.
    OpenLane,
    /// A frame to a lane.
    Lane,
    /// A lane is dropped.
    CloseLane,
    /// For the log.
    Observe,
    /// The session is over.
    Finished,
}

/// Kinds of [`DisconnectReason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisconnectKind {
    /// It never came up.
    Unreachable,
    /// HTTP said no.
    Refused,
    /// A close frame.
    Closed,
    /// It broke.
    Lost,
}

impl TraceRecord {
    /// An input as it is, but for audio that is not to be kept.
    #[must_use]
    pub fn from_input(ns: u64, input: &Input<'_>, audio: AudioRetention) -> Self {
        let record = |kind| Self { ns, input: Some(kind), ..Self::default() };
        let lane_record = |kind, lane: Lane| Self { lane: Some(lane.0), ..record(kind) };
        match input {
            Input::Client(frame) => {
                record(InputKind::Client).with_frame(*frame, audio != AudioRetention::None)
            }
            Input::ClientClosed => record(InputKind::ClientClosed),
            Input::LaneOpened(lane) => lane_record(InputKind::LaneOpened, *lane),
            Input::Lane(lane, frame) => {
                lane_record(InputKind::Lane, *lane).with_frame(*frame, audio == AudioRetention::All)
            }
            Input::LaneClosed(lane, reason) => {
                lane_record(InputKind::LaneClosed, *lane).with_disconnect_reason(reason)
            }
            Input::Timeout => record(InputKind::Timeout),
            Input::Drain(within) => record(InputKind::Drain).with_time_limit(*within),
            Input::Close(within) => record(InputKind::Close).with_time_limit(*within),
            Input::Rollover => record(InputKind::Rollover),
        }
    }

    /// An output as it is, but for audio that is not to be kept; `None` for waiting. Where all audio is kept, binary frames
    /// have a digest.
    #[must_use]
    pub fn from_output(ns: u64, output: &Output, audio: AudioRetention) -> Option<Self> {
        let keep_audio = audio == AudioRetention::All;
        let record = |kind| Self { ns, output: Some(kind), ..Self::default() };
        let lane_record = |kind, lane: Lane| Self { lane: Some(lane.0), ..record(kind) };
        Some(match output {
            Output::ToClient(message, _) => record(OutputKind::Client).with_message(message, keep_audio),
            Output::DropTurn { audio_bytes, .. } => {
                Self { bytes: Some(*audio_bytes), ..record(OutputKind::DropAudio) }
            }
            Output::OpenLane(lane, mode) => {
                Self { mode: Some(*mode), ..lane_record(OutputKind::OpenLane, *lane) }
            }
            Output::ToLane(lane, message) => {
                lane_record(OutputKind::Lane, *lane).with_message(message, keep_audio)
            }
            Output::CloseLane(lane) => lane_record(OutputKind::CloseLane, *lane),
            // What was measured is no part of what happened.
            Output::Observe(Observation::Measured(_)) => return None,
            Output::Observe(observation) => {
                Self { words: Some(format!("{observation:?}")), ..record(OutputKind::Observe) }
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

    fn with_time_limit(self, time_limit: Duration) -> Self {
        Self { within_ms: u64::try_from(time_limit.as_millis()).ok(), ..self }
    }

    /// What was recorded before it was told was told to finish within that.
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

    /// How much of the session's memory it takes while it waits to be written, bytes, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let texts = [&self.text, &self.base64, &self.words];
        128 + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }

    /// Gives the input the line is of; an error is what is wrong with the line.
    ///
    /// # Errors
    /// What is missing or cannot be read, in words.
    pub fn with_input(&self, handle: impl FnOnce(Input<'_>)) -> Result<(), String> {
        let lane = || self.lane.map(Lane).ok_or_else(|| "it names no `lane`".to_owned());
        match self.input.ok_or("it is no input")? {
            InputKind::Client => self.with_frame_input(|frame| handle(Input::Client(frame)))?,
            InputKind::Lane => {
                let lane = lane()?;
                self.with_frame_input(|frame| handle(Input::Lane(lane, frame)))?;
            }
            InputKind::ClientClosed => handle(Input::ClientClosed),
            InputKind::LaneOpened => handle(Input::LaneOpened(lane()?)),
            InputKind::LaneClosed => handle(Input::LaneClosed(lane()?, self.disconnect_reason())),
            InputKind::Timeout => handle(Input::Timeout),
            InputKind::Drain => handle(Input::Drain(self.time_limit())),
            InputKind::Close => handle(Input::Close(self.time_limit())),
            InputKind::Rollover => handle(Input::Rollover),
        }
        Ok(())
    }

    fn with_frame_input(&self, handle: impl FnOnce(Frame<'_>)) -> Result<(), String> {
        // What stands in for audio is silence, and a frame is never larger than this.
        const FRAME_MAX_BYTES: u64 = 256 << 20;
        match (&self.text, &self.base64, self.bytes) {
            (Some(text), ..) => handle(Frame::Text(text)),
            (_, Some(base64), _) => {
                let bytes = STANDARD.decode(base64).map_err(|error| format!("`base64`: {error}"))?;
                handle(Frame::Binary(&bytes));
            }
            (.., Some(bytes)) if bytes <= FRAME_MAX_BYTES => handle(Frame::Binary(&vec![0; bytes as usize])),
            (.., Some(bytes)) => return Err(format!("`bytes`: {bytes} is more than any frame has")),
            _ => return Err("a frame has `text`, `base64` or `bytes`".to_owned()),
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

    /// Where it passed, in words.
    #[must_use]
    pub fn description(&self) -> String {
        let lane = self.lane.map_or(String::new(), |lane| format!(" lane {lane}"));
        match (self.input, self.output) {
            (Some(InputKind::Client), _) => "from the client".to_owned(),
            (_, Some(OutputKind::Client)) => "to the client".to_owned(),
            (Some(InputKind::Lane), _) => format!("from{lane}"),
            (_, Some(OutputKind::Lane)) => format!("to{lane}"),
            (_, Some(OutputKind::OpenLane)) => format!("dial{lane}"),
            (_, Some(OutputKind::CloseLane)) => format!("drop{lane}"),
            (_, Some(OutputKind::DropAudio)) => "drop audio for the client".to_owned(),
            (_, Some(OutputKind::Observe)) => "for the log".to_owned(),
            (_, Some(OutputKind::Finished)) => "the end".to_owned(),
            (Some(InputKind::ClientClosed), _) => "the client is gone".to_owned(),
            (Some(InputKind::LaneOpened), _) => format!("up:{lane}"),
            (Some(InputKind::LaneClosed), _) => format!("gone:{lane}"),
            (Some(InputKind::Timeout), _) => "time".to_owned(),
            (Some(InputKind::Drain), _) => "the order to stop".to_owned(),
            (Some(InputKind::Close), _) => "an operator's order to end".to_owned(),
            (Some(InputKind::Rollover), _) => "an operator's order to roll over".to_owned(),
            (None, None) => "a note".to_owned(),
        }
    }

    /// What passed, in words.
    #[must_use]
    pub fn content(&self) -> String {
        let mut words = self.text.clone().unwrap_or_default();
        if let Some(bytes) = self.bytes {
            let _ = write!(words, "{bytes} bytes");
        }
        if let Some(digest) = &self.digest {
            let _ = write!(words, " ({digest})");
        }
        if let Some(mode) = self.mode {
            let _ = write!(words, "mode {mode:?}");
        }
        if let Some(code) = self.code {
            let _ = write!(words, "{code} ");
        }
        words.push_str(self.words.as_deref().unwrap_or_default());
        words
    }
}

/// FNV-1a, 64 bits: tells bytes from other bytes, and keeps nothing of them.
#[must_use]
pub fn fnv1a_digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
