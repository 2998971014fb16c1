//! Deepgram's prerecorded transcription, `POST /v1/listen`, and its text to speech, `POST /v1/speak`.
//!
//! Sources: the published API reference and the public client libraries (deepgram-sdk, @deepgram/sdk).

use bytes::Bytes;
use hyper::{
    StatusCode,
    header::{CONTENT_TYPE, HeaderMap},
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::{
    super::accept::request_body::ReceivedRequest,
    RestResult, answer_with,
    body::read_body,
    early_answer::{Filler, answer_in_time},
    members::Members,
    query::Query,
    request_id,
    session::{Opening, Segment},
    speak::{self, text_of},
    speech_format::{Delivery, SpeechFormat},
    style::{Failure, Style, set_header},
    transcribe::{Job, Recognized, Transcription},
    transcript,
    upload::RECORDING_MAX_BYTES,
};
use crate::{
    audio::{encode::AudioFormat, encoding::Encoding},
    date::rfc3339,
    secret::hex,
    server::unix_now,
    vocabulary::{Setting, SpeakRequest},
};

/// Longest text of a request to speak, characters.
const TEXT_MAX_CHARS: usize = 2000;
/// Most key words.
const KEYWORDS_MAX: usize = 100;

/// Answers `POST /v1/listen`: the body is the recording.
pub(super) async fn answer_listen(request: ReceivedRequest, opening: Opening) -> RestResult {
    let query = Query::of(&request);
    if is_json(request.headers()) {
        let message = "A recording must be sent as the body: voxbridge fetches no URLs";
        return Err(Failure::invalid(message));
    }
    if query.get("callback").is_some() {
        return Err(Failure::invalid("There are no callbacks: the answer to the request has the transcript"));
    }
    let mut memory = opening.memory_share();
    let bodies = &opening.server.bodies;
    let recording = read_body(request.into_body(), RECORDING_MAX_BYTES, &mut memory, bodies).await?;
    if recording.is_empty() {
        return Err(Failure::audio("The body is empty; it must be a recording"));
    }
    let admission = opening.admit()?;
    let model = query.get("model").unwrap_or("nova-3").to_owned();
    // Key words may carry a weight behind a colon, which MiniCPM-o does not have.
    let listed = query.all("keywords").map(|word| word.split(':').next().unwrap_or(word));
    let words = query.all("keyterm").chain(listed).take(KEYWORDS_MAX).map(str::to_owned);
    let mut settings =
        vec![Setting::Task(false), Setting::HotWords(words.collect()), Setting::WordTimes(true)];
    let language = query.get("language").filter(|language| *language != "multi");
    settings.extend(language.map(|language| Setting::Language(language.to_owned())));
    let (threads, hashed) = (opening.server.codec_threads.clone(), recording.clone());
    let hash = threads.run(move || digest(&SHA256, &hashed)).await;
    let job = Job { recording, model: model.clone(), settings };
    let (transcription, served) = Transcription::start(opening, admission, memory, job).await?;
    let stage = transcription.stage();
    let making = async move {
        let Recognized { segments, duration, broken_off } = transcription.collect().await?;
        let mut body = listen_body(&segments, &model, query.is_set("utterances"));
        let metadata = &mut body["metadata"];
        metadata["duration"] = duration.as_secs_f64().into();
        metadata["created"] = rfc3339(unix_now().as_secs_f64()).into();
        metadata["sha256"] = hash.map(|hash| hex(hash.as_ref())).into();
        if let Some(broken_off) = &broken_off {
            metadata["warnings"] = json!([broken_off.json()]);
        }
        let mut response = answer_with("application/json", body.to_string());
        broken_off.inspect(|broken_off| broken_off.mark(&mut response));
        Ok(response)
    };
    answer_in_time(making, stage, Filler::JSON, Style::Deepgram, served).await
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| value.trim_start().starts_with("application/json"))
}

