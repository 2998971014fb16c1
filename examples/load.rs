//! What a session costs: N Macaw clients in real time against `voxbridge serve` in a process of its own.
//!
//! `cargo run --release --example load -- --sessions 500 --seconds 20 --rate 48000 --frame-ms 20`
//!
//! The simulator and the clients run in this process, so the figures of the child are the bridge's alone: CPU time from
//! the system's own accounting, resident memory before audio, and at the end of it. Speech and silence take turns; with
//! `--profile conversation` the model speaks into the silence.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use clap::Parser;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};
use tokio_tungstenite::{
    client_async_with_config,
    tungstenite::{Bytes, Message, protocol::WebSocketConfig},
};
use voxbridge::{
    audio::{pcm, wav},
    simulator::{SimulatorConfig, socket},
};

/// Clock ticks a second in /proc/PID/stat, on every Linux there is.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Parser)]
#[command(about = "Measure what sessions cost")]
struct Options {
    /// Clients at a time
    #[arg(long, default_value_t = 500)]
    sessions: usize,
    /// How long they send
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Sample rate of their audio, Hz
    #[arg(long, default_value_t = 48_000)]
    rate: u32,
    /// Length of their frames, ms
    #[arg(long, default_value_t = 20)]
    frame_ms: u64,
    /// Send silence only
    #[arg(long)]
    silent: bool,
    /// What the clients' verbs mean
    #[arg(long, default_value = "speech")]
    profile: String,
    /// The program under test; the one beside this example unless given
    #[arg(long)]
    program: Option<PathBuf>,
}

#[tokio::main]
async fn main() {
    let options = Options::parse();
    // In a conversation the model answers for most of the seconds in which the user is silent.
    let config =
        SimulatorConfig { workers: options.sessions.max(1), turn_units: 6, ..SimulatorConfig::default() };
    let simulator = socket::bind("127.0.0.1:0", config).await.expect("a free port");
    let upstream = format!("ws://{}/v1/realtime", simulator.local_addr());
    tokio::spawn(simulator.run(std::future::pending()));
    let (mut bridge, address) = start(&options, &upstream);

    let before = resident_kib(bridge.id());
    let begin = Instant::now() + Duration::from_secs(3);
    let audio = recording(&options);
    let mut clients = JoinSet::new();
    for number in 0..options.sessions {
        clients.spawn(client(
            address.clone(),
            audio.clone(),
            number,
            begin,
            options.seconds,
            options.frame_ms,
        ));
        if number % 50 == 49 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    sleep_until(begin - Duration::from_millis(300)).await;
    let idle = resident_kib(bridge.id());
    sleep_until(begin).await;
    let started = cpu_seconds(bridge.id());
    sleep_until(begin + Duration::from_secs(options.seconds)).await;
    let ended = cpu_seconds(bridge.id());
    let active = resident_kib(bridge.id());
    let peak = status_kib(bridge.id(), "VmHWM:");
    let mut tally = Tally::default();
    while let Some(done) = clients.join_next().await {
        tally.add(&done.expect("a client does not panic"));
    }
    report(&options, &tally, [before, idle, active, peak], (ended.0 - started.0, ended.1 - started.1));
    let _ = bridge.kill();
}

fn report(options: &Options, tally: &Tally, kib: [f64; 4], (user, system): (f64, f64)) {
    let [before, idle, active, peak] = kib;
    let sessions = options.sessions as f64;
    let session_seconds = sessions * options.seconds as f64;
    let micros = |seconds: f64| seconds * 1e6 / session_seconds;
    println!(
        "sessions {sessions} of {}, {} s of {} Hz in {} ms frames",
        options.profile, options.seconds, options.rate, options.frame_ms
    );
    println!(
        "cpu      {:.0} us per session-second ({:.0} user, {:.0} system)",
        micros(user + system),
        micros(user),
        micros(system)
    );
    println!(
        "memory   {:.0} KiB at rest; {:.1} KiB per idle session, {:.1} per active one at the end, {:.1} at the peak",
        before,
        (idle - before) / sessions,
        (active - before) / sessions,
        (peak - before) / sessions
    );
    println!(
        "clients  {} transcripts, {:.1} s of speech heard by each, {} errors, {} frames late by more than a frame",
        tally.finals,
        tally.heard_bytes as f64 / 48_000.0 / sessions,
        tally.errors,
        tally.late
    );
}

#[derive(Default)]
struct Tally {
    finals: usize,
    errors: usize,
    late: usize,
    heard_bytes: usize,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.finals += other.finals;
        self.errors += other.errors;
        self.late += other.late;
        self.heard_bytes += other.heard_bytes;
    }
}

