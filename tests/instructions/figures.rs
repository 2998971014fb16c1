//! Instruction counts from callgrind, stored in `figures.toml`.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf, process::Command};

use serde::Deserialize;

use crate::Benchmark;

/// Threshold of a change, percent. Relinking the same code changes a count by at most a third of this.
const CHANGE_PERCENT: f64 = 1.0;

/// callgrind counts the instructions of valgrind's processor, and `rep movs` once per byte. These tunables make glibc
/// avoid it, and instructions unknown to valgrind.
const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1073741824:glibc.cpu.x86_rep_stosb_threshold=1073741824";

/// Header of the file.
#[derive(Deserialize)]
pub(crate) struct Figures {
    /// Compiler, valgrind and processor; counts of another toolchain are not comparable.
    pub(crate) made_with: String,
    instructions: BTreeMap<String, Figure>,
}

#[derive(Deserialize)]
struct Figure {
    call: u64,
    second: Option<u64>,
}

const FILE_HEADER: &str = "\
# How many instructions the hot paths take, by callgrind: per call, and per second of one session's audio where there is
# as much of it in every second. Frames are 20 ms of int16 at 48 kHz, units and deltas one second. Those with 24k or openai
# are at 24 kHz, and an append of OpenAI's protocol is 100 ms. Sockets and the runtime are not in it. Written by
# `tests/instructions/run --save`; the processor is valgrind's, which has AVX2 where the real
# one has it, and nothing above.
";

impl Figures {
    /// Loads the stored figures.
    pub(crate) fn load() -> Result<Self, String> {
        let text = fs::read_to_string(figures_path())
            .unwrap_or_else(|_| "made_with = \"\"\n[instructions]\n".into());
        toml::from_str(&text).map_err(|error| format!("{}: {error}", figures_path().display()))
    }

    /// Stores a figure and prints the comparison; returns true if it changed.
    pub(crate) fn update(&mut self, benchmark: &Benchmark, call: u64) -> bool {
        let second = benchmark.per_second.map(|calls| (call as f64 * calls).round() as u64);
        let before = self.instructions.insert(benchmark.name.to_owned(), Figure { call, second });
        let percent = before.as_ref().map(|before| (call as f64 / before.call as f64 - 1.0) * 100.0);
        let changed = percent.is_none_or(|percent| percent.abs() > CHANGE_PERCENT);
        println!(
            "{:<22} {:>12} {:>12} {:>9}  {:>14} {}",
            benchmark.name,
            before.map_or_else(|| "-".into(), |before| group_thousands(before.call)),
            group_thousands(call),
            percent.map_or_else(|| "new".into(), |percent| format!("{percent:+.2} %")),
            second.map_or_else(|| "-".into(), group_thousands),
            if changed { "<" } else { "" }
        );
        changed
    }

    pub(crate) fn save(&self) -> Result<(), String> {
        let mut text = format!("{FILE_HEADER}made_with = {:?}\n\n[instructions]\n", self.made_with);
        for (name, Figure { call, second }) in &self.instructions {
            let second =
                second.map_or_else(String::new, |second| format!(", second = {}", group_thousands(second)));
            let _ = writeln!(text, "{name} = {{ call = {}{second} }}", group_thousands(*call));
        }
        fs::write(figures_path(), text).map_err(|error| format!("{}: {error}", figures_path().display()))
    }
}

/// Counts one benchmark in a process of its own with a fixed environment.
pub(crate) fn count_per_call(name: &str) -> Result<u64, String> {
    let (counts, calls) = run_callgrind(name, &[])?;
    Ok(read_total(&counts)?.div_ceil(calls))
}

/// Runs one benchmark under callgrind. Returns callgrind's file, and the number of calls.
pub(crate) fn run_callgrind(name: &str, options: &[&str]) -> Result<(PathBuf, u64), String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("instructions");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let counts = folder.join(name);
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut out_file = std::ffi::OsString::from("--callgrind-out-file=");
    out_file.push(&counts);
    let output = Command::new("valgrind")
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GLIBC_TUNABLES", TUNABLES)
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .arg("--toggle-collect=instructions::counted*")
        .args(options)
        .arg(out_file)
        .arg(program)
        .args(["--one", name])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let calls = stdout.trim().parse::<u64>().ok().filter(|calls| *calls > 0);
    let calls = calls.ok_or_else(|| {
        format!("{name} counted no calls: {stdout}{}", String::from_utf8_lossy(&output.stderr).trim())
    })?;
    Ok((counts, calls))
}

/// Reads the total from callgrind's output.
fn read_total(counts: &PathBuf) -> Result<u64, String> {
    let text = fs::read_to_string(counts).map_err(|error| format!("{}: {error}", counts.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
    total.filter(|total| *total > 0).ok_or_else(|| {
        format!(
            "{}: nothing was counted; does the function `counted` still have this name?",
            counts.display()
        )
    })
}

/// Describes compiler, valgrind and processor.
pub(crate) fn current_toolchain() -> Result<String, String> {
    let version = |program: &str, at: usize| {
        let output = Command::new(program).arg("--version").output();
        let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok::<_, String>(stdout.split_whitespace().take(at).collect::<Vec<_>>().join(" "))
    };
    Ok(format!("{}, {}, {}", version("rustc", 2)?, version("valgrind", 1)?, processor()))
}

#[cfg(target_arch = "x86_64")]
fn processor() -> &'static str {
    if std::is_x86_feature_detected!("avx2") { "x86-64 with AVX2" } else { "x86-64 without AVX2" }
}

#[cfg(not(target_arch = "x86_64"))]
fn processor() -> &'static str {
    std::env::consts::ARCH
}

fn figures_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/instructions/figures.toml")
}

/// Formats a number with thousands separators, as TOML allows.
fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8_lossy(&groups.join(&b'_')).into_owned()
}
