//! Schema of `[jobs]`.

use std::{collections::BTreeMap, mem::take};

use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::{
    super::fields::compile_fields, JobAnswer, JobApi, JobFile, JobSlot, JobTranscript, TranscriptForm,
};
use crate::spelling::{
    check::{
        Document, FileError,
        values::{JsonPointer, UrlPath},
    },
    extract::Extractor,
    field::{FieldFile, FieldRole, ProtocolField},
    template::{Template, deserialize_template},
};

/// Roles of the fields of a job: the settings that a transcription has.
const ROLES: [FieldRole; 5] = [
    FieldRole::Model,
    FieldRole::Language,
    FieldRole::HotWords,
    FieldRole::TranscriptionPrompt,
    FieldRole::Task,
];

/// The table in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobsFile {
    /// `POST` creates a job here; `GET` and `DELETE` with the job's id behind it ask for the job and delete it.
    pub path: UrlPath,
    /// Model of a job that names none.
    pub model: String,
    audio_url: Option<JsonPointer>,
    upload_id: Option<JsonPointer>,
    settings_field: Option<String>,
    recording_field: Option<String>,
    /// Where recordings are uploaded beforehand.
    pub uploads: Option<UploadApi>,
    /// HTTP status of the answer to a request that creates a job.
    #[serde(default = "ok")]
    pub created_status: u16,
    /// HTTP status of the answer to a request that deletes.
    #[serde(default = "ok")]
    pub deleted_status: u16,
    /// HTTP status of a request for a transcript that is not made yet.
    #[serde(default = "conflict")]
    pub not_ready_status: u16,
    #[serde(default)]
    fields: BTreeMap<Spanned<String>, FieldFile>,
    #[serde(default)]
    refused: BTreeMap<String, String>,
    pub(super) answers: BTreeMap<JobAnswer, Template<JobSlot>>,
    #[serde(default)]
    transcripts: Vec<TranscriptFile>,
}

/// Where recordings are uploaded.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadApi {
    /// `POST` uploads a recording here; `GET` and `DELETE` with its id behind it.
    pub path: UrlPath,
    /// Field of a form with the recording; `None` if the body is the recording.
    pub field: Option<String>,
    /// HTTP status of the answer.
    #[serde(default = "ok")]
    pub status: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TranscriptFile {
    path: UrlPath,
    format: Option<String>,
    file: Option<JobFile>,
    answer: Option<Template<JobSlot>>,
}

impl<'de> Deserialize<'de> for Template<JobSlot> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        deserialize_template(from, &JobSlot::ALL.map(|slot| (slot.name(), slot)))
    }
}

const fn ok() -> u16 {
    200
}

const fn conflict() -> u16 {
    409
}

impl JobsFile {
    pub(in crate::spelling::client) fn compile(
        mut self,
        document: &Document<'_>,
    ) -> Result<JobApi, FileError> {
        let problem = |path: &[&str], message: &str| Err(document.problem_at_key(path, message));
        if self.settings_field.is_some() != self.recording_field.is_some() {
            return problem(&["jobs"], "`settings_field` and `recording_field` are fields of one form");
        }
        if self.uploads.is_some() == self.recording_field.is_some() {
            return problem(&["jobs"], "a recording comes either to `uploads` or in `recording_field`");
        }
        if self.uploads.is_some() && self.audio_url.is_none() && self.upload_id.is_none() {
            return problem(&["jobs"], "`audio_url` or `upload_id` says where a job names its upload");
        }
        let needed =
            [JobAnswer::Waiting, JobAnswer::Running, JobAnswer::Done, JobAnswer::Failed, JobAnswer::Error];
        if let Some(missing) = needed.into_iter().find(|name| !self.answers.contains_key(name)) {
            let message = format!("[jobs.answers] needs `{}`", missing.name());
            return problem(&["jobs", "answers"], &message);
        }
        let mut extractor = Extractor::default();
        let audio_url = self.audio_url.take().map(|pointer| extractor.add(&pointer));
        let upload_id = self.upload_id.take().map(|pointer| extractor.add(&pointer));
        let refused = take(&mut self.refused).into_iter();
        let refused =
            refused.map(|(name, because)| (name.clone(), extractor.add(&format!("/{name}")), because));
        let refused = refused.collect();
        let fields = compile_fields(take(&mut self.fields), &mut extractor, &[], false, document)?;
        let has_other_role =
            |field: &&ProtocolField| field.file.to.is_some_and(|role| !ROLES.contains(&role));
        if let Some(field) = fields.iter().find(has_other_role) {
            let message = "a job has fields for model, language, hot_words, transcription_prompt and task";
            return problem(&["jobs", "fields", &field.name], message);
        }
        let transcripts =
            take(&mut self.transcripts).into_iter().map(|transcript| transcript.compile(document));
        Ok(JobApi {
            form: self.settings_field.take().zip(self.recording_field.take()),
            fields,
            transcripts: transcripts.collect::<Result<_, _>>()?,
            refused,
            audio_url,
            upload_id,
            extractor,
            file: self,
        })
    }
}

impl TranscriptFile {
    fn compile(self, document: &Document<'_>) -> Result<JobTranscript, FileError> {
        let form = match (self.file, self.answer) {
            (Some(file), None) => TranscriptForm::File(file),
            (None, Some(answer)) => TranscriptForm::Json(answer),
            _ => {
                let message = "a transcript has either a `file` or an `answer`";
                return Err(document.problem_at_key(&["jobs", "transcripts"], message));
            }
        };
        Ok(JobTranscript { path: self.path.0, format: self.format, form })
    }
}
