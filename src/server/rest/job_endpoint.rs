//! Paths of uploads and jobs, as the mapping files have them, and what a request to one is about.

use hyper::{
    HeaderMap, Request,
    header::{CONTENT_TYPE, UPGRADE},
};

use super::form;
use crate::spelling::{
    ClientMapping, Library,
    client::{JobApi, decode_percent},
};

/// A request about uploads or jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobEndpoint {
    /// Name of the protocol.
    pub(super) protocol: String,
    pub(super) action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Upload,
    /// An upload by its id.
    UploadById(String),
    Create,
    /// A job by its id.
    Job(String),
    /// A transcript of a job; the end of its path.
    Transcript(String, String),
}

impl JobEndpoint {
    /// The endpoint of a request; `None` if no mapping file has jobs at its path. If several have, as for uploads, a key in the
    /// header of one tells them apart, or else whether the body is a form.
    pub(super) fn find<B>(request: &Request<B>, library: &Library) -> Option<Self> {
        if request.headers().contains_key(UPGRADE) {
            return None;
        }
        let path = request.uri().path();
        let with_jobs = library.clients().filter_map(|client| Some((client, client.jobs.as_ref()?)));
        let found = with_jobs.filter_map(|(client, jobs)| Some((client, jobs, Action::at(path, jobs)?)));
        let found: Vec<_> = found.collect();
        let shows_key = |client: &ClientMapping| {
            client.key_headers.iter().any(|name| request.headers().contains_key(name))
        };
        let is_form = is_form(request.headers());
        let by_key = found.iter().find(|(client, ..)| shows_key(client));
        let takes_form = |jobs: &JobApi| jobs.uploads.as_ref().is_some_and(|uploads| uploads.field.is_some());
        let by_body = found.iter().find(|(_, jobs, _)| takes_form(jobs) == is_form);
        let (client, _, action) = by_key.or(by_body).or(found.first())?;
        Some(Self { protocol: client.name.clone(), action: action.clone() })
    }

    /// The methods of the path, as headers list them.
    pub(super) const fn methods(&self) -> &'static str {
        match self.action {
            Action::Upload | Action::Create => "POST",
            Action::UploadById(_) | Action::Job(_) => "GET, DELETE",
            Action::Transcript(..) => "GET",
        }
    }
}

impl Action {
    fn at(path: &str, jobs: &JobApi) -> Option<Self> {
        if let Some(uploads) = &jobs.uploads
            && let Some(rest) = path.strip_prefix(&*uploads.path)
        {
            return match (rest, one_part(rest)) {
                ("", _) => Some(Self::Upload),
                (_, Some((id, ""))) => Some(Self::UploadById(id)),
                _ => None,
            };
        }
        let rest = path.strip_prefix(&*jobs.path)?;
        if rest.is_empty() {
            return Some(Self::Create);
        }
        let (id, end) = one_part(rest)?;
        let has_transcript = jobs.transcripts.iter().any(|it| it.path == end);
        match end {
            "" => Some(Self::Job(id)),
            _ if has_transcript => Some(Self::Transcript(id, end.to_owned())),
            _ => None,
        }
    }
}

/// The first part of a path that begins with `/`, decoded, and what follows it.
fn one_part(path: &str) -> Option<(String, &str)> {
    let path = path.strip_prefix('/').filter(|path| !path.is_empty())?;
    let end = path.find('/').unwrap_or(path.len());
    Some((decode_percent(&path[..end]), &path[end..]))
}

fn is_form(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| form::boundary_of(value).is_some())
}
