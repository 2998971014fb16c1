//! Section `transcription`: recordings with known words, as fast as possible, and one of them in real time.

use std::time::Duration;

use tokio::time::Instant;

use super::bench::{Bench, within};
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
/// A client that speaks waits for its words no longer than for a person's answer.
const LATENCY_MAX: Expectation = Expectation::AtMost(2.0);
/// Slower than this, transcripts of continuous speech fall behind.
const REAL_TIME_MAX: Expectation = Expectation::AtMost(0.8);
/// Recordings of a quick run.
const QUICK_RECORDINGS: usize = 3;

pub(super) async fn run(bench: &mut Bench<'_>) {
    let count = if bench.plan.is_quick { QUICK_RECORDINGS } else { usize::MAX };
    let recordings: Vec<KnownRecording> = bench.plan.recordings.iter().take(count).cloned().collect();
    let (mut errors, mut took, mut length) = (Vec::new(), 0.0, 0.0);
    for recording in &recordings {
        let name = format!("transcription.word_error.{}", recording.name);
        let started = Instant::now();
        let heard = match recording.open() {
            Ok(opened) => bench.transcribe(opened, &recording.language).await,
            Err(error) => Err(error),
        };
        bench.ledger.add([match heard {
            Ok((text, duration)) => {
                let wrong = WordErrors::between(&recording.transcript, &text);
                errors.push(wrong);
                took += started.elapsed().as_secs_f64();
                length += duration.as_secs_f64();
                let note = format!("{wrong}: {text}");
                Figure::measured(name, wrong.rate(), "share", ONE_ERRORS_MAX).with_note(&note)
            }
            Err(error) => Figure::failed(name, "share", ONE_ERRORS_MAX, &error.to_string()),
        }]);
    }
    if length > 0.0 {
        let note = format!("{length:.1} s of speech in {took:.1} s");
        let all: WordErrors = errors.into_iter().sum();
        bench.ledger.add([
            Figure::measured("transcription.word_error", all.rate(), "share", ALL_ERRORS_MAX)
                .with_note(&all.to_string()),
            Figure::measured("transcription.real_time_factor", took / length, "", REAL_TIME_MAX)
                .with_note(&note),
        ]);
    }
    if let Some(first) = recordings.first() {
        let figure = measure_latency(bench, first).await;
        bench.ledger.add([figure]);
    }
}

/// Transcribes a recording in real time, as a client with a microphone does.
async fn measure_latency(bench: &Bench<'_>, recording: &KnownRecording) -> Figure {
    const NAME: &str = "transcription.latency";
    let live = async {
        let samples = recording.samples().await?;
        let speech_end = end_of_audible_samples(&samples);
        let limit = Duration::from_secs_f64(90.0 + samples.len() as f64 / f64::from(SPEECH_RATE_HZ));
        let mut client = bench.connect(&format!("language={}", recording.language), "speech").await?;
        let live = transcribe_live(&mut client, (recording.open()?, speech_end));
        let transcribed = within(limit, live).await;
        client.close(|_| {}).await;
        transcribed?.1.ok_or(ClientError::NoWords { first_utterance: None })
    };
    let latency: Result<Duration, ClientError> = live.await;
    match latency {
        Ok(latency) => Figure::measured(NAME, latency.as_secs_f64(), "s", LATENCY_MAX)
            .with_note("from the last sound to the last transcript"),
        Err(error) => Figure::failed(NAME, "s", LATENCY_MAX, &error.to_string()),
    }
}
