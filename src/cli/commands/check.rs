//! `voxbridge check`: checks and prints the configuration and lists all mapping files, without serving.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{CommandError, value_sources::CheckedSettings};
use crate::{
    cli::{
        args::{CheckArgs, ConfigArgs},
        output,
        synthetic_session::{SyntheticSession, replay_epoch},
        unknown_variables,
    },
    config::{CheckedConfig, Config, ConfigFile, ConfigProblem, Layers, NO_UPSTREAM, UpstreamConfig},
    server::{ServiceConfig, unix_now},
    spelling::{
        ClientMapping, FileError, Library, MappingKind, UpstreamMapping, compatibility::check_compatible,
    },
    vocabulary::EventName,
};

pub(super) fn run(args: CheckArgs) -> Result<(), CommandError> {
    match (args.json, check(args.config)) {
        (false, Ok(checked)) => {
            output::print(checked.annotated_toml().map_err(CommandError::failed)?)?;
            output::print(format_remarks(&checked.config, &checked.library))?;
            Ok(())
        }
        (false, Err(mistakes)) => Err(CommandError::usage(describe(&mistakes))),
        (true, Ok(checked)) => {
            let (config, library) = (&checked.config, &checked.library);
            let mut report = config.effective_json(library);
            report["ok"] = json!(true);
            report["sources"] = json!(checked.sources());
            report["notes"] = json!(config.notes());
            report["warnings"] = json!(all_warnings(config, library));
            Ok(output::print_line(format_args!("{report:#}"))?)
        }
        (true, Err(mistakes)) => {
            let errors: Vec<Value> = mistakes.iter().map(Mistake::to_json).collect();
            output::print_line(format_args!("{:#}", json!({"ok": false, "errors": errors})))?;
            Err(CommandError::usage(""))
        }
    }
}

/// Describes all mistakes of a configuration that `serve` does not accept; `None` if the check finds none.
pub(super) fn describe_mistakes(args: ConfigArgs) -> Option<String> {
    check(args).err().map(|mistakes| describe(&mistakes))
}

fn describe(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Reads and checks everything that `serve` reads.
fn check(args: ConfigArgs) -> Result<CheckedSettings, Vec<Mistake>> {
    let in_files = |error: FileError| error.flatten().into_iter().map(Mistake::File).collect::<Vec<_>>();
    let file = args.config.as_deref().map(ConfigFile::read).transpose().map_err(in_files)?;
    let checked_file = file.as_ref().map(ConfigFile::check);
    let layer = checked_file.as_ref().map(|checked| checked.layer.clone()).unwrap_or_default();
    let layers = Layers { file: layer, settings: args.settings };
    let config = layers.merge().map_err(in_files)?;

    let in_keys = checked_file.iter().flat_map(|checked| checked.errors.clone());
    let mut mistakes: Vec<Mistake> = in_keys.map(Mistake::File).collect();
    let library = config.load_library().map_err(|error| mistakes.extend(in_files(error)));
    let is_consequence = |problem: &ConfigProblem| {
        checked_file.as_ref().is_some_and(|checked| checked.is_consequence(problem))
    };
    let mut problems = match &library {
        Ok(_) => config.find_problems(),
        // Names that the broken mapping files may define are not mistakes.
        Err(()) => without_unknown_names(Config { mappings: None, ..config.clone() }.find_problems()),
    };
    if config.upstream.is_empty() && file.is_some() {
        problems.push(ConfigProblem { path: Vec::new(), message: NO_UPSTREAM.to_owned() });
    }
    problems.retain(|problem| !is_consequence(problem));
    mistakes
        .extend(problems.into_iter().map(|problem| Mistake::locate(problem, checked_file.as_ref(), &layers)));
    mistakes.sort_by_cached_key(Mistake::place);
    match library {
        Ok(library) if mistakes.is_empty() => Ok(CheckedSettings { config, library, layers }),
        _ => Err(mistakes),
    }
}

fn without_unknown_names(problems: Vec<ConfigProblem>) -> Vec<ConfigProblem> {
    let is_name = |problem: &ConfigProblem| {
        ["unknown profile", "unknown client protocol", "unknown upstream dialect"]
            .iter()
            .any(|words| problem.message.contains(words))
    };
    problems.into_iter().filter(|problem| !is_name(problem)).collect()
}

/// A mistake, and where it is.
#[derive(Debug)]
enum Mistake {
    /// In a file.
    File(FileError),
    /// In an option of the command line or a variable of the environment.
    Option(String, String),
    /// In the configuration as a whole.
    Whole(String),
}

impl Mistake {
    fn locate(problem: ConfigProblem, file: Option<&CheckedConfig<'_>>, layers: &Layers) -> Self {
        if let Some(option) = layers.option_of(&problem.path) {
            return Self::Option(option.to_owned(), problem.message);
        }
        match file.and_then(|file| file.locate(&problem)) {
            Some(error) => Self::File(error),
            None => Self::Whole(problem.message),
        }
    }

    /// Sort key: by file and position, those without a position last.
    fn place(&self) -> (bool, String, usize, usize) {
        match self {
            Self::File(error) => (false, error.file.clone(), error.line, error.column),
            Self::Option(..) | Self::Whole(_) => (true, String::new(), 0, 0),
        }
    }

    /// File, position and option are null if unknown.
    fn to_json(&self) -> Value {
        let known = |number: usize| (number > 0).then_some(number);
        let (error, option, message) = match self {
            Self::File(error) => (Some(error), None, &error.message),
            Self::Option(option, message) => (None, Some(option), message),
            Self::Whole(message) => (None, None, message),
        };
        json!({
            "file": error.map(|error| &error.file), "line": error.and_then(|error| known(error.line)),
            "column": error.and_then(|error| known(error.column)), "option": option, "message": message,
        })
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Option(option, message) => write!(f, "{option}: {message}"),
            Self::Whole(message) => f.write_str(message),
        }
    }
}

