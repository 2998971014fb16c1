//! What a session passes on to its recording.

use std::time::{Duration, Instant};

use crate::{
    session::{Measurement, Observation, RecordedItem},
    vocabulary::{EntryId, ServerCall, ServerCallResult},
};

/// Something that is recorded.
#[derive(Debug)]
pub(in crate::server) enum RecordingNews {
    /// Audio or an event of the session.
    Item(Box<RecordedItem>),
    /// A tool of the operator is called.
    ToolCalled { call: EntryId, server: String, tool: String, arguments: String },
    /// Its result has come.
    ToolAnswered { call: EntryId, output: String },
    /// The user interrupted the model.
    Interrupted,
    /// The client got the first audio of a text or of an answer, this long after it was asked for.
    FirstAudio(Duration),
    /// The client got the first words of an utterance, this long after its end.
    FirstTranscript(Duration),
}

/// News with the instant of the session at which they came.
#[derive(Debug)]
pub(super) struct TimedNews {
    pub(super) at: Instant,
    pub(super) news: RecordingNews,
}

impl RecordingNews {
    /// A call on a tool server.
    pub(in crate::server) fn of_call(call: &ServerCall) -> Self {
        let (server, tool, arguments) = (call.server.clone(), call.tool.clone(), call.arguments.clone());
        Self::ToolCalled { call: call.id, server, tool, arguments }
    }

    /// The end of such a call.
    pub(in crate::server) fn of_result(call: EntryId, result: &ServerCallResult) -> Self {
        Self::ToolAnswered { call, output: result.output.clone() }
    }

    /// What a recording has of an observation.
    pub(in crate::server) const fn of_observation(observation: &Observation) -> Option<Self> {
        match observation {
            Observation::Interrupted => Some(Self::Interrupted),
            Observation::Measured(Measurement::FirstAudio { after, .. }) => Some(Self::FirstAudio(*after)),
            Observation::Measured(Measurement::FirstTranscript { after }) => {
                Some(Self::FirstTranscript(*after))
            }
            _ => None,
        }
    }

    /// Memory that they take, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let content = match self {
            Self::Item(item) => item.memory_bytes(),
            Self::ToolCalled { server, tool, arguments, .. } => server.len() + tool.len() + arguments.len(),
            Self::ToolAnswered { output, .. } => output.len(),
            Self::Interrupted | Self::FirstAudio(_) | Self::FirstTranscript(_) => 0,
        };
        content + size_of::<TimedNews>()
    }
}
