//! `voxbridge verify`: an acceptance run against a user's own server, with a bridge in this process in between.
//!
//! Each section measures in a file of its own and adds its figures to the [`mod@ledger`]. A signal and the time limit end the
//! section that runs, and the report has the figures until then: see [`mod@outcome`]. [`crate::verify`] defines figures and reports.

mod assistant;
mod bench;
mod capacity;
mod conversation;
mod ledger;
mod outcome;
mod server_check;
mod speech;
mod talk;
mod transcription;
mod turns;

use std::{cell::Cell, fs, path::PathBuf, pin::pin, time::Duration};

use tokio::{sync::watch, time::sleep};

use self::{
    bench::{Bench, EarlyEnd, Plan, RunEnd},
    ledger::Ledger,
    outcome::Report,
    server_check::Checked,
};
use super::{CommandError, ending};
use crate::{
    cli::{
        args::VerifyArgs,
        demo::RECORDING,
        known_recordings,
        local_bridge::{self, LocalBridge},
    },
    config::{Config, TraceConfig, UpstreamConfig},
    server::route::RouteConfig,
    session::DEFAULT_VOICE,
    spelling::compatibility::without_choice_of_profile,
    telemetry,
    verify::figure::{Expectation, Figure, Section},
    vocabulary::Mode,
};

/// The bridge listens on this machine only.
const LISTEN: &str = "127.0.0.1:0";

pub(super) async fn run(args: &VerifyArgs) -> Result<(), CommandError> {
    if let Some(dir) = &args.turns {
        return turns::run(args, dir).await;
    }
    let earlier: Vec<Vec<Figure>> =
        args.compare.iter().map(|path| outcome::read_report(path)).collect::<Result<_, _>>()?;
    if args.upstream.is_empty() && args.config.is_none() {
        return outcome::compare_reports(args, &earlier);
    }
    if earlier.len() > 1 {
        return Err(CommandError::usage("--compare takes one report beside a server, or two without one"));
    }
    for language in &args.language {
        speech::sentence(language).map_err(CommandError::usage)?;
    }
    let wanted = wanted_sections(args)?;
    telemetry::init(Some("error"), None, None).map_err(CommandError::failed)?;
    let plan = Plan {
        is_quick: args.quick,
        languages: args.language.clone(),
        sessions_max: args.sessions_max.get(),
        recordings: known_recordings::load(args.recordings.as_deref()).await?,
    };
    let mut config = local_bridge::config(&args.upstreams())?;
    let mut ledger = Ledger::new(&args.report, !args.json);
    ledger.check_writable()?;
    outcome::check_writable(args.html.as_deref())?;
    config.detect_dialects().await;
    let traces_before = ledger.all_traces();
    ledger.pending.clone_from(&wanted);
    let result = Run { config: config.clone() }.until_end(plan, &mut ledger, args.time_max).await;
    ledger.remove_other_traces(&traces_before);
    let report = Report { args, config: &config, ledger: &ledger, sections: &wanted };
    let finished = report.finish(earlier.first());
    // The report is complete as far as it goes. Why it does not go further decides on the exit code.
    result.and(finished)
}

/// The sections to run, in order.
fn wanted_sections(args: &VerifyArgs) -> Result<Vec<Section>, CommandError> {
    let has_languages = !args.language.is_empty();
    let wanted: Vec<Section> =
        args.sections().filter(|section| *section != Section::Languages || has_languages).collect();
    if args.only.contains(&Section::Languages) && !has_languages {
        return Err(CommandError::usage("--only languages needs --language, such as --language en,zh"));
    }
    if wanted.is_empty() {
        return Err(CommandError::usage("--only and --skip leave no section to run"));
    }
    Ok(wanted)
}

/// One run.
struct Run {
    config: Config,
}

/// The servers offer a profile, or why not.
type Offer = Result<(), String>;

