//! `POST /v1/audio/speech`: a text in, its speech out, as it is generated.
//!
//! Sources: mappings/notes/openai-rest.md#speech, mappings/notes/macaw.md#rest.

use std::{borrow::Cow, io, time::Duration};

use bytes::Bytes;
use hyper::{Response, header::CONTENT_TYPE};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{
    super::accept::request_body::ReceivedRequest,
    Body, RestResult,
    body::read_body,
    character_times::TimedSpeech,
    early_answer::{COMMENT, made_in_time, wait_filled},
    members::{Member, Members},
    parse::parse,
    session::{Events, Opening, RestSession},
    speech_events::SpeechEvents,
    speech_format::{Delivery, OPENAI_RATE_HZ, SpeechFormat},
    streamed_body::{BodySender, StreamedBody},
    style::{Failure, FieldLimit, Style, set_header},
    transcribe::{event_stream, event_text},
};
use crate::{
    audio::{
        encode::{AudioFormat, Encoder},
        pcm::s16le_samples,
    },
    client::decode_voice_sample,
    error::ErrorKind,
    server::{
        ServerContext, accept::session_start::Admission, codec_threads::CodecThreads, memory::MemoryShare,
    },
    vocabulary::{ClientEvent, ClientRequest, Setting, SpeakRequest},
};

/// Longest request, bytes: a reference voice as base64 may be in it.
const SPEECH_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Memory for parsing a request, in lengths of the body: itself, its texts without escapes, and the request.
const PARSING_LENGTHS: usize = 3;

/// Longest text, characters: OpenAI's and Macaw's limit.
const TEXT_MAX_CHARS: usize = 4096;
/// The members of a request that count.
const MEMBERS: [&str; 10] = [
    "input",
    "model",
    "response_format",
    "stream_format",
    "speed",
    "voice",
    "instructions",
    "instruction",
    "language",
    "ref_audio",
];
/// Length of the audio for a text without words: long enough for every player.
const NOTHING_SAID: Duration = Duration::from_millis(200);

/// Checks a text that must not be empty, nor longer than this many characters.
fn check_length(name: &'static str, text: &str, max_chars: usize) -> Result<(), Failure> {
    if text.is_empty() {
        return Err(Failure::parameter(name, format!("The '{name}' field cannot be empty.")));
    }
    if text.chars().count() > max_chars {
        return Err(Failure::parameter(name, format!("'{name}' is longer than {max_chars} characters.")));
    }
    Ok(())
}

/// A text and how to speak it.
pub(super) struct Job {
    pub(super) model: String,
    pub(super) format: SpeechFormat,
    pub(super) request: SpeakRequest,
    pub(super) delivery: Delivery,
}

/// The text of a request, which must not be empty, nor longer than this many characters.
pub(super) fn required_text(
    body: &mut Members<'_>,
    name: &'static str,
    max_chars: usize,
) -> Result<String, Failure> {
    let text = text_of(body, name)?.ok_or_else(|| Failure::missing(name))?;
    check_length(name, &text, max_chars)?;
    Ok(text.into_owned())
}

/// Answers the request.
pub(super) async fn answer(request: ReceivedRequest, style: Style, opening: Opening) -> RestResult {
    answer_job(request, style, opening, move |body| read_job(&body, style)).await
}

/// Answers a request whose body is read like this.
pub(super) async fn answer_job(
    request: ReceivedRequest,
    style: Style,
    opening: Opening,
    read: impl FnOnce(Bytes) -> Result<Job, Failure> + Send + 'static,
) -> RestResult {
    let mut memory = opening.memory_share();
    let job = read_speech_body(request, &mut memory, &opening.server, read).await?;
    let admission = opening.admit()?;
    speak(opening, admission, job, style).await
}

/// Reads a body that is a JSON object.
pub(super) async fn read_speech_body<T: Send + 'static>(
    request: ReceivedRequest,
    memory: &mut MemoryShare,
    server: &ServerContext,
    read: impl FnOnce(Bytes) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let body = read_body(request.into_body(), SPEECH_MAX_BYTES, memory, &server.bodies).await?;
    let needed = body.len() * PARSING_LENGTHS;
    parse(body, needed, memory, &server.codec_threads, read).await
}

