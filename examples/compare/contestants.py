"""Builds, starts, drives and stops each contestant. The head of `run` describes them."""

import contextlib
import json
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
# Timeout of any step on a busy machine, s.
TIMEOUT_S = 60
# The relays: template of the configuration, and the command that takes it.
RELAYS = {"nginx": ("nginx.conf", ["nginx", "-e", "stderr", "-c"]), "haproxy": ("haproxy.cfg", ["haproxy", "-db", "-f"])}


class ComparisonError(Exception):
    """A step that failed, with the reason."""


class Contestants:
    """The contestants: their paths and their cores."""

    def __init__(self, options, log):
        self.options, self.log, self.out = options, log, options.out
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise ComparisonError("there is one core only, and bridge and generator need one each")
        self.bridge_core, self.generator_core = cores[0], cores[1]
        self.program, self.load_generator = options.program, options.load
        if self.program is None:
            self.build()
        tools = (("nginx", "nginx-light"), ("haproxy", "haproxy"), ("taskset", "util-linux"), ("strip", "binutils"))
        for tool, package in tools:
            ensure_tool(f"command -v {tool}", package, f"install {tool}")
        self.plain_bridge = self.build_plain_bridge()
        self.python_interpreter = self.install_packages()
        self.has_workers_option = "--workers" in self.run_output(self.program, "serve", "--help")

    # --- builds and downloads

    def build(self):
        self.log("building")
        self.program, self.load_generator = build_programs()

    def build_plain_bridge(self):
        self.log("building the plain bridge in Rust")
        cargo_dir = PROJECT / "target/compare/plain"
        cargo_build(target=cargo_dir, manifest=HERE / "plain/Cargo.toml")
        return cargo_dir / "dist/plain-bridge"

    def measure_build_s(self):
        """Measures the time of a build from the downloaded sources."""
        self.log("building once more, from nothing")
        cargo_dir = self.out / "build"
        shutil.rmtree(cargo_dir, ignore_errors=True)
        started_at = time.monotonic()
        cargo_build("--bin", "voxbridge", target=cargo_dir)
        return time.monotonic() - started_at

    def install_packages(self):
        """Creates a Python environment with the requirements of bridge.py."""
        ensure_tool("python3 -m venv --help", "python3-venv", "install Python with venv")
        venv = self.out / "venv"
        python = venv / "bin/python"
        if not python.exists():
            run_quietly(sys.executable, "-m", "venv", venv)
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
        run_quietly(python, *pip, "-r", HERE / "requirements.txt")
        return python

    def measure_stripped_bytes(self):
        stripped = self.out / "voxbridge.stripped"
        run_quietly("strip", "-o", stripped, self.program)
        return stripped.stat().st_size

    def describe_environment(self):
        """Describes the measured versions."""
        git = lambda *words: self.run_output("git", "-C", PROJECT, *words).strip()
        models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        nginx = subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr
        haproxy = self.run_output("haproxy", "-v").split()
        return {
            # The version names the commit; its second line is the vector instructions of this machine.
            "program": ", ".join(self.run_output(self.program, "--version").splitlines()),
            # A given program may be of any commit.
            "changed_since": not self.options.program and bool(git("status", "--porcelain", "--untracked-files=no")),
            "cores": os.cpu_count(),
            "processor": models[0].partition(":")[2].strip() if models else platform.machine(),
            "kernel": platform.release(),
            "relays": [nginx.split()[-1], f"haproxy/{haproxy[2]}"],
            "python": self.run_output(self.python_interpreter, "--version").split()[-1],
            "requirements": [line for line in (HERE / "requirements.txt").read_text().splitlines() if "==" in line],
        }

    @staticmethod
    def run_output(*command):
        return subprocess.run([str(word) for word in command], capture_output=True, text=True).stdout

    # --- processes

    def measure(self, name, sessions, label, *arguments):
        """Puts one contestant under load; returns its figures."""
        result = self.out / f"{label}.json"
        result.unlink(missing_ok=True)
        command = [self.load_generator, "--sessions", sessions, "--seconds", self.options.seconds, "--pin-self", self.generator_core]
        command += ["--json", result, "--svg", self.out / f"{label}.svg", *arguments]
        with self.start(name) as extra_options:
            words = [str(word) for word in command + extra_options]
            done = subprocess.run(
                words, capture_output=True, text=True, env=clean_environment(), timeout=self.options.seconds + 4 * TIMEOUT_S
            )
        # Exit code 1 means lost samples, 3 a late generator; both are in the figures.
        if done.returncode not in (0, 1, 3) or not result.exists():
            raise ComparisonError(f"the generator ended with code {done.returncode}: {done.stderr.strip()[-500:]}")
        return extract_figures(json.loads(result.read_text()))

    @contextlib.contextmanager
    def start(self, name):
        """Starts a contestant; yields the generator's arguments for it."""
        port, upstream = free_port(), free_port()
        if name == "voxbridge":
            # The load generator starts it.
            yield ["--program", self.program, "--pin-bridge", self.bridge_core] + (["--workers", 1] if self.has_workers_option else [])
        elif name in RELAYS:
            with self.run_relay(*RELAYS[name], port, upstream) as relay:
                yield self.generator_options(port, upstream, relay) + ["--path", "relay"]
        else:
            command = self.bridge_command(name, "127.0.0.1:0", f"ws://127.0.0.1:{upstream}/v1/realtime")
            with self.run_process(command, stdout=subprocess.PIPE) as bridge:
                yield self.generator_options(read_listening_port(bridge), upstream, bridge)

    @contextlib.contextmanager
    def run_relay(self, template, command, port, upstream):
        with tempfile.TemporaryDirectory() as directory:
            config = Path(directory) / template
            text = (HERE / template).read_text()
            for slot, value in (("@DIR@", directory), ("@PORT@", port), ("@UPSTREAM@", f"127.0.0.1:{upstream}")):
                text = text.replace(slot, str(value))
            config.write_text(text)
            with self.run_process([*command, config]) as relay:
                wait_until_listening(port, relay, self.out / "contestant.err")
                yield relay

    def bridge_command(self, name, listen, upstream_url):
        listen_options = ["--listen", listen, "--upstream", upstream_url]
        return {
            "voxbridge": [
                self.program, "serve", "--log", "error", "--upstream-dialect", "minicpm-o", *listen_options
            ],
            "rust": [self.plain_bridge, listen, upstream_url],
            "python": [self.python_interpreter, HERE / "bridge.py", *listen_options],
        }[name]

    def generator_options(self, port, upstream, process):
        """Arguments of the generator for a process that it did not start."""
        url, stub = f"ws://127.0.0.1:{port}/v1/realtime", f"127.0.0.1:{upstream}"
        return ["--url", url, "--pid", process.pid, "--upstream-listen", stub]

    def measure_start_ms(self, name):
        """Time from the start of the process until it reports that it listens."""
        command = self.bridge_command(name, "127.0.0.1:0", "ws://127.0.0.1:9/v1/realtime")
        started_at = time.perf_counter()
        with self.run_process(command, stdout=subprocess.PIPE) as process:
            read_listening_port(process)
            return (time.perf_counter() - started_at) * 1000

    @contextlib.contextmanager
    def run_process(self, command, **more):
        """Runs a process on the bridge's core and stops it at the end."""
        all_cores = os.sched_getaffinity(0)
        # Inherited, so it costs the process nothing at its start.
        os.sched_setaffinity(0, {self.bridge_core})
        try:
            with open(self.out / "contestant.err", "a") as stderr_file:
                words = [str(word) for word in command]
                process = subprocess.Popen(words, text=True, env=clean_environment(), stderr=stderr_file, **more)
        finally:
            os.sched_setaffinity(0, all_cores)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def clean_environment():
    """An environment without the user's settings of voxbridge and Python, and with room for all sessions."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VOXBRIDGE_", "PYTHON"))}
    return kept | {"VOXBRIDGE_SESSIONS_MAX": "100000"}


def read_listening_port(process):
    """Reads the port from the process's first line."""
    line = process.stdout.readline()
    if not line.startswith("listening on "):
        raise ComparisonError(f"{process.args[0]} does not say where it listens but {line!r}")
    return int(line.rpartition(":")[2])


