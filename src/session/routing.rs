//! Routing: passes what happens on a lane to the lane's owner.

use std::time::Instant;

use super::{
    Session, SessionPhase,
    effects::Effects,
    lanes::{LaneSignal, Owner},
    tools::Tools,
};
use crate::event::{DisconnectReason, EntryId, Lane, LaneEvent, MessageMeta};

impl Session {
    /// Handles the opened transport of a lane.
    pub(crate) fn handle_lane_opened(&mut self, now: Instant, lane: Lane) {
        let Tools { lanes, out, .. } = &mut self.tools;
        lanes.handle_opened(now, lane, out);
        self.arm_outputs(now);
    }

    /// Handles a message of the upstream.
    pub(crate) fn handle_lane_event(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
        meta: MessageMeta<'_>,
    ) {
        let Tools { lanes, out, .. } = &mut self.tools;
        let signal = lanes.handle_event(now, lane, event, meta, out);
        let effects = signal.map_or(Effects::LANE_LEFT, |(owner, signal)| self.route(now, owner, signal));
        self.follow(now, effects);
    }

    /// Handles the closed transport of a lane.
    pub(crate) fn handle_lane_closed(&mut self, now: Instant, lane: Lane, reason: &DisconnectReason) {
        let Tools { lanes, out, .. } = &mut self.tools;
        let signal = lanes.handle_closed(now, lane, reason, out);
        let effects = signal.map_or(Effects::LANE_LEFT, |(owner, signal)| self.route(now, owner, signal));
        self.follow(now, effects);
    }

    /// Passes what happened on a lane to its owner.
    fn route(&mut self, now: Instant, owner: Owner, signal: LaneSignal<'_>) -> Effects {
        let Self { tools, transcriber, synthesizer, assistant, dialogue, .. } = self;
        let effects = match owner {
            Owner::Transcriber => transcriber.handle_signal(now, signal, tools),
            Owner::Synthesizer => synthesizer.handle_signal(now, signal, tools),
            Owner::Assistant => {
                assistant.as_mut().map_or(Effects::ALL, |it| it.handle_signal(now, signal, tools))
            }
            Owner::Dialogue => {
                dialogue.as_mut().map_or(Effects::ALL, |it| it.handle_signal(now, signal, tools))
            }
            Owner::Standby => dialogue.as_mut().map_or(Effects::ALL, |it| {
                it.handle_standby_signal(now, &signal, &mut tools.lanes, &mut tools.out)
            }),
            Owner::Relay | Owner::Closing => Effects::LANE_LEFT,
        };
        self.pass_on_words();
        effects
    }

    /// Tells the conversation what the user said.
    pub(super) fn pass_on_words(&mut self) {
        for words in self.transcriber.queue.words.drain(..) {
            if let Some(dialogue) = &mut self.dialogue {
                dialogue.remember_user_words(words.segment_id, &words.text);
            }
            if let Some(assistant) = &mut self.assistant {
                assistant.entries.set_transcript(EntryId(words.segment_id), &words.text);
            }
        }
    }

    /// Releases idle workers of this session, because a text to speak may be waiting for one of them.
    pub(super) fn release_idle_workers(&mut self, now: Instant) {
        let Tools { lanes, out, .. } = &mut self.tools;
        self.transcriber.release_idle_worker(now, lanes, out);
        if let Some(assistant) = &mut self.assistant {
            assistant.release_prepared(now, lanes, out);
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.release_worker_for_tts(now, &mut self.tools);
        }
    }

    /// Dials lanes that had to wait until another lane was gone.
    pub(super) fn resume_dialling(&mut self, now: Instant) {
        if self.phase != SessionPhase::Ended {
            let Tools { lanes, timers, out, .. } = &mut self.tools;
            self.transcriber.advance(now, lanes, timers, out);
            self.pass_on_words();
            self.synthesizer.advance(now, &mut self.tools);
            if let Some(assistant) = &mut self.assistant {
                assistant.advance(now, &mut self.tools);
            }
        }
    }

    /// Runs the expired timers of the lanes.
    pub(super) fn handle_lanes_timeout(&mut self, now: Instant) {
        for id in self.tools.lanes.expired(now) {
            let Tools { lanes, out, .. } = &mut self.tools;
            if let Some((owner, signal)) = lanes.handle_timeout(now, id, out) {
                let effects = self.route(now, owner, signal);
                if effects.has(Effects::WORKER_WANTED) {
                    self.release_idle_workers(now);
                }
            }
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.end_late_reply(now, &mut self.tools);
        }
        self.resume_dialling(now);
    }

    /// Earliest deadline of the lanes.
    pub(super) fn lane_deadline(&self) -> Option<Instant> {
        let lanes = &self.tools.lanes;
        lanes.deadline().into_iter().chain(self.transcriber.queue_deadline(lanes)).min()
    }
}
