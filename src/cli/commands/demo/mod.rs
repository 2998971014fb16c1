//! `voxbridge demo`: runs simulator, bridge and client in one process and prints the messages of both sides.

mod browser;
mod engines;
mod servers;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use self::{engines::load_engines, servers::DemoServers};
use super::{CommandError, replay::write_picture, stop_signal};
use crate::{
    cli::{ClientTiming, args::DemoArgs, demo, output, picture::SessionPicture, side_by_side::SideBySide},
    config::Config,
    server::tap::{Tap, TapFrame, TapPoint},
    telemetry,
};

pub(super) async fn run(args: DemoArgs) -> Result<(), CommandError> {
    telemetry::init(Some("error"), None, None).map_err(CommandError::failed)?;
    if args.browser {
        return browser::run(&args).await;
    }
    let recording = match &args.recording {
        None => demo::RECORDING.to_vec(),
        Some(path) => read_recording(path)?,
    };
    let engines = load_engines(&args).await?;
    let stop = stop_signal()?;
    let profile = match (args.talk, args.openai) {
        (true, _) => "conversation",
        (false, true) => "assistant",
        (false, false) => "speech",
    };
    let config = Config { profile: Some(profile.to_owned()), ..Config::default() };
    let protocol = if args.openai { "openai-realtime" } else { "macaw" };
    let library = config.load_library().map_err(CommandError::failed)?;
    let client = library.client(protocol).map_err(CommandError::failed)?;
    let printed = SideBySide::stdout(client.audio_in.rate_hz);
    let view = Arc::new(DemoTap::new(printed, SessionPicture::new(&client)));
    let servers = DemoServers::start(&args, engines, config, Some(view.clone())).await?;
    let url = format!("ws://{}/v1/realtime", servers.address);

    view.printed.header();
    let destination = &args.output;
    let playing = async {
        match (args.talk, args.openai) {
            (true, _) => demo::run_conversation_demo(&url, recording, destination).await,
            (false, true) => demo::openai::run_openai_demo(&url, recording, destination).await,
            (false, false) => {
                let timing = ClientTiming::default();
                demo::run_speech_demo(&url, recording, destination, timing).await
            }
        }
    };
    let mut stop = std::pin::pin!(stop);
    // Ctrl-C drops the client; the bridge then closes its sessions with the simulator cleanly.
    let result = tokio::select! {
        result = playing => result.map_err(CommandError::from),
        signal = &mut stop => Err(CommandError::stopped_by(signal)),
    };
    view.end_session();
    let drawn = result.is_ok().then(|| view.write_picture(&args.output.with_extension("svg"))).transpose();
    let mut printed = result.as_ref().map_or(Ok(()), |result| output::print(format_result(result)));
    if let (Ok(Some(path)), true) = (&drawn, printed.is_ok()) {
        printed =
            output::print_line(format_args!("picture {} shows the session as a timeline", path.display()));
    }
    if args.stay && result.is_ok() && printed.is_ok() {
        let clients = if args.openai { "OpenAI" } else { "Macaw" };
        let model = if args.openai { "gpt-realtime" } else { "any" };
        printed = output::print_line(format_args!(
            "\nserving {clients} clients at {url}?model={model}, simulating MiniCPM-o at {}; Ctrl-C stops",
            servers.upstream
        ));
        stop.await;
    }
    servers.stop().await;
    result.and(printed.map_err(CommandError::from)).and(drawn.map(drop))
}

/// Prints the messages and collects the frames of the first session for its picture.
struct DemoTap {
    printed: SideBySide,
    drawn: Mutex<DrawnSession>,
}

struct DrawnSession {
    picture: SessionPicture,
    started_at: Option<(String, Instant)>,
    /// The summary follows: no more of its messages are shown.
    is_over: bool,
}

impl DemoTap {
    fn new(printed: SideBySide, picture: SessionPicture) -> Self {
        Self { printed, drawn: Mutex::new(DrawnSession { picture, started_at: None, is_over: false }) }
    }

    /// Prints what is pending of the first session, and nothing of it from now on.
    fn end_session(&self) {
        self.drawn().is_over = true;
        self.printed.flush();
    }