def wait_until_listening(port, process, error_log):
    """Waits until `port` accepts connections."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > until:
            raise ComparisonError(f"{process.args[0]} does not listen: {error_log.read_text()[-500:]}")
        time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def build_programs():
    """Builds voxbridge and the load generator; returns their paths."""
    cargo_build("--bin", "voxbridge", "--example", "load")
    target = Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target")) / "dist"
    return target / "voxbridge", target / "examples/load"


def allow_many_sockets():
    """Allows thousands of sockets for this process and its children."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def set_real_time_priority():
    """Runs this process and its children before all ordinary processes."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError as error:
        raise ComparisonError(f"--real-time needs root: {error}") from error


def cargo_build(*what, target=None, manifest=PROJECT / "Cargo.toml"):
    env = dict(os.environ) | ({"CARGO_TARGET_DIR": str(target)} if target else {})
    command = ["cargo", "build", "--profile", "dist", "--locked", "--quiet", "--manifest-path", str(manifest), *what]
    if subprocess.run(command, env=env).returncode:
        raise ComparisonError("cargo cannot build it")


def run_quietly(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise ComparisonError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-2000:]}")


def ensure_tool(test, package, install_hint):
    """Installs a system tool with the script that the other examples use."""
    script = """say() { printf 'compare: %s\\n' "$*" >&2; }; . "$1"; shift; ensure "$@" """
    if subprocess.run(["bash", "-c", script, "ensure", HERE.parent / "engines/ensure", test, package, install_hint]).returncode:
        raise ComparisonError(f"{package} is missing")


def extract_figures(generator_results):
    """Extracts a run's figures from the generator's report. Latencies are in ms, without the resampler's look-ahead."""
    (run,) = generator_results["runs"]
    cpu, memory, latency = run["cpu"], run["memory_kib"], run["latency_ms"]
    kb = lambda kib: kib * 1.024
    return {
        "cpu_us": cpu["us_per_session_second"],
        "user_us": cpu["user"],
        "system_us": cpu["system"],
        "up": latency["up_beyond"] or latency["up"],
        "down": latency["down"],
        "idle_kb": kb(memory["per_idle_session"]),
        "active_kb": kb(memory["per_active_session"]),
        "peak_kb": kb(memory["per_active_session_peak"]),
        "lost": sum(direction[count] for direction in run["samples"].values() for count in ("lost", "duplicated", "reordered", "unrecognised")),
        "sessions_lost": run["closed_early"] + run["failed_opens"],
        "valid": run["valid"],
        "all": run,
    }
