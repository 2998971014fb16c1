//! The user's audio on its way to the model: units, what is held while a text is spoken, what was asked and not answered,
//! level, and what is dropped.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use crate::session::upstream::reply_tracker::Unit;

use crate::{
    audio::{
        SPEECH_RATE_HZ,
        agc::Level,
        delta_pack::Packed,
        units::{UNIT_SAMPLES, Units},
    },
    mapping::profile::ConverseRules,
};

/// What is kept of the microphone while a text is spoken: who interrupts it is heard from the first sound on.
const HELD_SAMPLES: usize = SPEECH_RATE_HZ as usize;

/// Most of a question that is asked again, units.
const QUESTION_MAX_UNITS: usize = 20;

/// Where the audio of a conversation went, samples at 16 kHz. What the ear handed on is `appended` + `hushed` +
/// `dropped` + `waiting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Streamed {
    /// Sent to a model.
    pub appended: u64,
    /// Replaced by silence while a text was spoken.
    pub hushed: u64,
    /// Too old to be sent.
    pub dropped: u64,
    /// Not sent yet.
    pub waiting: u64,
    /// Silence sent besides.
    pub filled: u64,
}

/// One session's microphone.
#[derive(Debug)]
pub(super) struct Mic {
    units: Units,
    held: VecDeque<i16>,
    level: Option<Level>,
    /// What was kept for an upstream session that came up, and is still to be caught up with.
    allowance: usize,
    hushed: u64,
    question: Question,
}

/// What the user has said since the model last spoke.
#[derive(Debug, Default)]
struct Question {
    units: VecDeque<Asked>,
    /// An upstream session was lost over it; another one may not be.
    asked_again: bool,
}

/// A unit of a question.
#[derive(Debug)]
struct Asked {
    /// Tells which one it was.
    unit: Weak<Vec<i16>>,
    audio: Kept,
    /// How many of its samples are the microphone's.
    real: usize,
}

/// Audio that is hardly ever needed again.
#[derive(Debug)]
enum Kept {
    /// The last unit, which is on its way in any case.
    Whole(Arc<Vec<i16>>),
    Packed(Packed),
}

impl Question {
    fn push(&mut self, audio: Arc<Vec<i16>>, real: usize) {
        if let Some(last) = self.units.back_mut()
            && let Kept::Whole(audio) = &last.audio
        {
            last.audio = Kept::Packed(Packed::new(audio));
        }
        self.units.push_back(Asked { unit: Arc::downgrade(&audio), audio: Kept::Whole(audio), real });
        if self.units.len() > QUESTION_MAX_UNITS {
            self.units.pop_front();
        }
    }

    /// It has not been asked after all, if it was the last of it.
    fn take_back(&mut self, unit: &Arc<Vec<i16>>) {
        if self.units.back().is_some_and(|last| last.unit.as_ptr() == Arc::as_ptr(unit)) {
            self.units.pop_back();
        }
    }
}

impl Mic {
    pub(super) fn new(rules: &ConverseRules) -> Self {
        let level = rules.level.map(|level| Level::new(level.target_rms, level.gain_max, level.floor_rms));
        Self {
            units: Units::default(),
            held: VecDeque::new(),
            level,
            allowance: 0,
            hushed: 0,
            question: Question::default(),
        }
    }

    /// Takes the user's audio in; while the client hears a text the model hears silence instead.
    pub(super) fn push(&mut self, samples: &mut Vec<i16>, hush: bool) {
        if let Some(level) = &mut self.level {
            level.apply(samples);
        }
        if hush {
            self.held.extend(samples.iter());
            self.forget_held(HELD_SAMPLES);
        } else {
            self.units.push(samples);
        }
        samples.clear();
    }

    /// The text is over: what was held was said into it, and is gone.
    pub(super) fn forget(&mut self) {
        self.forget_held(0);
        self.held = VecDeque::new();
    }

    /// The user interrupted the text: what was held is heard.
    pub(super) fn recall(&mut self) {
        let held = std::mem::take(&mut self.held);
        let (front, back) = held.as_slices();
        self.units.push(front);
        self.units.push(back);
    }

    fn forget_held(&mut self, keep: usize) {
        let excess = self.held.len().saturating_sub(keep);
        self.held.drain(..excess);
        self.hushed += excess as u64;
    }

    /// Samples that wait.
    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// A whole unit of the user's audio is there.
    pub(super) fn has_unit(&self) -> bool {
        self.units.has_unit()
    }

    /// Takes a unit out. What is `asked` in it is kept until it is answered.
    pub(super) fn take(&mut self, asked: bool) -> Unit {
        let real = self.units.len().min(UNIT_SAMPLES);
        let audio = Arc::new(self.units.take());
        self.allowance = self.allowance.min(self.units.len());
        if real > 0 && (asked || !self.question.units.is_empty()) {
            self.question.push(audio.clone(), real);
        }
        Unit::of(audio, real)
    }

    /// The model has answered, or will not.
    pub(super) fn answered(&mut self) {
        self.question = Question::default();
    }

    /// Takes back a unit no model has answered.
    pub(super) fn give_back(&mut self, unit: &Unit) {
        if unit.real == 0 {
            return;
        }
        self.units.give_back(&unit.audio, unit.real);
        self.question.take_back(&unit.audio);
    }

