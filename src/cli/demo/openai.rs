//! OpenAI Realtime client of `voxbridge demo --openai`: asks a spoken question, listens to the answer, interrupts it, and
//! listens to the next one.

use std::path::Path;

use serde_json::json;

use super::{DemoResult, SpokenReply};
use crate::{
    audio::MODEL_RATE_HZ,
    cli::{
        client::{Client, ClientTiming},
        dial::ServerTarget,
        error::ClientError,
        realtime::{Answer, MODEL, Realtime, at_model_rate},
        stream_recording::end_of_audible_samples,
    },
};

/// The user interrupts the answer with the beginning of the recording.
const INTERRUPTION_SAMPLES: usize = MODEL_RATE_HZ as usize * 5 / 2;

/// Asks the question `wav_bytes` as an OpenAI client and saves the last answer in `out`.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run_openai_demo(url: &str, wav_bytes: Vec<u8>, out: &Path) -> Result<DemoResult, ClientError> {
    let samples = at_model_rate(&super::read_recording(wav_bytes).await?);
    let target =
        ServerTarget { url: url.to_owned(), model: Some(MODEL.to_owned()), ..ServerTarget::default() };
    let (client, _) = Client::connect(&target, ClientTiming::default()).await?;
    let settings = json!({
        "instructions": "You are a helpful assistant. Answer briefly.",
        "audio": {"input": {
            "transcription": {"model": "whisper-1"},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 1000, "interrupt_response": true}
        }},
    });
    let mut client = Realtime::open(client, settings).await?;
    let question = audible(&samples);
    let interruption = audible(&question[..question.len().min(INTERRUPTION_SAMPLES)]);
    let answer = client.ask(question, interruption).await;
    let transcripts = std::mem::take(&mut client.transcripts);
    client.hang_up().await;
    let Answer { words, speech, latency, .. } = answer?;
    let reply = SpokenReply::save(words, &speech, latency.unwrap_or_default(), true, out)?;
    Ok(DemoResult { transcripts, final_latency: None, reply })
}

/// The samples up to the last sound.
fn audible(samples: &[i16]) -> &[i16] {
    &samples[..end_of_audible_samples(samples)]
}