fn read_job(body: &[u8], style: Style) -> Result<Job, Failure> {
    let mut body = Members::read(body, &MEMBERS)?;
    let text = text_of(&mut body, "input")?.ok_or_else(|| Failure::missing("input"))?;
    let model = text_of(&mut body, "model")?.ok_or_else(|| Failure::missing("model"))?;
    check_text(&text, style)?;
    let format = format_of(text_of(&mut body, "response_format")?.as_deref(), style)?;
    let delivery = match text_of(&mut body, "stream_format")?.as_deref() {
        None | Some("audio") => Delivery::Bytes,
        Some("sse") => Delivery::Events,
        Some(_) => {
            let message = "Invalid value for 'stream_format': must be 'audio' or 'sse'.";
            return Err(Failure::parameter("stream_format", message));
        }
    };
    check_speed(body.take("speed"))?;
    let voice = voice_of(&mut body);
    let instruction = text_of(&mut body, "instructions")?.or(text_of(&mut body, "instruction")?);
    let language = given(text_of(&mut body, "language")?);
    let reference = given(text_of(&mut body, "ref_audio")?);
    let request = SpeakRequest {
        text: text.into_owned(),
        voice,
        language,
        instruction: given(instruction).filter(|words| !words.trim().is_empty()),
        reference: reference.map(|base64| decode_voice_sample(&base64)).transpose()?.flatten(),
        ..SpeakRequest::default()
    };
    let format = SpeechFormat::new(format, OPENAI_RATE_HZ);
    Ok(Job { model: model.into_owned(), format, request, delivery })
}

fn check_text(text: &str, style: Style) -> Result<(), Failure> {
    let empty = "The 'input' field cannot be empty.";
    if text.is_empty() {
        let words = "String should have at least 1 character";
        let limit = Some(FieldLimit { name: "min_length", value: json!(1) });
        return Err(Failure::parameter("input", empty).with_field_error(
            "string_too_short",
            words,
            json!(text),
            limit,
        ));
    }
    // The real Macaw server refuses white space as well (mappings/notes/macaw.md#errors).
    if style == Style::Macaw && text.trim().is_empty() {
        return Err(Failure::invalid(empty));
    }
    if text.chars().count() > TEXT_MAX_CHARS {
        let message = format!("Invalid value for 'input': longer than {TEXT_MAX_CHARS} characters.");
        let words = format!("String should have at most {TEXT_MAX_CHARS} characters");
        let limit = Some(FieldLimit { name: "max_length", value: json!(TEXT_MAX_CHARS) });
        return Err(Failure::parameter("input", message).with_field_error(
            "string_too_long",
            words,
            Value::Null,
            limit,
        ));
    }
    Ok(())
}

/// A member that is a text; `None` if it is missing or null.
pub(super) fn text_of<'b>(
    body: &mut Members<'b>,
    name: &'static str,
) -> Result<Option<Cow<'b, str>>, Failure> {
    match body.take(name) {
        Member::Missing => Ok(None),
        Member::Text(text) => Ok(Some(text)),
        _ => Err(Failure::parameter(name, format!("Invalid type for '{name}': expected a string."))
            .with_field_error("string_type", "Input should be a valid string", Value::Null, None)),
    }
}

/// The voice that a body names, by a text or by an object with its id.
pub(super) fn voice_of(body: &mut Members<'_>) -> Option<String> {
    let voice = match body.take("voice") {
        Member::Text(name) => Some(name),
        Member::Object(id) => id,
        _ => None,
    };
    given(voice)
}

/// A text that is not empty.
pub(super) fn given(text: Option<Cow<'_, str>>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(Cow::into_owned)
}

fn format_of(name: Option<&str>, style: Style) -> Result<AudioFormat, Failure> {
    // OpenAI's default is mp3, Macaw's is wav (mappings/notes/openai-rest.md#speech).
    let default = if style == Style::Macaw { "wav" } else { "mp3" };
    AudioFormat::from_name(name.unwrap_or(default)).ok_or_else(|| {
        let message = "Invalid value for 'response_format': must be 'mp3', 'opus', 'flac', 'wav' or 'pcm'.";
        let words = "Input should be 'mp3', 'opus', 'flac', 'wav' or 'pcm'";
        let value = json!("'mp3', 'opus', 'flac', 'wav' or 'pcm'");
        let limit = Some(FieldLimit { name: "expected", value });
        Failure::parameter("response_format", message).with_field_error(
            "literal_error",
            words,
            json!(name),
            limit,
        )
    })
}

