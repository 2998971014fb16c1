//! Readable form of observations, for the log and traces.

use std::fmt::{self, Display, Formatter};

use super::Observation;

impl Display for Observation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::LaneRetry { .. }
            | Self::LaneFailed { .. }
            | Self::LaneRefused { .. }
            | Self::LaneReady { .. }
            | Self::LaneQueued { .. }
            | Self::LaneUnneeded { .. }
            | Self::UnknownFromLane { .. }
            | Self::LaneTrouble { .. } => self.fmt_of_lane(f),
            Self::RolledOver { reason, gap_ms, standby, kept_ms, known_lines, missing_lines } => {
                let prepared = if *standby { "a prepared" } else { "another" };
                write!(
                    f,
                    "rollover ({}): the conversation moved to {prepared} upstream session after {gap_ms} ms; {kept_ms} ms of \
                     audio kept; it knows {known_lines} lines and lacks {missing_lines}",
                    reason.name()
                )
            }
            Self::Interrupted => f.write_str("the model was interrupted"),
            Self::SlowStep { step_ms, count } => write!(
                f,
                "the upstream is slower than real time: 1 s of audio took {step_ms} ms ({count} slow units so far)"
            ),
            Self::Underrun => {
                f.write_str("underrun: the client ran out of audio while the model was speaking")
            }
            Self::RelayResumed { gap_ms, kept, dropped } => write!(
                f,
                "replaced a lost upstream session after {gap_ms} ms; {kept} messages kept, {dropped} dropped"
            ),
            Self::ErrorTold(error) => write!(f, "error to the client: {error}"),
            Self::AskedAgain(words) => write!(f, "retrying the request: {words}"),
            Self::ModelMistake(words) => write!(f, "the model's answer could not be used: {words}"),
            Self::Note(words) => f.write_str(words),
            Self::NoEffect(words) => write!(f, "ignored a setting without effect: {words}"),
            Self::Unsupported(words) => write!(f, "ignored what the client relies on: {words}"),
            Self::Measured(_) => f.write_str("measurement"),
        }
    }
}

impl Observation {
    /// Readable form of an observation on a lane.
    fn fmt_of_lane(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::LaneRetry { lane, words, pause_ms, .. } => {
                write!(f, "lane {}: {words}; retrying in {pause_ms} ms", lane.0)
            }
            Self::LaneFailed { lane, words } | Self::LaneRefused { lane, words, .. } => {
                write!(f, "lane {}: {words}", lane.0)
            }
            Self::LaneReady { lane, session_id, waited_ms } => {
                let session =
                    session_id.as_ref().map_or(String::new(), |id| format!("; upstream session {id}"));
                write!(f, "lane {}: ready after {waited_ms} ms{session}", lane.0)
            }
            Self::LaneQueued { lane, words, .. } => {
                write!(f, "lane {}: waiting in the upstream's queue: {words}", lane.0)
            }
            Self::LaneUnneeded { lane, position } => {
                let place =
                    position.map_or(String::new(), |position| format!(" (position {position} in its queue)"));
                write!(
                    f,
                    "lane {}: not needed any more; it closes once the upstream assigns a worker{place}",
                    lane.0
                )
            }
            Self::UnknownFromLane { lane, words } => {
                write!(f, "lane {}: ignored an upstream message: {words}", lane.0)
            }
            Self::LaneTrouble { lane, words } => {
                write!(f, "lane {}: the upstream reported an error: {words}", lane.0)
            }
            _ => Ok(()),
        }
    }
}
