//! Makes inputs of a bridge from lines of a trace.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{DisconnectKind, InputKind, TraceRecord};
use crate::{
    bridge::Input,
    vocabulary::{
        AnswerPart, DisconnectReason, EntryId, FlowControl, Frame, Lane, PauseId, ServerCallResult, SpeechId,
        ToolServer,
    },
};

impl TraceRecord {
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

    fn with_frame_input(&self, handle: impl FnOnce(Frame<'_>)) -> Result<(), String> {
        // Silence replaces missing audio. No real frame is larger than this.
        const FRAME_MAX_BYTES: u64 = 256 << 20;
        match (&self.text, &self.base64, self.bytes) {
            (Some(text), ..) => handle(Frame::Text(text)),
            (.., Some(bytes)) if bytes > FRAME_MAX_BYTES => {
                return Err(format!("`bytes`: {bytes} exceeds the size of any frame"));
            }
            // With both, `base64` is the head.
            (_, Some(base64), length) => {
                let mut bytes = STANDARD.decode(base64).map_err(|error| format!("`base64`: {error}"))?;
                bytes.resize(length.map_or(bytes.len(), |length| length as usize), 0);
                handle(Frame::Binary(&bytes));
            }
            (.., Some(bytes)) => handle(Frame::Binary(&vec![0; bytes as usize])),
            _ => return Err("a frame needs `text`, `base64` or `bytes`".to_owned()),
        }
        Ok(())
    }

    fn answer_part(&self) -> AnswerPart {
        match self.code {
            Some(status) => AnswerPart::Head { status, content_type: self.words.clone().unwrap_or_default() },
            None => AnswerPart::End,
        }
    }

    /// Time limit, with the default of older traces that did not record it.
    fn time_limit(&self) -> Duration {
        const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(15);
        self.within_ms.map_or(DEFAULT_TIME_LIMIT, Duration::from_millis)
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
}
