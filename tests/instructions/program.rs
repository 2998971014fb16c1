//! How many instructions the hot paths take: repeatable where times are not, so that two commits can be compared.
//!
//! `tests/instructions/run` builds it, counts under valgrind's callgrind and compares with `figures.toml`. One process per
//! bench, so that none sees what another left on the heap. Not here: sockets, the runtime and the kernel, which are most of
//! what a session costs; instructions are not time either, but what takes fewer of the same kind takes less of it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement that cannot go on should stop")]

mod figures;
mod parts;
mod scene;
mod sound;

use std::process::ExitCode;

use figures::Figures;
use scene::{Did, Script, play};

/// One thing that is counted.
struct Bench {
    name: &'static str,
    /// Calls in a second of one session's audio, for what there is in every second.
    per_second: Option<f64>,
    /// Does it, what is to be counted within [`counted`]; how many calls those were.
    run: fn() -> usize,
}

const fn bench(name: &'static str, per_second: Option<f64>, run: fn() -> usize) -> Bench {
    Bench { name, per_second, run }
}

const FRAMES: Option<f64> = Some(50.0);
const HOPS: Option<f64> = Some(62.5);
const ONCE: Option<f64> = Some(1.0);

/// Frames are 20 ms of int16 at 48 kHz, units and deltas one second.
static BENCHES: [Bench; 17] = [
    bench("speech-frame-quiet", FRAMES, || play(Script::speech(sound::quiet), &[Did::Frame])),
    bench("speech-frame-spoken", FRAMES, || play(Script::speech(sound::speech), &[Did::Frame])),
    bench("speech-question", None, || play(Script::speech(sound::question), &[Did::Message])),
    bench("speech-delta", ONCE, || play(Script::text(), &[Did::Delta])),
    bench("talk-frame-quiet", FRAMES, || play(Script::talk(sound::quiet), &[Did::Frame])),
    bench("talk-frame-spoken", FRAMES, || play(Script::talk(sound::speech), &[Did::Frame])),
    bench("talk-frame-answered", FRAMES, || play(Script::answer(), &[Did::Frame])),
    bench("talk-unit", ONCE, || play(Script::talk(sound::quiet), &[Did::Message])),
    bench("talk-delta", ONCE, || play(Script::answer(), &[Did::Delta, Did::Sent])),
    bench("hop-quiet", HOPS, || parts::hops(&sound::quiet())),
    bench("hop-spoken", HOPS, || parts::hops(&sound::recording())),
    bench("resample-frame", FRAMES, parts::resample),
    bench("decode-delta", ONCE, parts::decode_delta),
    bench("decode-command", None, parts::decode_command),
    bench("open-session", None, parts::open_session),
    bench("websocket-frame-in", FRAMES, parts::websocket_in),
    bench("websocket-unit-out", ONCE, parts::websocket_out),
];

/// callgrind counts from the entry of this function to its end, by its name.
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    work();
    // Or the call above becomes a jump, and there is no end.
    std::hint::black_box(());
}

fn main() -> ExitCode {
    // cargo says that it is a bench.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, name] = arguments.as_slice()
        && flag == "--one"
    {
        let found = BENCHES.iter().find(|bench| bench.name == name).expect("a bench of that name");
        println!("{}", (found.run)());
        return ExitCode::SUCCESS;
    }
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (flags, names): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with("--"));
    if let Some(problem) = misunderstood(&flags, &names) {
        eprintln!("instructions: {problem}");
        return ExitCode::from(2);
    }
    let wanted = |bench: &Bench| names.is_empty() || names.iter().any(|name| bench.name.contains(name));
    match compare(wanted, has("--save")) {
        Ok(changed) if changed && has("--strict") => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("instructions: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Why the arguments make no sense.
fn misunderstood(flags: &[&str], names: &[&str]) -> Option<String> {
    if let Some(flag) = flags.iter().find(|flag| !["--save", "--strict"].contains(flag)) {
        return Some(format!("{flag} is not known; there are --save and --strict"));
    }
    let unknown = names.iter().find(|name| !BENCHES.iter().any(|bench| bench.name.contains(**name)))?;
    let known: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
    Some(format!("no bench has {unknown} in its name; there are {}", known.join(", ")))
}

/// Counts what is wanted and prints it beside what was; whether anything changed.
fn compare(wanted: impl Fn(&Bench) -> bool, save: bool) -> Result<bool, String> {
    let made_with = figures::made_with()?;
    let mut figures = Figures::read()?;
    if figures.made_with != made_with {
        println!("The figures are of {}; this is {made_with}. They do not compare.", figures.made_with);
    }
    println!("{:<22} {:>12} {:>12} {:>9}  {:>14}", "bench", "before", "per call", "change", "per second");
    let mut changed = false;
    for bench in BENCHES.iter().filter(|bench| wanted(bench)) {
        changed |= figures.update(bench, figures::per_call(bench.name)?);
    }
    if save {
        figures.made_with = made_with;
        figures.write()?;
    }
    Ok(changed)
}
