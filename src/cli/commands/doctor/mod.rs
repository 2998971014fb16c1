//! `voxbridge doctor`: every way the configuration leads, walked; what was found, printed as it is found.

mod client;

use std::{io::Write as _, sync::Arc};

use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};

use super::{Failure, config_layers::layered, stop_signal};
use crate::{
    cli::{ClientError, args::DoctorArgs},
    config::Config,
    doctor::{
        report::{self, Walked},
        runner::{Patient, Words, examine},
        step::{Bounds, Outcome},
    },
    mapping::{Library, Profile, UpstreamMapping, upstream::Mode},
    secret::shown_url,
    server::{Service, upstream_pool::dial::Dialer},
    telemetry,
};

/// More than the steps of any walk.
const STEPS_MAX: usize = 32;
/// The voice that speaks when none is named.
const DEFAULT_VOICE: &str = "default";

pub(super) async fn run(args: DoctorArgs) -> Result<(), Failure> {
    let config = layered(args.config)?;
    telemetry::init(&config.log).map_err(Failure::usage)?;
    let service = config.service().map_err(Failure::usage)?;
    let patients = patients(&config, &service).map_err(Failure::usage)?;
    let bounds = Bounds::within(args.timeout);
    let key = args.key.key_file.as_deref();
    let client = args.client_url.map(|url| client::Way::new(url, args.client_ca.as_deref(), key));
    let client = client.transpose().map_err(Failure::from)?;

    let stop = stop_signal()?;
    let (stopping, stopped) = watch::channel(false);
    let watching = tokio::spawn(async move {
        stop.await;
        eprintln!("voxbridge: leaving politely");
        stopping.send_replace(true);
        // Who waits for it must not learn that it will never come.
        std::future::pending::<()>().await;
    });
    let shown = !args.json;
    let mut walks = walk_all(&patients, &service.library, bounds, &stopped, shown).await;
    if let Some(client) = &client {
        walks.push(walk_client(client, bounds, &stopped, shown).await);
    }
    watching.abort();
    if args.json {
        let json = serde_json::to_string_pretty(&report::json(&walks)).map_err(Failure::failed)?;
        print(&json)?;
    }
    if walks.iter().all(Walked::is_ok) { Ok(()) } else { Err(Failure::silent()) }
}

/// All upstreams at once, one session each; shown one after the other, each step as it is done.
async fn walk_all(
    patients: &[Patient],
    library: &Library,
    bounds: Bounds,
    stop: &watch::Receiver<bool>,
    shown: bool,
) -> Vec<Walked> {
    let (walks, shows): (Vec<_>, Vec<_>) = patients
        .iter()
        .map(|patient| {
            let (live, steps) = mpsc::channel(STEPS_MAX);
            let title = format!("{}  {}", title(patient), patient.dialect.title);
            let (done, walked) = tokio::sync::oneshot::channel();
            let walk = async move {
                let _ = done.send(examine(patient, library, bounds, stop.clone(), live).await);
            };
            (walk, (title, steps, walked))
        })
        .unzip();
    let showing = async {
        let mut all = Vec::new();
        for (title, steps, walked) in shows {
            show(&title, steps, shown).await;
            all.extend(walked.await.inspect(|walked| conclude(walked, shown)));
        }
        all
    };
    tokio::join!(join_all(walks), showing).1
}

async fn walk_client(
    client: &client::Way,
    bounds: Bounds,
    stop: &watch::Receiver<bool>,
    shown: bool,
) -> Walked {
    let (live, steps) = mpsc::channel(STEPS_MAX);
    let (walked, ()) =
        tokio::join!(client.walk(bounds, stop.clone(), live), show(client.title(), steps, shown));
    conclude(&walked, shown);
    walked
}

fn title(patient: &Patient) -> String {
    let url = shown_url(&patient.config.url);
    match &patient.config.name {
        Some(name) => format!("{name}  {url}"),
        None => url,
    }
}

/// A line for each step as it comes.
async fn show(title: &str, mut steps: mpsc::Receiver<Outcome>, shown: bool) {
    if shown {
        // A terminal that is gone changes nothing: what is open is to be left politely.
        let _ = print(title);
    }
    while let Some(outcome) = steps.recv().await {
        if shown {
            let _ = print(&report::line(&outcome));
        }
    }
}

/// A paragraph for each problem.
fn conclude(walked: &Walked, shown: bool) {
    if !shown {
        return;
    }
    for (step, problem) in walked.problems() {
        let _ = print(&format!("\n{}", report::paragraph(step, &problem)));
    }
    let _ = print("");
}

fn print(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}").map_err(|why| ClientError::stdout(why).into())
}

/// Every upstream, with what it would be told.
fn patients(config: &Config, service: &Service) -> Result<Vec<Patient>, String> {
    let patient = |upstream: &crate::config::UpstreamConfig| {
        let dialect = service.library.upstream(&upstream.dialect)?;
        let named = Dialer::mode_of(&upstream.url, &dialect);
        let profiles: Vec<_> = profiles(service, &dialect).collect();
        let mut needs: Vec<Mode> = profiles.iter().map(|profile| profile.mode).collect();
        needs.sort_unstable();
        needs.dedup();
        let mode = mode(&dialect, named.as_deref(), &needs);
        needs.retain(|need| *need != mode);
        let words = words(service, &profiles)?;
        Ok(Patient { config: upstream.clone(), dialect, mode, needs, words })
    };
    config.upstream.iter().map(patient).collect()
}

/// The mode to walk in: the one that the URL names; or of those that the routes need one in which a second of audio is
/// answered at once, for that shows how fast the GPU is. Where clients are only relayed, they choose: one that there is.
fn mode(dialect: &UpstreamMapping, named: Option<&str>, needs: &[Mode]) -> Mode {
    let spelled =
        dialect.modes.iter().find(|(_, value)| Some(value.as_str()) == named).map(|(mode, _)| *mode);
    let has = |mode: &Mode| dialect.modes.contains_key(mode) && (needs.is_empty() || needs.contains(mode));
    spelled.or_else(|| [Mode::Audio, Mode::Video, Mode::Chat].into_iter().find(has)).unwrap_or(Mode::Chat)
}

/// The profiles whose sessions may go to upstreams of this dialect.
fn profiles<'s>(service: &'s Service, dialect: &UpstreamMapping) -> impl Iterator<Item = &'s Arc<Profile>> {
    let routes = service.routes.iter().filter(|route| route.upstreams.dialect.name == dialect.name);
    routes.map(|route| &route.profile).filter(|profile| !profile.relays())
}

/// What sessions are opened with, as the profiles have it; where none converses, as the built-in one does.
fn words(service: &Service, profiles: &[&Arc<Profile>]) -> Result<Words, String> {
    let all = || profiles.iter().copied().chain(service.library.profiles());
    let talk = all().find_map(|profile| profile.talk.clone()).ok_or("no profile holds a conversation")?;
    let hear =
        all().find(|profile| !profile.relays()).map(|profile| &profile.hear).ok_or("no profile hears")?;
    Ok(Words {
        prompt: talk.converse.prompt(""),
        config: talk.converse.config.clone(),
        question: hear.prompt(&hear.language, &[]),
        voice: service.voices.parts().0.get(DEFAULT_VOICE).cloned(),
    })
}
