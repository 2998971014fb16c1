//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`: a recording in, its words out.
//!
//! The decoder runs ahead of the session by one piece of audio; back-pressure of the session stops it. Sources:
//! mappings/notes/openai-rest.md#transcriptions, mappings/notes/openai-rest.md#translations,
//! mappings/notes/macaw.md#rest.

use std::{collections::VecDeque, pin::pin, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use hyper::{
    Response,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};
use tracing::{info, warn};

use super::{
    super::accept::{http_error::HttpResponse, request_body::ReceivedRequest},
    Body, RestResult, ServedRequest,
    early_answer::{COMMENT, Filler, answer_in_time, made_in_time, wait_filled},
    endpoint::Task,
    session::{Events, Opening, Requests, RestSession, Segment, Stage, segment_of},
    streamed_body::{BodySender, StreamedBody},
    style::{Failure, Style},
    transcript::{self, BreakOff, TranscriptFormat},
    upload::Upload,
};
use crate::{
    audio::SPEECH_RATE_HZ,
    media::{
        MediaError,
        decode::{DecodeLimits, Decoder},
        levelled::LevelledDecoder,
        transcript::{Transcript, WordList, segments::divided},
    },
    server::{
        accept::session_start::Admission,
        codec_threads::{CancelOnDrop, CodecThreads, ComputePermit},
        memory::MemoryShare,
    },
    vocabulary::{ClientRequest, Setting},
};

/// Longest prompt, characters.
const PROMPT_MAX_CHARS: usize = 4096;
/// Longest recording: compressed speech of 25 MB is shorter.
const RECORDING_MAX: Duration = Duration::from_secs(4 * 3600);
/// Longest time for which a recording keeps a permit while it is sent. A session that reads takes less for half a second of audio.
const PERMIT_MAX: Duration = Duration::from_millis(10);
/// Most key words.
const KEYWORDS_MAX: usize = 100;

/// A recording and what to do with it.
pub(super) struct Job {
    pub(super) recording: Bytes,
    pub(super) model: String,
    /// The settings of the session.
    pub(super) settings: Vec<Setting>,
}

/// The form of the answer.
#[derive(Clone, Copy)]
struct AnswerForm {
    format: TranscriptFormat,
    streams: bool,
    wants_words: bool,
    style: Style,
    task: Task,
}

impl AnswerForm {
    /// True if the answer has times of words, or cues or segments, which begin and end with words.
    const fn needs_word_times(&self) -> bool {
        self.wants_words || !matches!(self.format, TranscriptFormat::Json | TranscriptFormat::Text)
    }
}

/// Answers the request.
pub(super) async fn answer(
    task: Task,
    request: ReceivedRequest,
    style: Style,
    opening: Opening,
) -> RestResult {
    let mut memory = opening.memory_share();
    let mut upload = Upload::read(request, &mut memory, &opening.server).await?;
    let form = read_form(task, &upload, style)?;
    let job = read_job(task, form.needs_word_times(), &mut upload)?;
    let admission = opening.admit()?;
    let (transcription, served) = Transcription::start(opening, admission, memory, job).await?;
    match form.streams {
        true => stream(transcription, form, served).await,
        false => {
            let stage = transcription.stage();
            let filler = Filler::of(form.format);
            answer_in_time(transcribe(transcription, form), stage, filler, style, served).await
        }
    }
}

/// The answer with the whole transcript.
async fn transcribe(transcription: Transcription, form: AnswerForm) -> Result<HttpResponse, Failure> {
    let Recognized { segments, duration, broken_off } = transcription.collect().await?;
    let AnswerForm { task, wants_words, .. } = form;
    let words = if wants_words { WordList::Own } else { WordList::None };
    let transcript = Transcript { segments: &segments, duration, task, gaps: &[], words };
    Ok(transcript::response(&transcript, form.format, broken_off.as_ref()))
}

fn read_form(task: Task, upload: &Upload, style: Style) -> Result<AnswerForm, Failure> {
    let format = transcript::format_of(upload.text("response_format"))?;
    let streams = upload.flag("stream")?.unwrap_or(false);
    let granularities: Vec<_> = upload.all("timestamp_granularities").collect();
    if let Some(unknown) = granularities.iter().find(|name| !["word", "segment"].contains(*name)) {
        let message =
            format!("Invalid value for 'timestamp_granularities': '{unknown}'; must be 'word' or 'segment'.");
        return Err(Failure::parameter("timestamp_granularities", message));
    }
    if let Some(value) = upload.number("temperature")?.filter(|value| !(0.0..=2.0).contains(value)) {
        let failure =
            Failure::parameter("temperature", "Invalid value for 'temperature': must be from 0 to 2.");
        return Err(failure.with_range_error(json!(upload.text("temperature")), value, 0.0..=2.0));
    }
    Ok(AnswerForm { format, streams, wants_words: granularities.contains(&"word"), style, task })
}

fn read_job(task: Task, needs_word_times: bool, upload: &mut Upload) -> Result<Job, Failure> {
    let recording = upload.file.take().ok_or_else(|| upload.missing_file())?;
    let model = upload.text("model").ok_or_else(|| Failure::missing("model"))?.to_owned();
    if model.chars().count() > 256 {
        return Err(Failure::parameter("model", "Invalid value for 'model': longer than 256 characters."));
    }
    // OpenAI also uses only the end of a long prompt.
    let prompt = upload.text("prompt").unwrap_or_default();
    let cut = prompt.chars().count().saturating_sub(PROMPT_MAX_CHARS);
    let prompt: String = prompt.chars().skip(cut).collect();
    // `hotwords` of speaches and `hot_words` of Macaw are lists with commas.
    let listed = ["hotwords", "hot_words"].into_iter().flat_map(|name| upload.all(name));
    let listed = listed.flat_map(|list| list.split(',')).map(str::trim).filter(|word| !word.is_empty());
    let words = upload.all("keywords").chain(listed).take(KEYWORDS_MAX).map(str::to_owned);
    let mut settings = vec![
        Setting::Task(task == Task::Translate),
        Setting::HotWords(words.collect()),
        Setting::EstimatedWordTimes(needs_word_times),
    ];
    settings.extend(Some(prompt).filter(|prompt| !prompt.is_empty()).map(Setting::TranscriptionPrompt));
    settings.extend(upload.text("language").map(|language| Setting::Language(language.to_owned())));
    Ok(Job { recording, model, settings })
}

/// The transcribed part of a recording.
pub(super) struct Recognized {
    pub(super) segments: Vec<Segment>,
    /// Length of the recording, as far as it was decoded.
    pub(super) duration: Duration,
    /// The rest is missing.
    pub(super) broken_off: Option<BreakOff>,
}

/// A recording as far as it was decoded.
#[derive(Default)]
struct Decoded {
    length: Duration,
    /// Why words may be missing from some place on.
    damage: Option<MediaError>,
}

/// A recording that is being transcribed.
pub(super) struct Transcription {
    events: Events,
    /// Decodes the recording and sends it to the session.
    feeding: BoxFuture<'static, Result<Decoded, Failure>>,
    /// The end of the recording: its length and its damage.
    decoded: Option<Decoded>,
    /// Further segments of the utterance that came last.
    pending: VecDeque<Segment>,
    /// Counts the recording.
    _memory: MemoryShare,
}

impl Transcription {
    /// Opens the recording and a session for it.
    pub(super) async fn start(
        opening: Opening,
        admission: Admission,
        memory: MemoryShare,
        job: Job,
    ) -> Result<(Self, ServedRequest), Failure> {
        let threads = opening.server.codec_threads.clone();
        let Job { recording, model, settings } = job;
        let limits = DecodeLimits { decoded_max: RECORDING_MAX, ..DecodeLimits::default() };
        let cancel = CancelOnDrop::default();
        let flag = cancel.0.clone();
        let opened = threads.run(move || Decoder::open_cancellable(recording, limits, flag)).await;
        let decoder = opened.ok_or_else(decoder_failed)?.map_err(media_failure)?;
        if let Some((number, of)) = decoder.info().track {
            info!("the recording has {of} audio tracks; number {number} is transcribed");
        }
        let (RestSession { requests, events }, served) = opening.open(&model, admission)?;
        requests.send(ClientRequest::Configure(settings)).await;
        let feeding = feed(decoder, requests, threads, cancel).boxed();
        let pending = VecDeque::new();
        Ok((Self { events, feeding, decoded: None, pending, _memory: memory }, served))
    }

    /// How far its session has come.
    pub(super) fn stage(&self) -> watch::Receiver<Stage> {
        self.events.stage()
    }

    /// The next segment; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Segment>, Failure> {
        loop {
            if let Some(segment) = self.pending.pop_front() {
                return Ok(Some(segment));
            }
            let event = match self.decoded {
                Some(_) => self.events.next().await?,
                None => tokio::select! {
                    fed = &mut self.feeding => {
                        self.decoded = Some(fed?);
                        continue;
                    }
                    event = self.events.next() => event?,
                },
            };
            let Some(event) = event else { return Ok(None) };
            let utterance = segment_of(event).filter(|utterance| !utterance.text.trim().is_empty());
            self.pending.extend(utterance.into_iter().flat_map(divided));
        }
    }

    /// Length of the recording, as far as it was decoded; known after the last segment.
    pub(super) fn duration(&self) -> Duration {
        self.decoded.as_ref().map(|decoded| decoded.length).unwrap_or_default()
    }

    /// Where words may be missing because the recording is damaged; known after the last segment.
    fn damage(&self) -> Option<BreakOff> {
        self.decoded.as_ref()?.damage.as_ref().map(BreakOff::damaged)
    }

    /// All segments. If the upstream fails after some, they are kept.
    pub(super) async fn collect(mut self) -> Result<Recognized, Failure> {
        let mut segments = Vec::new();
        let broken_off = loop {
            match self.next().await {
                Ok(Some(segment)) => segments.push(segment),
                Ok(None) => break self.damage(),
                Err(failure) => break Some(BreakOff::after(&segments, failure)?),
            }
        };
        let transcribed = broken_off.as_ref().map(BreakOff::transcribed).unwrap_or_default();
        if let Some(broken_off) = &broken_off {
            warn!(problem = broken_off.message(), "transcript is incomplete");
        }
        Ok(Recognized { segments, duration: self.duration().max(transcribed), broken_off })
    }
}

