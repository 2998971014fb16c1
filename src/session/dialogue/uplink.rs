//! Uplink: the user's audio on its way to the model.
//!
//! It takes the audio out in units, applies the gain control, holds audio while a text is spoken, keeps unanswered speech,
//! and drops what is too old.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use super::reply_tracker::UplinkUnit;

use crate::{
    audio::{
        SPEECH_RATE_HZ,
        agc::Agc,
        delta_pack::PackedAudio,
        units::{UNIT_SAMPLES, UnitQueue, whole_units},
    },
    spelling::profile::ConverseRules,
};

/// Held audio while a text is spoken. It keeps the first word of a user who interrupts.
const HELD_MAX_SAMPLES: usize = SPEECH_RATE_HZ as usize;

/// Bound on unanswered speech that is sent again.
const UNANSWERED_MAX_SAMPLES: usize = 20 * UNIT_SAMPLES;

/// Where the audio of a conversation went, samples at 16 kHz. The audio from the microphone is `appended` + `silenced`
/// + `dropped` + `waiting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UplinkCounts {
    /// Sent to a model.
    pub appended: u64,
    /// Replaced by silence while a text was spoken.
    pub silenced: u64,
    /// Dropped because it was too old.
    pub dropped: u64,
    /// Not sent yet.
    pub waiting: u64,
    /// Silence sent in addition.
    pub silence_filled: u64,
}

/// Microphone audio of one session.
#[derive(Debug)]
pub(crate) struct Uplink {
    /// Audio that waits.
    pub(in crate::session) units: UnitQueue,
    held: VecDeque<i16>,
    level: Option<Agc>,
    /// Audio kept during an outage or a stall that has not been sent yet, samples.
    catch_up_allowance: usize,
    silenced: u64,
    unanswered: UnansweredSpeech,
}

/// Speech of the user since the model last spoke.
#[derive(Debug, Default)]
struct UnansweredSpeech {
    units: VecDeque<UnansweredUnit>,
    /// Samples of all of them.
    samples: usize,
    /// The speech was already sent again after the loss of an upstream session. It is not sent a third time.
    was_resent: bool,
}

/// Unit of unanswered speech.
#[derive(Debug)]
struct UnansweredUnit {
    /// Identifies the unit.
    unit: Weak<Vec<i16>>,
    /// Its audio, which is rarely needed again.
    audio: PackedAudio,
    samples: usize,
    /// Samples from the microphone; the rest is silence.
    mic_samples: usize,
}

impl UnansweredSpeech {
    fn push(&mut self, unit: &Arc<Vec<i16>>, mic_samples: usize) {
        let (audio, samples) = (PackedAudio::new(unit), unit.len());
        self.units.push_back(UnansweredUnit { unit: Arc::downgrade(unit), audio, samples, mic_samples });
        self.samples += samples;
        while self.samples > UNANSWERED_MAX_SAMPLES
            && let Some(oldest) = self.units.pop_front()
        {
            self.samples -= oldest.samples;
        }
    }

    /// Removes the unit if it is the last one.
    fn remove_last(&mut self, unit: &Arc<Vec<i16>>) {
        if self.units.back().is_some_and(|last| last.unit.as_ptr() == Arc::as_ptr(unit))
            && let Some(last) = self.units.pop_back()
        {
            self.samples -= last.samples;
        }
    }
}

impl Uplink {
    pub(super) fn new(rules: &ConverseRules) -> Self {
        let level = rules.agc.map(|agc| Agc::new(agc.target_rms, agc.gain_max, agc.floor_rms));
        Self {
            units: UnitQueue::default(),
            held: VecDeque::new(),
            level,
            catch_up_allowance: 0,
            silenced: 0,
            unanswered: UnansweredSpeech::default(),
        }
    }

    /// Takes the user's audio. If `silenced`, holds it while the model receives silence.
    pub(crate) fn push(&mut self, samples: &mut [i16], silenced: bool) {
        if let Some(level) = &mut self.level {
            level.apply(samples);
        }
        if silenced {
            self.held.extend(samples.iter());
            self.trim_held(HELD_MAX_SAMPLES);
        } else {
            self.units.push(samples);
        }
    }

    /// Discards the held audio: the text was not interrupted.
    pub(super) fn discard_held(&mut self) {
        self.trim_held(0);
        self.held = VecDeque::new();
    }

