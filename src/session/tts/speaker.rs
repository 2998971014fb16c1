//! Speaker: has an upstream speak a text part by part, on one lane.
//!
//! [`super::synthesizer`] speaks the client's texts with it, and the assistant the words of an answer that was asked for silently.

use std::time::Instant;

use crate::{
    session::{
        floor::Floor,
        lanes::{Lanes, Owner, ask::Ask},
    },
    spelling::profile::SpeakRules,
    vocabulary::{LaneRequest, VoiceSample},
};

/// How a text is spoken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpeakStyle<'s> {
    pub(crate) rules: &'s SpeakRules,
    pub(crate) instruction: Option<&'s str>,
    pub(crate) voice: Option<&'s VoiceSample>,
    pub(crate) voice_name: Option<&'s str>,
}

impl SpeakStyle<'_> {
    /// Request to speak a part, as the model can say it.
    fn request(&self, part: &str) -> LaneRequest {
        LaneRequest::Speak {
            before_voice: self.rules.before_voice.clone(),
            after_voice: self.rules.system_prompt_end(self.instruction),
            request: self.rules.read_aloud_request(part),
            text: part.to_owned(),
            voice: self.voice.cloned(),
            voice_name: self.voice_name.map(str::to_owned),
        }
    }
}

/// The lane that speaks, and the part that it speaks.
#[derive(Debug)]
pub(crate) struct Speaker {
    pub(crate) ask: Ask,
    /// The upstream has sent audio for the part.
    pub(crate) part_has_audio: bool,
}

impl Speaker {
    pub(crate) const fn new(owner: Owner) -> Self {
        Self { ask: Ask::new(owner), part_has_audio: false }
    }

    /// Dials, or has the ready lane speak this part.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        part: Option<&str>,
        style: SpeakStyle<'_>,
        floor: &Floor,
        lanes: &mut Lanes,
    ) {
        if self.ask.lane().is_none() {
            lanes.dial(now, &mut self.ask, LaneRequest::Init(style.voice.cloned()));
            return;
        }
        // Audio made far ahead of playout would be wasted by a cancel, or by a client that does not read.
        if let Some(part) = part
            && self.ask.is_ready(lanes)
            && !lanes.are_held()
            && !floor.is_far_ahead(now)
        {
            lanes.ask(now, &mut self.ask, style.request(part));
        }
    }

    /// Completes a part. Returns true if it had audio.
    pub(crate) fn complete_part(&mut self, lanes: &mut Lanes) -> bool {
        lanes.complete(&self.ask);
        self.ask.begin_next();
        std::mem::take(&mut self.part_has_audio)
    }

    /// Leaves the lane.
    pub(crate) fn stop(&mut self, now: Instant, lanes: &mut Lanes) {
        lanes.leave(now, &mut self.ask);
        self.ask.begin_next();
        self.part_has_audio = false;
    }
}
