use super::*;
use crate::{
    server::session_queue::{BYTES_MAX, ITEMS_MAX, TOTAL_BYTES_MAX},
    session::SessionSetup,
    spelling::Library,
    trace::{Trace, header::SessionParts},
    vocabulary::Frame,
};

fn start() -> TraceHeader {
    let library = Library::embedded().unwrap();
    let (client, dialect) = (library.client("macaw").unwrap(), library.upstream("minicpm-o").unwrap());
    let setup = SessionSetup::new(&client, library.profile("speech").unwrap(), &dialect.clone().into(), 1);
    let opened_unix = Duration::from_secs(1);
    let client = &*client;
    TraceHeader::new(
        SessionParts { library: &library, client, dialects: &dialect.into(), query: "model=m", opened_unix },
        &setup,
    )
}

fn traces(name: &str) -> Arc<TraceDirectory> {
    let dir = std::env::temp_dir().join(format!("voxbridge-traces-{name}-{}", std::process::id()));
    let traces = Arc::new(TraceDirectory::new(dir, AudioRetention::None, DEFAULT_MAX_BYTES));
    traces.create_dir().unwrap();
    traces
}

impl TraceDirectory {
    /// Counts records as lost.
    pub(crate) fn lose_lines(&self, count: u64) {
        self.totals.lose(count);
    }
}

/// The finished trace of a session.
fn read(traces: &TraceDirectory, session_id: &str) -> Trace {
    let text = std::fs::read_to_string(traces.dir().join(format!("1000-{session_id}.jsonl"))).unwrap();
    Trace::parse(&text).unwrap()
}

/// On a single thread the writer runs only when the session waits, as if the disk were stuck.
#[tokio::test]
async fn slow_disk_drops_lines_within_memory_bound_and_reports_them() {
    let traces = traces("slow");
    let now = tokio::time::Instant::now().into_std();
    let (drain_guard, mut written) = mpsc::channel(1);
    let mut session_trace = traces.start_session(now, "sess_a", start(), drain_guard);
    let large = "x y".repeat(33_000);
    for number in 0..ITEMS_MAX {
        let text = if number < 200 { large.as_str() } else { "{}" };
        session_trace.record_input(now, &Input::Client(Frame::Text(text)));
    }
    let waiting = session_trace.lines.waiting_bytes();
    assert!((BYTES_MAX - large.len()..=BYTES_MAX).contains(&waiting), "{waiting}");
    for _ in 0..5 * ITEMS_MAX {
        session_trace.record_input(now, &Input::Timeout);
    }
    drop(session_trace);
    assert_eq!(written.recv().await, None, "the writer drops the guard when the file is complete");
    let trace = read(&traces, "sess_a");
    std::fs::remove_dir_all(traces.dir()).unwrap();
    assert_eq!(trace.records.len() as u64 + trace.lost_records, 6 * ITEMS_MAX as u64);
    assert!(trace.lost_records >= 4 * ITEMS_MAX as u64, "{}", trace.lost_records);
    assert_eq!(traces.totals.waiting_bytes(), 0, "all reserved memory is returned");
}

