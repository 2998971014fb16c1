//! The answers to requests about jobs, as the mapping file spells them.

use std::time::Duration;

use hyper::{Request, StatusCode};

use super::{
    super::{
        super::accept::{host::host, http_error::HttpError},
        session::Segment,
        style::Failure,
        transcript,
    },
    now_s,
    store::{Found, Job, JobResult, JobState, Kept},
};
use crate::{
    date::rfc3339,
    media::transcript::{Transcript, TranscriptFormat, WordList},
    secret::random_hex,
    server::rest::endpoint::Task,
    spelling::{
        client::{JobAnswer, JobApi, JobFile, JobSlot, TranscriptForm},
        template::Template,
    },
    vocabulary::SlotValue,
};

/// Language of a transcript without a known language: the clients' types require one.
const LANGUAGE: &str = "en";

/// What the answers to one request have in common.
pub(super) struct Answers<'a> {
    pub(super) api: &'a JobApi,
    /// Scheme and host, as the client wrote it.
    origin: String,
    path: String,
}

/// Values of slots.
#[derive(Default)]
struct Values {
    id: Option<String>,
    url: Option<String>,
    upload_id: Option<String>,
    audio_url: Option<String>,
    name: Option<String>,
    size: Option<i64>,
    duration_s: Option<f64>,
    channels: Option<i64>,
    created_at: Option<String>,
    ended_at: Option<String>,
    model: Option<String>,
    language: Option<String>,
    text: Option<String>,
    words: String,
    utterances: String,
    word_delimiter: Option<&'static str>,
    incomplete: Option<String>,
    status: Option<StatusCode>,
    code: Option<String>,
    message: Option<String>,
}

impl<'a> Answers<'a> {
    pub(super) fn new<B>(api: &'a JobApi, request: &Request<B>, has_tls: bool) -> Self {
        let headers = request.headers();
        // A sender that lies changes its own answer only.
        let proxied = headers.get("x-forwarded-proto").is_some_and(|value| value == "https");
        let scheme = if has_tls || proxied { "https" } else { "http" };
        let origin = format!("{scheme}://{}", host(headers).unwrap_or_default());
        Self { api, origin, path: request.uri().path().to_owned() }
    }

    /// An upload or a job in its state.
    pub(super) fn found(&self, found: &Found) -> String {
        self.render(answer_of(&found.kept), found)
    }

    /// A job that was created.
    pub(super) fn created(&self, found: &Found) -> String {
        let has_own = self.api.answer(JobAnswer::Created).is_some();
        self.render(if has_own { JobAnswer::Created } else { JobAnswer::Waiting }, found)
    }

    /// What was deleted; `None` for an answer without a body.
    pub(super) fn deleted(&self, found: &Found) -> Option<String> {
        let is_job = matches!(found.kept, Kept::Job(_));
        self.api.answer(JobAnswer::Deleted).filter(|_| is_job)?;
        Some(self.render(JobAnswer::Deleted, found))
    }

    /// The transcript of a job; `None` unless the job is done.
    pub(super) fn transcript(&self, form: &TranscriptForm, found: &Found) -> Option<String> {
        let Kept::Job(Job { state: JobState::Done(result), settings, .. }) = &found.kept else { return None };
        let file = match form {
            TranscriptForm::Json(template) => {
                let values = self.values(found);
                return Some(self.fill(template, &values));
            }
            TranscriptForm::File(file) => file,
        };
        let format = match file {
            JobFile::Text => TranscriptFormat::Text,
            JobFile::Srt => TranscriptFormat::Srt,
            JobFile::Vtt => TranscriptFormat::Vtt,
        };
        let task = if settings.translates { Task::Translate } else { Task::Transcribe };
        let (segments, duration) = (&result.segments, result.duration);
        Some(Transcript { segments, duration, task, gaps: &[], words: WordList::None }.write(format))
    }

    /// An error.
    pub(super) fn error(&self, failure: Failure) -> Box<HttpError> {
        let template = self.api.answer(JobAnswer::Error);
        failure.spelled(|status, code, message| {
            let values = Values {
                status: Some(status),
                code: Some(code.to_owned()),
                message: Some(message.to_owned()),
                ..Values::default()
            };
            template.map_or_else(String::new, |template| self.fill(template, &values))
        })
    }

    fn render(&self, name: JobAnswer, found: &Found) -> String {
        let values = self.values(found);
        self.api.answer(name).map_or_else(|| "{}".to_owned(), |template| self.fill(template, &values))
    }

    fn values(&self, found: &Found) -> Values {
        let base = match &found.kept {
            Kept::Upload(_) => self.api.uploads.as_ref().map_or("", |uploads| &*uploads.path),
            Kept::Job(_) => &self.api.path,
        };
        let values = Values {
            id: Some(found.id.clone()),
            url: Some(format!("{}{base}/{}", self.origin, found.id)),
            created_at: Some(rfc3339(found.created_unix_s)),
            ..Values::default()
        };
        match &found.kept {
            Kept::Upload(upload) => Values {
                name: Some(upload.name.clone()),
                size: i64::try_from(upload.recording.len()).ok(),
                duration_s: upload.duration.as_ref().map(Duration::as_secs_f64),
                channels: i64::try_from(upload.channels).ok(),
                ..values
            },
            Kept::Job(job) => self.values_of_job(job, values),
        }
    }

