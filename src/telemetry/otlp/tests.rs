//! The way to collectors that answer, refuse, hang and are not there.

use std::{net::SocketAddr, sync::Mutex, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{span::SpanKind, *};

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn span(id: u64) -> Span {
    Span {
        trace_id: 1,
        id,
        parent: None,
        trace_state: None,
        name: "session".into(),
        kind: SpanKind::Server,
        start_unix_ns: 1,
        end_unix_ns: 2,
        attributes: Vec::new(),
        events: Vec::new(),
        dropped_events: 0,
        error: None,
    }
}

/// Settings for traces alone, to this collector.
fn settings(collector: SocketAddr) -> OtlpSettings {
    let variables = |name: &str| {
        let value = match name {
            "OTEL_METRICS_EXPORTER" | "OTEL_LOGS_EXPORTER" => "none",
            "OTEL_BSP_SCHEDULE_DELAY" => "10",
            "OTEL_EXPORTER_OTLP_TIMEOUT" => "200",
            _ => return None,
        };
        Some(value.to_owned())
    };
    OtlpSettings::read(Some(&format!("http://{collector}")), None, &variables).unwrap().unwrap()
}

fn push(otlp: &Otlp, count: u64) {
    let queue = otlp.0.spans.as_ref().unwrap();
    (1..=count).for_each(|id| queue.push(span(id)));
}

fn lost_spans(otlp: &Otlp) -> u64 {
    otlp.lost()[0].1
}

/// Stops the exporters and waits for their end.
async fn run_to_end(otlp: &Otlp, exporters: Exporters) {
    otlp.stop();
    timeout(PATIENCE, exporters.run(Metrics::new(Default::default))).await.expect("the exporters do not end");
}

/// A collector that answers each request with the next status, and the last for ever; and what it got.
async fn collector(statuses: &'static [&'static str]) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, bodies) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
    let got = bodies.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            while let Some(body) = read_request(&mut stream).await {
                let number = got.lock().unwrap().len().min(statuses.len() - 1);
                got.lock().unwrap().push(body);
                let answer = format!("HTTP/1.1 {}\r\nContent-Length: 0\r\n\r\n", statuses[number]);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    (address, bodies)
}

async fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
            let length = head.split("content-length: ").nth(1)?.lines().next()?.parse::<usize>().ok()?;
            if read.len() >= end + 4 + length {
                return Some(read.split_off(end + 4));
            }
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}

#[tokio::test]
async fn request_is_sent_again_until_the_collector_takes_it() {
    let (address, bodies) =
        collector(&["503 Service Unavailable", "429 Too Many Requests\r\nRetry-After: 0", "200 OK"]).await;
    let (otlp, exporters) = Otlp::new(settings(address));
    push(&otlp, 600);
    let running = tokio::spawn(exporters.run(Metrics::new(Default::default)));
    let waiting = async {
        while bodies.lock().unwrap().len() < 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("the spans do not come");
    otlp.stop();
    timeout(PATIENCE, running).await.unwrap().unwrap();
    let bodies = bodies.lock().unwrap();
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2] && bodies[2] != bodies[3]);
    assert_eq!(lost_spans(&otlp), 0);
}

#[tokio::test]
async fn final_refusal_loses_the_request() {
    let (address, bodies) = collector(&["404 Not Found"]).await;
    let (otlp, exporters) = Otlp::new(settings(address));
    push(&otlp, 600);
    run_to_end(&otlp, exporters).await;
    assert_eq!((lost_spans(&otlp), bodies.lock().unwrap().len()), (600, 2));
}

#[tokio::test]
async fn collector_that_hangs_or_is_not_there_costs_a_bounded_queue_and_a_count() {
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [hanging.local_addr().unwrap(), gone] {
        let (otlp, exporters) = Otlp::new(settings(address));
        push(&otlp, QUEUE_MAX as u64 + 500);
        assert_eq!(lost_spans(&otlp), 500, "what does not fit is lost at once");
        run_to_end(&otlp, exporters).await;
        assert_eq!(lost_spans(&otlp), QUEUE_MAX as u64 + 500);
        push(&otlp, 1);
        assert_eq!(lost_spans(&otlp), QUEUE_MAX as u64 + 501, "after the end");
    }
}
