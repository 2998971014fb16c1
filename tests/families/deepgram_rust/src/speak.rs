//! Text to speech while the text is written: the older API and Flux.

use deepgram::speak::{
    SpeakResponse,
    flux::{
        options::{Encoding as FluxEncoding, Model as FluxModel, Options as FluxOptions},
        response::FluxSpeakResponse,
    },
    options::{Encoding, Model},
};
use serde_json::json;

use super::{OUT_HZ, Outcome, Task};

pub async fn run(task: &Task) -> Outcome {
    let request = task.client.text_to_speech().speak_stream().model(Model::Aura2ThaliaEn);
    let mut handle = request.encoding(Encoding::Linear16).sample_rate(OUT_HZ).handle().await?;
    for word in task.text.split_inclusive(' ') {
        handle.speak(word).await?;
    }
    handle.flush().await?;
    let (mut audio, mut is_flushed) = (Vec::new(), false);
    while let Some(event) = handle.receive().await {
        match event? {
            SpeakResponse::Audio(piece) => audio.extend_from_slice(&piece),
            SpeakResponse::Flushed { .. } => {
                is_flushed = true;
                handle.close().await?;
            }
            SpeakResponse::Warning { description, .. } => return Err(format!("{description:?}").into()),
            _ => {}
        }
    }
    assert!(is_flushed);
    Ok(json!({"audio_s": task.keep(&audio)?}))
}

pub async fn flux(task: &Task) -> Outcome {
    // A rate that the API does not have.
    let rate_hz = if task.cell == "error" { 7 } else { OUT_HZ };
    let options = FluxOptions::builder(FluxModel::FluxHaleyEn).encoding(FluxEncoding::Linear16);
    let request = task.client.text_to_speech();
    let opened = request.flux_request(options.sample_rate(rate_hz).build()).handle().await;
    let mut handle = opened?;
    if task.cell == "speech" {
        for word in task.text.split_inclusive(' ') {
            handle.speak(word).await?;
        }
        handle.flush().await?;
        handle.close().await?;
    }
    let (mut audio, mut is_whole) = (Vec::new(), false);
    while let Some(event) = handle.receive().await {
        match event? {
            FluxSpeakResponse::Audio(piece) => audio.extend_from_slice(&piece),
            FluxSpeakResponse::SessionMetadata { .. } => is_whole = true,
            FluxSpeakResponse::FatalError { code, description, .. } if task.cell == "error" => {
                return Ok(json!({"error": format!("{code}: {description}")}));
            }
            FluxSpeakResponse::FatalError { description, .. } => return Err(description.into()),
            _ => {}
        }
    }
    assert!(is_whole);
    Ok(json!({"audio_s": task.keep(&audio)?, "clean": is_whole}))
}
