//! Lane routing: passes each lane's events to its owner (transcriber, synthesizer, dialogue) or to the closing lanes.

use std::time::Instant;

use super::{
    Session, SessionPhase,
    dialogue::EventEffect,
    upstream::connection::{ConnectionEvent, UpstreamConnection},
};
use crate::event::{DisconnectReason, Lane, LaneEvent, MessageMeta};

impl Session {
    /// Handles the opened transport of a lane.
    pub(crate) fn handle_lane_opened(&mut self, now: Instant, lane: Lane) {
        if self.transcriber.owns_lane(lane) {
            self.transcriber.handle_opened(now, lane, &mut self.context);
        } else if self.synthesizer.lane() == Some(lane) {
            self.synthesizer.handle_opened(now, &mut self.context);
        } else if let Some(dialogue) = self.dialogue.as_mut().filter(|dialogue| dialogue.owns_lane(lane)) {
            dialogue.handle_opened(now, lane, &mut self.context);
        } else if let Some(assistant) = self.assistant.as_mut().filter(|assistant| assistant.owns_lane(lane))
        {
            assistant.handle_opened(now, lane, &mut self.context);
        } else {
            self.context.with_closing(lane, |connection, context| connection.handle_opened(now, context));
        }
        self.arm_outputs(now);
    }

    /// Handles an upstream event.
    pub(crate) fn handle_lane_event(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
        meta: MessageMeta<'_>,
    ) {
        if let Some(dialogue) = &mut self.dialogue {
            match dialogue.handle_event(now, lane, event, meta, &self.view, &mut self.context) {
                EventEffect::NotOwned => {}
                EventEffect::Continued => return self.after_delta(now),
                EventEffect::Changed => return self.after_model_output(now),
            }
        }
        if let Some(assistant) = self.assistant.as_mut().filter(|assistant| assistant.owns_lane(lane)) {
            let is_plain = assistant.handle_lane_event(now, lane, event, &mut self.context);
            return if is_plain { self.after_delta(now) } else { self.update(now) };
        }
        if self.transcriber.owns_lane(lane) {
            self.transcriber.handle_lane_event(now, lane, event, &mut self.context);
        } else if self.synthesizer.lane() == Some(lane) {
            let was_audible = self.context.floor.is_audible();
            let connection_event = self.synthesizer.handle_lane_event(now, event, &mut self.context);
            if was_audible
                && matches!(event, LaneEvent::Text(_) | LaneEvent::Audio(_))
                && connection_event == ConnectionEvent::None
            {
                return self.after_delta(now);
            }
            if connection_event == ConnectionEvent::Queued {
                self.release_idle_workers(now);
            }
        } else {
            self.context.with_closing(lane, |connection, context| {
                connection.handle_event(now, event, context);
            });
            self.resume_dialling(now);
        }
        self.update(now);
    }

    /// Releases idle workers of this session, because a text to speak may be waiting for one of them.
    fn release_idle_workers(&mut self, now: Instant) {
        self.transcriber.release_idle_worker(now, &mut self.context);
        if let Some(assistant) = &mut self.assistant {
            assistant.release_prepared(now, &mut self.context);
        }
        let view = self.session_view();
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.release_worker_for_tts(now, &view, &mut self.context);
        }
    }

    /// Handles the closed transport of a lane.
    pub(crate) fn handle_lane_closed(&mut self, now: Instant, lane: Lane, reason: &DisconnectReason) {
        let view = self.session_view();
        if self.transcriber.owns_lane(lane) {
            self.transcriber.handle_closed(now, lane, reason, &mut self.context);
        } else if self.synthesizer.lane() == Some(lane) {
            self.synthesizer.handle_closed(now, reason, &mut self.context);
        } else if let Some(dialogue) = self.dialogue.as_mut().filter(|dialogue| dialogue.owns_lane(lane)) {
            dialogue.handle_closed(now, lane, reason, &view, &mut self.context);
        } else if let Some(assistant) = self.assistant.as_mut().filter(|assistant| assistant.owns_lane(lane))
        {
            assistant.handle_closed(now, lane, reason, &mut self.context);
        } else {
            self.context.with_closing(lane, |connection, context| {
                connection.handle_closed(now, reason, context);
            });
            self.resume_dialling(now);
        }
        self.update(now);
    }

    /// Dials lanes that had to wait until another lane was gone.
    pub(super) fn resume_dialling(&mut self, now: Instant) {
        if self.phase != SessionPhase::Ended {
            self.transcriber.advance(now, &mut self.context);
            self.synthesizer.advance(now, &mut self.context);
            if let Some(assistant) = &mut self.assistant {
                assistant.advance(now, &mut self.context);
            }
        }
    }

    /// Runs the expired timers of the lanes.
    pub(super) fn handle_lanes_timeout(&mut self, now: Instant) {
        let closing = self.context.closing.iter().any(UpstreamConnection::holds_worker);
        let dialogue = self.dialogue.as_ref().is_some_and(|dialogue| dialogue.holds_worker());
        let assistant = self.assistant.as_ref().is_some_and(|assistant| assistant.holds_worker());
        self.context.holds_worker = closing
            || dialogue
            || assistant
            || self.transcriber.holds_worker()
            || self.synthesizer.holds_worker();
        self.transcriber.handle_timeout(now, &mut self.context);
        self.synthesizer.handle_timeout(now, &mut self.context);
        let view = self.session_view();
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.handle_timeout(now, &view, &mut self.context);
        }
        if let Some(assistant) = &mut self.assistant {
            assistant.handle_timeout(now, &mut self.context);
        }
        self.context.handle_closing_timeouts(now);
        self.resume_dialling(now);
    }

    /// Earliest deadline of the lanes.
    pub(super) fn lane_deadline(&self) -> Option<Instant> {
        let closing = self.context.closing.iter().filter_map(UpstreamConnection::deadline).min();
        let dialogue = self.dialogue.as_ref().and_then(|dialogue| dialogue.lane_deadline());
        let assistant = self.assistant.as_ref().and_then(|assistant| assistant.lane_deadline());
        let (transcriber, synthesizer) = (self.transcriber.lane_deadline(), self.synthesizer.lane_deadline());
        [closing, transcriber, synthesizer, dialogue, assistant].into_iter().flatten().min()
    }
}
