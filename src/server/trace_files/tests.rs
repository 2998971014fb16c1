use super::*;
use crate::{
    event::Frame,
    mapping::Library,
    session::Setup,
    trace::{Trace, start::Parts},
};

fn start() -> Start {
    let library = Library::embedded().unwrap();
    let (client, dialect) = (library.client("macaw").unwrap(), library.upstream("minicpm-o").unwrap());
    let setup = Setup::new(&client, library.profile("speech").unwrap(), &dialect, 1);
    let opened_unix = Duration::from_secs(1);
    let (client, dialect) = (&*client, &*dialect);
    Start::new(Parts { library: &library, client, dialect, query: "model=m", opened_unix }, &setup)
}

fn traces(name: &str) -> Arc<Traces> {
    let dir = std::env::temp_dir().join(format!("voxbridge-traces-{name}-{}", std::process::id()));
    let traces = Arc::new(Traces::new(dir, Kept::None, MAX_BYTES));
    traces.prepare().unwrap();
    traces
}

/// What is written of a session, when all of it is.
fn read(traces: &Traces, session_id: &str) -> Trace {
    let text = std::fs::read_to_string(traces.dir().join(format!("1000-{session_id}.jsonl"))).unwrap();
    Trace::read(&text).unwrap()
}

/// On one thread the writer has no turn until the session waits, as if the disk were stuck.
#[tokio::test]
async fn a_disk_that_is_too_slow_costs_lines_and_no_memory_and_the_trace_says_so() {
    let traces = traces("slow");
    let now = tokio::time::Instant::now().into_std();
    let (alive, mut written) = mpsc::channel(1);
    let mut tracing = traces.begin(now, "sess_a", start(), alive);
    let large = "x y".repeat(33_000);
    for number in 0..WAITING_LINES {
        let text = if number < 200 { large.as_str() } else { "{}" };
        tracing.input(now, &Input::Client(Frame::Text(text)));
    }
    let waiting = tracing.waiting.bytes.load(SeqCst);
    assert!((WAITING_BYTES - large.len()..=WAITING_BYTES).contains(&waiting), "{waiting}");
    for _ in 0..5 * WAITING_LINES {
        tracing.input(now, &Input::Timeout);
    }
    drop(tracing);
    assert_eq!(written.recv().await, None, "the writer lets go when all is written");
    let trace = read(&traces, "sess_a");
    std::fs::remove_dir_all(traces.dir()).unwrap();
    assert_eq!(trace.lines.len() as u64 + trace.lost, 6 * WAITING_LINES as u64);
    assert!(trace.lost >= 4 * WAITING_LINES as u64, "{}", trace.lost);
    assert_eq!(traces.waiting.load(SeqCst), 0, "all of it was given back");
}

#[tokio::test]
async fn all_sessions_share_what_may_wait_and_give_it_back() {
    let traces = traces("shared");
    let mut reloaded = Traces::new(traces.dir.clone(), Kept::None, MAX_BYTES);
    reloaded.share_memory(&traces);
    let reloaded = Arc::new(reloaded);
    let now = tokio::time::Instant::now().into_std();
    let (alive, mut written) = mpsc::channel(1);
    let large = "x y".repeat(WAITING_BYTES / 8);
    let mut sessions = Vec::new();
    for number in 0..8 {
        let of = if number % 2 == 0 { &traces } else { &reloaded };
        let mut tracing = of.begin(now, &format!("sess_{number}"), start(), alive.clone());
        for _ in 0..3 {
            tracing.input(now, &Input::Client(Frame::Text(&large)));
        }
        tracing.input(now, &Input::Timeout);
        sessions.push(tracing);
    }
    drop(alive);
    let kept = ALL_WAITING_BYTES / large.len();
    let waiting = traces.waiting.load(SeqCst);
    assert!(waiting <= ALL_WAITING_BYTES && waiting > kept * large.len(), "{waiting}");
    drop(sessions);
    assert_eq!(written.recv().await, None);
    let all: Vec<Trace> = (0..8).map(|number| read(&traces, &format!("sess_{number}"))).collect();
    std::fs::remove_dir_all(traces.dir()).unwrap();
    let large_lines = all.iter().flat_map(|trace| &trace.lines).filter(|line| line.text.is_some());
    assert_eq!(large_lines.count(), kept);
    assert_eq!(all.iter().map(|trace| trace.lost).sum::<u64>(), 3 * 8 - kept as u64, "short lines are kept");
    assert_eq!(traces.waiting.load(SeqCst), 0);
}

#[tokio::test]
async fn a_trace_that_is_full_holds_no_memory() {
    let dir = traces("full").dir.clone();
    let traces = Arc::new(Traces::new(dir, Kept::None, 1 << 20));
    let now = tokio::time::Instant::now().into_std();
    let (alive, mut written) = mpsc::channel(1);
    let mut tracing = traces.begin(now, "sess_a", start(), alive);
    let large = "x y".repeat(100_000);
    for _ in 0..20 {
        tracing.input(now, &Input::Client(Frame::Text(&large)));
    }
    assert_eq!(written.recv().await, None);
    assert_eq!(traces.waiting.load(SeqCst), 0, "while the session goes on");
    tracing.input(now, &Input::Client(Frame::Text(&large)));
    assert_eq!(traces.waiting.load(SeqCst), 0);
    assert!(read(&traces, "sess_a").broken_off);
    std::fs::remove_dir_all(traces.dir()).unwrap();
}

#[tokio::test]
async fn audio_that_is_not_kept_does_not_wait() {
    let traces = traces("audio");
    let now = tokio::time::Instant::now().into_std();
    let (alive, mut written) = mpsc::channel(1);
    let mut tracing = traces.begin(now, "sess_a", start(), alive);
    let text = format!(r#"{{"audio":"{}"}}"#, "QUJD".repeat(1 << 20));
    for _ in 0..100 {
        tracing.input(now, &Input::Client(Frame::Text(&text)));
    }
    assert!(traces.waiting.load(SeqCst) < 100_000);
    drop(tracing);
    assert_eq!(written.recv().await, None);
    let trace = read(&traces, "sess_a");
    std::fs::remove_dir_all(traces.dir()).unwrap();
    assert_eq!((trace.lines.len(), trace.lost), (100, 0));
    assert_eq!(trace.lines[99].text.as_deref(), Some(r#"{"audio":"[base64 4194304]"}"#));
}
