//! Section `conversation`: about a minute of full duplex. The user asks, interrupts the answer, and asks again after a forced
//! rollover.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    bench::{Bench, sound_file, within},
    talk::{Seen, Talk},
};
use crate::{
    audio::SPEECH_RATE_HZ,
    cli::{ClientError, stream_recording::end_of_audible_samples},
    server::registry::OperatorOrder,
    verify::figure::{Expectation, Figure},
};

/// Longest time of the conversation, after which something hangs.
const CONVERSATION_MAX: Duration = Duration::from_secs(240);
/// The conversation lasts at least this long, unless the run is quick.
const CONVERSATION_MIN: Duration = Duration::from_secs(60);
/// How long the model may take to begin an answer, to react to an interruption, and to say an answer.
const ANSWER_BEGINS_WITHIN: Duration = Duration::from_secs(25);
const REACTION_BEGINS_WITHIN: Duration = Duration::from_secs(12);
const ANSWER_ENDS_WITHIN: Duration = Duration::from_secs(60);
/// The user interrupts the answer after this time, with this much speech.
const INTERRUPTED_AFTER: Duration = Duration::from_secs(1);
const INTERRUPTION_SAMPLES: usize = SPEECH_RATE_HZ as usize * 5 / 2;
/// An interruption that has no effect by then has none.
const INTERRUPTION_MAX: Duration = Duration::from_secs(5);
/// Answers that end before the user can interrupt them.
const SHORT_ANSWERS_MAX: usize = 3;
/// A rollover waits for a quiet moment.
const ROLLOVER_MAX: Duration = Duration::from_secs(45);

const FIRST_AUDIO_MAX: Expectation = Expectation::AtMost(6.0);
const STOP_MAX: Expectation = Expectation::AtMost(1.5);
const NONE: Expectation = Expectation::AtMost(0.0);
/// Speech that can be heard, and not silence.
const AUDIBLE_MIN: Expectation = Expectation::AtLeast(0.5);
const STALL_MAX: Expectation = Expectation::AtMost(0.5);
const GAP_MAX: Expectation = Expectation::AtMost(5.0);
/// To the question, and after the rollover. The model need not answer the interruption, which may be half a sentence to it.
const ANSWERS_MIN: Expectation = Expectation::AtLeast(2.0);

pub(super) async fn run(bench: &mut Bench<'_>) {
    let mut measured = Measured::default();
    let client = match bench.connect("rollover_events=true", "conversation").await {
        Ok(client) => client,
        Err(error) => return bench.ledger.add(measured.figures(Some(&error))),
    };
    let mut talk = Talk::new(client);
    let held = within(CONVERSATION_MAX, hold(bench, &mut talk, &mut measured)).await;
    let mut figures = measured.figures(held.as_ref().err());
    let seconds = |name: &str, duration: Duration, expected| {
        Figure::measured(name, duration.as_secs_f64(), "s", expected)
    };
    if measured.first_audio.is_some() {
        let (sound, audible) = (sound_file(&talk.speech), talk.speech.audible_duration());
        figures.push(seconds("conversation.audio", audible, AUDIBLE_MIN).with_sound(sound));
        figures.push(seconds("conversation.stall", talk.longest_stall, STALL_MAX));
        figures.push(seconds("conversation.stale_audio", talk.stale_audio, NONE));
        figures.push(seconds("conversation.dropped_audio", talk.dropped, NONE));
    }
    bench.ledger.add(figures);
    talk.close().await;
}

/// Measurements so far. The conversation may end early.
#[derive(Default)]
struct Measured {
    first_audio: Option<Duration>,
    /// Time from the user's first word to the end of the interrupted answer.
    stop: Option<Duration>,
    was_interrupted: bool,
    rollover_gap: Option<Duration>,
    rollover_was_ordered: bool,
    /// Whether the model answered the question, the interruption, and the question after the rollover.
    answered: [bool; 3],
}

impl Measured {
    /// The figures; those that were not reached fail with the reason.
    fn figures(&self, error: Option<&ClientError>) -> Vec<Figure> {
        let error = error.map(ToString::to_string);
        let figure = |name: &str, value: Option<Duration>, expected, missing: &str| match value {
            Some(value) => Figure::measured(name, value.as_secs_f64(), "s", expected),
            None => Figure::failed(name, "s", expected, error.as_deref().unwrap_or(missing)),
        };
        let answers = self.answered.iter().filter(|is_answered| **is_answered).count();
        let note = error.clone().unwrap_or_else(|| {
            let asked = ["the question", "the interruption", "the question after the rollover"];
            let answered = asked.iter().zip(self.answered).filter(|(_, is_answered)| *is_answered);
            let answered: Vec<&str> = answered.map(|(what, _)| *what).collect();
            format!(
                "answered: {}",
                if answered.is_empty() { "nothing".to_owned() } else { answered.join(", ") }
            )
        });
        let mut figures = vec![
            Figure::measured("conversation.answers", answers as f64, "", ANSWERS_MIN).with_note(&note),
            figure("conversation.first_audio", self.first_audio, FIRST_AUDIO_MAX, "the model did not answer"),
        ];
        if self.first_audio.is_some() {
            let missing = match self.was_interrupted {
                true => "the answer went on after the interruption",
                false => "all answers were too short to interrupt them",
            };
            figures.push(figure("conversation.stop", self.stop, STOP_MAX, missing));
        }
        if self.rollover_was_ordered {
            let missing = "the conversation did not move to another session";
            figures.push(figure("conversation.rollover_gap", self.rollover_gap, GAP_MAX, missing));
        }
        figures
    }
}

