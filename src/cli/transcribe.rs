//! `voxbridge transcribe`: a recording in, its words out.

use std::io::Write;

use super::args::TranscribeArgs;
use super::client::{Client, Target, Timing};
use super::error::ClientError;
use super::stream_recording::{self, Step};
use super::view::View;
use super::{key, read_input};

/// An hour of the largest format that is read, 32 bits at 48 kHz and one channel; it is held in memory.
pub(super) const INPUT_MAX_BYTES: u64 = 700 << 20;

/// Runs the command.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &TranscribeArgs) -> Result<(), ClientError> {
    let (bytes, what) = read_input::read(&args.file, INPUT_MAX_BYTES).await?;
    let samples = stream_recording::samples_of(&bytes, &what)?;
    drop(bytes);
    let target = Target {
        url: args.url.clone(),
        model: args.model.clone(),
        language: args.language.clone(),
        key: key::shown(args.key.key_file.as_deref())?,
    };
    transcribe(&target, Timing::default(), &samples, View::detect(args.json, samples.len())).await
}

/// Everything but the terminal and the file.
pub(super) async fn transcribe<W: Write>(
    target: &Target,
    timing: Timing,
    samples: &[i16],
    mut view: View<W>,
) -> Result<(), ClientError> {
    let (mut client, created) = Client::connect(target, timing).await?;
    view.show(Step::Event(&created)).map_err(ClientError::stdout)?;
    let heard = stream_recording::listen(&mut client, samples, |step| view.show(step)).await;
    view.finish();
    // Goodbye is said in any case: a session that is merely dropped costs the next client a worker.
    client
        .close(|event| {
            let _ = view.show(Step::Event(event));
        })
        .await;
    let heard = heard?;
    if heard.finals.is_empty() {
        view.note("no speech was found in the recording");
    }
    heard.incomplete().map_or(Ok(()), Err)
}
