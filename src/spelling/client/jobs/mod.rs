//! `[jobs]` of a client file: a vendor's HTTP API in which a client uploads a recording, creates a transcription, and asks for
//! its state until it is done. This is its spelling; the server keeps the jobs.

mod file;

use std::ops::Deref;

pub(super) use self::file::JobsFile;
pub use self::file::UploadApi;
use crate::{
    named_enum::named_enum,
    spelling::{
        extract::Extractor,
        field::{FieldRole, FieldValue, ProtocolField},
        template::Template,
    },
    vocabulary::Node,
};

named_enum! {
    /// A value that an answer about jobs can use. A value that is not known is `null`.
    pub enum JobSlot {
        /// Id of the job or upload.
        Id = "id",
        /// URL of the job or upload.
        Url = "url",
        /// Id of the job's upload.
        UploadId = "upload_id",
        /// URL of the recording, as the client wrote it.
        AudioUrl = "audio_url",
        /// File name of the recording.
        Name = "name",
        /// Length of the upload, bytes.
        Size = "size",
        /// Length of the recording, seconds; of an upload, as its header has it.
        DurationS = "duration_s",
        /// Channels of the recording; of an upload only.
        Channels = "channels",
        /// When the job or upload came, RFC 3339 in UTC.
        CreatedAt = "created_at",
        /// When the job ended.
        EndedAt = "ended_at",
        /// The requested model.
        Model = "model",
        /// Language: the requested one, or else the transcript's.
        Language = "language",
        /// The transcript.
        Text = "text",
        /// The words, each as the answer `word`.
        Words = "words",
        /// The utterances, each as the answer `utterance`.
        Utterances = "utterances",
        /// What stands between words: a space, or nothing in languages without spaces.
        WordDelimiter = "word_delimiter",
        /// From where on the transcript is incomplete, and why.
        Incomplete = "incomplete",
        /// A word.
        Word = "word",
        /// A word, with what stands before it in the transcript.
        Token = "token",
        /// Start of a word or utterance, seconds.
        FromS = "from_s",
        /// Its end.
        ToS = "to_s",
        /// HTTP status of the error.
        Status = "status",
        /// Name of the HTTP status.
        Title = "title",
        /// voxbridge's name of the error.
        Code = "code",
        /// What is wrong.
        Message = "message",
        /// Path of the request.
        Path = "path",
        /// A random id.
        RequestId = "request_id",
        /// Wall clock, RFC 3339 in UTC.
        Time = "time",
    }
}

named_enum! {
    /// A transcript as a file.
    pub enum JobFile {
        /// The text.
        Text = "text",
        /// SubRip subtitles.
        Srt = "srt",
        /// WebVTT subtitles.
        Vtt = "vtt",
    }
}

/// A vendor's API for transcriptions of recordings as jobs: its file, and what was made of the file.
#[derive(Debug)]
pub struct JobApi {
    file: JobsFile,
    /// Field of the form that creates a job, with the settings, and field with the recording. Without them, the body is the
    /// settings.
    pub form: Option<(String, String)>,
    /// The settings of a job.
    pub fields: Vec<ProtocolField>,
    /// The transcripts of a job at paths of their own.
    pub transcripts: Vec<JobTranscript>,
    /// Settings that end in an error, each with its words.
    refused: Vec<(String, usize, String)>,
    /// Slots of the recording's URL and of the upload's id.
    audio_url: Option<usize>,
    upload_id: Option<usize>,
    extractor: Extractor,
}

/// A transcript at a path of its own.
#[derive(Debug)]
pub struct JobTranscript {
    /// Behind the path of the job.
    pub path: String,
    /// Value of the query parameter `format` that asks for it; `None` for a request without one.
    pub format: Option<String>,
    /// Its form.
    pub form: TranscriptForm,
}

/// Form of a transcript.
#[derive(Debug)]
pub enum TranscriptForm {
    /// JSON.
    Json(Template<JobSlot>),
    /// A file.
    File(JobFile),
}

