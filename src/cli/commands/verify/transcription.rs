//! Section `transcription`: recordings with known words, as fast as possible, and one of them in real time.

use std::{path::PathBuf, time::Duration};

use tokio::time::Instant;

use super::bench::{Bench, Openings, at_most};
use crate::{
    audio::SPEECH_RATE_HZ,
    cli::{
        ClientError, demo::transcribe_live, known_recordings::KnownRecording,
        stream_recording::end_of_audible_samples,
    },
    verify::{
        figure::{Expectation, Figure},
        words::WordErrors,
    },
};

/// Word errors of all recordings together, and of one recording, in which one word weighs more.
const ALL_ERRORS_MAX: Expectation = Expectation::AtMost(0.15);
const ONE_ERRORS_MAX: Expectation = Expectation::AtMost(0.34);
/// A client that speaks waits for its words no longer than for a person's answer. The server may have to open a session, too.
const LATENCY_MAX: f64 = 2.0;
/// Slower than this, transcripts of continuous speech fall behind.
const REAL_TIME_MAX: f64 = 0.8;
/// Longest wait for the words of a recording in real time: seconds, and seconds for each second of it. A worker may need to open
/// a session for each utterance.
const PATIENCE_SECONDS: f64 = 120.0;
const PATIENCE_FACTOR: f64 = 8.0;
/// Recordings of a quick run.
const QUICK_RECORDINGS: usize = 3;

pub(super) async fn run(bench: &mut Bench<'_>) {
    let count = if bench.plan.is_quick { QUICK_RECORDINGS } else { usize::MAX };
    let recordings: Vec<KnownRecording> = bench.plan.recordings.iter().take(count).cloned().collect();
    bench.warm_up_transcription().await;
    let before = bench.openings();
    let (mut errors, mut took, mut length) = (Vec::new(), 0.0, 0.0);
    // The trace of the recording with the most errors.
    let mut worst: Option<(f64, Option<PathBuf>)> = None;
    for recording in &recordings {
        if bench.early_end().is_some() {
            break;
        }
        let name = format!("transcription.word_error.{}", recording.name);
        let started = Instant::now();
        let heard = match recording.open() {
            Ok(opened) => bench.transcribe(opened, &recording.language).await,
            Err(error) => Err(error),
        };
        let trace = bench.ledger.take_trace();
        let figure = match heard {
            Ok((text, duration)) => {
                let wrong = WordErrors::between(&recording.transcript, &text);
                errors.push(wrong);
                took += started.elapsed().as_secs_f64();
                length += duration.as_secs_f64();
                if worst.as_ref().is_none_or(|(rate, _)| *rate < wrong.rate()) {
                    worst = Some((wrong.rate(), trace));
                }
                let note = format!("{wrong}: {text}");
                Figure::measured(name, wrong.rate(), "share", ONE_ERRORS_MAX).with_note(&note)
            }
            Err(error) => bench.unmeasured(&name, "share", ONE_ERRORS_MAX, &error),
        };
        bench.ledger.add([figure]);
    }
    if length > 0.0 {
        let openings = bench.openings().since(before);
        let note = format!("{length:.1} s of speech in {took:.1} s{}", openings.note());
        let all: WordErrors = errors.into_iter().sum();
        let mut total = Figure::measured("transcription.word_error", all.rate(), "share", ALL_ERRORS_MAX)
            .with_note(&all.to_string());
        if let Some(trace) = worst.and_then(|(_, trace)| trace) {
            total.set_trace(&trace);
        }
        let limit = at_most(REAL_TIME_MAX, openings.seconds / length);
        let factor = Figure::measured("transcription.real_time_factor", took / length, "", limit);
        bench.ledger.add([total, factor.with_note(&note)]);
    }
    if bench.early_end().is_some() {
        return;
    }
    if let Some(first) = recordings.first() {
        let figure = measure_latency(bench, first).await;
        bench.ledger.add([figure]);
    }
}

/// Transcribes a recording in real time, as a client with a microphone does.
async fn measure_latency(bench: &Bench<'_>, recording: &KnownRecording) -> Figure {
    const NAME: &str = "transcription.latency";
    let before = bench.openings();
    let live = async {
        let samples = recording.samples().await?;
        let speech_end = end_of_audible_samples(&samples);
        let length = samples.len() as f64 / f64::from(SPEECH_RATE_HZ);
        let limit = Duration::from_secs_f64(PATIENCE_SECONDS + length * PATIENCE_FACTOR);
        let mut client = bench.connect(&format!("language={}", recording.language), "speech").await?;
        let live = transcribe_live(&mut client, recording.open()?, speech_end);
        let transcribed = bench.within(limit, live).await;
        client.close(|_| {}).await;
        Ok((transcribed?.1.ok_or(ClientError::NoWords { first_utterance: None })?, length))
    };
    let latency: Result<(Duration, f64), ClientError> = live.await;
    let openings = bench.openings().since(before);
    match latency {
        Ok((latency, length)) => {
            let note = format!("from the last sound to the last transcript{}", openings.note());
            Figure::measured(NAME, latency.as_secs_f64(), "s", latency_max(openings, length)).with_note(&note)
        }
        Err(error) => bench.unmeasured(NAME, "s", latency_max(openings, 0.0), &error),
    }
}

/// The expectation on the latency after a recording of this length. A worker opens a session for each utterance, so that the
/// last one may wait for those before it, as far as the worker could not keep up with the speech.
fn latency_max(openings: Openings, length: f64) -> Expectation {
    let backlog = openings.seconds - length * (1.0 - REAL_TIME_MAX);
    at_most(LATENCY_MAX, if openings.sessions > 1 { backlog.max(openings.mean()) } else { openings.seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_allows_for_the_opening_of_sessions_that_wait_for_each_other() {
        let limit = |sessions, seconds, length| latency_max(Openings { sessions, seconds }, length);
        assert_eq!(limit(0, 0.0, 10.0), Expectation::AtMost(2.0));
        assert_eq!(limit(1, 12.0, 3.0), Expectation::AtMost(14.0));
        assert_eq!(limit(4, 48.0, 10.0), Expectation::AtMost(48.0));
        assert_eq!(limit(4, 0.8, 10.0), Expectation::AtMost(2.2), "the worker kept up");
    }
}
