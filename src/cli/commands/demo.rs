//! `voxbridge demo`: runs simulator, bridge and client in one process and prints the messages of both sides.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::{CommandError, simulate::start_engines, stop_signal};
use crate::{
    cli::{args::DemoArgs, demo, output, side_by_side::SideBySide},
    config::{Config, UpstreamConfig},
    server::Server,
    simulator::{SimulatorConfig, engines::SpeechEngines, process, socket},
    telemetry,
};

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
    let mut simulator =
        socket::bind("127.0.0.1:0", SimulatorConfig::default()).await.map_err(CommandError::failed)?;
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
    let view = Arc::new(SideBySide::stdout());
    let mut service = config.build_service().map_err(CommandError::failed)?;
    service.tap = Some(view.clone());
    let server = Server::bind("127.0.0.1:0", service).await.map_err(CommandError::failed)?;
    let url = format!("ws://{}/v1/realtime", server.local_addr().map_err(CommandError::failed)?);
    let serving = tokio::spawn(server.run(async { drop(server_stopped.await) }));

    view.header();
    let destination = &args.output;
    let playing = async {
        match args.talk {
            true => demo::run_conversation_demo(&url, &recording, destination).await,
            false => demo::run_speech_demo(&url, recording, true, destination).await,
        }
    };
    let mut stop = std::pin::pin!(stop);
    // Ctrl-C drops the client; the bridge then closes its sessions with the simulator cleanly.
    let result = tokio::select! {
        result = playing => result.map_err(CommandError::from),
        signal = &mut stop => Err(CommandError::stopped_by(signal)),
    };
    view.flush();
    let mut printed = result.as_ref().map_or(Ok(()), |result| output::print(format_result(result)));
    if args.stay && result.is_ok() && printed.is_ok() {
        printed = output::print_line(format_args!(
            "\nserving Macaw clients at {url}?model=any, simulating MiniCPM-o at {}; Ctrl-C stops",
            upstream.url
        ));
        stop.await;
    }
    // The bridge stops first, so that its lanes close their simulator sessions cleanly.
    drop(stop_server);
    let _ = serving.await;
    drop(stop_simulator);
    let _ = simulating.await;
    result.and(printed.map_err(CommandError::from))
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
    start_engines(&dir).await.map(Some)
}
