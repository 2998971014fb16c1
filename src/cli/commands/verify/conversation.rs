//! Section `conversation`: about a minute of full duplex. The user asks, interrupts the answer, and asks again after a forced
//! rollover. The model decides itself when to answer, and is often silent, so that each question has several tries.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    bench::{Bench, EarlyEnd, Openings, at_most, sound_file, unmeasured},
    talk::{Seen, Talk},
};
use crate::{
    audio::SPEECH_RATE_HZ,
    cli::{ClientError, stream_recording::end_of_audible_samples},
    server::registry::OperatorOrder,
    verify::figure::{Expectation, Figure, Verdict},
};

/// Longest time of the conversation, after which something hangs.
const CONVERSATION_MAX: Duration = Duration::from_secs(480);
/// The conversation lasts at least this long, unless the run is quick.
const CONVERSATION_MIN: Duration = Duration::from_secs(60);
/// How long the server may take to open the session of the conversation.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long the model may take to begin an answer, to react to an interruption, and to say an answer.
const ANSWER_BEGINS_WITHIN: Duration = Duration::from_secs(25);
const REACTION_BEGINS_WITHIN: Duration = Duration::from_secs(12);
const ANSWER_ENDS_WITHIN: Duration = Duration::from_secs(60);
/// The same of the first answer, which only warms the model up.
const WARM_UP_BEGINS_WITHIN: Duration = Duration::from_secs(12);
const WARM_UP_ENDS_WITHIN: Duration = Duration::from_secs(15);
/// The user interrupts the answer after this time, with this much speech.
const INTERRUPTED_AFTER: Duration = Duration::from_secs(1);
const INTERRUPTION_SAMPLES: usize = SPEECH_RATE_HZ as usize * 5 / 2;
/// An interruption that has no effect by then has none.
const INTERRUPTION_MAX: Duration = Duration::from_secs(5);
/// An answer that ends by itself so soon after the first word of the interruption was not interrupted.
const SHORT_ANSWER_ENDS_WITHIN: Duration = Duration::from_millis(1500);
/// Tries of a question that is not answered, or whose answer is too short to interrupt it.
const TRIES: usize = 3;
/// A rollover waits for a quiet moment, and then for a session.
const ROLLOVER_MAX: Duration = Duration::from_secs(45);

const FIRST_AUDIO_MAX: Expectation = Expectation::AtMost(6.0);
const STOP_MAX: Expectation = Expectation::AtMost(1.5);
const NONE: Expectation = Expectation::AtMost(0.0);
/// Speech that can be heard, and not silence.
const AUDIBLE_MIN: Expectation = Expectation::AtLeast(0.5);
const STALL_MAX: Expectation = Expectation::AtMost(0.5);
/// To the question, and after the rollover. The model need not answer the interruption, which may be half a sentence to it.
const ANSWERS_MIN: Expectation = Expectation::AtLeast(2.0);
/// The gap of a rollover: the time in which the server initialises a session, and a margin. No less than the minimum, seconds.
const GAP_MARGIN: f64 = 3.0;
const GAP_MAX_LEAST: f64 = 5.0;

pub(super) async fn run(bench: &mut Bench<'_>) {
    let mut measured = Measured { init: bench.server_init.as_secs_f64(), ..Measured::default() };
    let before = bench.openings();
    let client = match bench.connect("rollover_events=true", "conversation").await {
        Ok(client) => client,
        Err(error) => {
            let figures = measured.figures(Some(&error.to_string()), bench.early_end());
            return bench.ledger.add(figures);
        }
    };
    let mut talk = Talk::new(client);
    let held = bench.within(CONVERSATION_MAX, hold(bench, before, &mut talk, &mut measured)).await;
    measured.last_problem = talk.last_problem.take();
    let (error, end) = (held.err().map(|error| error.to_string()), bench.early_end());
    let mut figures = measured.figures(error.as_deref(), end);
    let lost = Figure::measured("conversation.lost_sessions", talk.lost_sessions as f64, "", NONE);
    figures.push(lost.with_note(measured.last_problem.as_deref().unwrap_or_default()));
    if measured.has_answer() {
        figures.extend(figures_of_speech(&talk, end));
    }
    bench.ledger.add(figures);
    talk.close().await;
}

