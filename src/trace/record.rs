//! One line of a trace: an input or an output of the bridge, flat, so that `jq` and `grep` are tools enough.

use std::{fmt::Write as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{redact::Kept, strip_audio::brief};
use crate::{
    bridge::{Input, Output},
    event::{Frame, Lane, Message, Mode, Why},
    session::Observation,
};

/// One line after the first. Which fields there are depends on `in` and `out`, of which there is one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Line {
    /// Since the session was opened, ns: what the bridge was given, to the last digit, or a replay could not be exact.
    pub ns: u64,
    /// An input, by its kind.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub came: Option<Came>,
    /// An output, by its kind.
    #[serde(rename = "out", skip_serializing_if = "Option::is_none")]
    pub went: Option<Went>,
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
    pub why: Option<WhyName>,
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
pub enum Came {
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
pub enum Went {
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

/// Kinds of [`Why`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyName {
    /// It never came up.
    Unreachable,
    /// HTTP said no.
    Refused,
    /// A close frame.
    Closed,
    /// It broke.
    Lost,
}

impl Line {
    /// An input as it is, but for audio that is not to be kept.
    #[must_use]
    pub fn of_input(ns: u64, input: &Input<'_>, audio: Kept) -> Self {
        let line = |came| Self { ns, came: Some(came), ..Self::default() };
        let on = |came, lane: Lane| Self { lane: Some(lane.0), ..line(came) };
        match input {
            Input::Client(frame) => line(Came::Client).with_frame(*frame, audio != Kept::None),
            Input::ClientClosed => line(Came::ClientClosed),
            Input::LaneOpened(lane) => on(Came::LaneOpened, *lane),
            Input::Lane(lane, frame) => on(Came::Lane, *lane).with_frame(*frame, audio == Kept::All),
            Input::LaneClosed(lane, why) => on(Came::LaneClosed, *lane).with_why(why),
            Input::Timeout => line(Came::Timeout),
            Input::Drain(within) => line(Came::Drain).within(*within),
            Input::Close(within) => line(Came::Close).within(*within),
            Input::Rollover => line(Came::Rollover),
        }
    }

    /// An output as it is, but for audio that is not to be kept; `None` for waiting. Where all audio is kept, binary frames
    /// have a digest.
    #[must_use]
    pub fn of_output(ns: u64, output: &Output, audio: Kept) -> Option<Self> {
        let audio = audio == Kept::All;
        let line = |went| Self { ns, went: Some(went), ..Self::default() };
        let on = |went, lane: Lane| Self { lane: Some(lane.0), ..line(went) };
        Some(match output {
            Output::ToClient(message) => line(Went::Client).with_message(message, audio),
            Output::DropAudio(bytes) => Self { bytes: Some(*bytes), ..line(Went::DropAudio) },
            Output::OpenLane(lane, mode) => Self { mode: Some(*mode), ..on(Went::OpenLane, *lane) },
            Output::ToLane(lane, message) => on(Went::Lane, *lane).with_message(message, audio),
            Output::CloseLane(lane) => on(Went::CloseLane, *lane),
            // What was measured is no part of what happened.
            Output::Observe(Observation::Measured(_)) => return None,
            Output::Observe(observation) => {
                Self { words: Some(format!("{observation:?}")), ..line(Went::Observe) }
            }
            Output::Finished => line(Went::Finished),
            Output::Wait(_) => return None,
        })
    }

    fn with_frame(mut self, frame: Frame<'_>, audio: bool) -> Self {
        match frame {
            Frame::Text(text) if audio => self.text = Some(text.to_owned()),
            Frame::Text(text) => self.text = Some(brief(text)),
            Frame::Binary(bytes) if audio => self.base64 = Some(STANDARD.encode(bytes)),
            Frame::Binary(bytes) => self.bytes = Some(bytes.len() as u64),
        }
        self
    }

    fn with_message(mut self, message: &Message, audio: bool) -> Self {
        match message {
            Message::Text(text) if audio => self.text = Some(text.clone()),
            Message::Text(text) => self.text = Some(brief(text)),
            Message::Binary(bytes) => {
                self.bytes = Some(bytes.len() as u64);
                self.digest = audio.then(|| digest(bytes));
            }
            Message::Close(code, reason) => {
                self.code = Some(*code);
                self.words = Some(reason.clone());
            }
        }
        self
    }

    fn within(self, time: Duration) -> Self {
        Self { within_ms: u64::try_from(time.as_millis()).ok(), ..self }
    }

    /// What was recorded before it was told was told to finish within that.
    fn time(&self) -> Duration {
        const BEFORE_IT_WAS_TOLD: Duration = Duration::from_secs(15);
        self.within_ms.map_or(BEFORE_IT_WAS_TOLD, Duration::from_millis)
    }

    fn with_why(self, why: &Why) -> Self {
        let (name, code, words) = match why {
            Why::Unreachable(words) => (WhyName::Unreachable, None, Some(words.clone())),
            Why::Refused(status) => (WhyName::Refused, Some(*status), None),
            Why::Closed(code, reason) => (WhyName::Closed, Some(*code), Some(reason.clone())),
            Why::Lost(words) => (WhyName::Lost, None, Some(words.clone())),
        };
        Self { why: Some(name), code, words, ..self }
    }

    /// How much of the session's memory it takes while it waits to be written, bytes, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let texts = [&self.text, &self.base64, &self.words];
        128 + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }

    /// Gives the input the line is of; an error is what is wrong with the line.
    ///
    /// # Errors
    /// What is missing or cannot be read, in words.
    pub fn give(&self, give: impl FnOnce(Input<'_>)) -> Result<(), String> {
        let lane = || self.lane.map(Lane).ok_or_else(|| "it names no `lane`".to_owned());
        match self.came.ok_or("it is no input")? {
            Came::Client => self.give_frame(|frame| give(Input::Client(frame)))?,
            Came::Lane => {
                let lane = lane()?;
                self.give_frame(|frame| give(Input::Lane(lane, frame)))?;
            }
            Came::ClientClosed => give(Input::ClientClosed),
            Came::LaneOpened => give(Input::LaneOpened(lane()?)),
            Came::LaneClosed => give(Input::LaneClosed(lane()?, self.transport_end())),
            Came::Timeout => give(Input::Timeout),
            Came::Drain => give(Input::Drain(self.time())),
            Came::Close => give(Input::Close(self.time())),
            Came::Rollover => give(Input::Rollover),
        }
        Ok(())
    }

    fn give_frame(&self, give: impl FnOnce(Frame<'_>)) -> Result<(), String> {
        // What stands in for audio is silence, and a frame is never larger than this.
        const LONGEST_BYTES: u64 = 256 << 20;
        match (&self.text, &self.base64, self.bytes) {
            (Some(text), ..) => give(Frame::Text(text)),
            (_, Some(base64), _) => {
                let bytes = STANDARD.decode(base64).map_err(|error| format!("`base64`: {error}"))?;
                give(Frame::Binary(&bytes));
            }
            (.., Some(bytes)) if bytes <= LONGEST_BYTES => give(Frame::Binary(&vec![0; bytes as usize])),
            (.., Some(bytes)) => return Err(format!("`bytes`: {bytes} is more than any frame has")),
            _ => return Err("a frame has `text`, `base64` or `bytes`".to_owned()),
        }
        Ok(())
    }

    fn transport_end(&self) -> Why {
        let (code, words) = (self.code.unwrap_or(0), self.words.clone().unwrap_or_default());
        match self.why {
            Some(WhyName::Unreachable) => Why::Unreachable(words),
            Some(WhyName::Refused) => Why::Refused(code),
            Some(WhyName::Closed) => Why::Closed(code, words),
            Some(WhyName::Lost) | None => Why::Lost(words),
        }
    }

    /// Where it passed, in words.
    #[must_use]
    pub fn place(&self) -> String {
        let lane = self.lane.map_or(String::new(), |lane| format!(" lane {lane}"));
        match (self.came, self.went) {
            (Some(Came::Client), _) => "from the client".to_owned(),
            (_, Some(Went::Client)) => "to the client".to_owned(),
            (Some(Came::Lane), _) => format!("from{lane}"),
            (_, Some(Went::Lane)) => format!("to{lane}"),
            (_, Some(Went::OpenLane)) => format!("dial{lane}"),
            (_, Some(Went::CloseLane)) => format!("drop{lane}"),
            (_, Some(Went::DropAudio)) => "drop audio for the client".to_owned(),
            (_, Some(Went::Observe)) => "for the log".to_owned(),
            (_, Some(Went::Finished)) => "the end".to_owned(),
            (Some(Came::ClientClosed), _) => "the client is gone".to_owned(),
            (Some(Came::LaneOpened), _) => format!("up:{lane}"),
            (Some(Came::LaneClosed), _) => format!("gone:{lane}"),
            (Some(Came::Timeout), _) => "time".to_owned(),
            (Some(Came::Drain), _) => "the order to stop".to_owned(),
            (Some(Came::Close), _) => "an operator's order to end".to_owned(),
            (Some(Came::Rollover), _) => "an operator's order to roll over".to_owned(),
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
pub fn digest(bytes: &[u8]) -> String {
    let mixed = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{mixed:016x}")
}
