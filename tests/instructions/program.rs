//! How many instructions the hot paths take: repeatable where times are not, so that two commits can be compared.
//!
//! `tests/instructions/run` builds it, counts under valgrind's callgrind and compares with `figures.toml`. One process per
//! bench, so that none sees what another left on the heap. Not here: sockets, the runtime and the kernel, which are most of
//! what a session costs; instructions are not time either, but what takes fewer of the same kind takes less of it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement that cannot go on should stop")]

mod audio_input;
mod components;
mod figures;
mod hops;
mod simulation;

use std::process::ExitCode;

use audio_input::{quiet_room, speech, speech_then_quiet};
use figures::Figures;
use simulation::{Scenario, StepKind, count_steps};

/// One benchmark.
struct Benchmark {
    name: &'static str,
    /// Calls per second of one session's audio, if the benchmark runs in every second.
    per_second: Option<f64>,
    /// Runs the benchmark inside [`counted`]; returns the number of calls.
    run: fn() -> usize,
}

const fn benchmark(name: &'static str, per_second: Option<f64>, run: fn() -> usize) -> Benchmark {
    Benchmark { name, per_second, run }
}

const FRAMES_PER_SECOND: Option<f64> = Some(50.0);
/// Messages of 100 ms.
const APPENDS_PER_SECOND: Option<f64> = Some(10.0);
const HOPS_PER_SECOND: Option<f64> = Some(62.5);
const UNITS_PER_SECOND: Option<f64> = Some(1.0);
/// Of conversations on servers of OpenAI's Realtime.
const SHORT_UNITS_PER_SECOND: Option<f64> = Some(5.0);

/// A frame of the client; an utterance or a unit for the model; a second of the model's audio, to the client.
const FRAME: [StepKind; 1] = [StepKind::ClientFrame];
const UNIT: [StepKind; 1] = [StepKind::UpstreamAudio];
const DELTA: [StepKind; 2] = [StepKind::ModelDelta, StepKind::PlayoutSent];
/// A second of the model's answer, with all its messages.
const ANSWER: [StepKind; 3] = [StepKind::ModelDelta, StepKind::ModelEvent, StepKind::PlayoutSent];

/// All of a conversation while the user's audio goes up and the model's comes down. A call is a unit of the user's audio.
const SECOND: [StepKind; 6] = [
    StepKind::UpstreamAudio,
    StepKind::ClientFrame,
    StepKind::ModelDelta,
    StepKind::ModelEvent,
    StepKind::PlayoutSent,
    StepKind::Other,
];

/// The steps of these kinds in a scenario.
macro_rules! steps {
    ($name:literal, $per_second:expr, $kinds:expr, $scene:ident $($more:tt)*) => {
        benchmark($name, $per_second, || count_steps(Scenario::$scene $($more)*, &$kinds))
    };
}

/// The frames of the client in a scenario.
macro_rules! frames {
    ($name:literal, $($scene:tt)*) => {
        steps!($name, FRAMES_PER_SECOND, FRAME, $($scene)*)
    };
}

