//! `voxbridge demo --browser`: the playground in front of the simulated model, until Ctrl-C.

use std::process::Stdio;

use super::servers::{DemoServers, load_engines};
use crate::{
    cli::{
        args::DemoArgs,
        commands::{CommandError, stop_signal},
        output,
    },
    config::{Config, env_var},
    server::{playground, route::RouteConfig},
};

/// Profiles that the page offers beside the usual one of each protocol; models of the same name lead to them.
const PROFILES: [&str; 4] = ["speech", "assistant", "conversation", "video"];

pub(super) async fn run(args: &DemoArgs) -> Result<(), CommandError> {
    let engines = load_engines(args.engines.as_deref()).await?;
    let stop = stop_signal()?;
    let named = PROFILES.map(|name| RouteConfig { model: name.to_owned(), ..RouteConfig::catch_all(name) });
    let openai = RouteConfig { client: "openai-realtime".to_owned(), ..RouteConfig::catch_all("assistant") };
    let routes = named.into_iter().chain([openai]).collect();
    let profile = Some("speech".to_owned());
    let config = Config { playground: Some(true), profile, routes, ..Config::default() };
    let servers = DemoServers::start(args.stay, engines, config, None).await?;
    let url = format!("http://{}{}", servers.address, playground::PATH);
    let printed = output::print_line(format_args!("the playground is at {url}; Ctrl-C stops"));
    if printed.is_ok() {
        open_browser(&url);
        stop.await;
    }
    servers.stop().await;
    printed.map_err(CommandError::from)
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
