//! Transcriptions as jobs, as the vendors' quickstarts have them: a client uploads a recording, creates a job, asks for its state
//! until it is done, and takes the transcript. The mapping files have the paths, fields, states and answers (`[jobs]`).
//!
//! A job is a request to transcribe like any other; it only runs behind the request that created it. At a shutdown, jobs that are
//! not done fail when the listener closes, because no client could ask for their transcripts any more.
//!
//! - [`store`]: what is kept, and for how long
//! - [`upload`]: reads recordings and settings
//! - [`run`]: transcribes the recording of a job
//! - [`answers`]: the answers

mod answers;
mod run;
mod store;
mod upload;

use hyper::{Method, Response, StatusCode};

pub(in crate::server) use self::store::JobStore;
use self::{
    answers::Answers,
    store::{Kept, Owner},
};
use super::{
    super::accept::{
        admission::{Caller, ClientPeer},
        http_error::{HttpError, HttpResponse, HttpResult, answer_with},
        request_body::ReceivedRequest,
        session_opening::unix_now,
    },
    ServedRequest,
    job_endpoint::{Action, JobEndpoint},
    query::Query,
    session::Opening,
    style::Failure,
};
use crate::{
    server::Snapshot,
    spelling::client::{JobApi, TranscriptForm},
};

/// The part of the memory for messages in transit that one key's uploads, waiting jobs and transcripts may take: a quarter.
const MEMORY_PART: usize = 4;

/// Answers the request; errors, too, in the form of the protocol.
pub(super) async fn answer(
    endpoint: &JobEndpoint,
    request: ReceivedRequest,
    peer: &ClientPeer,
    Snapshot { server, config }: &Snapshot,
    served: ServedRequest,
) -> HttpResult<HttpResponse> {
    let unknown = |_| HttpError::bad_request("The protocol of this path is no longer configured");
    let client = config.library.client(&endpoint.protocol).map_err(unknown)?;
    let Some(api) = &client.jobs else { return Err(unknown(String::new())) };
    let answers = Answers::new(api, &request, config.tls.is_some());
    let answered = async {
        let caller = Caller::identify(config, &request, peer, Some(&server.client_secrets))?;
        let owner = Owner { key: caller.key_name(), protocol: client.name.clone() };
        let path = request.uri().path().to_owned();
        let opening = Opening { server: server.clone(), config: config.clone(), caller, path, served };
        answer_action(&endpoint.action, request, opening, owner, &answers).await
    };
    answered.await.map_err(|failure| answers.error(failure))
}

async fn answer_action(
    action: &Action,
    request: ReceivedRequest,
    opening: Opening,
    owner: Owner,
    answers: &Answers<'_>,
) -> Result<HttpResponse, Failure> {
    let api = answers.api;
    let store = opening.server.jobs.clone();
    let is_deletion = request.method() == Method::DELETE;
    match action {
        Action::Upload => {
            let status = api.uploads.as_ref().map_or(200, |uploads| uploads.status);
            let found = upload::keep(request, &opening, owner, api).await?;
            json(status, answers.found(&found))
        }
        Action::UploadById(id) | Action::Job(id) if is_deletion => {
            let found = store.find(&owner, id).filter(|found| action.is_about(&found.kept));
            found.and_then(|_| store.delete(&owner, id)).map_or_else(
                || Err(not_found(action)),
                |found| match answers.deleted(&found) {
                    Some(body) => json(api.deleted_status, body),
                    None => {
                        let mut response = HttpResponse::default();
                        *response.status_mut() = status_of(api.deleted_status);
                        Ok(response)
                    }
                },
            )
        }
        Action::UploadById(id) | Action::Job(id) => {
            let found = store.find(&owner, id).filter(|found| action.is_about(&found.kept));
            json(200, answers.found(&found.ok_or_else(|| not_found(action))?))
        }
        Action::Create => {
            let created = upload::create(request, opening, owner, api).await?;
            json(api.created_status, answers.created(&created))
        }
        Action::Transcript(id, end) => {
            let query = Query::of(&request);
            let format = query.get("format");
            let at_path = || api.transcripts.iter().filter(|it| it.path == *end);
            let asked = at_path()
                .find(|it| format.is_none() == it.format.is_none() && it.format.as_deref() == format);
            let form = asked.map(|it| &it.form).ok_or_else(|| unknown_format(format, at_path()))?;
            let found = store.find(&owner, id).ok_or_else(|| not_found(action))?;
            match (form, answers.transcript(form, &found)) {
                (_, None) => Err(not_ready(api)),
                (TranscriptForm::Json(_), Some(body)) => json(200, body),
                (TranscriptForm::File(_), Some(body)) => Ok(answer_with("text/plain; charset=utf-8", body)),
            }
        }
    }
}

impl Action {
    /// True if the id of the path is that of an upload, or of a job, as it must be.
    const fn is_about(&self, kept: &Kept) -> bool {
        matches!(self, Self::UploadById(_)) == matches!(kept, Kept::Upload(_))
    }
}

fn json(status: u16, body: String) -> Result<HttpResponse, Failure> {
    let mut response: Response<_> = answer_with("application/json", body);
    *response.status_mut() = status_of(status);
    Ok(response)
}

fn status_of(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::OK)
}

fn not_found(action: &Action) -> Failure {
    let message = match action {
        Action::UploadById(_) => "There is no upload with this id; voxbridge keeps uploads for half an hour",
        _ => {
            "There is no transcription with this id; voxbridge keeps transcriptions for a day, and none over a restart"
        }
    };
    Failure::new(StatusCode::NOT_FOUND, "not_found", message)
}

fn not_ready(api: &JobApi) -> Failure {
    Failure::new(
        status_of(api.not_ready_status),
        "not_ready",
        "The transcript is not ready, or the job failed",
    )
}

fn unknown_format<'a>(
    format: Option<&str>,
    known: impl Iterator<Item = &'a crate::spelling::client::JobTranscript>,
) -> Failure {
    let known: Vec<_> = known.filter_map(|it| it.format.as_deref()).collect();
    Failure::parameter(
        "format",
        format!("Unsupported format {:?}; there are {}", format.unwrap_or_default(), known.join(", ")),
    )
}

/// Most bytes of one key's uploads, waiting jobs and transcripts.
fn max_bytes(opening: &Opening) -> usize {
    opening.config.limits.for_key(opening.caller.key.as_deref()).memory_max_bytes / MEMORY_PART
}

fn now_s() -> f64 {
    unix_now().as_secs_f64()
}