fn check_speed(speed: Member<'_>) -> Result<(), Failure> {
    let text = match speed {
        Member::Missing => return Ok(()),
        Member::Scalar(text) => text,
        _ => String::new(),
    };
    let failure =
        || Failure::parameter("speed", "Invalid value for 'speed': must be a number from 0.25 to 4.");
    let speed: f64 = text.parse().map_err(|_| {
        failure().with_field_error("float_type", "Input should be a valid number", Value::Null, None)
    })?;
    if !(0.25..=4.0).contains(&speed) {
        return Err(failure().with_range_error(json!(speed), speed, 0.25..=4.0));
    }
    if speed != 1.0 {
        info!(speed, "the speed has no effect: MiniCPM-o has no speed setting");
    }
    Ok(())
}

/// Opens a session that speaks, and answers with its speech. The first audio, or the failure before it, decides on the HTTP
/// status; a stream of events begins without it if it takes long.
pub(super) async fn speak(opening: Opening, admission: Admission, job: Job, style: Style) -> RestResult {
    let threads = opening.server.codec_threads.clone();
    let Job { model, format, request, delivery } = job;
    let rate_hz = format.rate_hz;
    let request_id = format!("{:016x}", fastrand::u64(..));
    let encoder = format.encoder().map_err(|error| Failure::invalid(error.to_string()))?;
    let (RestSession { requests, mut events }, served) = opening.open(&model, admission)?;
    let characters = request.text.len();
    let timed = match delivery {
        Delivery::Timed(form) => Some(TimedSpeech::new(form, &request.text, rate_hz)),
        _ => None,
    };
    let timed = timed.transpose().map_err(|error| Failure::invalid(error.to_string()))?;
    let context_id = request.request_id.clone().unwrap_or_default();
    requests.send(ClientRequest::Configure(vec![Setting::OutputRateHz(rate_hz)])).await;
    requests.send(ClientRequest::Speak(Box::new(request))).await;
    requests.send(ClientRequest::Finish).await;
    let stage = events.stage();
    let mut beginning = Box::pin(async move {
        let first = next_audio(&mut events).await;
        (events, first)
    });
    let begun = match delivery {
        Delivery::Events => made_in_time(&mut beginning, stage).await,
        Delivery::Bytes | Delivery::Timed(_) => Some((&mut beginning).await),
    };
    let begun = begun.map(|(events, first)| first.map(|first| (events, first))).transpose()?;
    let encoding = Encoding { encoder, timed, threads };
    let speech_events = SpeechEvents { style, context_id, characters };
    let speech = Speech { encoding, delivery, events: speech_events, rate_hz };
    let send = |sender: BodySender| async move {
        let (events, first) = match begun {
            Some((events, first)) => (events, Ok(first)),
            None => {
                sender.send(COMMENT.into()).await?;
                wait_filled(beginning, COMMENT, &sender).await?
            }
        };
        speech.send(events, first, sender).await
    };
    let body = StreamedBody::made_by(send, "speech", served);
    let mut response = match delivery {
        Delivery::Events => event_stream(body),
        Delivery::Bytes => response_of_type(format.file.mime_type(), body),
        Delivery::Timed(_) => response_of_type("application/json", body),
    };
    set_header(response.headers_mut(), "x-request-id", &request_id);
    Ok(response)
}

fn response_of_type(mime_type: &'static str, body: StreamedBody) -> Response<Body> {
    let mut response = Response::new(Body::Right(body));
    set_header(response.headers_mut(), CONTENT_TYPE.as_str(), mime_type);
    response
}

/// Silence at this rate, int16.
fn silence(rate_hz: u32) -> Bytes {
    let samples = u64::from(rate_hz) * NOTHING_SAID.as_millis() as u64 / 1000;
    vec![0; samples as usize * size_of::<i16>()].into()
}

/// The next audio of the session: int16, little endian; `None` once the whole text was spoken.
///
/// # Errors
/// The session failed, or the speech ended before its text.
async fn next_audio(events: &mut Events) -> Result<Option<Bytes>, Failure> {
    let mut is_whole = false;
    while let Some(event) = events.next().await? {
        match event {
            ClientEvent::Audio(audio) => return Ok(Some(audio.bytes)),
            ClientEvent::SpeakingEnded { cancelled, .. } => is_whole = !cancelled,
            _ => {}
        }
    }
    // The end of the session alone does not mean that the whole text was spoken.
    is_whole
        .then_some(None)
        .ok_or_else(|| Failure::of_session(ErrorKind::SpeakFailed, "The speech ended before its text"))
}

