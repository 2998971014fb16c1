//! Merges text, audio and the end of a turn into one event per step, for client protocols that have it so.
//!
//! An upstream sends them separately. Text is held until its audio arrives, and audio until the end of its turn is
//! known, both for a short time only. Later parts follow in an event of their own. Nothing is lost or repeated.

use std::time::{Duration, Instant};

use crate::vocabulary::{LaneEvent, Sound};

/// Receives merged output, with the used positions of the model's context.
pub(super) type OutputSink<'t> = dyn FnMut(&LaneEvent<'_>, Option<u32>) + 't;

/// Metadata of an upstream message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepMeta<'a> {
    /// Append that the message answers, if the upstream names it.
    pub(super) input_id: Option<&'a str>,
    /// Id that all messages of the same step share.
    pub(super) reply_id: Option<&'a str>,
    /// Used positions of the model's context.
    pub(super) context_tokens: Option<u32>,
}

/// Merges the messages of a step.
#[derive(Debug, Default)]
pub(super) struct ReplyMerger {
    hold: Duration,
    text_hold: Duration,
    text: String,
    audio: Option<String>,
    /// Append that the held parts answer, if the upstream names it.
    input_id: Option<Box<str>>,
    context_tokens: Option<u32>,
    flush_at: Option<Instant>,
    /// A turn has begun and not ended.
    turn_open: bool,
    /// The upstream ends each step with an event, as the C++ back-end does (mappings/notes/llama-cpp-omni.md#events).
    /// There a turn ends with the next `listen`, which answers another append.
    upstream_ends_steps: bool,
    /// Parts have arrived since the last step ended.
    step_begun: bool,
    last_ended_step: Option<Box<str>>,
}

impl ReplyMerger {
    pub(super) fn new(hold_ms: u64, text_hold_ms: u64) -> Self {
        Self {
            hold: Duration::from_millis(hold_ms),
            text_hold: Duration::from_millis(text_hold_ms),
            ..Self::default()
        }
    }

    /// When the held parts must be sent.
    pub(super) const fn flush_at(&self) -> Option<Instant> {
        self.flush_at
    }

    /// Adds text.
    pub(super) fn push_text(
        &mut self,
        now: Instant,
        text: &str,
        step: StepMeta<'_>,
        emit: &mut OutputSink<'_>,
    ) {
        if self.audio.is_some() || self.is_for_other_input(step) {
            self.flush(emit);
        }
        self.begin_step(step);
        self.text.push_str(text);
        self.flush_at = self.flush_at.or(Some(now + self.text_hold));
    }

    /// Adds audio.
    pub(super) fn push_audio(
        &mut self,
        now: Instant,
        audio: Sound<'_>,
        step: StepMeta<'_>,
        emit: &mut OutputSink<'_>,
    ) {
        if self.audio.is_some() || self.is_for_other_input(step) {
            self.flush(emit);
        }
        self.begin_step(step);
        self.audio = Some(audio.to_base64().unwrap_or_default().into_owned());
        self.flush_at = Some(now + self.hold);
    }

    /// Ends the step. An empty step is reported too, a repeated end is not.
    pub(super) fn end_step(&mut self, step: StepMeta<'_>, emit: &mut OutputSink<'_>) {
        let is_repeat = step.reply_id.is_some() && step.reply_id == self.last_ended_step.as_deref();
        self.upstream_ends_steps = true;
        if self.step_begun || is_repeat {
            self.flush(emit);
        } else {
            self.context_tokens = step.context_tokens;
            self.emit_held(false, emit);
        }
        self.record_step_end(step);
    }

    fn record_step_end(&mut self, step: StepMeta<'_>) {
        (self.step_begun, self.last_ended_step) = (false, step.reply_id.map(Into::into));
    }

    /// Forgets how the upstream ends its steps, because another upstream may differ.
    pub(super) fn reset_steps(&mut self) {
        (self.upstream_ends_steps, self.step_begun, self.last_ended_step) = (false, false, None);
    }

    /// Handles `listen`.
    pub(super) fn handle_listening(&mut self, step: StepMeta<'_>, emit: &mut OutputSink<'_>) {
        let is_other_input = self.is_for_other_input(step);
        self.record_step_end(step);
        if self.turn_open && !is_other_input && !self.upstream_ends_steps {
            return self.end_turn(emit);
        }
        self.flush(emit);
        // The turn was forced to stop. The older server reports only `listen` then too
        // (mappings/notes/minicpm-o-legacy.md#messages).
        if self.turn_open && self.upstream_ends_steps {
            self.end_turn(emit);
        }
        self.turn_open = false;
        emit(&LaneEvent::Listen, step.context_tokens);
    }

    /// Emits held parts whose time is over.
    pub(super) fn handle_timeout(&mut self, emit: &mut OutputSink<'_>) {
        // The held text may be empty, and then nothing is emitted.
        self.flush_at = None;
        self.flush(emit);
    }

