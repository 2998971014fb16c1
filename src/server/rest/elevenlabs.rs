//! ElevenLabs' text to speech, `POST /v1/text-to-speech/{voice_id}` and `/stream`, each also `/with-timestamps`, and its speech to text,
//! `POST /v1/speech-to-text`.
//!
//! Sources: the published API reference and the public client libraries (elevenlabs, @elevenlabs/elevenlabs-js).

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    super::accept::request_body::ReceivedRequest,
    RestResult, answer_with,
    early_answer::{Filler, answer_in_time},
    members::Members,
    query::Query,
    request_id,
    session::{Opening, Segment},
    speak::{self, Job, given, required_text, text_of},
    speech_format::{Delivery, SpeechFormat},
    style::{Failure, Style, set_header},
    transcribe::{self, Recognized, Transcription},
    transcript,
    upload::Upload,
};
use crate::vocabulary::{Setting, SpeakRequest};

/// Longest text, characters: the greatest limit of its models.
const TEXT_MAX_CHARS: usize = 40_000;
/// The members of a request to speak that count.
const MEMBERS: [&str; 3] = ["text", "model_id", "language_code"];
/// Most key terms.
const KEYTERMS_MAX: usize = 100;
/// Log probability of every word: MiniCPM-o has none, and the clients' types require one.
const LOGPROB: f64 = 0.0;

/// Answers a request to speak, with the bytes as they are made.
pub(super) async fn answer_speak(
    voice: &str,
    delivery: Delivery,
    request: ReceivedRequest,
    opening: Opening,
) -> RestResult {
    let query = Query::of(&request);
    let word = query.get("output_format").unwrap_or("mp3_44100_128");
    let format = SpeechFormat::of_word(word).ok_or_else(|| {
        let message = format!(
            "Invalid output_format {word:?}; there are mp3_RATE_KBPS, opus_48000_KBPS, wav_RATE, pcm_RATE, ulaw_8000 and alaw_8000"
        );
        Failure::parameter("output_format", message)
    })?;
    let voice = voice.to_owned();
    let mut memory = opening.memory_share();
    let read = move |body: Bytes| Ok(Job { delivery, ..read_job(&body, format, &voice)? });
    let job = speak::read_speech_body(request, &mut memory, &opening.server, read).await?;
    let characters = job.request.text.chars().count();
    let admission = opening.admit()?;
    let mut response = speak::speak(opening, admission, job, Style::ElevenLabs).await?;
    let headers = response.headers_mut();
    set_header(headers, "request-id", &request_id());
    set_header(headers, "character-cost", &characters.to_string());
    Ok(response)
}

fn read_job(body: &[u8], format: SpeechFormat, voice: &str) -> Result<Job, Failure> {
    let mut body = Members::read(body, &MEMBERS)?;
    let text = required_text(&mut body, "text", TEXT_MAX_CHARS)?;
    let model = text_of(&mut body, "model_id")?.unwrap_or("eleven_multilingual_v2".into()).into_owned();
    let request = SpeakRequest {
        text,
        voice: Some(voice.to_owned()),
        language: given(text_of(&mut body, "language_code")?),
        ..SpeakRequest::default()
    };
    Ok(Job { model, format, request, delivery: Delivery::Bytes })
}

