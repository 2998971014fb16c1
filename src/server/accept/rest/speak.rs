//! `POST /v1/audio/speech`: a text in, its speech out, as it is generated.
//!
//! Sources: field notes openai-rest.md §3, macaw.md §6.

use std::io;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hyper::{Request, Response, StatusCode, body::Incoming, header::CONTENT_TYPE};
use serde_json::{Map, Value, json};
use tracing::info;

use super::{
    Body,
    codec_threads::CodecThreads,
    session::{Event, Events, Opening},
    streamed_body::{BodySender, StreamedBody},
    style::{Failure, Style, set_header},
    transcribe::{event_stream, event_text},
    upload::{SPEECH_MAX_BYTES, read_object},
};
use crate::{
    media::encode::{AudioFormat, Encoder},
    server::accept::session_start::Admission,
};

/// Longest text, characters: OpenAI's and Macaw's limit.
const TEXT_MAX_CHARS: usize = 4096;
/// Sample rate of speech in OpenAI's and Macaw's APIs, Hz.
const RATE_HZ: u32 = 24_000;

/// A text and how to speak it.
pub(super) struct Job {
    pub(super) model: String,
    pub(super) format: AudioFormat,
    pub(super) rate_hz: u32,
    /// The commands to the session.
    pub(super) commands: Vec<Value>,
    pub(super) delivery: Delivery,
}

/// How speech is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The bytes of a file.
    Bytes,
    /// Server-sent events with base64.
    Events,
}

/// Answers the request.
pub(super) async fn answer(
    request: Request<Incoming>,
    style: Style,
    opening: Opening,
) -> Result<Response<Body>, Failure> {
    let admission = opening.admit()?;
    let mut memory = opening.memory_share();
    let body = read_object(request, SPEECH_MAX_BYTES, &mut memory).await?;
    let job = read_job(&body, style)?;
    speak(opening, admission, job, style).await
}

fn read_job(body: &Map<String, Value>, style: Style) -> Result<Job, Failure> {
    let text = text_of(body, "input")?.ok_or_else(|| Failure::missing("input"))?;
    let model = text_of(body, "model")?.ok_or_else(|| Failure::missing("model"))?;
    if text.trim().is_empty() {
        return Err(Failure::invalid("The 'input' field cannot be empty."));
    }
    if text.chars().count() > TEXT_MAX_CHARS {
        let message = format!("Invalid value for 'input': longer than {TEXT_MAX_CHARS} characters.");
        return Err(Failure::parameter("input", message));
    }
    let format = format_of(text_of(body, "response_format")?, style)?;
    let delivery = match text_of(body, "stream_format")? {
        None | Some("audio") => Delivery::Bytes,
        Some("sse") => Delivery::Events,
        Some(_) => {
            let message = "Invalid value for 'stream_format': must be 'audio' or 'sse'.";
            return Err(Failure::parameter("stream_format", message));
        }
    };
    check_speed(body)?;
    let mut command = json!({"type": "speak", "text": text});
    let voice = body.get("voice").and_then(|voice| voice.as_str().or_else(|| voice["id"].as_str()));
    let instruction = text_of(body, "instructions")?.or(text_of(body, "instruction")?);
    for (name, value) in [
        ("voice", voice),
        ("instruction", instruction),
        ("language", text_of(body, "language")?),
        ("ref_audio", text_of(body, "ref_audio")?),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            command[name] = value.into();
        }
    }
    Ok(Job { model: model.to_owned(), format, rate_hz: RATE_HZ, commands: vec![command], delivery })
}

/// A member that is a text; `None` if it is missing or null.
pub(super) fn text_of<'b>(
    body: &'b Map<String, Value>,
    name: &'static str,
) -> Result<Option<&'b str>, Failure> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Failure::parameter(name, format!("Invalid type for '{name}': expected a string."))),
    }
}

fn format_of(name: Option<&str>, style: Style) -> Result<AudioFormat, Failure> {
    // OpenAI's default is mp3, Macaw's is wav (field notes openai-rest.md §7).
    let default = if style == Style::Macaw { "wav" } else { "mp3" };
    AudioFormat::from_name(name.unwrap_or(default)).ok_or_else(|| {
        let message = "Invalid value for 'response_format': must be 'mp3', 'opus', 'flac', 'wav' or 'pcm'.";
        Failure::parameter("response_format", message)
    })
}

fn check_speed(body: &Map<String, Value>) -> Result<(), Failure> {
    match body.get("speed") {
        None | Some(Value::Null) => Ok(()),
        Some(speed) => {
            let speed = speed.as_f64().filter(|speed| (0.25..=4.0).contains(speed)).ok_or_else(|| {
                Failure::parameter("speed", "Invalid value for 'speed': must be a number from 0.25 to 4.")
            })?;
            if speed != 1.0 {
                info!(speed, "the speed has no effect: MiniCPM-o has no speed setting");
            }
            Ok(())
        }
    }
}

