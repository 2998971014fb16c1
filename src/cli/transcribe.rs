//! `voxbridge transcribe`: sends a recording and prints the transcript.

use std::io::Write;

use super::args::TranscribeArgs;
use super::client::{Client, ClientTiming};
use super::dial::ServerTarget;
use super::error::ClientError;
use super::stream_recording::{self, StreamProgress};
use super::view::TranscriptView;

/// Runs the command.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &TranscribeArgs) -> Result<(), ClientError> {
    let samples = stream_recording::read_wav(&args.file).await?;
    let target = ServerTarget { language: args.language.clone(), ..args.server.target()? };
    transcribe(
        &target,
        ClientTiming::default(),
        &samples,
        TranscriptView::for_terminal(args.json, samples.len()),
    )
    .await
}

/// Transcribes samples, without terminal and files.
pub(super) async fn transcribe<W: Write>(
    target: &ServerTarget,
    timing: ClientTiming,
    samples: &[i16],
    mut view: TranscriptView<W>,
) -> Result<(), ClientError> {
    let (mut client, created) = Client::connect(target, timing).await?;
    view.show(StreamProgress::Event(&created)).map_err(ClientError::unwritable_stdout)?;
    let result =
        stream_recording::stream_and_transcribe(&mut client, samples, |progress| view.show(progress)).await;
    view.finish();
    // Closes the session even after an error, because a dropped session occupies a worker for longer.
    client
        .close(|event| {
            let _ = view.show(StreamProgress::Event(event));
        })
        .await;
    let result = result?;
    if result.finals.is_empty() {
        view.print_note("no speech was found in the recording");
    }
    result.incomplete_error().map_or(Ok(()), Err)
}
