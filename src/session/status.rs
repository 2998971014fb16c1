//! Report and state of a session, derived for the driver and for operators.

use std::time::Instant;

use super::{
    Session, lanes::Owner, lifecycle::SessionPhase, measurement::SessionState, owners::Owners,
    read_window::ReadWindow,
};
use crate::spelling::profile::PlayoutPace;

/// State of a session between two inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionReport {
    /// Current state, for metrics and the admin API.
    pub state: SessionState,
    /// True when audio leaves at the pace of playback.
    pub is_paced: bool,
    /// True while more audio waits to be sent than a session keeps, so that upstreams should wait.
    pub is_far_ahead: bool,
    /// Audio that waits to be sent, bytes.
    pub unsent_bytes: usize,
    /// True while the driver should stop reading from the client. Frames that still arrive are accepted.
    pub needs_backpressure: bool,
    /// True if the client should not be read while an upstream takes less than it is sent. Other sessions bound what they send.
    pub waits_for_lanes: bool,
    /// True once the session is over, except that lanes wait in an upstream's queue. They close when a worker is assigned,
    /// which may take as long as other clients hold the workers. The driver may end the client's session meanwhile.
    pub only_waits_in_queue: bool,
    /// Memory of what the client gave and the session keeps, bytes: the messages that a relayed session keeps until its
    /// upstream has answered them, and the conversation of a session that takes turns.
    pub kept_bytes: usize,
    /// How long the driver may leave streamed audio unread, because nothing depends on it earlier; `None` if the driver should
    /// read every message at once.
    pub read_window: Option<ReadWindow>,
}

impl SessionReport {
    /// Report of a session that is over, or was rejected.
    pub(crate) fn ended() -> Self {
        Self { state: SessionState::Ending, ..Self::default() }
    }

    /// The session's state, and what the driver takes into account.
    pub(crate) fn of(session: &Session, now: Instant) -> Self {
        let Session { owners, lifecycle, activity, .. } = session;
        let Owners { setup, assistant, tools, .. } = owners;
        let pace = setup.audio_out.pace.unwrap_or(setup.profile.playout.pace);
        Self {
            state: session.state,
            is_paced: pace == PlayoutPace::RealTime,
            is_far_ahead: tools.floor.must_upstreams_wait(now),
            unsent_bytes: tools.floor.unsent_bytes(),
            needs_backpressure: lifecycle.phase == SessionPhase::Open && activity.had_backpressure,
            waits_for_lanes: false,
            only_waits_in_queue: lifecycle.phase == SessionPhase::Ended
                && owners.is_over()
                && tools.lanes.only_wait_in_queue(),
            kept_bytes: assistant.as_ref().map_or(0, |assistant| assistant.kept_bytes(&tools.settings)),
            read_window: ReadWindow::of(session, now),
        }
    }
}

/// Current state, computed after each input that may change it.
pub(super) fn state(session: &Session) -> SessionState {
    let owners = &session.owners;
    match session.lifecycle.phase {
        SessionPhase::Open => {}
        // A recording is complete, and its words still wait for a worker.
        SessionPhase::Finishing(_) if is_queued(owners) => return SessionState::Queued,
        SessionPhase::Finishing(_) | SessionPhase::Ended => return SessionState::Ending,
    }
    if let Some(state) =
        owners.dialogue.as_ref().and_then(|dialogue| dialogue.connecting_state(&owners.tools.lanes))
    {
        return state;
    }
    if owners.tools.floor.is_audible() {
        SessionState::Speaking
    } else if owners.intake.speech_input.voice_activity.is_in_speech() {
        SessionState::Listening
    } else if is_queued(owners) {
        SessionState::Queued
    } else if owners.awaits_reply() || owners.dialogue.as_ref().is_some_and(|dialogue| dialogue.is_speaking())
    {
        SessionState::Answering
    } else {
        SessionState::Idle
    }
}

/// True if a request waits in an upstream's queue.
fn is_queued(owners: &Owners) -> bool {
    let lanes = &owners.tools.lanes;
    let waits_for_transcript =
        lanes.owner_is_queued(Owner::Transcriber) && !lanes.owner_holds_worker(Owner::Transcriber);
    waits_for_transcript
        || lanes.owner_is_queued(Owner::Synthesizer)
        || lanes.owner_is_queued(Owner::Assistant)
        || lanes.owner_is_queued(Owner::AnswerSpeech)
}
