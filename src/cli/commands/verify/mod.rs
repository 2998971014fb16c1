//! `voxbridge verify`: an acceptance run against a user's own server, with a bridge in this process in between.
//!
//! Each section measures in a file of its own and adds its figures to the [`mod@bench`]. [`crate::verify`] defines figures
//! and reports.

mod assistant;
mod bench;
mod capacity;
mod conversation;
mod realtime;
mod server_check;
mod speech;
mod talk;
mod transcription;

use std::{
    fs,
    path::{Path, PathBuf},
    pin::pin,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use self::bench::{Bench, Ledger, Plan};
use super::{
    CommandError,
    replay::{draw_session, read_trace},
    stop_signal,
};
use crate::{
    cli::{
        ClientError,
        args::VerifyArgs,
        demo::RECORDING,
        known_recordings,
        local_bridge::{self, LocalBridge},
        output::{print, print_line},
    },
    config::{Config, TraceConfig, UpstreamConfig},
    secret::redacted_url,
    server::route::RouteConfig,
    session::DEFAULT_VOICE,
    telemetry,
    verify::{
        compare::{Compared, compare, format_table, has_new_failure},
        figure::{Expectation, Figure, Section, all_pass},
        html::Page,
        report,
    },
};

/// The bridge listens on this machine only.
const LISTEN: &str = "127.0.0.1:0";

pub(super) async fn run(args: &VerifyArgs) -> Result<(), CommandError> {
    let earlier: Vec<Vec<Figure>> =
        args.compare.iter().map(|path| read_report(path)).collect::<Result<_, _>>()?;
    if args.upstream.is_empty() && args.config.is_none() {
        return compare_reports(args, &earlier);
    }
    if earlier.len() > 1 {
        return Err(CommandError::usage("--compare takes one report beside a server, or two without one"));
    }
    for language in &args.language {
        speech::sentence(language).map_err(CommandError::usage)?;
    }
    telemetry::init(Some("error"), None).map_err(CommandError::failed)?;
    let plan = Plan {
        is_quick: args.quick,
        languages: args.language.clone(),
        sessions_max: args.sessions_max.get(),
        recordings: known_recordings::load(args.recordings.as_deref()).await?,
    };
    let mut config = local_bridge::config(&args.upstreams())?;
    config.detect_dialects().await;
    let mut ledger = Ledger::new(&args.report, !args.json);
    let traces_before = ledger.all_traces();
    let result = Run { args, config: config.clone() }.sections(plan, &mut ledger).await;
    ledger.remove_other_traces(&traces_before);
    result?;
    finish(args, &config, &ledger, earlier.first())
}

/// One run.
struct Run<'a> {
    args: &'a VerifyArgs,
    config: Config,
}

/// The servers offer a profile, or why not.
type Offer = Result<(), String>;

