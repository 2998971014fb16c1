//! `verify --turns DIR`: judges of the end of a turn on a user's own recordings, without a server.
//!
//! Each file of the directory is one turn of a user. It ends where the last speech is, unless `turns.json` in the directory says
//! otherwise: `{"FILE": {"end_ms": 5230, "set": "NAME"}}`, both optional. Each set has a table of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::super::CommandError;
use crate::{
    cli::{
        args::VerifyArgs,
        error::EXIT_NO_INPUT,
        output::{print, print_line},
        recording::Recording,
    },
    server::turn_judge::{self, Judge},
    verify::turns::{Family, Listener, Turn, format_table},
};

/// File with the labels of the recordings.
const LABELS: &str = "turns.json";

/// Label of a recording.
#[derive(Debug, Clone, Default, Deserialize)]
struct Label {
    end_ms: Option<f32>,
    #[serde(default)]
    set: String,
}

/// A file and its turn.
#[derive(Debug, Serialize)]
struct HeardFile {
    file: String,
    set: String,
    #[serde(flatten)]
    turn: Turn,
}

/// Listens to all turns and prints the tables.
///
/// # Errors
/// A file cannot be read, or there is none; the model cannot be loaded.
pub(super) async fn run(args: &VerifyArgs, dir: &Path) -> Result<(), CommandError> {
    let labels = read_labels(dir)?;
    let files = list_files(dir)?;
    let mut model = load_model(args.turn_model.as_deref())?;
    let has_model = model.is_some();
    let mut heard = Vec::new();
    for path in files {
        let samples = Recording::open(&path).await?.read_all().await?;
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let label = labels.get(&file).cloned().unwrap_or_default();
        let listened = tokio::task::spawn_blocking(move || {
            let turn = listen(&mut model, &samples, label.end_ms);
            (turn, model)
        });
        let turn;
        (turn, model) = listened.await.map_err(CommandError::failed)?;
        heard.push(HeardFile { file, set: label.set, turn });
    }
    match args.json {
        true => print_line(&serde_json::to_string(&heard).map_err(CommandError::failed)?)?,
        false => print(format_report(&heard, has_model))?,
    }
    Ok(())
}

fn listen(model: &mut Option<Judge>, samples: &[i16], end_ms: Option<f32>) -> Turn {
    let mut ask = |audio: &[i16]| model.as_mut().and_then(|judge| judge(audio));
    Listener { looks_ms: Family::LOOKS_MS, model: Some(&mut ask) }.listen(samples, end_ms)
}

/// The tables of all sets.
fn format_report(heard: &[HeardFile], has_model: bool) -> String {
    let sets: BTreeSet<&str> = heard.iter().map(|one| one.set.as_str()).collect();
    let table = |set: &str| {
        let turns: Vec<&Turn> = heard.iter().filter(|one| one.set == set).map(|one| &one.turn).collect();
        let title = if set.is_empty() { String::new() } else { format!("{set}: ") };
        format!("{title}{}", format_table(&turns, has_model))
    };
    sets.into_iter().map(table).collect::<Vec<_>>().join("\n")
}

fn read_labels(dir: &Path) -> Result<BTreeMap<String, Label>, CommandError> {
    let path = dir.join(LABELS);
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
    serde_json::from_str(&text).map_err(|error| unreadable(&path, &error))
}

/// The recordings, by name.
fn list_files(dir: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let entries = fs::read_dir(dir).map_err(|error| unreadable(dir, &error))?;
    let is_recording = |path: &PathBuf| path.is_file() && path.extension().is_some_and(|end| end != "json");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_recording).collect();
    files.sort();
    match files.is_empty() {
        true => Err(unreadable(dir, &"it has no recordings")),
        false => Ok(files),
    }
}

/// The model: the one that was named, or the one that `examples/engines/setup` has fetched.
fn load_model(named: Option<&Path>) -> Result<Option<Judge>, CommandError> {
    let fetched = Path::new(turn_judge::FETCHED_WEIGHTS);
    let weights = named.or(Some(fetched).filter(|path| path.exists() && cfg!(feature = "turn-model")));
    let load = |weights| turn_judge::model::load(weights).map(|new_judge| new_judge());
    weights.map(load).transpose().map_err(|problem| CommandError::usage(format!("--turn-model: {problem}")))
}

fn unreadable(path: &Path, reason: &dyn std::fmt::Display) -> CommandError {
    CommandError::with_code(EXIT_NO_INPUT, format!("--turns: {}: {reason}", path.display()))
}