#[tokio::test]
async fn pending_bytes_limit_is_shared_by_all_sessions_and_released() {
    let traces = traces("shared");
    let mut reloaded = TraceDirectory::new(traces.dir.clone(), AudioRetention::None, DEFAULT_MAX_BYTES);
    reloaded.share_backlog(&traces);
    let reloaded = Arc::new(reloaded);
    let now = tokio::time::Instant::now().into_std();
    let (drain_guard, mut written) = mpsc::channel(1);
    let large = "x y".repeat(BYTES_MAX / 8);
    let mut sessions = Vec::new();
    for number in 0..8 {
        let directory = if number % 2 == 0 { &traces } else { &reloaded };
        let mut session_trace =
            directory.start_session(now, &format!("sess_{number}"), start(), drain_guard.clone());
        for _ in 0..3 {
            session_trace.record_input(now, &Input::Client(Frame::Text(&large)));
        }
        session_trace.record_input(now, &Input::Timeout);
        sessions.push(session_trace);
    }
    drop(drain_guard);
    let kept = TOTAL_BYTES_MAX / large.len();
    let waiting = traces.totals.waiting_bytes();
    assert!(waiting <= TOTAL_BYTES_MAX && waiting > kept * large.len(), "{waiting}");
    drop(sessions);
    assert_eq!(written.recv().await, None);
    let all: Vec<Trace> = (0..8).map(|number| read(&traces, &format!("sess_{number}"))).collect();
    std::fs::remove_dir_all(traces.dir()).unwrap();
    let large_lines = all.iter().flat_map(|trace| &trace.records).filter(|line| line.text.is_some());
    assert_eq!(large_lines.count(), kept);
    let lost = 3 * 8 - kept as u64;
    assert_eq!(all.iter().map(|trace| trace.lost_records).sum::<u64>(), lost, "short lines are kept");
    assert_eq!((traces.lost_lines(), reloaded.lost_lines()), (lost, lost), "the counter never goes back");
    assert_eq!(traces.totals.waiting_bytes(), 0);
}

#[tokio::test]
async fn full_trace_holds_no_memory() {
    let dir = traces("full").dir.clone();
    let traces = Arc::new(TraceDirectory::new(dir, AudioRetention::None, 1 << 20));
    let now = tokio::time::Instant::now().into_std();
    let (drain_guard, mut written) = mpsc::channel(1);
    let mut session_trace = traces.start_session(now, "sess_a", start(), drain_guard);
    let large = "x y".repeat(100_000);
    for _ in 0..20 {
        session_trace.record_input(now, &Input::Client(Frame::Text(&large)));
    }
    assert_eq!(written.recv().await, None);
    assert_eq!(traces.totals.waiting_bytes(), 0, "reserved memory is returned while the session goes on");
    session_trace.record_input(now, &Input::Client(Frame::Text(&large)));
    assert_eq!(traces.totals.waiting_bytes(), 0);
    assert!(read(&traces, "sess_a").is_truncated);
    std::fs::remove_dir_all(traces.dir()).unwrap();
}

#[tokio::test]
async fn stripped_audio_takes_no_backlog_memory() {
    let traces = traces("audio");
    let now = tokio::time::Instant::now().into_std();
    let (drain_guard, mut written) = mpsc::channel(1);
    let mut session_trace = traces.start_session(now, "sess_a", start(), drain_guard);
    let text = format!(r#"{{"audio":"{}"}}"#, "QUJD".repeat(1 << 20));
    for _ in 0..100 {
        session_trace.record_input(now, &Input::Client(Frame::Text(&text)));
    }
    assert!(traces.totals.waiting_bytes() < 100_000);
    drop(session_trace);
    assert_eq!(written.recv().await, None);
    let trace = read(&traces, "sess_a");
    std::fs::remove_dir_all(traces.dir()).unwrap();
    assert_eq!((trace.records.len(), trace.lost_records), (100, 0));
    assert_eq!(trace.records[99].text.as_deref(), Some(r#"{"audio":"[base64 4194304]"}"#));
}

#[tokio::test]
async fn slow_reader_is_told_how_many_records_it_lost() {
    let totals = QueueTotals::default();
    let now = tokio::time::Instant::now().into_std();
    let (mut session_trace, mut lines) = SessionTrace::new(now, AudioRetention::All, totals.clone());
    for _ in 0..ITEMS_MAX + 7 {
        session_trace.record_input(now, &Input::Timeout);
    }
    let [lost, record] = lines.next().await.unwrap();
    assert_eq!((lost.and_then(|record| record.lost), record.is_some()), (Some(7), true));
    let [lost, _] = lines.next().await.unwrap();
    assert_eq!(lost, None, "it is told once");
    drop(session_trace);
    while lines.next().await.is_some() {}
    assert_eq!(totals.waiting_bytes(), 0, "all reserved memory is returned");
}
