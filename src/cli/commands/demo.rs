//! `voxbridge demo`: runs simulator, bridge and client in one process and prints the messages of both sides.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use indicatif::ProgressBar;
use tokio::sync::oneshot;

use super::{CommandError, replay::write_picture, simulate::start_engines, stop_signal};
use crate::{
    cli::{args::DemoArgs, demo, output, picture::SessionPicture, side_by_side::SideBySide},
    config::{Config, UpstreamConfig},
    server::{
        Server,
        tap::{Tap, TapFrame, TapPoint},
    },
    simulator::{SimulatorConfig, engines::SpeechEngines, process, socket},
    telemetry,
};

/// Addresses of the bridge and the simulated model with `--stay`, for clients that are configured once.
const STAY_ADDRESSES: (&str, &str) = ("127.0.0.1:8000", "127.0.0.1:8006");
const ANY_ADDRESSES: (&str, &str) = ("127.0.0.1:0", "127.0.0.1:0");
/// Default output directory of `examples/engines/setup`.
const DEFAULT_ENGINES_DIR: &str = "target/engines";

pub(super) async fn run(args: DemoArgs) -> Result<(), CommandError> {
    telemetry::init(Some("error"), None).map_err(CommandError::failed)?;
    let recording = match &args.recording {
        None => demo::RECORDING.to_vec(),
        Some(path) => read_recording(path)?,
    };
    let engines = load_engines(args.engines.as_deref()).await?;
    let stop = stop_signal()?;
    let (listen, listen_simulator) = if args.stay { STAY_ADDRESSES } else { ANY_ADDRESSES };
    let mut simulator = socket::bind(listen_simulator, SimulatorConfig::default())
        .await
        .map_err(|error| bind_error(listen_simulator, &error))?;
    if let Some(engines) = engines {
        simulator = simulator.with_engines(engines);
    }
    let upstream = format!("ws://{}/v1/realtime", simulator.local_addr());
    let (stop_simulator, simulator_stopped) = oneshot::channel::<()>();
    let (stop_server, server_stopped) = oneshot::channel::<()>();
    let simulating = tokio::spawn(simulator.run(async { drop(simulator_stopped.await) }));

    let upstream = UpstreamConfig { url: upstream, ..UpstreamConfig::with_default_dialect() };
    let profile = args.talk.then(|| "conversation".to_owned());
    let config = Config { upstream: vec![upstream.clone()], profile, ..Config::default() };
    let mut service = config.build_service().map_err(CommandError::failed)?;
    let protocol = if args.openai { "openai-realtime" } else { "macaw" };
    let client = service.library.client(protocol).map_err(CommandError::failed)?;
    let printed = SideBySide::stdout(client.audio_in.rate_hz);
    let view = Arc::new(DemoTap::new(printed, SessionPicture::new(&client)));
    service.tap = Some(view.clone());
    let server = Server::bind(listen, service).await.map_err(|error| bind_error(listen, &error))?;
    let url = format!("ws://{}/v1/realtime", server.local_addr().map_err(CommandError::failed)?);
    let serving = tokio::spawn(server.run(async { drop(server_stopped.await) }));

    view.printed.header();
    let destination = &args.output;
    let playing = async {
        match (args.talk, args.openai) {
            (true, _) => demo::run_conversation_demo(&url, recording, destination).await,
            (false, true) => demo::openai::run_openai_demo(&url, recording, destination).await,
            (false, false) => demo::run_speech_demo(&url, recording, true, destination).await,
        }
    };
    let mut stop = std::pin::pin!(stop);
    // Ctrl-C drops the client; the bridge then closes its sessions with the simulator cleanly.
    let result = tokio::select! {
        result = playing => result.map_err(CommandError::from),
        signal = &mut stop => Err(CommandError::stopped_by(signal)),
    };
    view.printed.flush();
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
            upstream.url
        ));
        stop.await;
    }
    // The bridge stops first, so that its lanes close their simulator sessions cleanly.
    drop(stop_server);
    let _ = serving.await;
    drop(stop_simulator);
    let _ = simulating.await;
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
}

impl DemoTap {
    fn new(printed: SideBySide, picture: SessionPicture) -> Self {
        Self { printed, drawn: Mutex::new(DrawnSession { picture, started_at: None }) }
    }

    /// Writes the picture and returns its path.
    fn write_picture(&self, path: &Path) -> Result<PathBuf, CommandError> {
        write_picture(path, &mut self.drawn.lock().unwrap_or_else(PoisonError::into_inner).picture)?;
        Ok(path.to_owned())
    }
}

impl Tap for DemoTap {
    fn on_frame(&self, session_id: &str, at: Instant, point: TapPoint, frame: TapFrame<'_>) {
        let audio = json_audio(point, frame);
        let frame = audio.as_deref().map_or(frame, TapFrame::Binary);
        self.printed.on_frame(session_id, at, point, frame);
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let (session, started_at) = drawn.started_at.get_or_insert_with(|| (session_id.to_owned(), at));
        if session == session_id {
            let after = at.saturating_duration_since(*started_at);
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

fn bind_error(address: &str, error: &std::io::Error) -> CommandError {
    CommandError::failed(format!(
        "cannot listen on {address}: {error}; without --stay, the demo uses free ports"
    ))
}

fn format_result(result: &demo::DemoResult) -> String {
    let mut out = String::from("\n");
    match result.transcripts.as_slice() {
        // A conversation has no transcripts.
        [] if result.reply.as_ref().is_some_and(|reply| reply.is_unprompted) => {}
        [] => out.push_str("heard   nothing that sounds like speech\n"),
        transcripts => {
            let _ = writeln!(out, "heard   {}", transcripts.join(" "));
        }
    }
    if let Some(latency) = result.final_latency {
        let _ = writeln!(out, "        {:.2} s after the last sound of the recording", latency.as_secs_f64());
    }
    if let Some(reply) = &result.reply {
        let _ = writeln!(out, "said    {}", reply.text);
        let _ = writeln!(
            out,
            "        {:.2} s of audio in {}, starting after {:.2} s{}",
            reply.duration.as_secs_f64(),
            reply.file.display(),
            reply.first_audio.as_secs_f64(),
            if reply.is_unprompted { " of silence" } else { "" }
        );
    }
    out
}

fn read_recording(path: &Path) -> Result<Vec<u8>, CommandError> {
    std::fs::read(path).map_err(|reason| {
        crate::cli::ClientError::UnreadableInput { source_name: path.display().to_string(), reason }.into()
    })
}

/// Starts the speech engines in the given or the default directory. Without engines, the simulated model hums.
async fn load_engines(directory: Option<&Path>) -> Result<Option<Arc<dyn SpeechEngines>>, CommandError> {
    let dir = directory.map_or_else(|| PathBuf::from(DEFAULT_ENGINES_DIR), Path::to_path_buf);
    if directory.is_none() && process::find_engines(&dir).is_err() {
        output::print_line(
            "The simulated model does not recognise words; run examples/engines/setup once to use real speech engines.\n",
        )?;
        return Ok(None);
    }
    output::print_line(format_args!(
        "The simulated model uses real speech engines from {}.\n",
        dir.display()
    ))?;
    // The spinner is invisible without a terminal.
    let spinner = ProgressBar::new_spinner().with_message("loading the speech engines");
    spinner.enable_steady_tick(Duration::from_millis(100));
    let engines = start_engines(&dir).await;
    spinner.finish_and_clear();
    engines.map(Some)
}
