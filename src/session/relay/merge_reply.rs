//! Text, audio and the end of a turn told in one, for clients whose protocol has it so: one event for each step.
//!
//! An upstream sends them apart. Text is held until its audio, audio until it is known whether it ends the turn, both for a
//! short time only: what comes later closes the turn with an event of its own. Nothing is lost, and nothing told twice.

use std::time::{Duration, Instant};

use crate::event::relay::{Output, Told};

/// Takes what is told, with the positions of the context in use then.
pub(super) type Tell<'t> = dyn FnMut(&Told<'_>, Option<u32>) + 't;

/// What an event says about itself, as far as it matters here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Step<'a> {
    /// The append it answers, where the upstream says so.
    pub(super) input_id: Option<&'a str>,
    /// A name that the other events of its step have as well.
    pub(super) name: Option<&'a str>,
    /// Positions of the model's context in use.
    pub(super) tokens: Option<u32>,
}

/// What is held.
#[derive(Debug)]
pub(super) struct Combine {
    hold: Duration,
    text_hold: Duration,
    text: String,
    audio: Option<String>,
    /// The append it answers, where the upstream says so.
    step: Option<Box<str>>,
    tokens: Option<u32>,
    due: Option<Instant>,
    /// A turn has begun and not ended.
    open: bool,
    /// Steps end with an event of their own, as on the C++ back-end (field notes §1.7): there a turn ends with the next
    /// `listen`, which answers another append.
    ends_steps: bool,
    /// Something has come since a step ended last, and the name of that one.
    begun: bool,
    ended: Option<Box<str>>,
}

impl Combine {
    pub(super) fn new(hold_ms: u64, text_hold_ms: u64) -> Self {
        Self {
            hold: Duration::from_millis(hold_ms),
            text_hold: Duration::from_millis(text_hold_ms),
            text: String::new(),
            audio: None,
            step: None,
            tokens: None,
            due: None,
            open: false,
            ends_steps: false,
            begun: false,
            ended: None,
        }
    }

    pub(super) const fn next_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// A piece of text.
    pub(super) fn text(&mut self, now: Instant, text: &str, step: Step<'_>, tell: &mut Tell<'_>) {
        if self.audio.is_some() || self.is_of_another(step) {
            self.flush(tell);
        }
        self.begin(step);
        self.text.push_str(text);
        self.due = self.due.or(Some(now + self.text_hold));
    }

    /// A piece of audio.
    pub(super) fn speech(&mut self, now: Instant, audio: &str, step: Step<'_>, tell: &mut Tell<'_>) {
        if self.audio.is_some() || self.is_of_another(step) {
            self.flush(tell);
        }
        self.begin(step);
        self.audio = Some(audio.to_owned());
        self.due = Some(now + self.hold);
    }

    /// The step is over; that nothing was said in it is told too, but not that it is over once more.
    pub(super) fn done(&mut self, step: Step<'_>, tell: &mut Tell<'_>) {
        let again = step.name.is_some() && step.name == self.ended.as_deref();
        self.ends_steps = true;
        if self.begun || again {
            self.flush(tell);
        } else {
            self.tokens = step.tokens;
            self.say(false, tell);
        }
        self.end_step(step);
    }

    fn end_step(&mut self, step: Step<'_>) {
        (self.begun, self.ended) = (false, step.name.map(Into::into));
    }

    /// Another upstream may end its steps otherwise.
    pub(super) fn forget_steps(&mut self) {
        (self.ends_steps, self.begun, self.ended) = (false, false, None);
    }

    /// The model listens.
    pub(super) fn listening(&mut self, step: Step<'_>, tell: &mut Tell<'_>) {
        let another = self.is_of_another(step);
        self.end_step(step);
        if self.open && !another && !self.ends_steps {
            return self.end(tell);
        }
        self.flush(tell);
        // A turn that was told to stop: the older server, too, says no more than that it listens (field notes §4).
        if self.open && self.ends_steps {
            self.end(tell);
        }
        self.open = false;
        tell(&Told::Listening, step.tokens);
    }

    /// It has been held long enough.
    pub(super) fn timeout(&mut self, now: Instant, tell: &mut Tell<'_>) {
        if self.due.is_some_and(|due| due <= now) {
            // There may be nothing to tell: a text that was empty.
            self.due = None;
            self.flush(tell);
        }
    }