/// The answer to `POST /v1/listen`. MiniCPM-o has no confidence; the clients' types require one.
fn listen_body(segments: &[Segment], model: &str, wants_utterances: bool) -> Value {
    let words: Vec<_> = segments.iter().flat_map(|segment| segment.words.iter().flatten()).collect();
    let word = |word: &&super::session::Word| {
        json!({
            "word": word.word, "start": word.start, "end": word.end, "confidence": 1.0,
            "punctuated_word": word.word,
        })
    };
    let words: Vec<_> = words.iter().map(word).collect();
    let transcript = transcript::joined(segments);
    let id = request_id();
    let alternative = json!({"transcript": transcript, "confidence": 1.0, "words": words});
    let mut results = json!({"channels": [{"alternatives": [alternative]}]});
    if wants_utterances {
        let utterance = |(index, segment): (usize, &Segment)| {
            json!({
                "start": segment.start_ms as f64 / 1000.0, "end": segment.end_ms as f64 / 1000.0,
                "confidence": 1.0, "channel": 0, "transcript": segment.text.trim(), "words": [],
                "id": format!("{id}-{index}"),
            })
        };
        results["utterances"] = segments.iter().enumerate().map(utterance).collect();
    }
    json!({
        "metadata": {
            "transaction_key": "deprecated", "request_id": id, "channels": 1, "models": [model],
            "model_info": {model: {"name": model, "version": "", "arch": "minicpm-o"}},
        },
        "results": results,
    })
}

/// Answers `POST /v1/speak`.
pub(super) async fn answer_speak(request: ReceivedRequest, opening: Opening) -> RestResult {
    let query = Query::of(&request);
    let mut memory = opening.memory_share();
    let read = |body: Bytes| speech_text(&body);
    let text = speak::read_speech_body(request, &mut memory, &opening.server, read).await?;
    let format = speech_format(&query)?;
    let model = query.get("model").unwrap_or("aura-asteria-en").to_owned();
    let admission = opening.admit()?;
    let characters = text.chars().count();
    let request = SpeakRequest { text, voice: Some(model.clone()), ..SpeakRequest::default() };
    let job = speak::Job { model: model.clone(), format, request, delivery: Delivery::Bytes };
    let mut response = speak::speak(opening, admission, job, Style::Deepgram).await?;
    let headers = response.headers_mut();
    // The library of version 3 reads all four.
    let id = request_id();
    for name in ["dg-request-id", "dg-model-uuid"] {
        set_header(headers, name, &id);
    }
    set_header(headers, "dg-model-name", &model);
    set_header(headers, "dg-char-count", &characters.to_string());
    Ok(response)
}

fn speech_text(body: &[u8]) -> Result<String, Failure> {
    let mut body = Members::read(body, &["text"])?;
    let text = text_of(&mut body, "text")?.filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| Failure::invalid("The body must have a \"text\" that is not empty"))?;
    if text.chars().count() > TEXT_MAX_CHARS {
        let message = format!("The text is longer than {TEXT_MAX_CHARS} characters");
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message));
    }
    Ok(text.into_owned())
}

/// Format of the speech; mp3 at 24 kHz by default.
fn speech_format(query: &Query) -> Result<SpeechFormat, Failure> {
    let encoding = query.get("encoding").unwrap_or("mp3");
    let raw = match query.get("container") {
        Some("none") => AudioFormat::Pcm,
        _ => AudioFormat::Wav,
    };
    let (file, samples, default_hz) = match encoding {
        "linear16" => (raw, Encoding::S16le, 24_000),
        "mulaw" => (raw, Encoding::Mulaw, 8_000),
        "alaw" => (raw, Encoding::Alaw, 8_000),
        other => {
            let file = AudioFormat::from_name(other).ok_or_else(|| {
                let message = format!(
                    "Unsupported encoding {other:?}; there are linear16, mulaw, alaw, mp3, opus and flac"
                );
                Failure::invalid(message)
            })?;
            (file, Encoding::S16le, 24_000)
        }
    };
    let number = |name: &str| query.get(name).map(str::parse::<u32>).transpose();
    let rate =
        number("sample_rate").ok().filter(|rate| rate.is_none_or(|rate| (8000..=48_000).contains(&rate)));
    let rate = rate.ok_or_else(|| Failure::invalid("sample_rate must be from 8000 to 48000"))?;
    let bit_rate = number("bit_rate").map_err(|_| Failure::invalid("bit_rate must be a number of bit/s"))?;
    Ok(SpeechFormat { file, samples, rate_hz: rate.unwrap_or(default_hz), bit_rate })
}