/// The figures of all that the model said.
fn figures_of_speech(talk: &Talk, end: Option<EarlyEnd>) -> [Figure; 4] {
    let seconds = |name: &str, duration: Duration, expected| {
        Figure::measured(name, duration.as_secs_f64(), "s", expected)
    };
    let (name, audible) = ("conversation.audio", talk.speech.audible_duration());
    let audio = match seconds(name, audible, AUDIBLE_MIN) {
        // More may have come.
        figure if figure.verdict == Verdict::Fail && end.is_some() => {
            unmeasured(end, name, "s", AUDIBLE_MIN, "")
        }
        figure => figure,
    };
    [
        audio.with_sound(sound_file(&talk.speech)),
        seconds("conversation.stall", talk.longest_stall, STALL_MAX),
        seconds("conversation.stale_audio", talk.stale_audio, NONE),
        seconds("conversation.dropped_audio", talk.dropped, NONE),
    ]
}

/// Measurements so far. The conversation may end early.
#[derive(Default)]
struct Measured {
    /// Longest time in which the server initialised a session, seconds.
    init: f64,
    first_audio: Option<Duration>,
    /// Time from the user's first word to the end of the interrupted answer.
    stop: Option<Duration>,
    was_interrupted: bool,
    /// The model answered the interruption, which it need not.
    has_reacted: bool,
    rollover_gap: Option<Duration>,
    rollover_was_ordered: bool,
    /// The model spoke all the time in which a rollover waited for a quiet moment.
    never_stopped: bool,
    /// Whether the model answered the question, and the question after the rollover.
    answered: [bool; 2],
    last_problem: Option<String>,
}

impl Measured {
    fn has_answer(&self) -> bool {
        self.answered.contains(&true)
    }

    /// The figures; those that were not reached fail with the reason.
    fn figures(&self, error: Option<&str>, end: Option<EarlyEnd>) -> Vec<Figure> {
        let figure = |name: &str, value: Option<Duration>, expected, missing: &str| match value {
            Some(value) => Figure::measured(name, value.as_secs_f64(), "s", expected),
            None => unmeasured(end, name, "s", expected, error.unwrap_or(missing)),
        };
        let mut figures = vec![self.answers(error, end)];
        let first_audio = "conversation.first_audio";
        figures.push(match self.first_audio {
            None if self.answered[0] => {
                Figure::skipped(first_audio, "the model began each answer before the end of the question")
            }
            value => figure(first_audio, value, FIRST_AUDIO_MAX, "the model did not answer the question"),
        });
        if self.answered[0] {
            figures.push(match self.was_interrupted || error.is_some() {
                true => {
                    let missing = "the answer went on after the interruption";
                    figure("conversation.stop", self.stop, STOP_MAX, missing)
                }
                false => Figure::skipped(
                    "conversation.stop",
                    &format!("{TRIES} questions had no answer that was long enough to interrupt it"),
                ),
            });
        }
        if self.rollover_was_ordered {
            let missing = match self.never_stopped {
                true => {
                    "the conversation did not move to another session: a rollover waits for a quiet moment, and the model \
                     never stopped speaking"
                }
                false => "the conversation did not move to another session",
            };
            let note = format!("the server takes {:.1} s to initialise a session", self.init);
            let gap = figure("conversation.rollover_gap", self.rollover_gap, self.gap_max(), missing);
            figures.push(if self.rollover_gap.is_some() { gap.with_note(&note) } else { gap });
        }
        figures
    }

    fn gap_max(&self) -> Expectation {
        match at_most(GAP_MARGIN, self.init) {
            Expectation::AtMost(limit) => Expectation::AtMost(limit.max(GAP_MAX_LEAST)),
            other => other,
        }
    }