/// Decodes a recording and sends it to the session. Of a recording that is cut off or broken, the words are worth having; one
/// that cannot be decoded at all is an error.
async fn feed(
    decoder: Decoder,
    requests: Requests,
    threads: CodecThreads,
    _cancel: CancelOnDrop,
) -> Result<Decoded, Failure> {
    let mut decoder = LevelledDecoder::new(decoder);
    let (mut samples, mut damage) = (0_u64, None);
    loop {
        let permit = threads.acquire().await.ok_or_else(decoder_failed)?;
        let decoded = permit.run(move || {
            let chunk = decoder.next_chunk();
            (decoder, chunk)
        });
        let (returned, chunk) = decoded.await.ok_or_else(decoder_failed)?;
        decoder = returned;
        match chunk {
            Some(Ok(chunk)) => {
                samples += chunk.len() as u64;
                if !chunk.is_empty() && !send_with_permit(&requests, &chunk, permit).await {
                    break;
                }
            }
            Some(Err(error)) if samples == 0 || matches!(error, MediaError::TooLong { .. }) => {
                return Err(media_failure(error));
            }
            Some(Err(error)) => {
                info!(%error, decoded_s = samples / u64::from(SPEECH_RATE_HZ), "recording is incomplete");
                damage = Some(error);
                break;
            }
            None => break,
        }
    }
    requests.send(ClientRequest::Finish).await;
    Ok(Decoded { length: Duration::from_millis(samples * 1000 / u64::from(SPEECH_RATE_HZ)), damage })
}

