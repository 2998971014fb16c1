//! Interface of the bridge to a session, of either kind.

use std::{fmt::Debug, sync::Arc, time::Instant};

use super::{
    EventTap, Input,
    exchange::{Output, Outputs},
};
use crate::{
    session::{AudioTotals, RecordOptions, SampleCounts, SessionReport, UplinkCounts, outbox::Action},
    spelling::UpstreamMapping,
    vocabulary::{
        ClientEvent, ClientRequest, DisconnectReason, Frame, Lane, LaneEvent, LaneRequest, Message,
        MessageMeta, VoiceSample,
    },
};

/// An event of a lane's upstream, with the message that it came in.
#[derive(Clone, Copy)]
pub(super) struct LaneMessage<'m> {
    pub(super) event: &'m LaneEvent<'m>,
    pub(super) meta: MessageMeta<'m>,
    /// The message; empty if the upstream sent none.
    pub(super) text: &'m str,
}

impl<'m> LaneMessage<'m> {
    /// An event that no message of the upstream has.
    pub(super) fn unsaid(event: &'m LaneEvent<'m>) -> Self {
        Self { event, meta: MessageMeta::default(), text: "" }
    }
}

/// A session and the codec of its client.
pub(super) trait BridgedSession: Debug + Send {
    /// The session's id.
    fn id(&self) -> &str;

    /// The session's state, and what the driver takes into account.
    fn report(&self, now: Instant) -> SessionReport;

    /// Counts of the client's samples by destination, and the sample groups dropped as too far ahead of the clock.
    fn sample_counts(&self) -> (SampleCounts, u64) {
        Default::default()
    }

    /// Counts of the conversation's samples by destination; `None` without a conversation.
    fn uplink_counts(&self) -> Option<UplinkCounts> {
        None
    }

    /// Durations of the client's audio by destination so far; `None` if the session decodes no audio.
    fn audio_totals(&self) -> Option<AudioTotals> {
        None
    }

    /// Sets the voice of a client that names none, for upstreams that get the commands of a conversation.
    fn set_default_voice(&mut self, _voice: VoiceSample) {}

    /// Handles a frame of the client.
    fn handle_client_frame(&mut self, now: Instant, frame: Frame<'_>, outputs: &mut Outputs);

    /// Takes the end of a call of a tool, or the tools of a client's server.
    fn handle_tools(&mut self, _now: Instant, _input: Input<'_>, _outputs: &mut Outputs) {}

    /// Gives the client events in place of messages.
    fn give_events(&mut self) {}

    /// Gives the driver what is recorded. A session that decodes no audio records nothing.
    fn record(&mut self, _options: RecordOptions) {}

    /// Shows the tap all requests and events from now on. A relay has none.
    fn tap_events(&mut self, _tap: Box<dyn EventTap>) {}

    /// A lane's upstream is asked for this.
    fn note_lane_request(&mut self, _now: Instant, _lane: Lane, _request: &LaneRequest) {}

    /// Handles a request of a client that needs no codec.
    fn handle_client_request(&mut self, _now: Instant, _request: ClientRequest<'_>) {}

    /// The message that asks for the same in the client's protocol.
    fn spell_request(&self, _request: &ClientRequest<'_>) -> Option<String> {
        None
    }

    /// The messages of an event in the client's protocol.
    fn spell_event(&mut self, _now: Instant, _event: &ClientEvent) -> Vec<Message> {
        Vec::new()
    }

    /// The client's transport closed.
    fn handle_client_gone(&mut self, now: Instant);

    /// The lane that opens goes to an upstream of this dialect.
    fn set_lane_dialect(&mut self, _now: Instant, _lane: Lane, _dialect: &Arc<UpstreamMapping>) {}

    /// A lane's transport is open, or waits for a place at its upstream.
    fn handle_lane_opened(&mut self, now: Instant, lane: Lane);

    /// True if the session takes the messages of this dialect as they were sent, with undecoded audio.
    fn takes_as_sent(&self, _dialect: &UpstreamMapping) -> bool {
        false
    }

    /// Handles what a lane's upstream said.
    fn handle_lane_event(&mut self, now: Instant, lane: Lane, message: LaneMessage<'_>);

    /// A lane's transport closed.
    fn handle_lane_closed(&mut self, now: Instant, lane: Lane, reason: &DisconnectReason);

    /// True for a lane that the driver must not read for now.
    fn is_lane_held(&self, lane: Lane) -> bool;

    /// Handles an input about neither a message nor a transport. Some concern one kind of session only.
    fn handle_order(&mut self, now: Instant, order: Input<'_>);

    /// Handles the expired timers.
    fn handle_timeout(&mut self, now: Instant);

    /// Takes the oldest thing that the session wants done.
    fn pop_action(&mut self) -> Option<Action>;

    /// The output for an action that concerns no lane; `None` if it is in `outputs`, or there is none.
    fn to_output(&mut self, now: Instant, action: Action, outputs: &mut Outputs) -> Option<Output>;

    /// Gives a client its message that is due although there is nothing to say.
    fn push_idle_event(&mut self, _now: Instant, _outputs: &mut Outputs) {}

    /// When [`BridgedSession::handle_timeout`] must run, or [`BridgedSession::push_idle_event`] has a message.
    fn next_timeout(&self, outputs: &Outputs) -> Option<Instant>;

    /// True once everything is sent and every lane is gone.
    fn is_finished(&self) -> bool;
}