    fn answers(&self, error: Option<&str>, end: Option<EarlyEnd>) -> Figure {
        let name = "conversation.answers";
        let count = self.answered.iter().filter(|is_answered| **is_answered).count();
        if end.is_some() && count < self.answered.len() {
            return unmeasured(end, name, "", ANSWERS_MIN, "");
        }
        let asked = ["the question", "the question after the rollover", "the interruption"];
        let [question, after_rollover] = self.answered;
        let answered = asked.iter().zip([question, after_rollover, self.has_reacted]);
        let answered: Vec<&str> =
            answered.filter(|(_, is_answered)| *is_answered).map(|(what, _)| *what).collect();
        let answered = if answered.is_empty() { "nothing".to_owned() } else { answered.join(", ") };
        let mut note = match error {
            Some(error) => format!("{error}; answered until then: {answered}"),
            None => format!("answered: {answered}"),
        };
        if let Some(problem) = &self.last_problem {
            note.push_str(&format!("; {problem}"));
        }
        Figure::measured(name, count as f64, "", ANSWERS_MIN).with_note(&note)
    }
}

async fn hold(
    bench: &Bench<'_>,
    before: Openings,
    talk: &mut Talk,
    measured: &mut Measured,
) -> Result<(), ClientError> {
    let samples = match bench.plan.recordings.first() {
        Some(recording) => recording.samples().await?,
        None => Vec::new(),
    };
    let question = &samples[start_of_audible_samples(&samples)..end_of_audible_samples(&samples)];
    wait_until_ready(bench, before, talk, measured).await?;
    let started = Instant::now();
    if ask(talk, question, WARM_UP_BEGINS_WITHIN).await?.is_some() {
        finish_answer(talk, WARM_UP_ENDS_WITHIN).await?;
    }
    ask_until_interrupted(talk, question, measured).await?;
    finish_answer(talk, ANSWER_ENDS_WITHIN).await?;
    roll_over(bench, talk, measured).await?;
    for _ in 0..TRIES {
        if ask(talk, question, ANSWER_BEGINS_WITHIN).await?.is_some() {
            measured.answered[1] = true;
            finish_answer(talk, ANSWER_ENDS_WITHIN).await?;
            break;
        }
    }
    if !bench.plan.is_quick {
        talk.be_silent(CONVERSATION_MIN.saturating_sub(started.elapsed())).await?;
    }
    Ok(())
}

/// Waits until the server has initialised the session: the model hears nothing earlier. `before` is from before the connection.
async fn wait_until_ready(
    bench: &Bench<'_>,
    before: Openings,
    talk: &mut Talk,
    measured: &mut Measured,
) -> Result<(), ClientError> {
    let opened = || bench.openings().since(before);
    if !talk.wait_until(READY_WITHIN, || opened().sessions > 0).await? {
        let problem = talk.last_problem.take().unwrap_or_else(|| "no word from the server".to_owned());
        let limit = READY_WITHIN.as_secs();
        return Err(ClientError::ModelFailed(format!("no session was ready within {limit} s: {problem}")));
    }
    measured.init = measured.init.max(opened().mean());
    // Audio from before cannot be missed.
    talk.dropped = Duration::ZERO;
    Ok(())
}

/// Moves the conversation to another session.
async fn roll_over(bench: &Bench<'_>, talk: &mut Talk, measured: &mut Measured) -> Result<(), ClientError> {
    measured.rollover_was_ordered = true;
    let (ordered, before) = (Instant::now(), bench.openings());
    for session in bench.bridge.registry().all() {
        session.send_order(OperatorOrder::Rollover);
    }
    let is_rollover = |seen| matches!(seen, Seen::Rollover { .. });
    let limit = ROLLOVER_MAX + Duration::from_secs_f64(measured.init);
    match talk.wait_for(ordered, limit, is_rollover).await? {
        Some((_, Seen::Rollover { gap_ms })) => measured.rollover_gap = Some(Duration::from_millis(gap_ms)),
        _ => measured.never_stopped = talk.speaking_since().is_some_and(|since| since <= ordered),
    }
    measured.init = measured.init.max(bench.openings().since(before).mean());
    Ok(())
}

