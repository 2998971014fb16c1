//! Load test: measures the cost of a session. N real-time clients use a bridge in a separate process.
//!
//! `cargo run --release --example load -- --sessions 500 --seconds 30 --rate 48000 --frame-ms 20 --profile
//! conversation`
//!
//! `--server` names the MiniCPM-o server whose dialect the upstream speaks, as for `voxbridge simulate`.
//!
//! Clients and upstream run in one thread of this process, so the figures of the other process belong to the bridge
//! alone. Without `--url` it is `voxbridge serve`, from beside this example. All clients send for some seconds before
//! the measurement. Measured values:
//!
//! - **Samples.** Up: each unit that reaches the upstream is compared with the client's audio (`audio_matcher`). Down:
//!   every byte of the model's voice is verified (`receiver`). Lost, duplicated and reordered samples are counted
//!   (`sample_tracker`) and must be zero. All clearly audible speech of an utterance must be transcribed
//!   (`transcript_check`).
//! - **Latency up.** From writing the frame with a unit's last sample to the socket until the upstream has read the
//!   whole append. A resampler needs 10 ms of look-ahead, so *beyond* starts at the frame that contains those. Through a
//!   relay: of each frame, and *beyond* of the long messages.
//! - **Latency down.** From writing a delta's first byte to the socket, or from its due time in the playout, until the
//!   client reads its first audio (`receiver`). Through a relay: of the long messages.
//! - **Answers** of an assistant. From writing the frame that ended the utterance until the upstream reads the first bytes
//!   of the question, and from writing the answer until the client reads its first audio. *Up* includes the transfer of the
//!   question, which holds the conversation's audio and may have megabytes.
//! - **Cost.** CPU time, context switches and memory of the bridge's processes, from the system's accounting
//!   (`process`).
//! - **The generator itself.** Its lateness. If more than one frame in a hundred is over 5 ms late, no figure is valid.
//!
//! Latencies include this program's own waits: one thread serves both ends, and reads data when it has time.

mod append;
mod audio_matcher;
mod chat_turn;
mod churn;
mod client;
mod fault_schedule;
mod openai;
mod options;
mod pacer;
mod plot;
mod process;
mod receiver;
mod relay_upstream;
mod report;
mod run;
mod run_context;
mod sample_tracker;
mod server_dialect;
mod statistics;
mod test_audio;
mod transcript_check;
mod upstream_stub;
mod websocket;

use std::{fs, path::Path, process::ExitCode, rc::Rc};

use clap::Parser as _;
use serde_json::json;

use crate::{options::Options, run::Outcome, test_audio::TestAudio};

fn main() -> ExitCode {
    match run_all(&Options::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::from(2)
        }
    }
}

/// Executes all runs in order; returns the exit code.
fn run_all(options: &Options) -> Result<u8, String> {
    options.validate()?;
    process::raise_file_limit();
    if let Some(cpus) = &options.pin_self {
        process::pin_self(cpus)?;
    }
    let sound = Rc::new(TestAudio::new(options.rate, options.frame_samples(), options.speech)?);
    let numbers = if options.curve.is_empty() { vec![options.sessions] } else { options.curve.clone() };
    let mut outcomes = Vec::new();
    for sessions in numbers {
        let outcome = run_once(Options { sessions, ..options.clone() }, Rc::clone(&sound))?;
        outcome.print();
        outcomes.push(outcome);
    }
    write_results(options, &outcomes)?;
    Ok(match (outcomes.iter().all(Outcome::is_valid), outcomes.iter().all(|run| run.tally.is_clean())) {
        (false, _) => 3,
        (true, false) => 1,
        (true, true) => 0,
    })
}

fn run_once(options: Options, sound: Rc<TestAudio>) -> Result<Outcome, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {error}"))?;
    tokio::task::LocalSet::new().block_on(&runtime, run::run(options, sound))
}

fn write_results(options: &Options, outcomes: &[Outcome]) -> Result<(), String> {
    let write = |path: &Path, text: String| {
        fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    if let Some(path) = &options.json {
        let runs: Vec<_> = outcomes.iter().map(Outcome::to_json).collect();
        write(path, format!("{:#}\n", json!({ "runs": runs })))?;
    }
    match &options.svg {
        Some(path) => write(path, plot::render_svg(outcomes)),
        None => Ok(()),
    }
}