impl Run<'_> {
    /// Runs all sections, until a signal stops the command.
    async fn sections(mut self, plan: Plan, ledger: &mut Ledger) -> Result<(), CommandError> {
        let deadline = Instant::now() + self.args.time_max;
        let mut stop = pin!(stop_signal()?);
        let _voice = self.add_voice()?;
        let offers = ["speech", "assistant", "conversation"].map(|profile| self.check_offer(profile));
        self.config.routes = routes(&offers);
        let has_languages = !plan.languages.is_empty();
        let is_asked = |section: &Section| *section != Section::Languages || has_languages;
        let mut wanted: Vec<Section> = self.args.sections().filter(is_asked).collect();
        if wanted.first() == Some(&Section::Server) {
            wanted.remove(0);
            let (stopping, stopped) = watch::channel(false);
            let is_ok = {
                let mut check = pin!(self.check_server(stopped, ledger));
                tokio::select! {
                    is_ok = &mut check => is_ok?,
                    signal = &mut stop => {
                        stopping.send_replace(true);
                        let _ = check.await;
                        return Err(CommandError::stopped_by(signal));
                    }
                }
            };
            if !is_ok {
                let reason = "a step to the server failed";
                ledger.add(wanted.iter().map(|section| Figure::skipped(section.name(), reason)));
                return Ok(());
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        self.config.trace =
            TraceConfig { dir: Some(ledger.trace_dir()), audio: Some(true), ..TraceConfig::default() };
        let bridge = LocalBridge::start_with(&self.config, Some(LISTEN)).await?;
        let mut bench = Bench { bridge, plan, ledger };
        let result = tokio::select! {
            () = self.measure(wanted, &offers, &mut bench, deadline) => Ok(()),
            signal = &mut stop => Err(CommandError::stopped_by(signal)),
        };
        bench.bridge.stop().await;
        result
    }

    async fn check_server(
        &self,
        stopped: watch::Receiver<bool>,
        ledger: &mut Ledger,
    ) -> Result<bool, CommandError> {
        self.announce(Section::Server);
        let service = self.config.build_service().map_err(CommandError::usage)?;
        Ok(server_check::run(&self.config, &service, stopped, ledger).await)
    }

    async fn measure(
        &self,
        wanted: Vec<Section>,
        [speech, assistant, conversation]: &[Offer; 3],
        bench: &mut Bench<'_>,
        deadline: Instant,
    ) {
        for section in wanted {
            self.announce(section);
            let offer = match section {
                Section::Assistant | Section::Tools => assistant,
                Section::Conversation => conversation,
                _ => speech,
            };
            match offer {
                Err(reason) => bench.ledger.add([Figure::skipped(section.name(), reason)]),
                Ok(()) => measure_section(section, bench, deadline).await,
            }
        }
    }

    /// Checks that the servers can serve a profile.
    fn check_offer(&self, profile: &str) -> Offer {
        let routes = vec![RouteConfig::catch_all(profile)];
        Config { routes, ..self.config.clone() }.build_service().map(drop)
    }

    /// Adds the voice of the recording in the program if a server needs a voice and the configuration has none.
    fn add_voice(&mut self) -> Result<Option<VoiceFile>, CommandError> {
        let library = self.config.load_library().map_err(CommandError::usage)?;
        let needs_voice = |upstream: &UpstreamConfig| {
            upstream.mapping(&library).is_ok_and(|dialect| dialect.voice_required)
        };
        if self.config.voices.contains_key(DEFAULT_VOICE) || !self.config.upstream.iter().any(needs_voice) {
            return Ok(None);
        }
        let path = std::env::temp_dir().join(format!("voxbridge-verify-{}.wav", std::process::id()));
        fs::write(&path, RECORDING).map_err(CommandError::failed)?;
        self.config.voices.insert(DEFAULT_VOICE.to_owned(), path.clone());
        Ok(Some(VoiceFile(path)))
    }

    fn announce(&self, section: Section) {
        if !self.args.json {
            let _ = print_line(section.name());
        }
    }
}

/// A file that is removed when it is dropped.
struct VoiceFile(PathBuf);

impl Drop for VoiceFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

async fn measure_section(section: Section, bench: &mut Bench<'_>, deadline: Instant) {
    let measured = async {
        match section {
            Section::Server => {}
            Section::Transcription => transcription::run(bench).await,
            Section::Speech => speech::run(bench).await,
            Section::Languages => speech::run_languages(bench).await,
            Section::Assistant => assistant::run(bench).await,
            Section::Tools => assistant::run_tools(bench).await,
            Section::Conversation => conversation::run(bench).await,
            Section::Capacity => capacity::run(bench).await,
        }
    };
    if timeout_at(deadline, measured).await.is_err() {
        let (name, problem) = (format!("{}.time", section.name()), "the time of the whole run was over");
        let figure = Figure::failed(name, "s", Expectation::Succeeds, problem)
            .with_advice("Allow more time with --time-max, or choose sections with --only.");
        bench.ledger.add([figure]);
    }
}

/// A route for each profile that is offered. The client's protocol or model chooses it.
fn routes([speech, assistant, conversation]: &[Offer; 3]) -> Vec<RouteConfig> {
    let route = |client: &str, model: &str, profile| RouteConfig {
        client: client.to_owned(),
        model: model.to_owned(),
        ..RouteConfig::catch_all(profile)
    };
    let all = [
        (assistant, route("openai-realtime", "*", "assistant")),
        (conversation, route("*", "conversation", "conversation")),
        (speech, route("*", "*", "speech")),
    ];
    all.into_iter().filter(|(offer, _)| offer.is_ok()).map(|(_, route)| route).collect()
}

/// Prints the report and writes the page.
fn finish(
    args: &VerifyArgs,
    config: &Config,
    ledger: &Ledger,
    earlier: Option<&Vec<Figure>>,
) -> Result<(), CommandError> {
    let figures = &ledger.figures;
    let compared = earlier.map(|earlier| compare(earlier, figures));
    let servers: Vec<String> = config.upstream.iter().map(|upstream| redacted_url(&upstream.url)).collect();
    let servers = servers.join(", ");
    let earlier_name = args.compare.first().map(|path| path.display().to_string()).unwrap_or_default();
    let mut printed = if args.json {
        print_line(serde_json::to_string_pretty(figures).map_err(CommandError::failed)?)
    } else {
        print(report::format_summary(figures))
    };
    if let (Some(compared), false) = (&compared, args.json) {
        printed = printed.and(print(format_args!("\n{}", format_table(compared, [&earlier_name, &servers]))));
    }
    if let Some(path) = &args.html {
        let pictures = draw_failures(config, ledger);
        let compared = compared.as_deref().map(|compared| (earlier_name.as_str(), compared));
        write_page(path, &servers, (figures, &pictures), compared)?;
    }
    if all_pass(figures) {
        printed.map_err(CommandError::from)
    } else {
        Err(CommandError::already_reported())
    }
}

/// Compares two reports with each other.
fn compare_reports(args: &VerifyArgs, reports: &[Vec<Figure>]) -> Result<(), CommandError> {
    let [first, second] = reports else {
        return Err(CommandError::usage(
            "--compare needs two reports, separated by a comma, or one report and --upstream",
        ));
    };
    let compared = compare(first, second);
    let names: Vec<String> = args.compare.iter().map(|path| path.display().to_string()).collect();
    let printed = print(format_table(&compared, [&names[0], &names[1]]));
    if let Some(path) = &args.html {
        write_page(path, &names[1], (second, &[]), Some((&names[0], &compared)))?;
    }
    if has_new_failure(&compared) {
        return Err(CommandError::already_reported());
    }
    printed.map_err(CommandError::from)
}

fn write_page(
    path: &Path,
    servers: &str,
    (figures, pictures): (&[Figure], &[(String, String)]),
    compared: Option<(&str, &[Compared<'_>])>,
) -> Result<(), CommandError> {
    let made_by = concat!("voxbridge ", env!("VOXBRIDGE_VERSION"));
    let page = Page { servers, made_by, figures, pictures, compared };
    fs::write(path, page.write())
        .map_err(|error| CommandError::failed(format!("--html {}: {error}", path.display())))
}

/// Draws the sessions of the failures. A trace that cannot be drawn is left out.
fn draw_failures(config: &Config, ledger: &Ledger) -> Vec<(String, String)> {
    let draw = |(names, path): (String, PathBuf)| {
        let library = config.load_library().ok()?;
        let (_, mut picture) = draw_session(&read_trace(&path).ok()?, library).ok()?;
        Some((names, picture.draw_svg()))
    };
    ledger.failed_traces().into_iter().filter_map(draw).collect()
}

/// Reads the report of an earlier run.
fn read_report(path: &Path) -> Result<Vec<Figure>, CommandError> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|reason| {
        CommandError::from(ClientError::UnreadableInput { source_name: name.to_string(), reason })
    })?;
    report::read_json(&text).map_err(|problem| ClientError::InvalidText(format!("{name}: {problem}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_offered_profiles_have_routes_and_speech_is_the_last() {
        let profiles = |offers: &[Offer; 3]| -> Vec<String> {
            routes(offers).into_iter().map(|route| route.profile).collect()
        };
        let not = || Err("no".to_owned());
        assert_eq!(profiles(&[Ok(()), Ok(()), Ok(())]), ["assistant", "conversation", "speech"]);
        assert_eq!(profiles(&[not(), not(), Ok(())]), ["conversation"]);
    }
}
