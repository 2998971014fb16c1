//! Programs of tests: signals to them, and tools that a machine may lack.

use std::{
    env,
    ffi::OsString,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Exit code of a setup script that lacks a tool and may not install it.
const TOOL_MISSING: i32 = 69;

/// Removes what would set up the program from the environment: its own variables, and those of OpenTelemetry.
pub fn clear_settings(program: &mut Command) {
    let names = env::vars_os().map(|(name, _)| name);
    let is_setting = |name: &OsString| {
        name.to_str().is_some_and(|name| name.starts_with("VOXBRIDGE_") || name.starts_with("OTEL_"))
    };
    for name in names.filter(is_setting) {
        program.env_remove(name);
    }
}

/// Sends a signal, named as the program `kill` names it: `-TERM`.
pub fn send_signal(process: u32, signal: &str) {
    let signal: Signal = signal.replace('-', "SIG").parse().unwrap();
    kill(Pid::from_raw(process.try_into().unwrap()), signal).unwrap();
}

/// True if this process ignores SIGHUP, as `nohup` does it, and so will the programs that it starts.
pub fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    // The lowest bit stands for signal 1.
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 != 0
}

/// True where tests fetch what they need, and fail without it.
fn is_ci() -> bool {
    env::var_os("CI").is_some()
}

/// Runs a setup script, which fetches and installs only in CI. The error is its line on what is missing; any other failure panics.
pub fn set_up(script: &mut Command) -> Result<(), String> {
    if !is_ci() {
        script.env("VOXBRIDGE_FETCH_NOTHING", "1");
    }
    let done = script.output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(TOOL_MISSING) {
        return Err(errors.lines().last().unwrap_or_default().to_owned());
    }
    assert!(done.status.success(), "{script:?}: {}:\n{errors}", done.status);
    Ok(())
}

/// Fetches the packages of `tests/KIND/NAME.txt` and `.npm`, where they are missing, and gives their directory. The error is the
/// script's line on a missing tool.
pub fn fetch_packages(list: &str) -> Result<PathBuf, String> {
    let support = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = support.join("../../target").join(list);
    set_up(Command::new(support.join("fetch")).arg(list).arg(&dir))?;
    Ok(dir)
}

/// Checks for a tool with this shell command. In CI, as root on Debian, installs the package if the tool is missing.
pub fn ensure(check: &str, package: &str, advice: &str) -> Result<(), String> {
    let script = "say() { echo \"$*\" >&2; }; . examples/engines/ensure; ensure \"$@\"";
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    set_up(Command::new("bash").args(["-euc", script, "ensure", check, package, advice]).current_dir(project))
}

/// Python that runs a script with these folders of packages. The script's imports are done once for all its runs: see
/// `tests/support/run_python`. Ignores the user's Python settings and the machine's packages, which other machines may not have.
/// Compiles no files.
pub fn python(script: &Path, packages: &[PathBuf]) -> Command {
    let mut command = Command::new("python3");
    command.env_remove("PYTHONHOME").env("PYTHONPATH", env::join_paths(packages).unwrap());
    command.env("PYTHONUNBUFFERED", "1").args(["-S", "-B"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("run_python")).arg(script);
    command
}

/// The tool, or `None` if the calling test has to end early without it. Then a line says so; in CI the test fails.
pub fn installed<T>(tool: &Result<T, String>) -> Option<&T> {
    let missing = match tool {
        Ok(tool) => return Some(tool),
        Err(missing) => missing,
    };
    assert!(!is_ci(), "{missing}");
    let test = thread::current();
    #[expect(
        clippy::explicit_write,
        reason = "the test runner hides the output of `eprintln!` in a test that passes"
    )]
    writeln!(std::io::stderr(), "skipped {}: {missing}", test.name().unwrap_or_default()).unwrap();
    None
}