    /// The model that was asked is gone: the next one is asked again, once. A question that two do not survive is no
    /// question.
    pub(super) fn ask_again(&mut self) {
        let units = std::mem::take(&mut self.question.units);
        if std::mem::replace(&mut self.question.asked_again, true) {
            return;
        }
        for Asked { audio, real, .. } in units.iter().rev() {
            match audio {
                Kept::Whole(audio) => self.units.give_back(audio, *real),
                Kept::Packed(packed) => self.units.give_back(&packed.unpack(), *real),
            }
        }
    }

    /// Nothing is sent any more, so nothing is answered either: an idle session holds no room for it.
    pub(super) fn rest(&mut self) {
        self.answered();
        self.units.shrink();
    }

    /// An upstream session is there: what was kept for it may be caught up with.
    pub(super) fn catch_up(&mut self) {
        self.allowance = self.units.len();
    }

    /// Keeps what waits bounded: the oldest goes. How much that was, ms.
    pub(super) fn limit(&mut self, talking: bool, rules: &ConverseRules) -> u64 {
        let samples = |ms: u64| ms.saturating_mul(u64::from(SPEECH_RATE_HZ) / 1000) as usize;
        let most = if talking {
            samples(rules.backlog_max_ms).max(self.allowance + UNIT_SAMPLES).min(samples(rules.replay_max_ms))
        } else {
            samples(rules.replay_max_ms)
        };
        self.units.limit(most) * 1000 / u64::from(SPEECH_RATE_HZ)
    }

    /// Where it all went.
    pub(super) fn streamed(&self) -> Streamed {
        let counts = self.units.counts();
        Streamed {
            appended: counts.taken,
            hushed: self.hushed,
            dropped: counts.dropped,
            waiting: (self.units.len() + self.held.len()) as u64,
            filled: counts.filled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Library, profile::LevelRules};

    fn mic(level: Option<LevelRules>) -> Mic {
        let profile = Library::embedded().unwrap().profile("conversation").unwrap();
        let mut rules = profile.talk.as_ref().unwrap().converse.clone();
        rules.level = level;
        Mic::new(&rules)
    }

    fn second(level: i16) -> Vec<i16> {
        (0..UNIT_SAMPLES as i32).map(|at| if at % 8 < 4 { level } else { -level }).collect()
    }

    #[test]
    fn a_quiet_microphone_is_raised_where_the_profile_says_so() {
        let rules = LevelRules { target_rms: 0.12, gain_max: 8.0, floor_rms: 0.006 };
        for (level, louder) in [(None, false), (Some(rules), true)] {
            let mut mic = mic(level);
            for _ in 0..3 {
                mic.push(&mut second(655), false);
            }
            let last = (0..3).map(|_| mic.take(false)).last().unwrap();
            assert_eq!(last.audio[UNIT_SAMPLES - 1].unsigned_abs() > 3 * 655, louder);
            assert_eq!(last.audio[UNIT_SAMPLES - 1].unsigned_abs() == 655, !louder);
        }
    }

    #[test]
    fn a_question_is_asked_again_once() {
        let mut mic = mic(None);
        mic.push(&mut second(1), false);
        mic.push(&mut second(2), false);
        let (first, asked) = (mic.take(true), mic.take(false));
        assert_eq!((first.audio[0], asked.audio[0], mic.len()), (1, 2, 0));
        // The second was never answered, so it comes back in any case; but once.
        mic.give_back(&asked);
        mic.ask_again();
        assert_eq!((mic.len(), mic.take(true).audio[0], mic.take(true).audio[0]), (2 * UNIT_SAMPLES, 1, 2));
        mic.ask_again();
        assert_eq!(mic.len(), 0, "not a third time");
        mic.answered();
        mic.push(&mut second(3), false);
        mic.take(true);
        mic.ask_again();
        assert_eq!(mic.len(), UNIT_SAMPLES, "another question is another matter");
    }

    #[test]
    fn a_long_question_is_kept_small_and_asked_again_as_it_was() {
        let mut mic = mic(None);
        let said: Vec<i16> = (0..5 * UNIT_SAMPLES).map(|at| (at % 30_011) as i16 - 15_000).collect();
        mic.push(&mut said.clone(), false);
        (0..5).for_each(|_| drop(mic.take(true)));
        let kept: Vec<_> = mic.question.units.iter().map(|asked| &asked.audio).collect();
        let is_small = |kept: &&Kept| matches!(kept, Kept::Packed(packed) if packed.bytes() < UNIT_SAMPLES);
        assert!(kept[..4].iter().all(is_small) && matches!(kept[4], Kept::Whole(_)));
        mic.ask_again();
        let again: Vec<i16> = (0..5).flat_map(|_| mic.take(true).audio.to_vec()).collect();
        assert!(again == said);
    }

    #[test]
    fn what_is_said_into_a_text_is_heard_only_by_who_is_interrupted() {
        let mut mic = mic(None);
        mic.push(&mut second(1), true);
        mic.push(&mut second(2), true);
        mic.recall();
        assert_eq!((mic.len(), mic.take(false).audio[0]), (HELD_SAMPLES, 2));
        mic.push(&mut second(3), true);
        mic.forget();
        assert_eq!((mic.len(), mic.streamed().hushed), (0, 2 * UNIT_SAMPLES as u64));
    }
}