/// Answers a request to transcribe: a form with a recording.
pub(super) async fn answer_listen(request: ReceivedRequest, opening: Opening) -> RestResult {
    let mut memory = opening.memory_share();
    let mut upload = Upload::read(request, &mut memory, &opening.server).await?;
    let has_url = ["cloud_storage_url", "source_url"].into_iter().any(|name| upload.text(name).is_some());
    if has_url && upload.file.is_none() {
        let message = "A recording must be sent as 'file': voxbridge fetches no URLs";
        return Err(Failure::parameter("file", message));
    }
    let recording = upload.file.take().ok_or_else(|| upload.missing_file())?;
    let model = upload.text("model_id").ok_or_else(|| Failure::missing("model_id"))?.to_owned();
    let has_times = upload.text("timestamps_granularity") != Some("none");
    let terms = upload.all("keyterms").take(KEYTERMS_MAX).map(str::to_owned);
    let mut settings =
        vec![Setting::Task(false), Setting::HotWords(terms.collect()), Setting::EstimatedWordTimes(true)];
    let language = upload.text("language_code").map(str::to_owned);
    settings.extend(language.clone().map(Setting::Language));
    let admission = opening.admit()?;
    let job = transcribe::Job { recording, model, settings };
    let (transcription, served) = Transcription::start(opening, admission, memory, job).await?;
    let stage = transcription.stage();
    let making = async move {
        let Recognized { segments, duration, broken_off } = transcription.collect().await?;
        let mut body = listen_body(&segments, language.as_deref(), has_times);
        body["audio_duration_secs"] = duration.as_secs_f64().into();
        if let Some(broken_off) = &broken_off {
            body["incomplete"] = broken_off.json();
        }
        let mut response = answer_with("application/json", body.to_string());
        broken_off.inspect(|broken_off| broken_off.mark(&mut response));
        Ok(response)
    };
    answer_in_time(making, stage, Filler::JSON, Style::ElevenLabs, served).await
}

/// The answer with a transcript.
fn listen_body(segments: &[Segment], language: Option<&str>, has_times: bool) -> Value {
    let text = transcript::joined(segments);
    let known = segments.iter().find_map(|segment| segment.language.as_deref());
    json!({
        "language_code": language.or(known).unwrap_or("en"), "language_probability": 1.0,
        "words": words(&text, segments, has_times), "text": text, "transcription_id": request_id(),
    })
}

/// The words, and what stands between them in the text as items of their own.
fn words(text: &str, segments: &[Segment], has_times: bool) -> Vec<Value> {
    let item = |kind: &str, text: &str, times: (f64, f64)| {
        let mut item = json!({"text": text, "type": kind, "logprob": LOGPROB, "speaker_id": null});
        if has_times {
            (item["start"], item["end"]) = (times.0.into(), times.1.into());
        }
        item
    };
    let mut items: Vec<Value> = Vec::new();
    let (mut rest, mut last_end) = (text, 0.0);
    for word in segments.iter().flat_map(|segment| segment.words.iter().flatten()) {
        if let Some(at) = rest.find(word.word.as_str()) {
            let between = &rest[..at];
            if !between.is_empty() && !items.is_empty() {
                items.push(item("spacing", between, (last_end, word.start)));
            }
            rest = &rest[at + word.word.len()..];
        }
        items.push(item("word", &word.word, (word.start, word.end)));
        last_end = word.end;
    }
    items
}

#[cfg(test)]
mod tests {
    use super::super::session::Word;
    use super::*;

    #[test]
    fn transcript_has_words_and_the_spaces_between_them() {
        let word = |word: &str, start| Word { word: word.into(), start, end: start + 0.5, estimated: true };
        let words = Some(vec![word("Hello,", 0.0), word("you.", 1.0)]);
        let segment = Segment { text: "Hello, you.".into(), words, ..Segment::default() };
        let body = listen_body(&[segment], Some("en"), true);
        let times = |(start, end): (f64, f64)| json!([start, end]);
        let listed: Vec<_> = body["words"].as_array().unwrap().iter().collect();
        let kinds: Vec<_> = listed.iter().map(|item| (item["type"].clone(), item["text"].clone())).collect();
        let expected = [("word", "Hello,"), ("spacing", " "), ("word", "you.")];
        assert_eq!(kinds, expected.map(|(kind, text)| (json!(kind), json!(text))));
        assert_eq!(json!([listed[1]["start"], listed[1]["end"]]), times((0.5, 1.0)));
        assert_eq!(body["text"], "Hello, you.");
    }
}