/// Warnings about the configuration, and what does not work in synthetic sessions with its mappings.
fn all_warnings(config: &Config, library: &Library) -> Vec<String> {
    let warnings_of = |session: SyntheticSession| {
        let problems = session.find_problems(replay_epoch()).into_iter();
        problems.map(move |problem| format!("{session} does not work: {problem}"))
    };
    let sessions = sessions_to_try(config, library);
    let of_service = |service: ServiceConfig| {
        [Config::route_warnings(&service), Config::key_warnings(&service, unix_now().as_secs())].concat()
    };
    let of_service = config.build_service().map(of_service).unwrap_or_default();
    let mute = clients_without_transcripts(library);
    config
        .warnings()
        .into_iter()
        .chain(unknown_variables::warnings(config))
        .chain(of_service)
        .chain(mute)
        .chain(sessions.into_iter().flat_map(warnings_of))
        .collect()
}

/// Warnings about your client files that send speech and get no transcripts. A protocol may be meant for conversations, so that
/// this is not an error.
fn clients_without_transcripts(library: &Library) -> impl Iterator<Item = String> {
    let is_mute = |client: &&Arc<ClientMapping>| {
        let takes_transcripts = client.is_relayed()
            || client.realtime.is_some()
            || !client.event(EventName::TranscriptFinal).is_empty();
        !takes_transcripts
            && client.audio_in.frame_max_bytes > 0
            && !library.is_embedded(MappingKind::Client, &client.name)
    };
    library.clients().filter(is_mute).map(|client| {
        format!(
            "client {:?} sends speech, but gets no transcripts: [events] has no `transcript_final`",
            client.name
        )
    })
}

/// The combinations of a client, a profile and a dialect that need a try: those with a file that is not built in. The rest
/// of a combination is what the upstreams and routes of the configuration lead to.
fn sessions_to_try(config: &Config, library: &Library) -> Vec<SyntheticSession> {
    let is_own = |kind, name: &str| !library.is_embedded(kind, name);
    let assumed = [UpstreamConfig::with_default_dialect()];
    let upstreams = if config.upstream.is_empty() { &assumed } else { config.upstream.as_slice() };
    let dialect_is_used = |dialect: &&Arc<UpstreamMapping>| {
        let speaks = |upstream: &UpstreamConfig| {
            upstream.mapping(library).is_ok_and(|mapping| mapping.name == dialect.name)
        };
        upstreams.iter().any(speaks)
    };
    let clients = library.clients().filter(|client| !client.is_relayed());
    let mut sessions = Vec::new();
    for (client, profile) in clients.flat_map(|client| library.profiles().map(move |it| (client, it))) {
        let pair_is_own = is_own(MappingKind::Client, &client.name) || {
            let mut chain = library.inheritance_chain(&profile.name).into_iter();
            chain.any(|name| is_own(MappingKind::Profile, &name))
        };
        // The script has one message for each command.
        let dialects =
            library.upstreams().filter(|dialect| dialect.is_plain() || dialect.is_http()).filter(|dialect| {
                let dialect_is_own = is_own(MappingKind::Upstream, &dialect.name);
                (dialect_is_own || pair_is_own && dialect_is_used(dialect))
                    && check_compatible(client, profile, dialect).is_ok()
            });
        sessions.extend(dialects.map(|dialect| SyntheticSession {
            client: client.clone(),
            profile: profile.clone(),
            dialect: dialect.clone(),
        }));
    }
    sessions
}

/// The profiles of clients that match no route.
fn describe_default_profiles(config: &Config, library: &Library) -> String {
    if !config.routes.is_empty() {
        return "clients that match no [[route]] are rejected".to_owned();
    }
    let own = library.clients().filter_map(|client| {
        let profile = client.default_profile.as_ref()?;
        Some(format!(", for {} {profile}", client.name))
    });
    format!("speech, or as the mode in the upstream's URL says{}", own.collect::<String>())
}

/// Formats the mapping files, notes and warnings as comments of the configuration.
fn format_remarks(config: &Config, library: &Library) -> String {
    let mut out = String::new();
    for (kind, name, file, _) in library.files() {
        let _ = writeln!(out, "# ok: {} {name} ({file})", kind.name());
        if library.replaces_embedded(kind, name) {
            let _ = writeln!(out, "# {file} replaces the built-in {} {name}", kind.name());
        }
    }
    for note in config.notes() {
        let _ = writeln!(out, "# note: {note}");
    }
    for warning in all_warnings(config, library) {
        let _ = writeln!(out, "# warning: {warning}");
    }
    if config.profile.is_none() {
        let _ = writeln!(out, "# profile is not set: {}", describe_default_profiles(config, library));
    }
    for (key, value) in
        [("language", config.language.is_none()), ("idle_timeout_ms", config.idle_timeout_ms.is_none())]
    {
        if value {
            let owner = if key == "language" { "profile" } else { "client protocol" };
            let _ = writeln!(out, "# {key} is not set: each {owner} has its own");
        }
    }
    if config.upstream.is_empty() {
        let _ = writeln!(out, "# no upstream is configured; serve needs at least one");
    }
    out
}
