//! Today's configuration for a recorded session: its servers, or a simulated one, and the profile.

use crate::{
    cli::{
        args::{ReplayArgs, ServerArg},
        commands::{CommandError, replay::add_profile},
        local_bridge,
        output::print_message,
        running_server::RunningServer,
        simulated_server,
    },
    config::{Config, RecordConfig, UpstreamConfig},
    recording::document::RecordingDocument,
    server::route::RouteConfig,
};

/// The configuration and the server that answer the user of a recording.
pub(super) struct Replayed {
    pub(super) config: Config,
    simulator: Option<RunningServer>,
}

impl Replayed {
    /// The configuration of the arguments, with the profile that they or the recording name.
    pub(super) async fn new(args: &ReplayArgs, recording: &RecordingDocument) -> Result<Self, CommandError> {
        let mut config = local_bridge::conversation_config(&args.session.upstreams())?;
        config.mappings = args.mappings.clone().or(config.mappings);
        let profile = choose_profile(args, &mut config, &recording.session.profile)?;
        config.routes = vec![RouteConfig::catch_all(&profile)];
        config.record = RecordConfig { dir: Some(args.session.output.clone()), ..RecordConfig::default() };
        let simulator = match config.upstream.is_empty() {
            true => Some(simulate(&mut config).await?),
            false => None,
        };
        config.detect_dialects().await;
        Ok(Self { config, simulator })
    }

    /// Ends the simulated server, if there is one.
    pub(super) async fn stop(self) {
        if let Some(simulator) = self.simulator {
            simulator.stop().await;
        }
    }
}

/// The profile's name. A file of the arguments becomes part of the configuration.
fn choose_profile(args: &ReplayArgs, config: &mut Config, recorded: &str) -> Result<String, CommandError> {
    let mut library = config.load_library().map_err(CommandError::usage)?;
    let Some(name_or_file) = &args.profile else {
        let known = library.profile(recorded).map_err(|error| {
            CommandError::usage(format!(
                "{error}; the recorded session had this profile: name another by --profile, or its directory by --mappings"
            ))
        })?;
        return Ok(known.name.clone());
    };
    let added = add_profile(&mut library, name_or_file)?;
    config.more_mappings.extend(added.source.map(|source| (name_or_file.clone(), source)));
    Ok(added.name)
}

/// Starts a simulated server and adds it to the configuration.
async fn simulate(config: &mut Config) -> Result<RunningServer, CommandError> {
    print_message(
        "no server is named by --upstream or --config: a simulated model answers, which knows no words",
    );
    let server = ServerArg::Demo;
    let engines = simulated_server::known_speech(None).await?;
    let bound = simulated_server::bind("127.0.0.1:0", server.simulator_config(), Some(engines)).await;
    let simulator = bound.map_err(CommandError::failed)?;
    config.upstream.push(UpstreamConfig {
        url: server.url(simulator.local_addr()),
        dialect: server.dialect().to_owned(),
        ..UpstreamConfig::with_default_dialect()
    });
    Ok(RunningServer::start(|stopped| simulator.run(async { drop(stopped.await) })))
}
