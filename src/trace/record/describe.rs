//! Describes lines of a trace to people.

use std::fmt::Write as _;

use super::{InputKind, OutputKind, TraceRecord};

impl TraceRecord {
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