/// One client: connected before `begin`, sends in real time from then on.
async fn client(
    address: String,
    audio: Bytes,
    number: usize,
    begin: Instant,
    seconds: u64,
    frame_ms: u64,
) -> Tally {
    let tcp = TcpStream::connect(&address).await.expect("the bridge listens");
    let config = WebSocketConfig::default().read_buffer_size(4096);
    let url = format!(
        "ws://{address}/v1/realtime?model=load&input_sample_rate={}",
        audio.len() as u64 / (2 * LOOP_SECONDS)
    );
    let (socket, _) = client_async_with_config(url, tcp, Some(config)).await.expect("the bridge accepts");
    let (mut up, mut down) = socket.split();
    let frame = Duration::from_millis(frame_ms);
    // Spread over one frame, as real clients are.
    let start = begin + frame.mul_f64((number % 64) as f64 / 64.0);
    let sender = tokio::spawn(async move {
        let frame_bytes = (audio.len() as u64 * frame_ms / (1000 * LOOP_SECONDS)) as usize & !1;
        let mut at = audio.len() / 7 * (number % 7) / frame_bytes * frame_bytes;
        let mut ticks = interval_at(start, frame);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut late = 0;
        for _ in 0..seconds * 1000 / frame_ms {
            let due = ticks.tick().await;
            late += usize::from(due.elapsed() > frame);
            if at + frame_bytes > audio.len() {
                at = 0;
            }
            if up.send(Message::Binary(audio.slice(at..at + frame_bytes))).await.is_err() {
                break;
            }
            at += frame_bytes;
        }
        let _ = up.send(Message::text(r#"{"type":"session.close"}"#)).await;
        late
    });
    let mut tally = Tally::default();
    while let Some(Ok(message)) = down.next().await {
        match message {
            Message::Text(text) => {
                tally.finals += usize::from(text.contains("\"transcript.final\""));
                tally.errors += usize::from(text.contains("\"type\":\"error\""));
            }
            Message::Binary(audio) => tally.heard_bytes += audio.len(),
            _ => {}
        }
    }
    tally.late = sender.await.unwrap_or_default();
    tally
}

/// Length of what every client repeats: a recording of seven seconds and as much silence.
const LOOP_SECONDS: u64 = 14;

fn recording(options: &Options) -> Bytes {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/speech/librivox_0870_16k.wav");
    let bytes = fs::read(file).expect("the recording is part of the project");
    let (samples, rate) = wav::read(&bytes, Duration::from_secs(60)).expect("it is a WAV file");
    let mut samples = wav::resample_all(&samples, rate, options.rate).expect("a rate that is supported");
    if options.silent {
        samples.clear();
    }
    samples.resize((u64::from(options.rate) * LOOP_SECONDS) as usize, 0.0);
    let mut out = Vec::new();
    pcm::push_s16le(&samples, &mut out);
    out.into()
}

fn start(options: &Options, upstream: &str) -> (Child, String) {
    let program = options.program.clone().unwrap_or_else(|| {
        let example = std::env::current_exe().expect("this program has a path");
        example.parent().and_then(Path::parent).expect("it is in target/PROFILE/examples").join("voxbridge")
    });
    let mut child = Command::new(&program)
        .args(["serve", "--listen", "127.0.0.1:0", "--log", "error", "--upstream", upstream])
        .args(["--profile", &options.profile])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("cannot start {}: {error}; run `cargo build --release` first", program.display())
        });
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
    (child, line.trim().trim_start_matches("listening on ").to_owned())
}

/// User and system CPU time so far.
fn cpu_seconds(pid: u32) -> (f64, f64) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the bridge runs");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) / TICKS_PER_SECOND, ticks(12) / TICKS_PER_SECOND)
}

fn resident_kib(pid: u32) -> f64 {
    status_kib(pid, "VmRSS:")
}

fn status_kib(pid: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the bridge runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}
