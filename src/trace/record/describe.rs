//! Describes lines of a trace to people.

use std::fmt::Write as _;

use super::{InputKind, OutputKind, TraceRecord};

impl TraceRecord {
    /// Describes the kind of the record.
    pub fn description(&self) -> String {
        let lane = self.lane.map_or(String::new(), |lane| format!(" lane {lane}"));
        let text = self.input.map(InputKind::description).or(self.output.map(OutputKind::description));
        text.unwrap_or("note").replace("{lane}", &lane)
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