/// Encodes audio outside of the threads of sessions.
struct Encoding {
    encoder: Encoder,
    /// Spells the encoded audio with the times of characters.
    timed: Option<TimedSpeech>,
    threads: CodecThreads,
}

impl Encoding {
    /// Encodes samples; what ends the file without any.
    async fn encode(self, audio: Option<Bytes>) -> io::Result<(Self, Bytes)> {
        let Self { mut encoder, mut timed, threads } = self;
        let encode = move || {
            let mut bytes = Vec::new();
            match audio {
                Some(audio) => {
                    let samples = s16le_samples(&audio);
                    timed.iter_mut().for_each(|timed| timed.hear(&samples));
                    encoder.push(&samples, &mut bytes);
                }
                None => encoder.finish(&mut bytes),
            }
            let bytes = match &mut timed {
                Some(timed) => timed.audio(&bytes),
                None => bytes.into(),
            };
            (encoder, timed, bytes)
        };
        let (encoder, timed, bytes) =
            threads.run(encode).await.ok_or_else(|| io::Error::other("the encoder failed"))?;
        Ok((Self { encoder, timed, threads }, bytes))
    }

    /// Text behind the last audio.
    async fn end(self) -> io::Result<Vec<Bytes>> {
        let Some(timed) = self.timed else { return Ok(Vec::new()) };
        self.threads.run(|| timed.end()).await.ok_or_else(|| io::Error::other("the encoder failed"))
    }
}

/// Speech on its way to the client.
struct Speech {
    encoding: Encoding,
    delivery: Delivery,
    events: SpeechEvents,
    rate_hz: u32,
}

impl Speech {
    /// Sends the speech and ends the session, then waits until the client has taken it.
    ///
    /// # Errors
    /// The client does not take it.
    async fn send(
        mut self,
        mut events: Events,
        first: Result<Option<Bytes>, Failure>,
        sender: BodySender,
    ) -> Result<(), &'static str> {
        // A text without words, such as an emoji, is a file of silence.
        let is_wordless = matches!(first, Ok(None));
        let mut next = if is_wordless { Ok(Some(silence(self.rate_hz))) } else { first };
        let mut audio_bytes = 0;
        loop {
            let audio = match next {
                Ok(audio) => audio,
                Err(failure) => return self.break_off(failure, &sender).await,
            };
            let is_last = audio.is_none();
            audio_bytes += audio.as_ref().map_or(0, Bytes::len);
            match self.encoding.encode(audio).await {
                Ok((encoding, encoded)) => {
                    self.encoding = encoding;
                    if !encoded.is_empty() {
                        sender.send(self.to_part(encoded)).await?;
                    }
                }
                Err(error) => return cut_off(error, &sender).await,
            }
            if is_last {
                break;
            }
            next = if is_wordless { Ok(None) } else { next_audio(&mut events).await };
        }
        drop(events);
        if self.delivery == Delivery::Events {
            sender.send(event_text(&self.events.done(audio_bytes))).await?;
        }
        match self.encoding.end().await {
            Ok(parts) => {
                for part in parts {
                    sender.send(part).await?;
                }
            }
            Err(error) => return cut_off(error, &sender).await,
        }
        sender.finish().await
    }

    /// Says that the rest is missing.
    async fn break_off(self, failure: Failure, sender: &BodySender) -> Result<(), &'static str> {
        match self.delivery {
            Delivery::Events => {
                warn!(problem = failure.message, "speech is incomplete");
                sender.send(event_text(&self.events.failed(&failure))).await?;
                sender.finish().await
            }
            Delivery::Bytes | Delivery::Timed(_) => cut_off(io::Error::other(failure.message), sender).await,
        }
    }

    /// Encoded audio as the client takes it.
    fn to_part(&self, encoded: Bytes) -> Bytes {
        match self.delivery {
            Delivery::Events => event_text(&self.events.audio(&encoded)),
            Delivery::Bytes | Delivery::Timed(_) => encoded,
        }
    }
}

/// Cuts the speech off, so that the client cannot take it for complete.
async fn cut_off(error: io::Error, sender: &BodySender) -> Result<(), &'static str> {
    warn!(problem = %error, "speech is incomplete");
    sender.cut_off(error).await;
    Ok(())
}