/// Asks, and interrupts the answer; asks again if there is none, or if it is too short for that.
async fn ask_until_interrupted(
    talk: &mut Talk,
    question: &[i16],
    measured: &mut Measured,
) -> Result<(), ClientError> {
    for _ in 0..TRIES {
        let Some(answer) = ask(talk, question, ANSWER_BEGINS_WITHIN).await? else { continue };
        measured.first_audio = measured.first_audio.or(answer.latency);
        measured.answered[0] = true;
        talk.be_silent(INTERRUPTED_AFTER).await?;
        if !talk.is_model_speaking() {
            continue;
        }
        let interrupted = Instant::now();
        let spoken = talk.say(&question[..question.len().min(INTERRUPTION_SAMPLES)]).await?;
        let is_end = |seen| matches!(seen, Seen::End { .. });
        let end = talk.wait_for(interrupted, INTERRUPTION_MAX, is_end).await?;
        let stop = end.map(|(at, seen)| (at.saturating_duration_since(interrupted), seen));
        if stop.is_some_and(|(after, seen)| is_short_answer(after, seen)) {
            continue;
        }
        measured.was_interrupted = true;
        measured.stop = stop.map(|(after, _)| after);
        let reaction = talk.wait_for(spoken, REACTION_BEGINS_WITHIN, |seen| seen == Seen::Begin).await?;
        measured.has_reacted = reaction.is_some();
        return Ok(());
    }
    Ok(())
}

/// True if an answer ended by itself while the user began to interrupt it.
fn is_short_answer(after: Duration, seen: Seen) -> bool {
    seen == (Seen::End { cancelled: false }) && after <= SHORT_ANSWER_ENDS_WITHIN
}

/// An answer that has begun.
struct Begun {
    /// Time from the end of the question; `None` if the model began before.
    latency: Option<Duration>,
}

/// Asks, and waits for the beginning of the answer. `None` if the model does not answer.
async fn ask(talk: &mut Talk, question: &[i16], limit: Duration) -> Result<Option<Begun>, ClientError> {
    let started = Instant::now();
    let asked = talk.say(question).await?;
    if talk.speaking_since().is_some_and(|since| since >= started) {
        return Ok(Some(Begun { latency: None }));
    }
    let begun = talk.wait_for(asked, limit, |seen| seen == Seen::Begin).await?;
    Ok(begun.map(|(at, _)| Begun { latency: Some(at.saturating_duration_since(asked)) }))
}

async fn finish_answer(talk: &mut Talk, limit: Duration) -> Result<(), ClientError> {
    if talk.is_model_speaking() {
        let is_end = |seen| matches!(seen, Seen::End { .. });
        talk.wait_for(Instant::now(), limit, is_end).await?;
    }
    Ok(())
}