/// Opens a session that speaks, and answers with its speech. The first audio, or the failure before it, decides on the HTTP
/// status.
pub(super) async fn speak(
    opening: Opening,
    admission: Admission,
    job: Job,
    style: Style,
) -> Result<Response<Body>, Failure> {
    let threads = opening.server.codec_threads.clone();
    let Job { model, format, rate_hz, commands, delivery } = job;
    let request_id = format!("{:016x}", fastrand::u64(..));
    let encoder = Encoder::new(format, rate_hz).map_err(|error| Failure::invalid(error.to_string()))?;
    let (mut session, served) = opening.open(&model, admission).await?;
    session.commands.send(&json!({"type": "configure", "output_rate_hz": rate_hz})).await;
    for command in &commands {
        session.commands.send(command).await;
    }
    session.commands.send(&json!({"type": "finish"})).await;
    let first = next_audio(&mut session.events).await?.ok_or_else(|| {
        Failure::new(StatusCode::BAD_GATEWAY, "bad_gateway", "The model gave no speech for the text")
    })?;
    let characters = commands.iter().filter_map(|command| command["text"].as_str()).map(str::len).sum();
    let encoding = Encoding { encoder, threads };
    let (sender, body) = StreamedBody::new();
    tokio::spawn(async move {
        let gone = sender.clone();
        let speech = Speech { encoding, delivery, style, characters };
        tokio::select! {
            () = speech.send(session.events, first, sender) => {}
            // Ends the session, which frees its worker.
            () = gone.closed() => {}
        }
        // The session would end without it.
        drop((session.commands, served));
    });
    let mut response = match delivery {
        Delivery::Events => event_stream(body),
        Delivery::Bytes => {
            let mut response = Response::new(Body::Right(body));
            set_header(response.headers_mut(), CONTENT_TYPE.as_str(), format.mime_type());
            response
        }
    };
    set_header(response.headers_mut(), "x-request-id", &request_id);
    Ok(response)
}

/// The next audio of the session: int16, little endian.
async fn next_audio(events: &mut Events) -> Result<Option<Bytes>, Failure> {
    while let Some(event) = events.next().await? {
        if let Event::Audio(audio) = event {
            return Ok(Some(audio));
        }
    }
    Ok(None)
}

/// Encodes audio outside of the threads of sessions.
struct Encoding {
    encoder: Encoder,
    threads: CodecThreads,
}

impl Encoding {
    /// Encodes samples; what ends the file without any.
    async fn encode(self, audio: Option<Bytes>) -> io::Result<(Self, Bytes)> {
        let Self { mut encoder, threads } = self;
        let encode = move || {
            let mut bytes = Vec::new();
            match audio {
                Some(audio) => {
                    let samples: Vec<i16> = audio
                        .chunks_exact(2)
                        .map(|sample| i16::from_le_bytes([sample[0], sample[1]]))
                        .collect();
                    encoder.push(&samples, &mut bytes);
                }
                None => encoder.finish(&mut bytes),
            }
            (encoder, bytes)
        };
        let (encoder, bytes) =
            threads.run(encode).await.ok_or_else(|| io::Error::other("the encoder failed"))?;
        Ok((Self { encoder, threads }, bytes.into()))
    }
}

/// Speech on its way to the client.
struct Speech {
    encoding: Encoding,
    delivery: Delivery,
    style: Style,
    /// Length of the text, bytes.
    characters: usize,
}

impl Speech {
    async fn send(self, mut events: Events, first: Bytes, sender: BodySender) {
        let Self { mut encoding, delivery, style, characters } = self;
        let (mut next, mut audio_bytes): (Result<_, Failure>, usize) = (Ok(Some(first)), 0);
        loop {
            let audio = match next {
                Ok(audio) => audio,
                Err(failure) => {
                    let last = match delivery {
                        Delivery::Events => event_text(&failure.body(style)),
                        // The client must not take the file for complete.
                        Delivery::Bytes => Err(io::Error::other(failure.message)),
                    };
                    let _ = sender.send(last).await;
                    return;
                }
            };
            let is_last = audio.is_none();
            audio_bytes += audio.as_ref().map_or(0, Bytes::len);
            let encoded = match encoding.encode(audio).await {
                Ok((rest, bytes)) => {
                    encoding = rest;
                    Ok(bytes)
                }
                Err(error) => {
                    let _ = sender.send(Err(error)).await;
                    return;
                }
            };
            if !send_part(&sender, encoded, delivery).await {
                return;
            }
            if is_last {
                break;
            }
            next = next_audio(&mut events).await;
        }
        if delivery == Delivery::Events {
            // MiniCPM-o counts no tokens; these are estimates in the usual relation: a token is about four characters, and a
            // second of speech has 50.
            let (input, output) = (characters / 4 + 1, audio_bytes / 2 * 50 / RATE_HZ as usize);
            let usage =
                json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
            let _ = sender.send(event_text(&json!({"type": "speech.audio.done", "usage": usage}))).await;
        }
    }
}

/// Sends encoded audio. False if the client has gone.
async fn send_part(sender: &BodySender, encoded: io::Result<Bytes>, delivery: Delivery) -> bool {
    let part = match (encoded, delivery) {
        (Ok(bytes), _) if bytes.is_empty() => return true,
        (Ok(bytes), Delivery::Events) => {
            event_text(&json!({"type": "speech.audio.delta", "audio": STANDARD.encode(&bytes)}))
        }
        (part, _) => part,
    };
    sender.send(part).await.is_ok()
}
