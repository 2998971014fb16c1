//! Processes under test: start, CPU pinning, resource usage.
//!
//! CPU time, memory and context switches come from the system's accounting (/proc), summed over the processes and their
//! children. On the loopback device the sender pays for much of the receiver's kernel work, for a bridge and a relay
//! alike.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    ops::Sub,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use voxbridge::cli::args::ServerArg;

use crate::options::Options;

/// Clock ticks per second in /proc/PID/stat, on every Linux system.
const TICKS_PER_SECOND: f64 = 100.0;

/// The program under test and its listen address.
pub(crate) struct Bridge {
    child: Option<Child>,
    pids: Vec<u32>,
    pub(crate) address: String,
}

impl Bridge {
    /// Starts the program, or attaches to the running one.
    pub(crate) fn start(options: &Options, upstream: &str) -> Result<Self, String> {
        if let Some(url) = &options.url {
            return Ok(Self { child: None, pids: options.pid.clone(), address: url.clone() });
        }
        let program = options.program.clone().map_or_else(default_program, Ok)?;
        let mut command = match &options.pin_bridge {
            Some(cpus) => {
                let mut command = Command::new("taskset");
                command.args(["-c", cpus]).arg(&program);
                command
            }
            None => Command::new(&program),
        };
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "error", "--upstream", upstream]);
        // The generator's upstream has no pages that show its dialect.
        command.args(["--upstream-dialect", options.server.dialect()]);
        let voice = (options.server == ServerArg::Vllm).then(VoiceConfig::write).transpose();
        let voice = voice.map_err(|error| format!("cannot write the configuration: {error}"))?;
        if let Some(VoiceConfig(file)) = &voice {
            command.arg("--config").arg(file);
        }
        // Standing sessions plus short ones.
        let most = 2 * options.sessions + 2_000;
        command.args(["--profile", &options.profile, "--sessions-max", &most.to_string()]);
        if options.mostly_idle {
            command.args(["--idle-timeout-ms", "0"]);
        }
        if let Some(workers) = options.workers {
            command.args(["--workers", &workers.to_string()]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| {
            format!("cannot start {}: {error}; `cargo build --release` builds it", program.display())
        })?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("the program has no standard output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        let pids = vec![child.id()];
        // From here on, dropping it ends the process.
        let bridge = Self { child: Some(child), pids, address: line.trim().replace("listening on ", "") };
        if bridge.address.is_empty() {
            return Err(format!("{} exited before it listened", program.display()));
        }
        Ok(bridge)
    }

    /// Resource usage so far.
    pub(crate) fn measure_cost(&self) -> Cost {
        let mut cost = Cost::default();
        for pid in process_tree(&self.pids) {
            cost.add_process(pid);
        }
        cost
    }

    /// True if any process is measured.
    pub(crate) const fn has_processes(&self) -> bool {
        !self.pids.is_empty()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The process may have exited already.
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}

/// A configuration file with a voice, without which vLLM-Omni opens no session. The program has read it when it listens.
struct VoiceConfig(PathBuf);

impl VoiceConfig {
    fn write() -> std::io::Result<Self> {
        let voice = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/speech/goforward_16k.wav");
        let file = std::env::temp_dir().join(format!("voxbridge-load-{}.toml", std::process::id()));
        fs::write(&file, format!("[voices]\ndefault = {voice:?}\n"))?;
        Ok(Self(file))
    }
}

impl Drop for VoiceConfig {
    fn drop(&mut self) {
        // The file is of no use to anyone, so that one that stays does no harm.
        let _stays = fs::remove_file(&self.0);
    }
}

fn default_program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target =
        own.parent().and_then(Path::parent).ok_or("this program is not in a cargo target directory")?;
    Ok(target.join("voxbridge"))
}

/// Resource usage of processes, so far or between two instants.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    /// CPU time, s.
    pub(crate) cpu_s: f64,
    /// User and system share, sampled at clock ticks; 0 and 0 without a sample.
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
    /// Context switches.
    pub(crate) voluntary_switches: f64,
    pub(crate) involuntary_switches: f64,
    /// Memory, KiB.
    pub(crate) resident_kib: f64,
    pub(crate) peak_kib: f64,
    pub(crate) threads: f64,
    pub(crate) files: f64,
}

impl Cost {
    /// Resource usage of this program.
    pub(crate) fn of_this_process() -> Self {
        let mut cost = Self::default();
        cost.add_process(std::process::id());
        cost
    }

    fn add_process(&mut self, pid: u32) {
        let stat = read_proc(pid, "stat");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
        let (user, system) = (ticks(11) / TICKS_PER_SECOND, ticks(12) / TICKS_PER_SECOND);
        let mut ran_ns = 0.0;
        let status = read_proc(pid, "status");
        // File-backed pages do not depend on the number of sessions.
        self.resident_kib += status_number(&status, "RssAnon:");
        self.peak_kib += status_number(&status, "VmHWM:");
        self.files += fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count) as f64;
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            self.threads += 1.0;
            self.voluntary_switches += status_number(&status, "voluntary_ctxt_switches:");
            self.involuntary_switches += status_number(&status, "nonvoluntary_ctxt_switches:");
            let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            ran_ns += schedstat.split(' ').next().and_then(|ran| ran.parse::<f64>().ok()).unwrap_or_default();
        }
        // Nanosecond accounting, but without ended threads; otherwise tick accounting, rounded down.
        self.cpu_s += f64::max(ran_ns / 1e9, user + system);
        self.user_s += user;
        self.system_s += system;
    }
}

impl Sub for Cost {
    type Output = Self;

    /// Time and switches between two instants; everything else as of the later one.
    fn sub(self, before: Self) -> Self {
        let cpu_s = self.cpu_s - before.cpu_s;
        let (user_s, system_s) = (self.user_s - before.user_s, self.system_s - before.system_s);
        let each = if user_s + system_s > 0.0 { cpu_s / (user_s + system_s) } else { 0.0 };
        Self {
            cpu_s,
            user_s: user_s * each,
            system_s: system_s * each,
            voluntary_switches: self.voluntary_switches - before.voluntary_switches,
            involuntary_switches: self.involuntary_switches - before.involuntary_switches,
            ..self
        }
    }
}

fn read_proc(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

fn status_number(status: &str, name: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}

/// Lists these processes and all their children.
fn process_tree(pids: &[u32]) -> BTreeSet<u32> {
    let parent = |pid: u32| {
        let stat = read_proc(pid, "stat");
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = all.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut family: BTreeSet<u32> = pids.iter().copied().collect();
    loop {
        let before = family.len();
        let children: Vec<u32> =
            parents.iter().filter(|(_, parent)| family.contains(parent)).map(|(pid, _)| *pid).collect();
        family.extend(children);
        if family.len() == before {
            return family;
        }
    }
}

/// Pins this program to CPUs; threads started later inherit the pinning.
pub(crate) fn pin_self(cpus: &str) -> Result<(), String> {
    run_command("taskset", &["-cp", cpus, &std::process::id().to_string()])
}

/// Raises the open file limit of this program (and its children) to the hard limit.
pub(crate) fn raise_file_limit() {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    if let Some(hard) = line.split_whitespace().nth(4) {
        // Without the raised limit, surplus sessions fail, which is counted.
        let _unchanged = run_command(
            "prlimit",
            &["--pid", &std::process::id().to_string(), &format!("--nofile={hard}:{hard}")],
        );
    }
}

fn run_command(program: &str, arguments: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match done {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} {} failed: {status}", arguments.join(" "))),
        Err(error) => Err(format!("cannot run {program} (of util-linux): {error}")),
    }
}