/// Start of the first audible window of 20 ms.
fn start_of_audible_samples(samples: &[i16]) -> usize {
    let reversed: Vec<i16> = samples.iter().rev().copied().collect();
    samples.len() - end_of_audible_samples(&reversed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'f>(figures: &'f [Figure], name: &str) -> Option<&'f Figure> {
        figures.iter().find(|figure| figure.name == name)
    }

    fn verdict(figures: &[Figure], name: &str) -> Option<Verdict> {
        find(figures, name).map(|figure| figure.verdict)
    }

    #[test]
    fn figures_that_were_not_reached_fail_with_the_reason() {
        let measured = Measured {
            first_audio: Some(Duration::from_secs(1)),
            answered: [true, false],
            ..Measured::default()
        };
        let figures = measured.figures(Some("the worker died"), None);
        assert_eq!(verdict(&figures, "conversation.first_audio"), Some(Verdict::Pass));
        assert_eq!(verdict(&figures, "conversation.stop"), Some(Verdict::Fail));
        assert_eq!(verdict(&figures, "conversation.rollover_gap"), None, "it was not ordered");
        assert!(figures.iter().all(|it| it.verdict == Verdict::Pass || it.note.contains("the worker died")));

        let stopped = measured.figures(Some("the run has ended"), Some(EarlyEnd::Signal(2)));
        assert_eq!(verdict(&stopped, "conversation.first_audio"), Some(Verdict::Pass), "it was measured");
        for name in ["conversation.answers", "conversation.stop"] {
            let figure = find(&stopped, name).unwrap();
            assert_eq!((figure.verdict, figure.note.as_str()), (Verdict::Skipped, "stopped by signal 2"));
        }
    }

    #[test]
    fn model_must_answer_after_the_rollover_and_need_not_answer_the_interruption() {
        for (answered, has_reacted, expected) in [
            ([true, true], false, Verdict::Pass),
            ([true, false], true, Verdict::Fail),
            ([false, true], true, Verdict::Fail),
        ] {
            let measured = Measured { answered, has_reacted, ..Measured::default() };
            let figures = measured.figures(None, None);
            let answers = find(&figures, "conversation.answers").unwrap();
            assert_eq!(answers.verdict, expected, "{answers:?}");
            assert_eq!(answers.note.contains("the interruption"), has_reacted, "{answers:?}");
        }
    }

    #[test]
    fn answers_too_short_to_interrupt_them_are_no_failure() {
        let ms = Duration::from_millis;
        assert!(is_short_answer(ms(300), Seen::End { cancelled: false }));
        assert!(!is_short_answer(ms(300), Seen::End { cancelled: true }), "it was interrupted");
        assert!(!is_short_answer(ms(2500), Seen::End { cancelled: false }), "the user talked for seconds");
        let measured = Measured { answered: [true, true], ..Measured::default() };
        let figures = measured.figures(None, None);
        assert_eq!(verdict(&figures, "conversation.stop"), Some(Verdict::Skipped));
        assert_eq!(verdict(&figures, "conversation.first_audio"), Some(Verdict::Skipped), "no 0 s");
        let measured = Measured { was_interrupted: true, ..measured };
        assert_eq!(verdict(&measured.figures(None, None), "conversation.stop"), Some(Verdict::Fail));
    }

    #[test]
    fn gap_of_a_rollover_may_last_as_long_as_the_server_initialises_a_session() {
        let gap = |init, gap| {
            let (rollover_gap, rollover_was_ordered) = (Some(Duration::from_secs(gap)), true);
            let measured = Measured { init, rollover_gap, rollover_was_ordered, ..Measured::default() };
            find(&measured.figures(None, None), "conversation.rollover_gap").unwrap().clone()
        };
        assert_eq!((gap(0.2, 4).verdict, gap(0.2, 6).verdict), (Verdict::Pass, Verdict::Fail));
        assert_eq!((gap(12.0, 14).verdict, gap(12.0, 16).verdict), (Verdict::Pass, Verdict::Fail));
        assert_eq!(gap(12.0, 14).expected.to_string(), "<= 15");
        assert!(gap(12.0, 14).note.contains("12.0 s to initialise"), "{:?}", gap(12.0, 14));
        let (rollover_was_ordered, never_stopped) = (true, true);
        let measured = Measured { rollover_was_ordered, never_stopped, ..Measured::default() };
        let figures = measured.figures(None, None);
        assert!(find(&figures, "conversation.rollover_gap").unwrap().note.contains("never stopped speaking"));
    }

    #[test]
    fn audible_start_ignores_silence_before_it() {
        let mut samples = vec![0; 3200];
        samples[640..1280].fill(8000);
        assert_eq!(start_of_audible_samples(&samples), 640);
        assert_eq!(start_of_audible_samples(&[]), 0);
    }
}