    /// Ends the turn, if one is open.
    pub(super) fn end_turn(&mut self, emit: &mut OutputSink<'_>) {
        if std::mem::take(&mut self.turn_open) {
            self.emit_held(true, emit);
        }
    }

    /// Emits the held parts.
    pub(super) fn flush(&mut self, emit: &mut OutputSink<'_>) {
        if self.audio.is_some() || !self.text.is_empty() {
            self.emit_held(false, emit);
        }
    }

    fn emit_held(&mut self, end_of_turn: bool, emit: &mut OutputSink<'_>) {
        let (text, audio) = (std::mem::take(&mut self.text), self.audio.take());
        self.flush_at = None;
        let audio = audio.as_deref().map_or(Sound::NONE, Sound::Base64);
        emit(&LaneEvent::Step { text: &text, audio, end_of_turn }, self.context_tokens);
    }

    fn begin_step(&mut self, step: StepMeta<'_>) {
        (self.turn_open, self.step_begun) = (true, true);
        self.input_id = step.input_id.map(Into::into);
        self.context_tokens = step.context_tokens;
    }

    /// True if the message answers another append than the held parts.
    fn is_for_other_input(&self, step: StepMeta<'_>) -> bool {
        step.input_id.is_some() && self.input_id.is_some() && step.input_id != self.input_id.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notices for a script: `t`ext, `a`udio, `l`isten, `d`one, `.` a pause. A digit names the append.
    fn events_of(script: &str) -> Vec<String> {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let mut now = Instant::now();
        let mut merger = ReplyMerger::new(40, 500);
        let mut seen = Vec::new();
        let mut emit = |event: &LaneEvent<'_>, _: Option<u32>| {
            seen.push(match event {
                LaneEvent::Step { text, audio, end_of_turn } => {
                    let end = if *end_of_turn { "!" } else { "" };
                    format!("{text}/{}{end}", audio.to_base64().as_deref().unwrap_or("-"))
                }
                _ => "listen".to_owned(),
            });
        };
        for word in script.split(' ') {
            let (action, step) = word.split_at(1);
            let input_id = Some(step).filter(|step| !step.is_empty());
            let step = StepMeta { input_id, reply_id: input_id, context_tokens: None };
            match action {
                "t" => merger.push_text(now, "t", step, &mut emit),
                "a" => merger.push_audio(now, Sound::Base64("a"), step, &mut emit),
                "l" => merger.handle_listening(step, &mut emit),
                "d" => merger.end_step(step, &mut emit),
                "!" => merger.reset_steps(),
                _ => {
                    now += Duration::from_millis(600);
                    merger.handle_timeout(&mut emit);
                }
            }
        }
        seen
    }

    #[test]
    fn pytorch_turn_becomes_one_event_per_append() {
        assert_eq!(events_of("l1 t2 a2 . t3 a3 l3 l4"), ["listen", "t/a", "t/a!", "listen"]);
        assert_eq!(events_of("l t a . t a l l"), ["listen", "t/a", "t/a!", "listen"], "with and without ids");
        assert_eq!(events_of("t1 a1 . l1 l2"), ["t/a", "/-!", "listen"], "late end");
        assert_eq!(events_of("t1 a1 l2 l3"), ["t/a", "listen", "listen"], "forced to stop");
        assert_eq!(events_of("t1 a1 t2 a2 l2"), ["t/a", "t/a!"], "in a burst");
        assert_eq!(events_of("t1 t2 a2 l2"), ["t/-", "t/a!"], "a step without audio");
    }

    #[test]
    fn empty_text_leaves_no_pending_timeout() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let now = Instant::now();
        let mut merger = ReplyMerger::new(40, 500);
        let mut emit = |event: &LaneEvent<'_>, _: Option<u32>| panic!("{event:?}");
        merger.push_text(now, "", StepMeta::default(), &mut emit);
        merger.handle_timeout(&mut emit);
        assert_eq!(merger.flush_at(), None);
    }

    #[test]
    fn cpp_turn_ends_with_the_next_listen() {
        let script = "l t t a a d . t a d l l";
        assert_eq!(events_of(script), ["listen", "tt/a", "/a", "t/a", "/-!", "listen", "listen"]);
        assert_eq!(events_of("t . a d l"), ["t/-", "/a", "/-!", "listen"], "late audio");
        assert_eq!(
            events_of("l1 d2 t3 a3 d3 d3"),
            ["listen", "/-", "t/a"],
            "an empty step, and a repeated end"
        );
        assert_eq!(events_of("l1 d1"), ["listen"], "`listen` and its end");
        assert_eq!(events_of("t a d ! t a l l"), ["t/a", "t/a!", "listen"], "another upstream");
    }
}
