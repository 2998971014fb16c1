//! Speech engines of a demo: finds them, and fetches them where the user agrees.
//!
//! `examples/engines/setup` fetches them, so this works in voxbridge's source directory only. Elsewhere the simulated model
//! knows the words of the demo's own recording and else hums, and `--engines DIR` names engines that were fetched before. Nothing is downloaded unasked: `--engines` alone is the
//! user's order, and a terminal is asked once.

use std::{
    fs,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use indicatif::ProgressBar;
use tokio::process::Command;

use crate::{
    cli::{args::DemoArgs, commands::CommandError, output, simulated_server},
    simulator::{engines::SpeechEngines, process::find_engines},
};

/// Script that fetches the engines, relative to the source directory.
const SETUP: &str = "examples/engines/setup";
/// Its default output directory.
const DEFAULT_DIR: &str = "target/engines";
/// Remembers that the user was asked and said no.
const DECLINED: &str = "target/engines-declined";

const QUESTION: &str = "\
The simulated model knows the words of one recording only. Real speech engines for it can be fetched into target/engines: Moonshine (MIT) to
recognise English and flite (BSD) to speak it, with their Python packages, about 130 MB to download (190 MB without npm) and
250 MB on the disk. As root on Debian this also installs Python and pip where they are missing.

Fetch them now? You are asked only once. [Y/n] ";

/// Starts the speech engines that the arguments ask for, or those that are there. Without engines, the simulated model knows
/// the words of the demo's own recording; for other speech it hums.
pub(super) async fn load_engines(args: &DemoArgs) -> Result<Option<Arc<dyn SpeechEngines>>, CommandError> {
    let dir = match &args.engines {
        Some(Some(dir)) => dir.clone(),
        Some(None) => {
            fetch_missing().await?;
            PathBuf::from(DEFAULT_DIR)
        }
        None if has_engines() || fetch_with_consent().await? => PathBuf::from(DEFAULT_DIR),
        None => {
            // It would have no words for others, not even how long the speech was.
            let knows_recording = args.recording.is_none() && !args.browser;
            let words = if knows_recording {
                "knows the words of its own recording only"
            } else {
                "recognises no words"
            };
            output::print_line(format_args!(
                "The simulated model {words}; voxbridge demo --engines, in voxbridge's source directory, fetches real speech \
                 engines for it.\n"
            ))?;
            return Ok(match knows_recording {
                true => Some(simulated_server::known_speech(None).await?),
                false => None,
            });
        }
    };
    output::print_line(format_args!(
        "The simulated model uses real speech engines from {}.\n",
        dir.display()
    ))?;
    // The spinner is invisible without a terminal.
    let spinner = ProgressBar::new_spinner().with_message("loading the speech engines");
    spinner.enable_steady_tick(Duration::from_millis(100));
    let engines = simulated_server::start_engines(&dir).await;
    spinner.finish_and_clear();
    Ok(Some(engines?))
}

fn has_engines() -> bool {
    find_engines(Path::new(DEFAULT_DIR)).is_ok()
}

/// Fetches the engines by order of the user.
async fn fetch_missing() -> Result<(), CommandError> {
    if has_engines() {
        return Ok(());
    }
    if !Path::new(SETUP).exists() {
        return Err(CommandError::usage(format!(
            "{SETUP} is not here: run demo --engines in voxbridge's source directory, or name a directory that has engines, \
             with --engines DIR"
        )));
    }
    run_setup().await.map_err(CommandError::failed)
}

/// Asks at a terminal, at most once, and fetches the engines if the answer is yes. Returns true if they are there then.
async fn fetch_with_consent() -> Result<bool, CommandError> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !is_terminal || !Path::new(SETUP).exists() || Path::new(DECLINED).exists() {
        return Ok(false);
    }
    output::print(QUESTION)?;
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|bytes| (bytes > 0).then_some(answer))
    });
    let answer = answer.await.map_err(CommandError::failed)?.map_err(CommandError::failed)?;
    if !answer.is_some_and(|answer| is_yes(&answer)) {
        // An unwritable directory means that the next demo asks again.
        let _ = fs::create_dir_all("target").and_then(|()| fs::write(DECLINED, ""));
        return Ok(false);
    }
    match run_setup().await {
        Ok(()) => Ok(true),
        Err(problem) => {
            output::print_message(problem);
            Ok(false)
        }
    }
}

/// True for yes in words, and for the Enter key alone.
fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes")
}

/// Runs the script, which reports its progress on standard error.
async fn run_setup() -> Result<(), String> {
    let setup = Command::new(SETUP).arg(DEFAULT_DIR).kill_on_drop(true).status().await;
    match setup {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(format!("the speech engines were not fetched: {SETUP} ended with {status}; see above"))
        }
        Err(error) => Err(format!("the speech engines were not fetched: {SETUP}: {error}")),
    }
}
