//! Clients that leave while their lanes wait in an upstream's queue. Their sessions end at once, and no worker is lost.

use voxbridge_test_support::bench::gateway_status;

use super::*;

/// A gateway whose only worker another client holds, and a bridge in front of it.
struct BusyGateway {
    gateway: SocketAddr,
    other: Client,
    bench: Bench,
    _running: RunningServer,
}

impl BusyGateway {
    async fn start() -> Self {
        let (gateway, running, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
        let mut other = dial(gateway, "/v1/realtime?mode=chat").await;
        other.wait_for_event("session.queue_done").await;
        let config = Config { upstream: vec![upstream_at(gateway)], ..Config::default() };
        let bench = Bench::of(config).await;
        Self { gateway, other, bench, _running: running }
    }

    /// A client whose text waits in the queue.
    async fn client_in_queue(&self) -> Client {
        let mut client = self.bench.client("model=x").await;
        client.send_json(json!({"type": "tts.speak", "text": "Too late."})).await;
        client
    }

    async fn wait_for_queue_length(&self, length: usize) {
        let has_length = async || gateway_status(self.gateway).await["queue_length"] == length;
        wait_until_async("the queue has this length", has_length).await;
    }

    /// Lanes that wait in the queue although nothing needs them, according to the metrics.
    fn unneeded_lanes(&self) -> Option<f64> {
        let text = self.bench.metrics.render();
        let mut samples = text.lines().filter(|line| line.starts_with("voxbridge_upstream_lanes_unneeded{"));
        samples.next()?.rsplit(' ').next()?.parse().ok()
    }
}

#[tokio::test]
async fn clients_that_leave_the_queue_cost_no_worker_and_free_their_slots() {
    let mut busy = BusyGateway::start().await;
    let gone = busy.client_in_queue().await;
    let body = json!({"model": "x", "input": "Too late.", "voice": "alloy"}).to_string();
    let mut rest = TcpStream::connect(busy.bench.address()).await.unwrap();
    let head = format!(
        "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    rest.write_all(head.as_bytes()).await.unwrap();
    let mut relayed = busy.bench.dial("/v1/realtime?mode=audio").await;
    relayed.send_json(json!({"type": "session.init", "payload": {}})).await;
    busy.wait_for_queue_length(3).await;
    drop((gone, rest, relayed));
    wait_until("the sessions end while their lanes wait", || busy.bench.sessions.all().is_empty()).await;
    wait_until("the metrics show the lanes", || busy.unneeded_lanes() == Some(3.0)).await;
    assert_eq!(gateway_status(busy.gateway).await["queue_length"], 3);
    busy.other.send_json(json!({"type": "session.close"})).await;
    wait_until("the lanes close", || busy.unneeded_lanes() == Some(0.0)).await;
    let mut next = busy.client_in_queue().await;
    next.wait_for_event("tts.speaking_end").await;
    next.close().await;
    busy.wait_for_queue_length(0).await;
    let status = gateway_status(busy.gateway).await;
    assert_eq!((&status["idle_workers"], &status["busy_workers"]), (&json!(1), &json!(0)), "{status}");
}

#[tokio::test]
async fn drain_waits_for_lanes_that_leave_the_queue() {
    let mut busy = BusyGateway::start().await;
    let gone = busy.client_in_queue().await;
    busy.wait_for_queue_length(1).await;
    drop(gone);
    wait_until("the session ends", || busy.bench.sessions.all().is_empty()).await;
    busy.bench.bridge.stop();
    assert_eq!(gateway_status(busy.gateway).await["queue_length"], 1);
    busy.other.send_json(json!({"type": "session.close"})).await;
    busy.bench.bridge.wait_for_end().await;
    let status = gateway_status(busy.gateway).await;
    assert_eq!((&status["queue_length"], &status["busy_workers"]), (&json!(0), &json!(0)), "{status}");
}

/// A gateway whose only worker this client holds.
async fn held_gateway() -> (SocketAddr, Client, RunningServer) {
    let (gateway, running, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let mut holder = dial(gateway, "/v1/realtime?mode=chat").await;
    holder.wait_for_event("session.queue_done").await;
    (gateway, holder, running)
}

#[tokio::test]
async fn client_in_one_queue_gets_the_first_worker_of_any_gateway() {
    for first in [0, 1] {
        let mut held = [held_gateway().await, held_gateway().await];
        let upstream = held.iter().map(|(gateway, ..)| upstream_at(*gateway)).collect();
        let config = Config { upstream, ..Config::default() };
        let bench = Bench::of(config).await;
        let mut client = bench.client("model=x").await;
        client.send_json(json!({"type": "tts.speak", "text": "In time."})).await;
        let waits = async |gateway: SocketAddr| gateway_status(gateway).await["queue_length"] != 0;
        let is_queued = async || waits(held[0].0).await || waits(held[1].0).await;
        wait_until_async("the client waits in a queue", is_queued).await;
        held[first].1.send_json(json!({"type": "session.close"})).await;
        client.wait_for_event("tts.speaking_end").await;
        client.close().await;
        held[1 - first].1.send_json(json!({"type": "session.close"})).await;
        for (gateway, ..) in &held {
            wait_until_async("no worker is lost", async || {
                let status = gateway_status(*gateway).await;
                status["idle_workers"] == 1 && status["queue_length"] == 0
            })
            .await;
        }
    }
}
