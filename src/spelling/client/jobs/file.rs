//! Schema of `[jobs]`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{
    super::fields::compile_fields, JobAnswer, JobApi, JobFile, JobSlot, JobTranscript, TranscriptForm,
    UploadApi,
};
use crate::spelling::{
    check::{
        Document, FileError,
        values::{JsonPointer, UrlPath},
    },
    extract::Extractor,
    field::{FieldFile, FieldRole, ProtocolField},
    template::Template,
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
pub(in crate::spelling::client) struct JobsFile {
    path: UrlPath,
    model: String,
    audio_url: Option<JsonPointer>,
    upload_id: Option<JsonPointer>,
    settings_field: Option<String>,
    recording_field: Option<String>,
    uploads: Option<UploadsFile>,
    #[serde(default = "ok")]
    created_status: u16,
    #[serde(default = "ok")]
    deleted_status: u16,
    #[serde(default = "conflict")]
    not_ready_status: u16,
    #[serde(default)]
    fields: BTreeMap<Spanned<String>, FieldFile>,
    #[serde(default)]
    refused: BTreeMap<String, String>,
    answers: BTreeMap<JobAnswer, Spanned<String>>,
    #[serde(default)]
    transcripts: Vec<TranscriptFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UploadsFile {
    path: UrlPath,
    field: Option<String>,
    #[serde(default = "ok")]
    status: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TranscriptFile {
    path: UrlPath,
    format: Option<String>,
    file: Option<JobFile>,
    answer: Option<Spanned<String>>,
}

const fn ok() -> u16 {
    200
}

const fn conflict() -> u16 {
    409
}

impl JobsFile {
    pub(in crate::spelling::client) fn compile(self, document: &Document<'_>) -> Result<JobApi, FileError> {
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
        let mut extractor = Extractor::default();
        let audio_url = self.audio_url.map(|pointer| extractor.add(&pointer.0));
        let upload_id = self.upload_id.map(|pointer| extractor.add(&pointer.0));
        let refused = self.refused.into_iter();
        let refused =
            refused.map(|(name, because)| (name.clone(), extractor.add(&format!("/{name}")), because));
        let refused = refused.collect();
        let fields = compile_fields(self.fields, &mut extractor, &[], false, document)?;
        let has_other_role =
            |field: &&ProtocolField| field.file.to.is_some_and(|role| !ROLES.contains(&role));
        if let Some(field) = fields.iter().find(has_other_role) {
            let message = "a job has fields for model, language, hot_words, transcription_prompt and task";
            return problem(&["jobs", "fields", &field.name], message);
        }
        let transcripts = self.transcripts.into_iter().map(|transcript| transcript.compile(document));
        Ok(JobApi {
            path: self.path.0,
            model: self.model,
            form: self.settings_field.zip(self.recording_field),
            uploads: self.uploads.map(|uploads| UploadApi {
                path: uploads.path.0,
                field: uploads.field,
                status: uploads.status,
            }),
            created_status: self.created_status,
            deleted_status: self.deleted_status,
            not_ready_status: self.not_ready_status,
            fields,
            transcripts: transcripts.collect::<Result<_, _>>()?,
            answers: compile_answers(self.answers, document)?,
            refused,
            audio_url,
            upload_id,
            extractor,
        })
    }
}

impl TranscriptFile {
    fn compile(self, document: &Document<'_>) -> Result<JobTranscript, FileError> {
        let form = match (self.file, self.answer) {
            (Some(file), None) => TranscriptForm::File(file),
            (None, Some(answer)) => TranscriptForm::Json(compile_template(&answer, document)?),
            _ => {
                let message = "a transcript has either a `file` or an `answer`";
                return Err(document.problem_at_key(&["jobs", "transcripts"], message));
            }
        };
        Ok(JobTranscript { path: self.path.0, format: self.format, form })
    }
}

/// Compiles the templates; those of the states and of errors are needed.
fn compile_answers(
    files: BTreeMap<JobAnswer, Spanned<String>>,
    document: &Document<'_>,
) -> Result<BTreeMap<JobAnswer, Template<JobSlot>>, FileError> {
    let needed =
        [JobAnswer::Waiting, JobAnswer::Running, JobAnswer::Done, JobAnswer::Failed, JobAnswer::Error];
    if let Some(missing) = needed.into_iter().find(|name| !files.contains_key(name)) {
        let message = format!("[jobs.answers] needs `{}`", missing.name());
        return Err(document.problem_at_key(&["jobs", "answers"], message));
    }
    files.into_iter().map(|(name, text)| Ok((name, compile_template(&text, document)?))).collect()
}

fn compile_template(text: &Spanned<String>, document: &Document<'_>) -> Result<Template<JobSlot>, FileError> {
    let slots = JobSlot::ALL.map(|slot| (slot.name(), slot));
    let template = Template::compile_slots(text.get_ref(), &slots);
    template.map_err(|error| document.problem(text.span().start, error.to_string()))
}
