//! `voxbridge transcribe`: a recording in, its words out.

use std::io::Write;

use super::args::TranscribeArgs;
use super::client::{Client, ClientTiming, ServerTarget};
use super::error::ClientError;
use super::stream_recording::{self, StreamProgress};
use super::view::TranscriptView;
use super::{key, read_input};

/// An hour of the largest format that is read, 32 bits at 48 kHz and one channel; it is held in memory.
pub(super) const INPUT_MAX_BYTES: u64 = 700 << 20;

/// Runs the command.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &TranscribeArgs) -> Result<(), ClientError> {
    let (bytes, source_name) = read_input::read_input(&args.file, INPUT_MAX_BYTES).await?;
    let samples = stream_recording::decode_wav(&bytes, &source_name)?;
    drop(bytes);
    let target = ServerTarget {
        url: args.url.clone(),
        model: args.model.clone(),
        language: args.language.clone(),
        key: key::load_key(args.key.key_file.as_deref())?,
    };
    transcribe(
        &target,
        ClientTiming::default(),
        &samples,
        TranscriptView::for_terminal(args.json, samples.len()),
    )
    .await
}

/// Everything but the terminal and the file.
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
    // Goodbye is said in any case: a session that is merely dropped costs the next client a worker.
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