named_enum! {
    /// An answer of the API.
    pub enum JobAnswer {
        /// An upload.
        Upload = "upload",
        /// A job that was created; without it, as one that waits.
        Created = "created",
        /// A job that waits.
        Waiting = "waiting",
        /// A job that is being transcribed.
        Running = "running",
        /// A job with its transcript.
        Done = "done",
        /// A job that failed.
        Failed = "failed",
        /// A job that was deleted; without it, the answer has no body.
        Deleted = "deleted",
        /// An error.
        Error = "error",
        /// An element of `words`.
        Word = "word",
        /// An element of `utterances`.
        Utterance = "utterance",
    }
}

/// Settings of a job, as the client wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobSettings {
    /// URL of the recording.
    pub audio_url: Option<String>,
    /// Id of the upload.
    pub upload_id: Option<String>,
    /// Requested model.
    pub model: Option<String>,
    /// Language of the speech.
    pub language: Option<String>,
    /// Words that may occur.
    pub hot_words: Vec<String>,
    /// Words for the transcription prompt.
    pub prompt: Option<String>,
    /// True for a translation into English.
    pub translates: bool,
}

impl Deref for JobApi {
    type Target = JobsFile;

    fn deref(&self) -> &JobsFile {
        &self.file
    }
}

impl JobApi {
    /// The template of an answer.
    #[must_use]
    pub fn answer(&self, name: JobAnswer) -> Option<&Template<JobSlot>> {
        self.answers.get(&name)
    }

    /// True if the API has this path.
    #[must_use]
    pub fn serves(&self, path: &str) -> bool {
        let is_at_or_below =
            |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        is_at_or_below(&self.path)
            || self.uploads.as_ref().is_some_and(|uploads| is_at_or_below(&uploads.path))
    }

    /// The paths that the API has, for people.
    pub fn paths(&self) -> impl Iterator<Item = String> + '_ {
        let of_jobs = [self.path.0.clone(), format!("{}/{{id}}", self.path.0)];
        let transcripts =
            self.transcripts.iter().map(|transcript| format!("{}/{{id}}{}", self.path.0, transcript.path));
        let mut paths: Vec<_> = self
            .uploads
            .iter()
            .map(|uploads| uploads.path.0.clone())
            .chain(of_jobs)
            .chain(transcripts)
            .collect();
        paths.dedup();
        paths.into_iter()
    }

    /// Settings that end in an error, each with its words.
    pub fn refused(&self) -> impl Iterator<Item = (&str, &str)> {
        self.refused.iter().map(|(name, _, because)| (name.as_str(), because.as_str()))
    }

    /// Reads the settings of a job, a JSON object.
    ///
    /// # Errors
    /// What is wrong with them, for the client.
    pub fn read(&self, json: &str) -> Result<JobSettings, String> {
        let found = self.extractor.extract(json).map_err(|error| error.to_string())?;
        for (name, slot, because) in &self.refused {
            if !matches!(found.get(*slot), None | Some(Node::Null | Node::Bool(false))) {
                return Err(format!("'{name}': {because}"));
            }
        }
        let text = |slot: Option<usize>| Some(found.get(slot?)?.as_str()?.to_owned());
        let mut settings = JobSettings {
            audio_url: text(self.audio_url),
            upload_id: text(self.upload_id),
            ..JobSettings::default()
        };
        for field in &self.fields {
            let value = field.read(found.get(field.slot));
            let value = value.map_err(|problem| format!("'{}': {problem}", field.name))?;
            if let (Some(role), Some(value)) = (field.file.to, value) {
                settings.set(role, value);
            }
        }
        Ok(settings)
    }
}

impl JobSettings {
    /// Takes a value; an earlier one counts.
    fn set(&mut self, role: FieldRole, value: FieldValue) {
        match (role, value) {
            (FieldRole::Model, FieldValue::Text(name)) => self.model = self.model.take().or(Some(name)),
            (FieldRole::Language, FieldValue::Text(language)) => {
                self.language = self.language.take().or(Some(language));
            }
            (FieldRole::HotWords, FieldValue::Items(items)) => {
                self.hot_words.extend(items.iter().flat_map(|item| item.texts.iter().cloned()));
            }
            (FieldRole::TranscriptionPrompt, FieldValue::Text(words)) => self.prompt = Some(words),
            (FieldRole::Task, FieldValue::Text(name)) => self.translates = name == "translate",
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
