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

/// A second of the model's answer, with all its messages.
const ANSWER: [StepKind; 3] = [StepKind::ModelDelta, StepKind::ModelEvent, StepKind::PlayoutSent];

/// All of a second of a conversation, in which the user's second goes up and the model's comes down.
const SECOND: [StepKind; 6] = [
    StepKind::UpstreamAudio,
    StepKind::ClientFrame,
    StepKind::ModelDelta,
    StepKind::ModelEvent,
    StepKind::PlayoutSent,
    StepKind::Other,
];

/// Frames are 20 ms of int16 at 48 kHz, or at 24 kHz where the name says so and for clients of OpenAI's protocol; units and
/// deltas are one second.
static BENCHMARKS: [Benchmark; 49] = [
    benchmark("speech-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(Scenario::transcription(audio_input::quiet_room), &[StepKind::ClientFrame])
    }),
    benchmark("speech-frame-spoken", FRAMES_PER_SECOND, || {
        count_steps(Scenario::transcription(audio_input::speech), &[StepKind::ClientFrame])
    }),
    benchmark("16k-macaw-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(
            Scenario::transcription(audio_input::quiet_room).at_16k_of("macaw"),
            &[StepKind::ClientFrame],
        )
    }),
    benchmark("16k-macaw-frame-spoken", FRAMES_PER_SECOND, || {
        count_steps(Scenario::transcription(audio_input::speech).at_16k_of("macaw"), &[StepKind::ClientFrame])
    }),
    benchmark("16k-funasr-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(
            Scenario::transcription(audio_input::quiet_room).at_16k_of("funasr"),
            &[StepKind::ClientFrame],
        )
    }),
    benchmark("16k-funasr-frame-spoken", FRAMES_PER_SECOND, || {
        count_steps(
            Scenario::transcription(audio_input::speech).at_16k_of("funasr"),
            &[StepKind::ClientFrame],
        )
    }),
    benchmark("16k-whisper-live-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(
            Scenario::transcription(audio_input::quiet_room).at_16k_of("whisper-live"),
            &[StepKind::ClientFrame],
        )
    }),
    benchmark("16k-whisper-live-frame-spoken", FRAMES_PER_SECOND, || {
        count_steps(
            Scenario::transcription(audio_input::speech).at_16k_of("whisper-live"),
            &[StepKind::ClientFrame],
        )
    }),
    benchmark("16k-speechmatics-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(
            Scenario::transcription(audio_input::quiet_room).at_16k_of("speechmatics"),
            &[StepKind::ClientFrame],
        )
    }),
    benchmark("16k-speechmatics-frame-spoken", FRAMES_PER_SECOND, || {
        count_steps(
            Scenario::transcription(audio_input::speech).at_16k_of("speechmatics"),
            &[StepKind::ClientFrame],
        )
    }),
    benchmark("speech-question", None, || {
        count_steps(Scenario::transcription(audio_input::speech_then_quiet), &[StepKind::UpstreamAudio])
    }),
    benchmark("speech-delta", UNITS_PER_SECOND, || {
        count_steps(Scenario::read_aloud(), &[StepKind::ModelDelta])
    }),
    benchmark("talk-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::quiet_room), &[StepKind::ClientFrame])
    }),
    benchmark("talk-frame-spoken", FRAMES_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::speech), &[StepKind::ClientFrame])
    }),
    benchmark("talk-frame-answered", FRAMES_PER_SECOND, || {
        count_steps(Scenario::model_turn(), &[StepKind::ClientFrame])
    }),
    benchmark("talk-unit", UNITS_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::quiet_room), &[StepKind::UpstreamAudio])
    }),
    benchmark("talk-delta", UNITS_PER_SECOND, || {
        count_steps(Scenario::model_turn(), &[StepKind::ModelDelta, StepKind::PlayoutSent])
    }),
    benchmark("talk-answer", UNITS_PER_SECOND, || count_steps(Scenario::model_turn(), &ANSWER)),
    benchmark("sglang-talk-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::quiet_room).on_sglang(), &[StepKind::ClientFrame])
    }),
    benchmark("sglang-talk-unit", UNITS_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::quiet_room).on_sglang(), &[StepKind::UpstreamAudio])
    }),
    benchmark("sglang-talk-answer", UNITS_PER_SECOND, || {
        count_steps(Scenario::model_turn().on_sglang(), &ANSWER)
    }),
    benchmark("vllm-talk-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::quiet_room).on_vllm(), &[StepKind::ClientFrame])
    }),
    benchmark("vllm-talk-unit", UNITS_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::quiet_room).on_vllm(), &[StepKind::UpstreamAudio])
    }),
    benchmark("vllm-talk-answer", UNITS_PER_SECOND, || {
        count_steps(Scenario::model_turn().on_vllm(), &ANSWER)
    }),
    benchmark("second-demo", UNITS_PER_SECOND, || count_steps(Scenario::seconds(), &SECOND)),
    benchmark("second-sglang", UNITS_PER_SECOND, || count_steps(Scenario::seconds().on_sglang(), &SECOND)),
    benchmark("second-vllm", UNITS_PER_SECOND, || count_steps(Scenario::seconds().on_vllm(), &SECOND)),
    benchmark("second-vllm-turns", UNITS_PER_SECOND, || {
        count_steps(Scenario::seconds().on_vllm_turns(), &SECOND)
    }),
    benchmark("second-openai", UNITS_PER_SECOND, || count_steps(Scenario::seconds().on_openai(), &SECOND)),
    benchmark("talk-24k-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::quiet_room).at_24k(), &[StepKind::ClientFrame])
    }),
    benchmark("talk-24k-frame-spoken", FRAMES_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::speech).at_24k(), &[StepKind::ClientFrame])
    }),
    benchmark("openai-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(Scenario::assistant(audio_input::quiet_room).openai(20), &[StepKind::ClientFrame])
    }),
    benchmark("openai-frame-spoken", FRAMES_PER_SECOND, || {
        count_steps(Scenario::assistant(audio_input::speech).openai(20), &[StepKind::ClientFrame])
    }),
    benchmark("openai-append-quiet", APPENDS_PER_SECOND, || {
        count_steps(Scenario::assistant(audio_input::quiet_room).openai(100), &[StepKind::ClientFrame])
    }),
    benchmark("openai-append-spoken", APPENDS_PER_SECOND, || {
        count_steps(Scenario::assistant(audio_input::speech).openai(100), &[StepKind::ClientFrame])
    }),
    benchmark("openai-delta", UNITS_PER_SECOND, || {
        count_steps(Scenario::answer().openai(100), &[StepKind::ModelDelta, StepKind::PlayoutSent])
    }),
    benchmark("openai-talk-frame-quiet", FRAMES_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::quiet_room).openai(20), &[StepKind::ClientFrame])
    }),
    benchmark("openai-talk-frame-spoken", FRAMES_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::speech).openai(20), &[StepKind::ClientFrame])
    }),
    benchmark("openai-talk-append-quiet", APPENDS_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::quiet_room).openai(100), &[StepKind::ClientFrame])
    }),
    benchmark("openai-talk-append-spoken", APPENDS_PER_SECOND, || {
        count_steps(Scenario::conversation(audio_input::speech).openai(100), &[StepKind::ClientFrame])
    }),
    benchmark("openai-talk-delta", UNITS_PER_SECOND, || {
        count_steps(Scenario::model_turn().openai(100), &[StepKind::ModelDelta, StepKind::PlayoutSent])
    }),
    benchmark("hop-quiet", HOPS_PER_SECOND, || {
        components::count_hops(&audio_input::quiet_room(audio_input::RATE_HZ))
    }),
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