    fn values_of_job(&self, job: &Job, values: Values) -> Values {
        let settings = &job.settings;
        let values = Values {
            upload_id: settings.upload_id.clone(),
            audio_url: settings.audio_url.clone(),
            name: Some(job.name.clone()),
            model: Some(job.model.clone()),
            language: settings.language.clone(),
            ended_at: job.ended_unix_s.map(rfc3339),
            ..values
        };
        match &job.state {
            JobState::Waiting | JobState::Running => values,
            JobState::Done(result) => self.values_of_result(result, values),
            JobState::Failed(failure) => Values {
                status: StatusCode::from_u16(failure.status).ok(),
                code: Some(failure.code.clone()),
                message: Some(failure.message.clone()),
                ..values
            },
        }
    }

    fn values_of_result(&self, result: &JobResult, values: Values) -> Values {
        let text = transcript::joined(&result.segments);
        let known = result.segments.iter().find_map(|segment| segment.language.as_deref());
        let language = values.language.clone().or(known.map(str::to_owned)).unwrap_or(LANGUAGE.to_owned());
        let mut utterances = String::new();
        for segment in &result.segments {
            let words = self.words(std::slice::from_ref(segment), &segment.text, &language);
            let times = (segment.start_ms as f64 / 1000.0, segment.end_ms as f64 / 1000.0);
            let element = self.api.answer(JobAnswer::Utterance);
            self.push(&mut utterances, element, |slot| match slot {
                JobSlot::Text => SlotValue::Str(segment.text.trim()),
                JobSlot::Words => SlotValue::Elements(&words),
                JobSlot::Language => SlotValue::Str(&language),
                JobSlot::FromS => SlotValue::Float(times.0),
                JobSlot::ToS => SlotValue::Float(times.1),
                _ => SlotValue::Null,
            });
        }
        Values {
            duration_s: Some(result.duration.as_secs_f64()),
            words: self.words(&result.segments, &text, &language),
            utterances,
            word_delimiter: Some(if text.contains(' ') { " " } else { "" }),
            incomplete: result.incomplete.clone(),
            text: Some(text),
            language: Some(language),
            ..values
        }
    }

    /// The words of segments, whose joined text this is.
    fn words(&self, segments: &[Segment], text: &str, language: &str) -> String {
        let mut words = String::new();
        let mut rest = text;
        for word in segments.iter().flat_map(|segment| segment.words.iter().flatten()) {
            let found = rest.find(word.word.as_str()).map(|at| rest.split_at(at + word.word.len()));
            let token = found.map_or(word.word.as_str(), |(token, _)| token);
            rest = found.map_or(rest, |(_, after)| after);
            self.push(&mut words, self.api.answer(JobAnswer::Word), |slot| match slot {
                JobSlot::Word => SlotValue::Str(&word.word),
                JobSlot::Token => SlotValue::Str(token),
                JobSlot::Language => SlotValue::Str(language),
                JobSlot::FromS => SlotValue::Float(word.start),
                JobSlot::ToS => SlotValue::Float(word.end),
                _ => SlotValue::Null,
            });
        }
        words
    }

    /// Adds an element to a list.
    fn push<'v>(
        &self,
        list: &mut String,
        element: Option<&Template<JobSlot>>,
        fill: impl Fn(JobSlot) -> SlotValue<'v>,
    ) {
        let Some(element) = element else { return };
        if !list.is_empty() {
            list.push(',');
        }
        element.render(list, fill);
    }

    fn fill(&self, template: &Template<JobSlot>, values: &Values) -> String {
        let (request_id, time) = (random_hex::<16>().unwrap_or_default(), rfc3339(now_s()));
        let mut body = String::new();
        template.render(&mut body, |slot| match slot {
            JobSlot::Id => values.id.as_deref().into(),
            JobSlot::Url => values.url.as_deref().into(),
            JobSlot::UploadId => values.upload_id.as_deref().into(),
            JobSlot::AudioUrl => values.audio_url.as_deref().into(),
            JobSlot::Name => values.name.as_deref().into(),
            JobSlot::CreatedAt => values.created_at.as_deref().into(),
            JobSlot::EndedAt => values.ended_at.as_deref().into(),
            JobSlot::Model => values.model.as_deref().into(),
            JobSlot::Language => values.language.as_deref().into(),
            JobSlot::Text => values.text.as_deref().into(),
            JobSlot::Code => values.code.as_deref().into(),
            JobSlot::Message => values.message.as_deref().into(),
            JobSlot::WordDelimiter => values.word_delimiter.into(),
            JobSlot::Incomplete => values.incomplete.as_deref().map_or(SlotValue::Null, SlotValue::Raw),
            JobSlot::Size => values.size.map_or(SlotValue::Null, SlotValue::Int),
            JobSlot::Channels => values.channels.map_or(SlotValue::Null, SlotValue::Int),
            JobSlot::DurationS => values.duration_s.map_or(SlotValue::Null, SlotValue::Float),
            JobSlot::Words => SlotValue::Elements(&values.words),
            JobSlot::Utterances => SlotValue::Elements(&values.utterances),
            JobSlot::Status => {
                values.status.map_or(SlotValue::Null, |status| SlotValue::Int(status.as_u16().into()))
            }
            JobSlot::Title => values.status.and_then(|status| status.canonical_reason()).into(),
            JobSlot::Path => SlotValue::Str(&self.path),
            JobSlot::RequestId => SlotValue::Str(&request_id),
            JobSlot::Time => SlotValue::Str(&time),
            JobSlot::Word | JobSlot::Token | JobSlot::FromS | JobSlot::ToS => SlotValue::Null,
        });
        body
    }
}

const fn answer_of(kept: &Kept) -> JobAnswer {
    match kept {
        Kept::Upload(_) => JobAnswer::Upload,
        Kept::Job(job) => match job.state {
            JobState::Waiting => JobAnswer::Waiting,
            JobState::Running => JobAnswer::Running,
            JobState::Done(_) => JobAnswer::Done,
            JobState::Failed(_) => JobAnswer::Failed,
        },
    }
}