/// Frames are 20 ms of int16 at 48 kHz, or at 24 kHz where the name says so and for clients of OpenAI's protocol; units and
/// deltas are one second.
static BENCHMARKS: [Benchmark; 49] = [
    frames!("speech-frame-quiet", transcription(quiet_room)),
    frames!("speech-frame-spoken", transcription(speech)),
    frames!("16k-macaw-frame-quiet", transcription(quiet_room).at_16k_of("macaw")),
    frames!("16k-macaw-frame-spoken", transcription(speech).at_16k_of("macaw")),
    frames!("16k-funasr-frame-quiet", transcription(quiet_room).at_16k_of("funasr")),
    frames!("16k-funasr-frame-spoken", transcription(speech).at_16k_of("funasr")),
    frames!("16k-whisper-live-frame-quiet", transcription(quiet_room).at_16k_of("whisper-live")),
    frames!("16k-whisper-live-frame-spoken", transcription(speech).at_16k_of("whisper-live")),
    frames!("16k-speechmatics-frame-quiet", transcription(quiet_room).at_16k_of("speechmatics")),
    frames!("16k-speechmatics-frame-spoken", transcription(speech).at_16k_of("speechmatics")),
    steps!("speech-question", None, UNIT, transcription(speech_then_quiet)),
    steps!("speech-delta", UNITS_PER_SECOND, [StepKind::ModelDelta], read_aloud()),
    frames!("talk-frame-quiet", conversation(quiet_room)),
    frames!("talk-frame-spoken", conversation(speech)),
    frames!("talk-frame-answered", model_turn()),
    steps!("talk-unit", UNITS_PER_SECOND, UNIT, conversation(quiet_room)),
    steps!("talk-delta", UNITS_PER_SECOND, DELTA, model_turn()),
    steps!("talk-answer", UNITS_PER_SECOND, ANSWER, model_turn()),
    frames!("sglang-talk-frame-quiet", conversation(quiet_room).on_sglang()),
    steps!("sglang-talk-unit", UNITS_PER_SECOND, UNIT, conversation(quiet_room).on_sglang()),
    steps!("sglang-talk-answer", UNITS_PER_SECOND, ANSWER, model_turn().on_sglang()),
    frames!("vllm-talk-frame-quiet", conversation(quiet_room).on_vllm()),
    steps!("vllm-talk-unit", UNITS_PER_SECOND, UNIT, conversation(quiet_room).on_vllm()),
    steps!("vllm-talk-answer", UNITS_PER_SECOND, ANSWER, model_turn().on_vllm()),
    steps!("second-demo", UNITS_PER_SECOND, SECOND, seconds()),
    steps!("second-sglang", UNITS_PER_SECOND, SECOND, seconds().on_sglang()),
    steps!("second-vllm", UNITS_PER_SECOND, SECOND, seconds().on_vllm()),
    steps!("second-vllm-turns", SHORT_UNITS_PER_SECOND, SECOND, seconds().on_vllm_turns()),
    steps!("second-openai", SHORT_UNITS_PER_SECOND, SECOND, seconds().on_openai()),
    frames!("talk-24k-frame-quiet", conversation(quiet_room).at_24k()),
    frames!("talk-24k-frame-spoken", conversation(speech).at_24k()),
    frames!("openai-frame-quiet", assistant(quiet_room).openai(20)),
    frames!("openai-frame-spoken", assistant(speech).openai(20)),
    steps!("openai-append-quiet", APPENDS_PER_SECOND, FRAME, assistant(quiet_room).openai(100)),
    steps!("openai-append-spoken", APPENDS_PER_SECOND, FRAME, assistant(speech).openai(100)),
    steps!("openai-delta", UNITS_PER_SECOND, DELTA, answer().openai(100)),
    frames!("openai-talk-frame-quiet", conversation(quiet_room).openai(20)),
    frames!("openai-talk-frame-spoken", conversation(speech).openai(20)),
    steps!("openai-talk-append-quiet", APPENDS_PER_SECOND, FRAME, conversation(quiet_room).openai(100)),
    steps!("openai-talk-append-spoken", APPENDS_PER_SECOND, FRAME, conversation(speech).openai(100)),
    steps!("openai-talk-delta", UNITS_PER_SECOND, DELTA, model_turn().openai(100)),
    benchmark("hop-quiet", HOPS_PER_SECOND, || components::count_hops(&quiet_room(audio_input::RATE_HZ))),
    benchmark("hop-spoken", HOPS_PER_SECOND, || components::count_hops(&audio_input::recording_16k())),
    benchmark("resample-frame", FRAMES_PER_SECOND, components::count_resample),
    benchmark("decode-delta", UNITS_PER_SECOND, components::count_decode_delta),
    benchmark("decode-command", None, components::count_decode_command),
    benchmark("open-session", None, components::count_open_session),
    benchmark("websocket-frame-in", FRAMES_PER_SECOND, components::count_websocket_in),
    benchmark("websocket-unit-out", UNITS_PER_SECOND, components::count_websocket_out),
];

/// callgrind counts from the entry of this function, found by name, to its end.
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    work();
    // Prevents a tail call, which would hide the end of the function.
    std::hint::black_box(());
}

fn main() -> ExitCode {
    // cargo passes `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, name] = arguments.as_slice()
        && flag == "--one"
    {
        if let Some(calls) = hops::count(name) {
            println!("{calls}");
            return ExitCode::SUCCESS;
        }
        let found =
            BENCHMARKS.iter().find(|benchmark| benchmark.name == name).expect("a benchmark of this name");
        println!("{}", (found.run)());
        return ExitCode::SUCCESS;
    }
    if arguments == ["--hops"] {
        return exit_code(hops::print_all().map(|()| false));
    }
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (flags, names): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with("--"));
    if let Some(problem) = argument_error(&flags, &names) {
        eprintln!("instructions: {problem}");
        return ExitCode::from(2);
    }
    let is_wanted =
        |benchmark: &Benchmark| names.is_empty() || names.iter().any(|name| benchmark.name.contains(name));
    exit_code(compare(is_wanted, has("--save")).map(|changed| changed && has("--strict")))
}

/// A failure for a problem, and where something has changed that must not.
fn exit_code(has_changed: Result<bool, String>) -> ExitCode {
    match has_changed {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("instructions: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the problem with the arguments, if any.
fn argument_error(flags: &[&str], names: &[&str]) -> Option<String> {
    if let Some(flag) = flags.iter().find(|flag| !["--save", "--strict"].contains(flag)) {
        return Some(format!("unknown option {flag}; the options are --save, --strict and, alone, --hops"));
    }
    let unknown =
        names.iter().find(|name| !BENCHMARKS.iter().any(|benchmark| benchmark.name.contains(**name)))?;
    let known: Vec<&str> = BENCHMARKS.iter().map(|benchmark| benchmark.name).collect();
    Some(format!("no benchmark name contains {unknown}; the benchmarks are {}", known.join(", ")))
}

/// Counts the selected benchmarks and prints the comparison; returns true if any changed.
fn compare(is_wanted: impl Fn(&Benchmark) -> bool, save: bool) -> Result<bool, String> {
    let made_with = figures::current_toolchain()?;
    let mut figures = Figures::load()?;
    if figures.made_with != made_with {
        println!(
            "The stored figures are from {}; this is {made_with}. They are not comparable.",
            figures.made_with
        );
    }
    println!("{:<22} {:>12} {:>12} {:>9}  {:>14}", "bench", "before", "per call", "change", "per second");
    let mut changed = false;
    for benchmark in BENCHMARKS.iter().filter(|benchmark| is_wanted(benchmark)) {
        changed |= figures.update(benchmark, figures::count_per_call(benchmark.name)?);
    }
    if save {
        figures.made_with = made_with;
        figures.save()?;
    }
    Ok(changed)
}
