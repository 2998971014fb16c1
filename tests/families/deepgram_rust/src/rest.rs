//! Recordings to words and texts to speech, by HTTP.

use deepgram::{
    common::{
        audio_source::AudioSource,
        options::{Model, Options},
    },
    speak::options::{Container, Encoding, Model as Voice, Options as SpeakOptions},
};
use futures::StreamExt as _;
use serde_json::json;

use super::{OUT_HZ, Outcome, Task};

pub async fn run(task: &Task) -> Outcome {
    if task.cell == "transcription" {
        let source = AudioSource::from_buffer_with_mime_type(task.recording.clone(), "audio/wav");
        let options = Options::builder().model(Model::Nova3).punctuate(true).build();
        let answer = task.client.transcription().prerecorded(source, &options).await?;
        return Ok(json!({"text": answer.results.channels[0].alternatives[0].transcript}));
    }
    let options = SpeakOptions::builder().model(Voice::Aura2ThaliaEn).encoding(Encoding::Linear16);
    let rate_hz = if task.cell == "error" { 7 } else { OUT_HZ };
    let options = options.sample_rate(rate_hz).container(Container::CustomContainer("none".into())).build();
    let speech = task.client.text_to_speech();
    let answer = speech.speak_to_stream_with_metadata(&task.text, &options).await;
    if task.cell == "error" {
        return Ok(json!({"error": answer.err().map(|error| format!("{error:?}"))}));
    }
    let (metadata, pieces) = answer?;
    assert!(metadata.request_id().is_some());
    let audio: Vec<u8> = pieces.collect::<Vec<_>>().await.concat();
    Ok(json!({"audio_s": task.keep(&audio)?}))
}