async fn hold(bench: &Bench<'_>, talk: &mut Talk, measured: &mut Measured) -> Result<(), ClientError> {
    let samples = match bench.plan.recordings.first() {
        Some(recording) => recording.samples().await?,
        None => Vec::new(),
    };
    let question = &samples[start_of_audible_samples(&samples)..end_of_audible_samples(&samples)];
    let started = Instant::now();
    if !ask_until_interrupted(talk, question, measured).await? {
        return Ok(());
    }
    finish_answer(talk).await?;

    measured.rollover_was_ordered = true;
    let ordered = Instant::now();
    for session in bench.bridge.registry().all() {
        session.send_order(OperatorOrder::Rollover);
    }
    let is_rollover = |seen| matches!(seen, Seen::Rollover { .. });
    if let Some((_, Seen::Rollover { gap_ms })) = talk.wait_for(ordered, ROLLOVER_MAX, is_rollover).await? {
        measured.rollover_gap = Some(Duration::from_millis(gap_ms));
    }
    let asked = talk.say(question).await?;
    if begins(talk, asked, ANSWER_BEGINS_WITHIN).await?.is_some() {
        measured.answered[2] = true;
        finish_answer(talk).await?;
    }
    if !bench.plan.is_quick {
        talk.be_silent(CONVERSATION_MIN.saturating_sub(started.elapsed())).await?;
    }
    Ok(())
}

/// Asks, and interrupts the answer; asks again if the answer is too short for that. False if the model does not answer.
async fn ask_until_interrupted(
    talk: &mut Talk,
    question: &[i16],
    measured: &mut Measured,
) -> Result<bool, ClientError> {
    for _ in 0..SHORT_ANSWERS_MAX {
        let asked = talk.say(question).await?;
        let Some(began) = begins(talk, asked, ANSWER_BEGINS_WITHIN).await? else { return Ok(false) };
        measured.first_audio.get_or_insert(began.saturating_duration_since(asked));
        measured.answered[0] = true;
        talk.be_silent(INTERRUPTED_AFTER).await?;
        if !talk.is_model_speaking() {
            continue;
        }
        measured.was_interrupted = true;
        let interrupted = Instant::now();
        let spoken = talk.say(&question[..question.len().min(INTERRUPTION_SAMPLES)]).await?;
        let is_cut = |seen| matches!(seen, Seen::End { cancelled: true });
        let cut = talk.wait_for(interrupted, INTERRUPTION_MAX, is_cut).await?;
        measured.stop = cut.map(|(at, _)| at.saturating_duration_since(interrupted));
        let reacted = begins(talk, spoken, REACTION_BEGINS_WITHIN).await?.is_some();
        measured.answered[1] = reacted && cut.is_some();
        return Ok(true);
    }
    Ok(true)
}

/// Waits for the answer to a question that was asked at this time. The model may begin a moment before the question ends.
async fn begins(talk: &mut Talk, asked: Instant, limit: Duration) -> Result<Option<Instant>, ClientError> {
    if talk.is_model_speaking() {
        return Ok(Some(asked));
    }
    let begun = talk.wait_for(asked, limit, |seen| seen == Seen::Begin).await?;
    Ok(begun.map(|(at, _)| at))
}

async fn finish_answer(talk: &mut Talk) -> Result<(), ClientError> {
    if talk.is_model_speaking() {
        let is_end = |seen| matches!(seen, Seen::End { .. });
        talk.wait_for(Instant::now(), ANSWER_ENDS_WITHIN, is_end).await?;
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
    use crate::verify::figure::Verdict;

    #[test]
    fn figures_that_were_not_reached_fail_with_the_reason() {
        let lost = ClientError::ConnectionLost("the worker died".to_owned());
        let measured = Measured {
            first_audio: Some(Duration::from_secs(1)),
            answered: [true, false, false],
            ..Measured::default()
        };
        let figures = measured.figures(Some(&lost));
        let verdict = |name: &str| figures.iter().find(|figure| figure.name == name).map(|it| it.verdict);
        assert_eq!(verdict("conversation.first_audio"), Some(Verdict::Pass));
        assert_eq!(verdict("conversation.stop"), Some(Verdict::Fail));
        assert_eq!(verdict("conversation.rollover_gap"), None, "it was not ordered");
        assert!(figures.iter().all(|it| it.verdict == Verdict::Pass || it.note.contains("the worker died")));
    }

    #[test]
    fn audible_start_ignores_silence_before_it() {
        let mut samples = vec![0; 3200];
        samples[640..1280].fill(8000);
        assert_eq!(start_of_audible_samples(&samples), 640);
        assert_eq!(start_of_audible_samples(&[]), 0);
    }
}