    /// The turn is over, if there is one.
    pub(super) fn end(&mut self, tell: &mut Tell<'_>) {
        if std::mem::take(&mut self.open) {
            self.say(true, tell);
        }
    }

    /// Tells what is held.
    pub(super) fn flush(&mut self, tell: &mut Tell<'_>) {
        if self.audio.is_some() || !self.text.is_empty() {
            self.say(false, tell);
        }
    }

    fn say(&mut self, end_of_turn: bool, tell: &mut Tell<'_>) {
        let (text, audio) = (std::mem::take(&mut self.text), self.audio.take());
        self.due = None;
        tell(&Told::Output(Output { text: &text, audio: audio.as_deref(), end_of_turn }), self.tokens);
    }

    fn begin(&mut self, step: Step<'_>) {
        (self.open, self.begun) = (true, true);
        self.step = step.input_id.map(Into::into);
        self.tokens = step.tokens;
    }

    /// It is known to answer another append than what came last.
    fn is_of_another(&self, step: Step<'_>) -> bool {
        step.input_id.is_some() && self.step.is_some() && step.input_id != self.step.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of a script: `t`ext, `a`udio, `l`isten, `d`one, `.` a pause; a digit names the append.
    fn told(script: &str) -> Vec<String> {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let mut now = Instant::now();
        let mut combine = Combine::new(40, 500);
        let mut seen = Vec::new();
        let mut tell = |told: &Told<'_>, _: Option<u32>| {
            seen.push(match told {
                Told::Output(output) => {
                    let end = if output.end_of_turn { "!" } else { "" };
                    format!("{}/{}{end}", output.text, output.audio.unwrap_or("-"))
                }
                _ => "listen".to_owned(),
            });
        };
        for word in script.split(' ') {
            let (what, step) = word.split_at(1);
            let input_id = Some(step).filter(|step| !step.is_empty());
            let step = Step { input_id, name: input_id, tokens: None };
            match what {
                "t" => combine.text(now, "t", step, &mut tell),
                "a" => combine.speech(now, "a", step, &mut tell),
                "l" => combine.listening(step, &mut tell),
                "d" => combine.done(step, &mut tell),
                "!" => combine.forget_steps(),
                _ => {
                    now += Duration::from_millis(600);
                    combine.timeout(now, &mut tell);
                }
            }
        }
        seen
    }

    #[test]
    fn a_turn_of_the_python_back_end_is_one_event_for_each_append() {
        assert_eq!(told("l1 t2 a2 . t3 a3 l3 l4"), ["listen", "t/a", "t/a!", "listen"]);
        assert_eq!(told("l t a . t a l l"), ["listen", "t/a", "t/a!", "listen"], "names or no names");
        assert_eq!(told("t1 a1 . l1 l2"), ["t/a", "/-!", "listen"], "an end that comes late");
        assert_eq!(told("t1 a1 l2 l3"), ["t/a", "listen", "listen"], "told to stop");
        assert_eq!(told("t1 a1 t2 a2 l2"), ["t/a", "t/a!"], "in a burst");
        assert_eq!(told("t1 t2 a2 l2"), ["t/-", "t/a!"], "a step without audio");
    }

    #[test]
    fn a_text_without_a_letter_is_not_waited_for_without_end() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let now = Instant::now();
        let mut combine = Combine::new(40, 500);
        let mut tell = |told: &Told<'_>, _: Option<u32>| panic!("{told:?}");
        combine.text(now, "", Step::default(), &mut tell);
        combine.timeout(now + Duration::from_millis(600), &mut tell);
        assert_eq!(combine.next_timeout(), None);
    }

    #[test]
    fn on_the_c_back_end_a_turn_ends_with_the_next_listen() {
        let script = "l t t a a d . t a d l l";
        assert_eq!(told(script), ["listen", "tt/a", "/a", "t/a", "/-!", "listen", "listen"]);
        assert_eq!(told("t . a d l"), ["t/-", "/a", "/-!", "listen"], "audio that is late");
        assert_eq!(
            told("l1 d2 t3 a3 d3 d3"),
            ["listen", "/-", "t/a"],
            "a step in which nothing is said, and one twice"
        );
        assert_eq!(told("l1 d1"), ["listen"], "listening, and its end");
        assert_eq!(told("t a d ! t a l l"), ["t/a", "t/a!", "listen"], "another upstream");
    }
}
