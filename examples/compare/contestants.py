"""How each contestant of `run` is built, started, driven and stopped; what they are, `run` says at its head."""

import contextlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
# As long as anything takes here on a busy machine, s.
PATIENCE_S = 60


class Trouble(Exception):
    """What cannot be done, and why."""


class Bench:
    """Where all is, and on which cores."""

    def __init__(self, options, say):
        self.options, self.say, self.out = options, say, options.out
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise Trouble("there is one core only, and bridge and generator need one each")
        self.bridge_core, self.own_core = cores[0], cores[1]
        self.program, self.load = options.program, options.load
        if self.program is None:
            self.build()
        for tool, package in (("nginx", "nginx-light"), ("taskset", "util-linux"), ("strip", "binutils")):
            ensure(f"command -v {tool}", package, f"install {tool}")
        self.interpreter = self.packages()
        self.takes_workers = "--workers" in self.output(self.program, "serve", "--help")

    # --- what is built and fetched

    def build(self):
        self.say("building")
        target = Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target")) / "release"
        cargo("--bin", "voxbridge", "--example", "load")
        self.program, self.load = target / "voxbridge", target / "examples/load"

    def build_s(self):
        """How long a build takes from nothing but the sources of the dependencies."""
        self.say("building once more, from nothing")
        cargo_dir = self.out / "build"
        shutil.rmtree(cargo_dir, ignore_errors=True)
        begun = time.monotonic()
        cargo("--bin", "voxbridge", target=cargo_dir)
        return time.monotonic() - begun

    def packages(self):
        """A Python with what bridge.py needs."""
        ensure("python3 -m venv --help", "python3-venv", "install Python with venv")
        venv = self.out / "venv"
        python = venv / "bin/python"
        if not python.exists():
            run_quietly(sys.executable, "-m", "venv", venv)
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
        run_quietly(python, *pip, "-r", HERE / "requirements.txt")
        return python

    def stripped_bytes(self):
        stripped = self.out / "voxbridge.stripped"
        run_quietly("strip", "-o", stripped, self.program)
        return stripped.stat().st_size

    def about(self):
        """What the figures are of."""
        git = lambda *words: self.output("git", "-C", PROJECT, *words).strip()
        models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        nginx = subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr
        return {
            # A program that was given may be of any.
            "commit": None if self.options.program else git("rev-parse", "--short", "HEAD"),
            "changed_since": bool(git("status", "--porcelain", "--untracked-files=no")),
            "cores": os.cpu_count(),
            "processor": models[0].partition(":")[2].strip() if models else platform.machine(),
            "kernel": platform.release(),
            "nginx": nginx.split()[-1],
            "python": self.output(self.interpreter, "--version").split()[-1],
            "requirements": [line for line in (HERE / "requirements.txt").read_text().splitlines() if "==" in line],
        }

    @staticmethod
    def output(*command):
        return subprocess.run([str(word) for word in command], capture_output=True, text=True).stdout

    # --- what is started

    def measure(self, name, sessions, label, *arguments):
        """One contestant under load: its figures."""
        result = self.out / f"{label}.json"
        result.unlink(missing_ok=True)
        command = [self.load, "--sessions", sessions, "--seconds", self.options.seconds, "--pin-self", self.own_core]
        command += ["--json", result, "--svg", self.out / f"{label}.svg", *arguments]
        with getattr(self, name)(*arguments) as more:
            words = [str(word) for word in command + more]
            done = subprocess.run(
                words, capture_output=True, text=True, env=environment(), timeout=self.options.seconds + 4 * PATIENCE_S
            )
        # 1 is for samples lost, 3 for a generator that was late: both are told in the figures.
        if done.returncode not in (0, 1, 3) or not result.exists():
            raise Trouble(f"the generator ended with code {done.returncode}: {done.stderr.strip()[-500:]}")
        return figures(json.loads(result.read_text()))

    @contextlib.contextmanager
    def voxbridge(self, *_):
        """The generator starts it, like everybody who has no bridge yet."""
        yield ["--program", self.program, "--pin-bridge", self.bridge_core] + (["--workers", 1] if self.takes_workers else [])

    @contextlib.contextmanager
    def relay(self, *arguments):
        port, upstream = free_port(), free_port()
        with tempfile.TemporaryDirectory() as directory:
            config = Path(directory) / "nginx.conf"
            text = (HERE / "nginx.conf").read_text()
            for slot, value in (("@DIR@", directory), ("@PORT@", port), ("@UPSTREAM@", f"127.0.0.1:{upstream}")):
                text = text.replace(slot, str(value))
            config.write_text(text)
            log = Path(directory) / "nginx.err"
            with self.process(["nginx", "-e", log, "-c", config]) as nginx:
                reached(port, nginx, lambda: log.read_text())
                yield self.at(port, upstream, nginx) + ["--path", "relay"]

    @contextlib.contextmanager
    def python(self, *_):
        upstream = free_port()
        bridge = [self.interpreter, HERE / "bridge.py", "--listen", "127.0.0.1:0"]
        with self.process(bridge + ["--upstream", f"ws://127.0.0.1:{upstream}/v1/realtime"], stdout=subprocess.PIPE) as process:
            yield self.at(listening(process), upstream, process)

    def at(self, port, upstream, process):
        """How the generator is told of a process that is not its own."""
        url, stub = f"ws://127.0.0.1:{port}/v1/realtime", f"127.0.0.1:{upstream}"
        return ["--url", url, "--pid", process.pid, "--upstream-listen", stub]

    def start_ms(self, name):
        """From the call that starts it until it says that it listens."""
        command = {
            "voxbridge": [self.program, "serve", "--log", "error"],
            "python": [self.interpreter, HERE / "bridge.py"],
        }[name]
        where = ["--listen", "127.0.0.1:0", "--upstream", "ws://127.0.0.1:9/v1/realtime"]
        begun = time.perf_counter()
        with self.process(command + where, stdout=subprocess.PIPE) as process:
            listening(process)
            return (time.perf_counter() - begun) * 1000

    @contextlib.contextmanager
    def process(self, command, **more):
        """One on the bridge's core, which is stopped in the end."""
        all_cores = os.sched_getaffinity(0)
        # It is inherited, and so costs the process nothing at its start.
        os.sched_setaffinity(0, {self.bridge_core})
        try:
            with open(self.out / "contestant.err", "a") as complaints:
                words = [str(word) for word in command]
                process = subprocess.Popen(words, text=True, env=environment(), stderr=complaints, **more)
        finally:
            os.sched_setaffinity(0, all_cores)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def environment():
    """Without what somebody has set for their own voxbridge or Python, and with room for all sessions."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VOXBRIDGE_", "PYTHON"))}
    return kept | {"VOXBRIDGE_SESSIONS_MAX": "100000"}


def listening(process):
    """The port that it says it listens on."""
    line = process.stdout.readline()
    if not line.startswith("listening on "):
        raise Trouble(f"{process.args[0]} does not say where it listens but {line!r}")
    return int(line.rpartition(":")[2])


def reached(port, process, why):
    """Waits until there is somebody at `port`."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > until:
            raise Trouble(f"{process.args[0]} does not listen: {why()}")
        time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cargo(*what, target=None):
    env = dict(os.environ) | ({"CARGO_TARGET_DIR": str(target)} if target else {})
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", str(PROJECT / "Cargo.toml"), *what]
    if subprocess.run(command, env=env).returncode:
        raise Trouble("cargo cannot build it")


def run_quietly(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise Trouble(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-2000:]}")


def ensure(test, package, otherwise):
    """A tool of the system, by the script that the other examples use."""
    script = """say() { printf 'compare: %s\\n' "$*" >&2; }; die() { say "$*"; exit 1; }; . "$1"; shift; ensure "$@" """
    if subprocess.run(["bash", "-c", script, "ensure", HERE.parent / "engines/ensure", test, package, otherwise]).returncode:
        raise Trouble(f"{package} is missing")


def figures(told):
    """What the generator tells of a run, by the names used here; latencies in ms, beyond what a resampler has to wait for."""
    (run,) = told["runs"]
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
        "lost": sum(way[what] for way in run["samples"].values() for what in ("lost", "duplicated", "reordered", "unrecognised")),
        "sessions_lost": run["closed_early"] + run["failed_opens"],
        "valid": run["valid"],
        "all": run,
    }