/// Sends audio to the session. The permit is kept until the session has processed it, so that many recordings at once do not delay
/// conversations; not while the session waits for the model. False if the session has ended.
async fn send_with_permit(requests: &Requests, samples: &[i16], permit: ComputePermit) -> bool {
    let mut sending = pin!(requests.send_audio(samples));
    match timeout(PERMIT_MAX, &mut sending).await {
        Ok(sent) => sent,
        Err(_) => {
            drop(permit);
            sending.await
        }
    }
}

fn decoder_failed() -> Failure {
    Failure::audio("Invalid audio: the decoder failed")
}

fn media_failure(error: MediaError) -> Failure {
    Failure::audio(format!("Invalid audio: {error}"))
}

/// Answers with server-sent events. The first segment, or the failure before it, decides on the HTTP status if it comes in time.
async fn stream(mut transcription: Transcription, form: AnswerForm, served: ServedRequest) -> RestResult {
    let stage = transcription.stage();
    let mut beginning = Box::pin(async move {
        let first = transcription.next().await;
        (transcription, first)
    });
    let begun = made_in_time(&mut beginning, stage).await;
    let begun = begun.map(|(transcription, first)| first.map(|first| (transcription, first))).transpose()?;
    let send = |sender: BodySender| async move {
        let (transcription, first) = match begun {
            Some((transcription, first)) => (transcription, Ok(first)),
            None => {
                sender.send(COMMENT.into()).await?;
                wait_filled(beginning, COMMENT, &sender).await?
            }
        };
        send_events(transcription, first, form.style, sender).await
    };
    Ok(event_stream(StreamedBody::made_by(send, "transcript", served)))
}

