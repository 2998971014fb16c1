//! Question of an assistant: its last utterance is found in what its client sent, and measured.
//!
//! A question carries the utterance to the sample at which the detector ended it. The frame with that sample is thus the
//! one that the bridge answers, and the time from its sending is what the bridge takes.

use crate::{
    append::decode_f32_base64,
    audio_matcher::AudioMatcher,
    client::Client,
    run_context::RunContext,
    test_audio::{LOOP_SAMPLES, SECOND_SAMPLES},
};

/// An utterance ended at most this long before its question arrived, samples at 16 kHz. Less than the loop, so that its place is
/// unique.
const AGE_MAX_SAMPLES: u64 = 10 * SECOND_SAMPLES as u64;
/// Key of the audio in the upstream's messages.
const AUDIO_KEY: &[u8] = br#""type":"audio","data":""#;

/// Samples of the last utterance of a question.
pub(crate) fn last_utterance(question: &[u8]) -> Option<Vec<f32>> {
    let begin = memchr::memmem::rfind(question, AUDIO_KEY)? + AUDIO_KEY.len();
    let end = memchr::memchr(b'"', &question[begin..])?;
    Some(decode_f32_base64(&question[begin..begin + end]))
}

/// Position behind the utterance's last sample, from the client's start; `None` if the client did not send it.
pub(crate) fn check_utterance(context: &RunContext, client: &Client, samples: &[f32]) -> Option<u64> {
    let latest = client.loop_position(context).checked_sub(samples.len() as u64)?;
    let positions = latest.saturating_sub(AGE_MAX_SAMPLES)..=latest;
    let (position, mut matcher) = AudioMatcher::locate(&context.sound, samples, positions.rev())?;
    matcher.match_all(&context.sound, samples);
    context.tally.borrow_mut().up_samples +=
        matcher.tracker.counts(samples.len() as u64, SECOND_SAMPLES as u64);
    (position + samples.len() as u64).checked_sub((client.loop_offset + LOOP_SAMPLES) as u64)
}
