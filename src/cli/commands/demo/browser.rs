//! `voxbridge demo --browser`: the playground in front of the simulated model, until Ctrl-C.

use std::process::Stdio;

use super::{engines::load_engines, servers::DemoServers};
use crate::{
    cli::{
        args::{DemoArgs, ServerArg},
        commands::{CommandError, stop_signal},
        output,
    },
    config::{Config, WebRtcConfig, env_var},
    server::{playground, route::RouteConfig},
    spelling::{
        compatibility::check_profile_with_dialects,
        upstream::{Dialects, ServedDialect},
    },
};

/// Profiles that the page offers where the server can; models of the same name lead to them. The first is the usual one.
const PROFILES: [&str; 4] = ["speech", "assistant", "conversation", "video"];

pub(super) async fn run(args: &DemoArgs) -> Result<(), CommandError> {
    let engines = load_engines(args).await?;
    let stop = stop_signal()?;
    let config = page_config(args.server).map_err(CommandError::failed)?;
    let servers = DemoServers::start(args, engines, config, None).await?;
    let url = format!("http://{}{}", servers.address, playground::PATH);
    let printed = output::print_line(format_args!("the playground is at {url}; Ctrl-C stops"));
    if printed.is_ok() {
        open_browser(&url);
        stop.await;
    }
    servers.stop().await;
    printed.map_err(CommandError::from)
}

/// The configuration with a route for each profile that the simulated server can serve.
fn page_config(server: ServerArg) -> Result<Config, String> {
    let library = Config::default().load_library().map_err(|error| error.to_string())?;
    let served = server.deployments().map(|server| {
        Ok::<_, String>(ServedDialect { mapping: library.upstream(server.dialect())?, serves: None })
    });
    let dialects = Dialects::new(served.collect::<Result<_, _>>()?).ok_or("the demo has no upstream")?;
    let is_served = |name: &str| {
        library.profile(name).is_ok_and(|profile| check_profile_with_dialects(&profile, &dialects).is_ok())
    };
    let names: Vec<&str> = PROFILES.into_iter().filter(|name| is_served(name)).collect();
    let named = |name: &&str| RouteConfig { model: (*name).to_owned(), ..RouteConfig::catch_all(name) };
    let openai = RouteConfig { client: "openai-realtime".to_owned(), ..RouteConfig::catch_all("assistant") };
    let routes = names.iter().map(named).chain(is_served("assistant").then_some(openai)).collect();
    let profile = names.first().map(|name| (*name).to_owned());
    let webrtc =
        WebRtcConfig { listen: cfg!(feature = "webrtc").then(|| "127.0.0.1:0".to_owned()), advertise: None };
    Ok(Config { playground: Some(true), profile, routes, webrtc, ..Config::default() })
}

/// Opens the page where there is a desktop. Anybody else has the printed URL.
fn open_browser(url: &str) {
    let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(|name| env_var(name).is_some());
    let program = if cfg!(target_os = "macos") { Some("open") } else { has_desktop.then_some("xdg-open") };
    if let Some(program) = program {
        let quiet = || Stdio::null();
        // A desktop without the program is no error. The runtime collects the process when it ends.
        let _ = tokio::process::Command::new(program)
            .arg(url)
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet())
            .spawn();
    }
}
