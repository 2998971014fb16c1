//! Reads the recordings and the settings of jobs, and keeps them.

use bytes::Bytes;
use hyper::header::CONTENT_TYPE;

use super::{
    super::{
        super::accept::request_body::ReceivedRequest,
        ServedRequest,
        body::{out_of_memory, read_body, too_large},
        form::Part,
        session::Opening,
        style::Failure,
        upload::{Form, RECORDING_MAX_BYTES, read_form},
    },
    max_bytes, now_s,
    run::{Work, run},
    store::{Found, Job, NamedRecording, NewJob, Owner, RecordingHeader, Upload},
};
use crate::{
    error::ErrorKind,
    media::decode::{DecodeLimits, Decoder},
    server::memory::{Held, MemoryShare},
    spelling::client::{JobApi, JobSettings},
};

/// Longest settings, bytes: lists of words may be long.
const SETTINGS_MAX_BYTES: usize = 256 * 1024;
/// Most bytes of a form beside its recording that are kept with it.
const REST_OF_FORM_MAX_BYTES: usize = 16 * 1024;
/// Longest file name that is kept, characters.
const NAME_MAX_CHARS: usize = 256;
/// Name of a recording that came without one.
const NAMELESS: &str = "audio";

/// Receives a recording and keeps it.
pub(super) async fn keep(
    request: ReceivedRequest,
    opening: &Opening,
    owner: Owner,
    api: &JobApi,
) -> Result<Found, Failure> {
    let server = &opening.server;
    let mut memory = opening.memory_share();
    let field = api.uploads.as_ref().and_then(|uploads| uploads.field.as_deref());
    let recording = match field {
        None => {
            let body = request.into_body();
            let bytes = read_body(body, RECORDING_MAX_BYTES, &mut memory, &server.bodies).await?;
            NamedRecording { bytes, name: NAMELESS.to_owned() }
        }
        Some(field) => {
            let form = read_parts(request, &mut memory, opening).await?;
            take_recording(form, field, &mut memory, opening).await?
        }
    };
    if recording.bytes.is_empty() {
        return Err(Failure::audio("The upload is empty; it must be a recording"));
    }
    memory.hold(Held::Incoming, recording.bytes.len());
    let header = read_header(recording.bytes.clone(), opening).await?;
    let upload = Upload::new(recording, header);
    server.jobs.add_upload(owner, upload, memory, max_bytes(opening), now_s())
}

/// The length and the channels of a recording, as its header has them. A file that is no recording is refused.
async fn read_header(recording: Bytes, opening: &Opening) -> Result<RecordingHeader, Failure> {
    let open = move || Decoder::open(recording, DecodeLimits::default());
    let opened = opening.server.codec_threads.run(open).await;
    let opened = opened.ok_or_else(|| Failure::audio("Invalid audio: the decoder failed"))?;
    let decoder = opened.map_err(|error| Failure::audio(format!("Invalid audio: {error}")))?;
    Ok(RecordingHeader { duration: decoder.info().duration, channels: decoder.info().channels })
}

/// Creates a job and begins it.
pub(super) async fn create(
    request: ReceivedRequest,
    opening: Opening,
    owner: Owner,
    api: &JobApi,
) -> Result<Found, Failure> {
    if opening.server.lifecycle.is_shutting_down() {
        return Err(Failure::of_session(ErrorKind::Unavailable, "voxbridge is stopping"));
    }
    let mut memory = opening.memory_share();
    let (settings, uploaded) = read_request(request, &mut memory, &opening, api).await?;
    let settings = api.read(&settings).map_err(Failure::invalid)?;
    let NamedRecording { bytes: recording, name } = match uploaded {
        Some(uploaded) => uploaded,
        None => find_upload(&settings, &opening, &owner, api)?,
    };
    if !memory.hold(Held::Incoming, recording.len()) {
        return Err(out_of_memory());
    }
    let model = settings.model.clone().unwrap_or_else(|| api.model.clone());
    opening.check_model(&model)?;
    let job = Job::new(settings, model.clone(), name);
    let store = &opening.server.jobs;
    let job = store.add_job(owner, job, recording.len(), max_bytes(&opening), now_s())?;
    Ok(begin(job, model, recording, memory, opening))
}