    /// Sends the held audio: the user interrupted the text.
    pub(super) fn restore_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        let (front, back) = held.as_slices();
        self.units.push(front);
        self.units.push(back);
    }

    fn trim_held(&mut self, keep: usize) {
        let excess = self.held.len().saturating_sub(keep);
        self.held.drain(..excess);
        self.silenced += excess as u64;
    }

    /// Takes out the audio that waits, for a model with units of this length: whole units, the only one filled up with silence.
    /// With `keep_until_answered` the audio is kept for another attempt.
    pub(super) fn take(&mut self, unit_samples: usize, keep_until_answered: bool) -> UplinkUnit {
        let samples = whole_units(self.units.len(), unit_samples);
        let mic_samples = self.units.len().min(samples);
        let audio = Arc::new(self.units.take_unit(samples));
        self.catch_up_allowance = self.catch_up_allowance.min(self.units.len());
        if mic_samples > 0 && (keep_until_answered || !self.unanswered.units.is_empty()) {
            self.unanswered.push(&audio, mic_samples);
        }
        UplinkUnit::new(audio, mic_samples)
    }

    /// Forgets unanswered speech.
    pub(super) fn clear_unanswered(&mut self) {
        self.unanswered = UnansweredSpeech::default();
    }

    /// Takes back a unit that no model has answered.
    pub(super) fn give_back(&mut self, unit: &UplinkUnit) {
        if unit.mic_samples == 0 {
            return;
        }
        self.units.put_back(&unit.audio, unit.mic_samples);
        self.unanswered.remove_last(&unit.audio);
    }

    /// Takes back the end of a unit that the model has answered without having heard it, unless the whole unit is sent again.
    pub(super) fn give_back_end(&mut self, unit: &UplinkUnit, samples: usize, resend_unanswered: bool) {
        let is_it = |kept: &UnansweredUnit| kept.unit.as_ptr() == Arc::as_ptr(&unit.audio);
        let is_resent =
            resend_unanswered && !self.unanswered.was_resent && self.unanswered.units.iter().any(is_it);
        let from = unit.audio.len().saturating_sub(samples);
        if !is_resent && unit.mic_samples > from {
            self.units.put_back(&unit.audio[from..], unit.mic_samples - from);
        }
    }

    /// Queues unanswered speech again for the next session, once. Speech that two sessions did not survive is given up.
    pub(super) fn resend_unanswered(&mut self) {
        let units = std::mem::take(&mut self.unanswered.units);
        self.unanswered.samples = 0;
        if std::mem::replace(&mut self.unanswered.was_resent, true) {
            return;
        }
        for UnansweredUnit { audio, mic_samples, .. } in units.iter().rev() {
            self.units.put_back(&audio.unpack(), *mic_samples);
        }
    }

    /// Frees memory while the conversation is idle.
    pub(super) fn release_memory(&mut self) {
        self.clear_unanswered();
        self.units.shrink_to_fit();
    }

    /// Allows the model to catch up with the audio kept during an outage or a stall.
    pub(super) fn allow_catch_up(&mut self) {
        self.catch_up_allowance = self.units.len();
    }

    /// Drops the oldest audio above the limit. Audio kept during an outage counts extra, so that a slow step of the model
    /// while it catches up costs none of it.
    pub(super) fn drop_excess(&mut self, is_upstream_waiting: bool, rules: &ConverseRules) {
        let samples = |ms: u64| ms.saturating_mul(u64::from(SPEECH_RATE_HZ) / 1000) as usize;
        let max_samples = if is_upstream_waiting {
            (samples(rules.backlog_max_ms) + self.catch_up_allowance).min(samples(rules.replay_max_ms))
        } else {
            samples(rules.replay_max_ms)
        };
        self.units.drop_excess(max_samples);
    }

    /// Where the audio went.
    pub(super) fn counts(&self) -> UplinkCounts {
        let counts = self.units.counts();
        UplinkCounts {
            appended: counts.taken,
            silenced: self.silenced,
            dropped: counts.dropped,
            waiting: (self.units.len() + self.held.len()) as u64,
            silence_filled: counts.filled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spelling::{Library, profile::AgcRules};

    fn uplink(level: Option<AgcRules>) -> Uplink {
        let profile = Library::embedded().unwrap().profile("conversation").unwrap();
        let mut rules = profile.dialogue.as_ref().unwrap().converse.clone();
        rules.agc = level;
        Uplink::new(&rules)
    }

    fn one_second(level: i16) -> Vec<i16> {
        (0..UNIT_SAMPLES as i32).map(|at| if at % 8 < 4 { level } else { -level }).collect()
    }

    #[test]
    fn quiet_microphone_is_amplified_when_the_profile_enables_agc() {
        let rules = AgcRules { target_rms: 0.12, gain_max: 8.0, floor_rms: 0.006 };
        for (level, louder) in [(None, false), (Some(rules), true)] {
            let mut uplink = uplink(level);
            for _ in 0..3 {
                uplink.push(&mut one_second(655), false);
            }
            let last = (0..3).map(|_| uplink.take(UNIT_SAMPLES, false)).last().unwrap();
            assert_eq!(last.audio[UNIT_SAMPLES - 1].unsigned_abs() > 3 * 655, louder);
            assert_eq!(last.audio[UNIT_SAMPLES - 1].unsigned_abs() == 655, !louder);
        }
    }

    #[test]
    fn unanswered_speech_is_resent_once() {
        let mut uplink = uplink(None);
        uplink.push(&mut one_second(1), false);
        uplink.push(&mut one_second(2), false);
        let (first, second) = (uplink.take(UNIT_SAMPLES, true), uplink.take(UNIT_SAMPLES, false));
        assert_eq!((first.audio[0], second.audio[0], uplink.units.len()), (1, 2, 0));
        // The second unit was never answered, so it returns in any case, but only once.
        uplink.give_back(&second);
        uplink.resend_unanswered();
        assert_eq!(
            (
                uplink.units.len(),
                uplink.take(UNIT_SAMPLES, true).audio[0],
                uplink.take(UNIT_SAMPLES, true).audio[0]
            ),
            (2 * UNIT_SAMPLES, 1, 2)
        );
        uplink.resend_unanswered();
        assert_eq!(uplink.units.len(), 0, "resent only once");
        uplink.clear_unanswered();
        uplink.push(&mut one_second(3), false);
        uplink.take(UNIT_SAMPLES, true);
        uplink.resend_unanswered();
        assert_eq!(uplink.units.len(), UNIT_SAMPLES, "new speech may be resent");
    }

    #[test]
    fn end_that_the_model_did_not_hear_follows_once_in_the_next_session() {
        for (is_kept, was_heard) in [(false, 320), (true, UNIT_SAMPLES)] {
            let mut uplink = uplink(None);
            uplink.push(&mut one_second(1), false);
            uplink.push(&mut one_second(2), false);
            let (answered, in_flight) =
                (uplink.take(UNIT_SAMPLES, is_kept), uplink.take(UNIT_SAMPLES, false));
            uplink.give_back(&in_flight);
            uplink.give_back_end(&answered, 320, true);
            uplink.resend_unanswered();
            assert_eq!(uplink.units.len(), UNIT_SAMPLES + was_heard);
            let again = uplink.take(UNIT_SAMPLES, false);
            assert_eq!((again.audio[0].abs(), again.audio[was_heard - 1].abs()), (1, 1));
        }
        let mut uplink = uplink(None);
        uplink.push(&mut one_second(1)[..8_000].to_vec(), false);
        let answered = uplink.take(UNIT_SAMPLES, false);
        uplink.give_back_end(&answered, 320, true);
        assert_eq!(uplink.units.len(), 0, "the end is silence");
    }

    #[test]
    fn long_unanswered_speech_is_stored_packed_and_resent_unchanged() {
        let mut uplink = uplink(None);
        let said: Vec<i16> = (0..5 * UNIT_SAMPLES).map(|at| (at % 30_011) as i16 - 15_000).collect();
        uplink.push(&mut said.clone(), false);
        (0..5).for_each(|_| drop(uplink.take(UNIT_SAMPLES, true)));
        assert!(uplink.unanswered.units.iter().all(|unit| unit.audio.packed_len() < UNIT_SAMPLES));
        uplink.resend_unanswered();
        let resent: Vec<i16> = (0..5).flat_map(|_| uplink.take(UNIT_SAMPLES, true).audio.to_vec()).collect();
        assert!(resent == said);
    }

    #[test]
    fn slow_step_after_an_outage_drops_none_of_the_kept_audio() {
        let profile = Library::embedded().unwrap().profile("conversation").unwrap();
        let rules = &profile.dialogue.as_ref().unwrap().converse;
        let backlog_units = rules.backlog_max_ms / 1000;
        let mut uplink = uplink(None);
        (0..10).for_each(|at| uplink.push(&mut one_second(at), false));
        uplink.allow_catch_up();
        // Each step takes as long as three units, until more than usual is behind.
        for _ in 0..backlog_units / 2 {
            uplink.take(UNIT_SAMPLES, false);
            (0..3).for_each(|at| uplink.push(&mut one_second(at), false));
            uplink.drop_excess(true, rules);
        }
        assert_eq!(uplink.counts().dropped, 0);
        (0..2 * backlog_units).for_each(|_| uplink.push(&mut one_second(9), false));
        uplink.drop_excess(true, rules);
        assert!(uplink.counts().dropped > 0, "the model is too slow for good");
    }

    #[test]
    fn audio_held_during_tts_is_sent_only_after_an_interruption() {
        let mut uplink = uplink(None);
        uplink.push(&mut one_second(1), true);
        uplink.push(&mut one_second(2), true);
        uplink.restore_held();
        assert_eq!((uplink.units.len(), uplink.take(UNIT_SAMPLES, false).audio[0]), (HELD_MAX_SAMPLES, 2));
        uplink.push(&mut one_second(3), true);
        uplink.discard_held();
        assert_eq!((uplink.units.len(), uplink.counts().silenced), (0, 2 * UNIT_SAMPLES as u64));
    }
}