impl Run {
    /// Runs all pending sections, until a signal or the time limit ends the run.
    ///
    /// # Errors
    /// A signal stopped the run, or it cannot go on. The ledger has what was measured until then, and why there is no more.
    async fn until_end(
        mut self,
        plan: Plan,
        ledger: &mut Ledger,
        time_max: Duration,
    ) -> Result<(), CommandError> {
        let (early_end, ended) = watch::channel(None);
        let end_early = |end| _ = early_end.send_if_modified(|known| known.replace(end).is_none());
        let ending = ending()?;
        let sections = self.sections(plan, ledger, RunEnd { early: ended, leaving: ending.leaving() });
        let limited = async {
            let mut sections = pin!(sections);
            tokio::select! {
                result = &mut sections => return result,
                () = sleep(time_max) => end_early(EarlyEnd::TimeOver),
            }
            sections.await
        };
        let result = match ending.run(limited, |signal| end_early(EarlyEnd::Signal(signal))).await {
            Err(signal) => Err(CommandError::stopped_by(signal)),
            Ok(result) => match *early_end.borrow() {
                Some(EarlyEnd::Signal(signal)) => Err(CommandError::stopped_by(signal)),
                _ => result,
            },
        };
        let end = *early_end.borrow();
        let reason = match (end, &result) {
            (Some(end), _) => end.reason(),
            (None, Err(error)) => error.message.clone(),
            (None, Ok(())) => "no server opened a session".to_owned(),
        };
        ledger.skip_pending(&reason);
        result
    }

    async fn sections(&mut self, plan: Plan, ledger: &mut Ledger, end: RunEnd) -> Result<(), CommandError> {
        let voice = self.add_voice()?;
        let offers = ["speech", "assistant", "conversation"].map(|profile| self.check_offer(profile));
        self.config.routes = routes(&offers);
        let Some(checked) = self.check_servers(ledger, &end, voice.is_some()).await? else { return Ok(()) };
        let wanted = ledger.pending.clone();
        if wanted.is_empty() {
            return Ok(());
        }
        self.config.trace =
            TraceConfig { dir: Some(ledger.trace_dir()), audio: Some(true), ..TraceConfig::default() };
        let bridge = LocalBridge::start_with(&self.config, Some(LISTEN), end.leaving).await?;
        let mut bench = Bench {
            bridge,
            plan,
            ledger,
            server_init: checked.init,
            ended: end.early,
            was_queued: Cell::new(false),
            is_warm: [false; 2],
        };
        for section in wanted {
            bench.ledger.begin(section);
            let offer = offer_of(section, &offers).and_then(|()| checked.accepts(mode_of(section, &offers)));
            match offer {
                Err(reason) => bench.ledger.add([Figure::skipped(section.name(), &reason)]),
                Ok(()) => measure(section, &offers, &mut bench).await,
            }
            if let Some(end) = bench.early_end() {
                cut_short(section, end, bench.has_waited_in_queue(), bench.ledger);
                break;
            }
            bench.ledger.complete(section);
        }
        bench.bridge.stop().await;
        Ok(())
    }

    /// Runs section `server` if it is wanted. Returns what it says about the other sections; `None` if they cannot run.
    async fn check_servers(
        &self,
        ledger: &mut Ledger,
        end: &RunEnd,
        adds_voice: bool,
    ) -> Result<Option<Checked>, CommandError> {
        if ledger.pending.first() != Some(&Section::Server) {
            return Ok(Some(Checked::default()));
        }
        ledger.begin(Section::Server);
        let service = self.config.build_service().map_err(CommandError::usage)?;
        if adds_voice {
            ledger.add([voice_figure()]);
        }
        let checked = server_check::run(&self.config, &service, end.clone(), ledger).await;
        let early = *end.early.borrow();
        if let Some(early) = early {
            cut_short(Section::Server, early, false, ledger);
            return Ok(None);
        }
        ledger.complete(Section::Server);
        Ok(checked.has_session.then_some(checked))
    }

    /// Checks that the servers can serve a profile.
    fn check_offer(&self, profile: &str) -> Offer {
        let routes = vec![RouteConfig::catch_all(profile)];
        let service = Config { routes, ..self.config.clone() }.build_service();
        // A run chooses its profiles itself.
        service.map(drop).map_err(|problem| without_choice_of_profile(&problem).to_owned())
    }

    /// Adds the voice of the recording in the program if a server may need a voice and the configuration has none.
    fn add_voice(&mut self) -> Result<Option<VoiceFile>, CommandError> {
        let library = self.config.load_library().map_err(CommandError::usage)?;
        let needs_voice = |upstream: &UpstreamConfig| {
            upstream.mapping(&library).is_ok_and(|dialect| dialect.may_require_voice())
        };
        if self.config.voices.contains_key(DEFAULT_VOICE) || !self.config.upstream.iter().any(needs_voice) {
            return Ok(None);
        }
        let path = std::env::temp_dir().join(format!("voxbridge-verify-{}.wav", std::process::id()));
        fs::write(&path, RECORDING).map_err(CommandError::failed)?;
        self.config.voices.insert(DEFAULT_VOICE.to_owned(), path.clone());
        Ok(Some(VoiceFile(path)))
    }
}