    fn drawn(&self) -> MutexGuard<'_, DrawnSession> {
        // A panic while drawing leaves at most a message out, so the picture remains usable.
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the picture and returns its path.
    fn write_picture(&self, path: &Path) -> Result<PathBuf, CommandError> {
        write_picture(path, &mut self.drawn().picture)?;
        Ok(path.to_owned())
    }
}

impl Tap for DemoTap {
    fn on_frame(&self, session_id: &str, at: Instant, point: TapPoint, frame: TapFrame<'_>) {
        let audio = json_audio(point, frame);
        let frame = audio.as_deref().map_or(frame, TapFrame::Binary);
        let mut drawn = self.drawn();
        let (session, started_at) = drawn.started_at.get_or_insert_with(|| (session_id.to_owned(), at));
        let (is_first, after) = (session == session_id, at.saturating_duration_since(*started_at));
        if is_first && drawn.is_over {
            return;
        }
        // Printed under the lock, so that nothing follows `end_session`.
        self.printed.on_frame(session_id, at, point, frame);
        if is_first {
            drawn.picture.add(after, point, frame);
        }
    }
}

/// The audio in a client's JSON message. It is shown like a binary frame, because such messages would hide the others.
fn json_audio(point: TapPoint, frame: TapFrame<'_>) -> Option<Vec<u8>> {
    #[derive(serde::Deserialize)]
    struct AudioMessage<'m> {
        r#type: &'m str,
        audio: Option<&'m str>,
        delta: Option<&'m str>,
    }
    let TapFrame::Text(text) = frame else { return None };
    let message: AudioMessage<'_> = serde_json::from_str(text).ok()?;
    let base64 = match (point, message.r#type) {
        (TapPoint::FromClient, "input_audio_buffer.append") => message.audio,
        (TapPoint::ToClient, "response.output_audio.delta") => message.delta,
        _ => None,
    };
    STANDARD.decode(base64?).ok()
}

fn format_result(result: &demo::DemoResult) -> String {
    let mut out = String::from("\n");
    match result.transcripts.as_slice() {
        // A conversation has no transcripts.
        [] if result.reply.is_unprompted => {}
        [] => out.push_str("heard   nothing that sounds like speech\n"),
        transcripts => {
            let _ = writeln!(out, "heard   {}", transcripts.join(" "));
        }
    }
    if let Some(latency) = result.final_latency {
        let _ = writeln!(out, "        {:.2} s after the last sound of the recording", latency.as_secs_f64());
    }
    let reply = &result.reply;
    let _ = writeln!(out, "said    {}", reply.text);
    let _ = writeln!(
        out,
        "        {:.2} s of audio in {}, starting after {:.2} s{}",
        reply.duration.as_secs_f64(),
        reply.file.display(),
        reply.first_audio.as_secs_f64(),
        if reply.is_unprompted { " of silence" } else { "" }
    );
    out
}

fn read_recording(path: &Path) -> Result<Vec<u8>, CommandError> {
    std::fs::read(path).map_err(|reason| {
        crate::cli::ClientError::UnreadableInput { source_name: path.display().to_string(), reason }.into()
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::spelling::Library;

    #[derive(Clone, Default)]
    struct Printed(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Printed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_of_the_session_is_printed_after_its_summary() {
        let printed = Printed::default();
        let client = Library::embedded().unwrap().client("macaw").unwrap();
        let tap =
            DemoTap::new(SideBySide::new(printed.clone(), 160, false, 16_000), SessionPicture::new(&client));
        let text = || String::from_utf8(printed.0.lock().unwrap().clone()).unwrap();
        let send = |session: &str, name: &str| {
            let message = format!(r#"{{"type":"{name}"}}"#);
            let now = tokio::time::Instant::now().into_std();
            tap.on_frame(session, now, TapPoint::ToClient, TapFrame::Text(&message));
        };
        send("first", "before");
        tap.end_session();
        send("first", "late");
        send("second", "other");
        assert!(
            text().contains("before") && text().contains("other") && !text().contains("late"),
            "{}",
            text()
        );
    }
}
