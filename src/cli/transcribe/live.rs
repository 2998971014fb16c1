//! Transcription over the WebSocket of a Macaw server or of voxbridge, in real time.

use super::Transcribed;
use crate::cli::client::{Client, ClientTiming, ReceivedEvent};
use crate::cli::dial::ServerTarget;
use crate::cli::error::ClientError;
use crate::cli::recording::Recording;
use crate::cli::server_events::MacawEvent;
use crate::cli::stream_recording::{StreamProgress, stream_and_transcribe};
use crate::cli::view::Progress;

/// Transcribes a recording in one session.
pub(in crate::cli) async fn transcribe(
    target: &ServerTarget,
    timing: ClientTiming,
    mut recording: Recording,
    mut on_progress: impl FnMut(Progress<'_>) -> Result<(), ClientError>,
) -> Result<Transcribed, ClientError> {
    let (mut client, created) = Client::connect(target, timing).await?;
    show(&mut on_progress, &created)?;
    let streamed = stream_and_transcribe(&mut client, &mut recording, |progress| match progress {
        StreamProgress::Sent(position) => on_progress(Progress::At(position)),
        StreamProgress::Event(event) => show(&mut on_progress, event),
        StreamProgress::Transcribed(segment) => on_progress(Progress::Transcribed(&segment)),
    });
    let result = streamed.await;
    // Closes the session even after an error, because a dropped session occupies a worker for longer.
    client
        .close(|event| {
            let _ = show(&mut on_progress, event);
        })
        .await;
    let (result, duration) = (result?, recording.position());
    let segments = result.segments(duration);
    Ok(Transcribed { segments, duration, problem: result.into_problem(), ..Transcribed::default() })
}

fn show(
    on_progress: &mut impl FnMut(Progress<'_>) -> Result<(), ClientError>,
    event: &ReceivedEvent,
) -> Result<(), ClientError> {
    on_progress(Progress::Event(&event.text))?;
    match &event.event {
        MacawEvent::Partial { text } => on_progress(Progress::Doing(text)),
        event => event.notice().map_or(Ok(()), |notice| on_progress(Progress::Note(&notice))),
    }
}