/// An answer of server-sent events.
pub(super) fn event_stream(body: StreamedBody) -> Response<Body> {
    let mut response = Response::new(Body::Right(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Writes an event of a stream (WHATWG HTML, "Server-sent events").
pub(super) fn event_text(data: &Value) -> Bytes {
    format!("data: {data}\n\n").into()
}

async fn send_events(
    mut transcription: Transcription,
    first: Result<Option<Segment>, Failure>,
    style: Style,
    sender: BodySender,
) -> Result<(), &'static str> {
    let (mut text, mut next, mut end_ms) = (String::new(), first, None);
    loop {
        match next {
            Ok(Some(segment)) => {
                let before = text.len();
                end_ms = Some(segment.end_ms);
                transcript::append(&mut text, &segment.text);
                let delta = json!({"type": "transcript.text.delta", "delta": &text[before..]});
                sender.send(event_text(&delta)).await?;
            }
            Ok(None) => {
                let usage = transcript::usage(transcription.duration());
                let mut done = json!({"type": "transcript.text.done", "text": text, "usage": usage});
                if let Some(damage) = transcription.damage() {
                    warn!(problem = damage.message(), "transcript is incomplete");
                    done["incomplete"] = damage.json();
                }
                sender.send(event_text(&done)).await?;
                sender.send("data: [DONE]\n\n".into()).await?;
                drop(transcription);
                return sender.finish().await;
            }
            Err(mut failure) => {
                if let Some(end_ms) = end_ms.filter(|_| failure.is_upstreams()) {
                    let message = &failure.message;
                    failure.message = transcript::break_off_message(end_ms, message);
                }
                warn!(problem = failure.message, "transcript is incomplete");
                // Clients of OpenAI's libraries raise an error for a top-level `error`.
                sender.send(event_text(&failure.body(style))).await?;
                drop(transcription);
                return sender.finish().await;
            }
        }
        next = wait_filled(transcription.next(), COMMENT, &sender).await?;
    }
}
