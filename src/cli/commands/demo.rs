//! `voxbridge demo`: simulator, bridge and client in one process, both wires shown side by side.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::{Failure, simulate::start_engines, stop_signal};
use crate::{
    cli::{args::DemoArgs, demo, side_by_side::SideBySide},
    config::{Config, LogConfig, UpstreamConfig},
    server::Server,
    simulator::{SimulatorConfig, engines::Engines, process, socket},
    telemetry,
};

/// Where `examples/engines/setup` puts the engines unless told otherwise.
const ENGINES: &str = "target/engines";

pub(super) async fn run(args: DemoArgs) -> Result<(), Failure> {
    telemetry::init(&LogConfig { level: Some("error".into()), format: None }).map_err(Failure::failed)?;
    let recording = match &args.recording {
        None => demo::RECORDING.to_vec(),
        Some(path) => read(path)?,
    };
    let engines = engines(args.engines.as_deref()).await?;
    let stop = stop_signal()?;
    let mut simulator =
        socket::bind("127.0.0.1:0", SimulatorConfig::default()).await.map_err(Failure::failed)?;
    if let Some(engines) = engines {
        simulator = simulator.with_engines(engines);
    }
    let upstream = format!("ws://{}/v1/realtime", simulator.local_addr());
    let (stop_simulator, simulator_stopped) = oneshot::channel::<()>();
    let (stop_server, server_stopped) = oneshot::channel::<()>();
    let simulating = tokio::spawn(simulator.run(async { drop(simulator_stopped.await) }));

    let upstream = UpstreamConfig { url: upstream, ..UpstreamConfig::of_dialect() };
    let profile = args.talk.then(|| "conversation".to_owned());
    let config = Config { upstream: vec![upstream.clone()], profile, ..Config::default() };
    let view = Arc::new(SideBySide::stdout());
    let mut service = config.service().map_err(Failure::failed)?;
    service.tap = Some(view.clone());
    let server = Server::bind("127.0.0.1:0", service).await.map_err(Failure::failed)?;
    let url = format!("ws://{}/v1/realtime", server.local_addr().map_err(Failure::failed)?);
    let serving = tokio::spawn(server.run(async { drop(server_stopped.await) }));

    view.header();
    let heard = match args.talk {
        true => demo::run_talk(&url, &recording, &args.output).await,
        false => demo::run_client(&url, recording, true, &args.output).await,
    };
    if args.stay && heard.is_ok() {
        view.flush();
        heard.iter().for_each(report);
        println!(
            "\nserving Macaw clients at {url}?model=any, simulating MiniCPM-o at {}; Ctrl-C stops",
            upstream.url
        );
        stop.await;
    }
    // The bridge first: its lanes say goodbye to the simulator.
    drop(stop_server);
    let _ = serving.await;
    drop(stop_simulator);
    let _ = simulating.await;
    if !args.stay {
        view.flush();
        heard.iter().for_each(report);
    }
    heard.map(|_| ()).map_err(Failure::from)
}

fn report(heard: &demo::Heard) {
    println!();
    match heard.transcripts.as_slice() {
        // In a conversation nobody transcribes.
        [] if heard.reply.as_ref().is_some_and(|reply| reply.by_itself) => {}
        [] => println!("heard   nothing that sounds like speech"),
        transcripts => println!("heard   {}", transcripts.join(" ")),
    }
    if let Some(latency) = heard.final_latency {
        println!("        {:.2} s after the last sound of the recording", latency.as_secs_f64());
    }
    if let Some(reply) = &heard.reply {
        println!("said    {}", reply.text);
        println!(
            "        {:.2} s of audio in {}, the first of it after {:.2} s{}",
            reply.duration.as_secs_f64(),
            reply.file.display(),
            reply.first_audio.as_secs_f64(),
            if reply.by_itself { " of silence" } else { "" }
        );
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|why| crate::cli::ClientError::NoInput { what: path.display().to_string(), why }.into())
}

/// Real engines when they are named or set up; otherwise the simulator speaks for itself, and says so.
async fn engines(named: Option<&Path>) -> Result<Option<Arc<dyn Engines>>, Failure> {
    let dir = named.map_or_else(|| PathBuf::from(ENGINES), Path::to_path_buf);
    if named.is_none() && process::find(&dir).is_err() {
        println!(
            "The model is simulated and hears no words; for real ones run examples/engines/setup once.\n"
        );
        return Ok(None);
    }
    println!("The model is simulated with real speech engines from {}.\n", dir.display());
    start_engines(&dir).await.map(Some)
}