/// Notes that this run uses a voice that `serve` does not have.
fn voice_figure() -> Figure {
    let note = "a server needs a voice sample, and the configuration names none: this run uses a recording of its own, and \
                `serve` does not start without [voices] default = \"FILE.wav\"";
    Figure::measured("server.voice", 0.0, "s", Expectation::Succeeds).with_note(note)
}

/// A file that is removed when it is dropped.
struct VoiceFile(PathBuf);

impl Drop for VoiceFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

async fn measure(section: Section, offers: &[Offer; 3], bench: &mut Bench<'_>) {
    match section {
        Section::Server => {}
        Section::Transcription => transcription::run(bench).await,
        Section::Speech => speech::run(bench).await,
        Section::Languages => speech::run_languages(bench).await,
        Section::Assistant => assistant::run(bench).await,
        Section::Tools => assistant::run_tools(bench).await,
        Section::Conversation => conversation::run(bench).await,
        Section::Capacity => capacity::run(bench, mode_of(section, offers)).await,
    }
}

/// Notes the early end of a section. The time limit is a failure; a signal was the user's wish.
fn cut_short(section: Section, end: EarlyEnd, is_queued: bool, ledger: &mut Ledger) {
    if end == EarlyEnd::TimeOver {
        let name = format!("{}.time", section.name());
        let (problem, advice) = match is_queued {
            true => (
                "the time of the whole run was over while a session waited in the server's queue",
                "Another client holds the server's workers: end it, or run again when it has gone; --time-max allows more time.",
            ),
            false => (
                "the time of the whole run was over",
                "Allow more time with --time-max, or choose sections with --only.",
            ),
        };
        ledger.add([Figure::failed(name, "s", Expectation::Succeeds, problem).with_advice(advice)]);
        ledger.complete(section);
    }
}

fn offer_of(section: Section, [speech, assistant, conversation]: &[Offer; 3]) -> Offer {
    match section {
        Section::Assistant | Section::Tools => assistant.clone(),
        Section::Conversation => conversation.clone(),
        // Servers that only converse have a number of sessions, too.
        Section::Capacity if speech.is_err() => conversation.clone(),
        _ => speech.clone(),
    }
}

/// The mode that the sessions of a section have.
const fn mode_of(section: Section, [speech, ..]: &[Offer; 3]) -> Mode {
    match section {
        Section::Conversation => Mode::Audio,
        Section::Capacity if speech.is_err() => Mode::Audio,
        _ => Mode::Chat,
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        verify: VerifyArgs,
    }

    #[test]
    fn only_offered_profiles_have_routes_and_speech_is_the_last() {
        let profiles = |offers: &[Offer; 3]| -> Vec<String> {
            routes(offers).into_iter().map(|route| route.profile).collect()
        };
        let not = || Err("no".to_owned());
        assert_eq!(profiles(&[Ok(()), Ok(()), Ok(())]), ["assistant", "conversation", "speech"]);
        assert_eq!(profiles(&[not(), not(), Ok(())]), ["conversation"]);
    }

    #[test]
    fn selection_that_leaves_nothing_is_rejected() {
        let sections = |args: &[&str]| {
            let args =
                Arguments::try_parse_from([&["verify", "--upstream", "ws://gpu"], args].concat()).unwrap();
            wanted_sections(&args.verify).map_err(|error| error.message)
        };
        assert_eq!(sections(&["--only", "speech,server"]), Ok(vec![Section::Server, Section::Speech]));
        assert!(sections(&["--only", "languages,speech"]).unwrap_err().contains("needs --language"));
        assert_eq!(sections(&["--only", "languages", "--language", "en"]), Ok(vec![Section::Languages]));
        assert!(sections(&["--only", "speech", "--skip", "speech"]).unwrap_err().contains("no section"));
        assert_eq!(sections(&[]).unwrap().len(), Section::ALL.len() - 1, "languages need --language");
    }
}
