//! `voxbridge replay --recording`: plays the user of a recorded session to today's configuration, and compares both sessions.
//!
//! The new session is recorded like the old one, so that both are read from the same files.

mod configured;
mod player;
mod report;
mod saved;

use std::path::Path;

use tokio::sync::oneshot;

use self::{
    configured::Replayed,
    player::play,
    report::{Comparison, RecordingSummary},
    saved::SavedRecording,
};
use super::{CommandError, write_svg};
use crate::{
    cli::{
        args::ReplayArgs,
        ending::Ending,
        error::ClientError,
        local_bridge::LocalBridge,
        output::{print, print_line, print_message},
        picture::recordings::draw_recordings,
    },
    telemetry,
};

/// Replays the recording that one of its files names.
///
/// # Errors
/// The files are no recording; the configuration is wrong; no server answers; the session failed.
pub(crate) async fn run(args: &ReplayArgs, file: &Path, ending: Ending) -> Result<(), CommandError> {
    telemetry::init(Some("error"), None, None).map_err(CommandError::failed)?;
    let then = SavedRecording::read(file)?;
    let user = then.side("user").await?.ok_or_else(|| then.without_user())?;
    let replayed = Replayed::new(args, &then.document).await?;
    let (leaving, (stopping, stopped)) = (ending.leaving(), oneshot::channel());
    let session = async {
        let bridge = LocalBridge::start_with(&replayed.config, None, leaving).await?;
        let played = play(&bridge, &user, stopped).await;
        // The recording is complete after that.
        bridge.stop().await;
        played
    };
    let stop = |signal| {
        // The session may be over.
        let _ = stopping.send(signal);
    };
    let played = ending.run(session, stop).await.unwrap_or_else(|signal| Err(ClientError::Stopped(signal)));
    replayed.stop().await;
    let played = played?;
    let now = SavedRecording::find(&args.session.output, &played.session_id)?;
    let comparison = Comparison::new(RecordingSummary::of(&then), RecordingSummary::of(&now));
    match args.json {
        true => print_line(comparison.to_json()?)?,
        false => print(comparison.to_text())?,
    }
    if let Some(path) = &args.svg {
        let heard = [then.side("model").await?, now.side("model").await?];
        write_svg(path, &draw_recordings(&user, heard, [&then.document, &now.document]))?;
        print_message(format_args!("wrote {}", path.display()));
    }
    played.end.map_err(CommandError::from)
}
