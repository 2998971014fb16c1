//! Upstreams that send far longer deltas than any model: the server's memory stays bounded, whatever its clients do.

use super::*;

/// Clients at once.
const CLIENTS: usize = 4;
/// Length of the audio in each delta, characters of base64.
const DELTA_CHARS: usize = 100_000_000;
/// The server is at rest when it takes less CPU time than this in each of three seconds, clock ticks of 10 ms. Playing four
/// texts takes less, and handling a message takes all there is.
const REST_TICKS: u64 = 20;
/// Longest time until then, s.
const REST_WITHIN: usize = 180;
/// The default bound of messages in transit, KiB. Beyond it, each thread may hold two copies of the message that it
/// handles.
const BOUND_KIB: u64 = 256 * 1024;
/// The sessions themselves, and what the allocator keeps, KiB.
const ALLOWANCE_KIB: u64 = 64 * 1024;

/// Starts a server whose sessions answer their first input with one long delta and its end. Returns its URL.
async fn long_delta_upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/v1/realtime", listener.local_addr().unwrap());
    let audio = "A".repeat(DELTA_CHARS);
    let delta = Message::text(
        json!({"type": "response.output.delta", "kind": "audio", "session_id": "s", "audio": audio})
            .to_string(),
    );
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, delta.clone()));
        }
    });
    url
}

async fn serve(stream: TcpStream, delta: Message) {
    let Ok(mut socket) = accept_async(stream).await else { return };
    let done =
        json!({"type": "response.done", "session_id": "s", "text": "", "reason": "turn_end"}).to_string();
    let replies = [
        vec![Message::text(r#"{"type":"session.queue_done"}"#)],
        vec![Message::text(r#"{"type":"session.created","session_id":"s"}"#)],
        vec![delta, Message::text(done)],
    ];
    for messages in replies {
        for message in messages {
            if socket.send(message).await.is_err() {
                return;
            }
        }
        if socket.next().await.is_none() {
            return;
        }
    }
    while let Some(Ok(_)) = socket.next().await {}
}

/// CPU time that the server has taken, clock ticks.
fn cpu_ticks(server: &Server) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.process.id().unwrap())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    // User and system time are the fields 14 and 15 (proc(5)); the first one here is the third.
    fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Waits until the server has handled what it can and rests.
async fn await_rest(server: &Server) {
    let mut seconds_at_rest = 0;
    for _ in 0..REST_WITHIN {
        let before = cpu_ticks(server);
        sleep(Duration::from_secs(1)).await;
        seconds_at_rest = if cpu_ticks(server) < before + REST_TICKS { seconds_at_rest + 1 } else { 0 };
        if seconds_at_rest == 3 {
            return;
        }
    }
    panic!("the server is never at rest");
}

async fn relayed_client(server: &Server) -> Client {
    let mut client = dial(server.address, "/v1/realtime?mode=audio").await;
    client.send_json(json!({"type": "session.init", "payload": {}})).await;
    client.wait_for_event("session.created").await;
    client.send_json(json!({"type": "input.append", "input": {"audio": "AAAAAA=="}})).await;
    client
}

async fn served_client(server: &Server) -> Client {
    let mut client = server.client().await;
    client.send_json(json!({"type": "tts.speak", "text": "Hello."})).await;
    client
}

/// Reads everything that the server sends, without a bound on messages.
async fn read_all(client: Client) {
    let mut stream = client.socket.into_inner();
    let mut chunk = vec![0; 1 << 20];
    while matches!(stream.read(&mut chunk).await, Ok(1..)) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_bounded_when_upstreams_send_long_deltas() {
    let _machine = busy_machine().await;
    let url = long_delta_upstream().await;
    let threads = std::thread::available_parallelism().unwrap().get() as u64;
    for (kind, is_relayed, reads) in
        [("served", false, true), ("relayed", true, true), ("relayed, unread", true, false)]
    {
        let server = &Server::start(&url, &["--log", "error"]).await;
        let idle = resident_kib(server, "VmRSS");
        let clients = join_all((0..CLIENTS).map(|_| async move {
            if is_relayed { relayed_client(server).await } else { served_client(server).await }
        }));
        let sessions = clients.await.into_iter().map(|client| async move {
            if reads {
                read_all(client).await;
                return None;
            }
            Some(client)
        });
        let sessions = tokio::spawn(join_all(sessions));
        await_rest(server).await;
        let held = resident_kib(server, "VmRSS");
        sessions.abort();
        let peak = resident_kib(server, "VmHWM");
        println!("{kind}: idle {idle}, held {held}, peak {peak} KiB");
        assert!(held < idle + BOUND_KIB + ALLOWANCE_KIB, "{kind}: {held} KiB are held");
        let handled = threads * 2 * DELTA_CHARS as u64 / 1024;
        assert!(peak < idle + BOUND_KIB + ALLOWANCE_KIB + handled, "{kind}: {peak} KiB at the peak");
    }
}