/// Begins a job.
fn begin(job: NewJob, model: String, recording: Bytes, memory: MemoryShare, opening: Opening) -> Found {
    let NewJob { found, settings, is_kept, permits } = job;
    let opening = Opening { served: ServedRequest::in_background(), ..opening };
    let id = found.id.clone();
    tokio::spawn(run(Work { id, opening, settings, model, recording, memory, is_kept, permits }));
    found
}

/// The settings of a request as JSON, and the recording if it is in the request.
async fn read_request(
    request: ReceivedRequest,
    memory: &mut MemoryShare,
    opening: &Opening,
    api: &JobApi,
) -> Result<(String, Option<NamedRecording>), Failure> {
    let Some((settings_field, recording_field)) = &api.form else {
        let body = read_body(request.into_body(), SETTINGS_MAX_BYTES, memory, &opening.server.bodies).await?;
        return Ok((settings_text(&body)?, None));
    };
    let form = read_parts(request, memory, opening).await?;
    let settings = form.parts.iter().find(|part| part.name == *settings_field);
    let settings = settings.map_or_else(|| Ok("{}".to_owned()), |part| settings_text(&part.contents))?;
    // What is wrong with the settings may explain why there is no recording.
    api.read(&settings).map_err(Failure::invalid)?;
    Ok((settings, Some(take_recording(form, recording_field, memory, opening).await?)))
}

fn settings_text(bytes: &Bytes) -> Result<String, Failure> {
    if bytes.len() > SETTINGS_MAX_BYTES {
        return Err(Failure::invalid(format!(
            "The settings are longer than {} KiB",
            SETTINGS_MAX_BYTES >> 10
        )));
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| Failure::invalid("The settings are not UTF-8"))
}

async fn read_parts(
    request: ReceivedRequest,
    memory: &mut MemoryShare,
    opening: &Opening,
) -> Result<Form, Failure> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().trim().to_owned();
    read_form(request.into_body(), &content_type, memory, &opening.server).await
}

/// Takes the recording out of a form, without the memory of the rest.
async fn take_recording(
    Form { mut parts, body_bytes }: Form,
    field: &str,
    memory: &mut MemoryShare,
    opening: &Opening,
) -> Result<NamedRecording, Failure> {
    let at = parts.iter().position(|part| part.name == field);
    let at = at.ok_or_else(|| Failure::invalid(format!("The form has no recording as '{field}'")))?;
    let Part { contents, file_name, .. } = parts.swap_remove(at);
    drop(parts);
    let length = contents.len();
    if length == 0 {
        return Err(Failure::audio("The upload is empty; it must be a recording"));
    }
    if length > RECORDING_MAX_BYTES {
        return Err(too_large(RECORDING_MAX_BYTES));
    }
    let name = file_name.filter(|name| !name.is_empty()).unwrap_or_else(|| NAMELESS.to_owned());
    let name = name.chars().take(NAME_MAX_CHARS).collect();
    if body_bytes - length <= REST_OF_FORM_MAX_BYTES {
        return Ok(NamedRecording { bytes: contents, name });
    }
    if !memory.hold(Held::Incoming, body_bytes + length) {
        return Err(out_of_memory());
    }
    let copy = opening.server.codec_threads.run(move || Bytes::copy_from_slice(&contents)).await;
    Ok(NamedRecording { bytes: copy.ok_or_else(out_of_memory)?, name })
}

/// The recording of the upload that the settings name, by its id or by the URL that the upload's answer had.
fn find_upload(
    settings: &JobSettings,
    opening: &Opening,
    owner: &Owner,
    api: &JobApi,
) -> Result<NamedRecording, Failure> {
    let id_in_url = |url: &String| {
        let path = &*api.uploads.as_ref()?.path;
        let (_, id) = url.rsplit_once('/').filter(|(before, _)| before.ends_with(path))?;
        Some(id.to_owned())
    };
    let id = settings.upload_id.clone().or_else(|| settings.audio_url.as_ref().and_then(id_in_url));
    match (id, &settings.audio_url) {
        (Some(id), _) => opening.server.jobs.recording_of(owner, &id).ok_or_else(|| {
            Failure::invalid(
                "There is no upload with this id; voxbridge keeps uploads for half an hour: upload it again",
            )
        }),
        (None, Some(_)) => Err(Failure::invalid(
            "voxbridge fetches no URLs: upload the recording, and create the transcription with the URL that the upload's answer has",
        )),
        (None, None) => Err(Failure::invalid("The request names no recording: upload one beforehand")),
    }
}
