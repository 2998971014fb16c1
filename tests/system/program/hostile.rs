//! Hostile clients in rounds: the server's memory is bounded while they last and given back after them, and a healthy
//! client is served all the time.
//!
//! `VOXBRIDGE_ROUNDS=10` sets the number of rounds; the default is smaller. The test prints its figures.

use tokio::time::Duration;

use super::*;

/// Clients of each kind in a round.
const CLIENTS: usize = 50;
/// Memory that the server may keep after the rounds, KiB.
const KEPT_MAX_KIB: u64 = 64 * 1024;
/// The default bound of messages in transit, and room for the connections themselves, KiB.
const PEAK_MAX_KIB: u64 = (256 + 128) * 1024;

#[derive(Clone, Copy, Debug)]
enum Hostile {
    /// Sends 15 MB of a message of 16 MiB.
    UnfinishedMessage,
    /// Sends pings and reads no answer.
    UnreadPongs,
    /// Sends invalid commands and reads no answer.
    UnreadErrors,
    /// Sends a message in fragments without end.
    EndlessFragments,
    /// Has a conversation keep items whose values take a hundred times the memory of their text.
    StoredItems,
    /// Sends items of thousands of parts.
    ManyParts,
    /// Asks for many answers, each with much input.
    LargeRequests,
}

const KINDS: [Hostile; 7] = [
    Hostile::UnfinishedMessage,
    Hostile::UnreadPongs,
    Hostile::UnreadErrors,
    Hostile::EndlessFragments,
    Hostile::StoredItems,
    Hostile::ManyParts,
    Hostile::LargeRequests,
];

impl Hostile {
    fn bytes(self) -> Vec<u8> {
        let masked = |first: u8, payload: &[u8]| {
            [&[first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0][..], payload].concat()
        };
        let long = |text: &str| {
            [&[0x81, 0xff][..], &(text.len() as u64).to_be_bytes(), &[0; 4], text.as_bytes()].concat()
        };
        match self {
            Self::UnfinishedMessage => {
                [&[0x82, 0xff][..], &(16_u64 << 20).to_be_bytes(), &[0; 4], &vec![1; 15_000_000]].concat()
            }
            Self::UnreadPongs => masked(0x89, &[b'p'; 125]).repeat(50_000),
            Self::UnreadErrors => masked(0x81, b"{}").repeat(100_000),
            Self::EndlessFragments => {
                [masked(0x01, b"{"), masked(0x00, &[b' '; 125]).repeat(50_000)].concat()
            }
            Self::StoredItems => {
                let output = vec![r#"{"":0}"#; 30_000].join(",");
                let item = format!(r#"{{"type":"mcp_call","output":[{output}]}}"#);
                long(&format!(r#"{{"type":"conversation.item.create","item":{item}}}"#)).repeat(40)
            }
            Self::ManyParts => {
                let parts = vec![r#"{"type":"input_text","text":"a"}"#; 7000].join(",");
                let item = format!(r#"{{"type":"message","role":"user","content":[{parts}]}}"#);
                long(&format!(r#"{{"type":"conversation.item.create","item":{item}}}"#)).repeat(40)
            }
            Self::LargeRequests => {
                let words = "a".repeat(250_000);
                let part = format!(r#"{{"type":"input_text","text":"{words}"}}"#);
                let item = format!(r#"{{"type":"message","role":"user","content":[{part}]}}"#);
                let response = format!(r#"{{"conversation":"none","input":[{item}]}}"#);
                long(&format!(r#"{{"type":"response.create","response":{response}}}"#)).repeat(40)
            }
        }
    }

    /// Path of the protocol that the client speaks.
    const fn path(self) -> &'static str {
        match self {
            Self::StoredItems | Self::ManyParts | Self::LargeRequests => "/openai/v1/realtime",
            _ => "/v1/realtime",
        }
    }
}

/// Connects, sends everything or as much as the server takes, and holds the connection for a while.
async fn attack(server: &Server, path: &str, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(server.address).await else { return };
    let head = format!(
        "GET {path}?model=m HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may refuse or disconnect it, and does not have to read everything.
    let _ = stream.read(&mut [0; 16]).await;
    let _ = timeout(Duration::from_secs(2), stream.write_all(bytes)).await;
}

/// How long a healthy client waits for answers meanwhile, in ascending order.
async fn answer_times_during<T>(attacks: impl Future<Output = T>, healthy: &mut Client) -> Vec<Duration> {
    let mut times = Vec::new();
    tokio::pin!(attacks);
    loop {
        let asked = Instant::now();
        healthy.send_json(json!({"type": "no.such"})).await;
        healthy.wait_for_event("error").await;
        times.push(asked.elapsed());
        if timeout(Duration::from_millis(5), &mut attacks).await.is_ok() {
            times.sort();
            return times;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how many there are is said from outside")]
fn rounds() -> usize {
    std::env::var("VOXBRIDGE_ROUNDS").ok().map_or(2, |count| count.parse().unwrap())
}

/// The status of the answer to an offer of a call from this address.
#[cfg(feature = "webrtc")]
async fn offer_status(server: &Server, from: [u8; 4], offer: &str) -> u16 {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let head = "POST /v1/realtime/calls?model=m HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/sdp";
    let length = offer.len();
    stream.write_all(format!("{head}\r\nContent-Length: {length}\r\n\r\n{offer}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer[9..12].parse().unwrap()
}

#[cfg(feature = "webrtc")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_never_connect_are_bounded_in_number_and_memory() {
    let _machine = busy_machine().await;
    const ADDRESSES: u8 = 50;
    let offer = include_str!("../../calls/chromium");
    let (address, _simulator, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let toml = "sessions_max = 500\nprofile = \"assistant\"\n[webrtc]\nlisten = \"127.0.0.1:0\"\n";
    let path = config(&scratch("hostile-calls"), toml);
    let upstream = format!("ws://{address}/v1/realtime");
    let server = Server::start(&upstream, &["--log", "error", "--config", &path]).await;
    assert_eq!(offer_status(&server, [127, 0, 0, 1], offer).await, 201);
    let idle = resident_kib(&server, "VmRSS");
    let (mut accepted, mut refused) = (1_u64, 0);
    for from in 0..ADDRESSES {
        for _ in 0..20 {
            match offer_status(&server, [127, 0, 1, from], offer).await {
                201 => accepted += 1,
                503 => refused += 1,
                status => panic!("{status}"),
            }
        }
    }
    let taken = resident_kib(&server, "VmRSS") - idle;
    println!("{accepted} calls, {refused} refused: {taken} KiB");
    // Each address gets its own share, and the oldest calls of those with the most give way.
    // On a busy machine some calls end meanwhile, whose places are given again.
    assert!(accepted > 8 * u64::from(ADDRESSES), "{accepted} calls");
    assert!(taken < 100 * 512, "{taken} KiB");
    let ready = server.request("GET", "/readyz").await.json();
    assert_eq!(ready["sessions"], 0, "{ready}");
    assert!((1..=100).contains(&ready["waiting"]["calls"].as_u64().unwrap()), "{ready}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_bounded_during_attacks_and_given_back() {
    let _machine = busy_machine().await;
    let simulator = SimulatorConfig { record: false, workers: 8, ..instant_simulator() };
    let (address, _simulator, _) = start_simulator("127.0.0.1:0", simulator, None).await;
    let path = config(&scratch("hostile"), "sessions_max = 500\n");
    let upstream = format!("ws://{address}/v1/realtime");
    let server = Server::start(&upstream, &["--log", "error", "--config", &path]).await;
    let mut healthy = server.client().await;
    let idle = resident_kib(&server, "VmRSS");
    for round in 0..rounds() {
        for kind in KINDS {
            let bytes = kind.bytes();
            let attacks = join_all((0..CLIENTS).map(|_| attack(&server, kind.path(), &bytes)));
            let times = answer_times_during(attacks, &mut healthy).await;
            healthy.send_json(json!({"type": "tts.speak", "text": "Still here."})).await;
            healthy.wait_for_event("tts.speaking_end").await;
            let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
            println!("healthy client: p50 {p50:.1?}, p99 {p99:.1?} of {}", times.len());
            let (now, peak) = (resident_kib(&server, "VmRSS"), resident_kib(&server, "VmHWM"));
            println!("round {round}, {kind:?}: idle {idle}, now {now}, peak {peak} KiB");
            assert!(peak < idle + PEAK_MAX_KIB, "{kind:?}: {peak} KiB");
        }
    }
    server.request_until("/sessions", |answer| answer.json()["count"] == 1).await;
    server.request_until("/metrics", |_| resident_kib(&server, "VmRSS") < idle + KEPT_MAX_KIB).await;
}

/// Sends a message again and again, and takes the answers.
async fn repeat(server: &Server, path: &str, request: &[u8], until: Instant) {
    while Instant::now() < until {
        let Ok(stream) = TcpStream::connect(server.address).await else { continue };
        let (mut reader, mut writer) = stream.into_split();
        let head = format!(
            "GET {path}?model=m HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let head = if path == PIPELINED { String::new() } else { head };
        let writing = async {
            writer.write_all(head.as_bytes()).await?;
            while Instant::now() < until {
                writer.write_all(request).await?;
            }
            std::io::Result::Ok(())
        };
        let reading = async {
            let mut answers = vec![0; 65_536];
            while matches!(reader.read(&mut answers).await, Ok(1..)) {}
        };
        tokio::select! {
            _ = writing => {}
            () = reading => {}
        }
    }
}

/// No path: the requests are plain.
const PIPELINED: &str = "";

/// Neighbours on the thread of clients whose messages cost much wait for one time slice. The figures are printed; the bound is that
/// of an unoptimised program on a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of a minute; it needs the machine for itself"]
async fn neighbours_do_not_wait_for_messages_that_cost_much() {
    const LONGEST: Duration = Duration::from_millis(600);
    let masked = |opcode: u8, payload: &[u8]| {
        let length = (payload.len() as u64).to_be_bytes();
        [&[0x80 | opcode, 0xff][..], &length, &[0; 4], payload].concat()
    };
    let update = |session: Value| {
        masked(1, json!({"type": "session.update", "session": session}).to_string().as_bytes())
    };
    let item = |part: Value| {
        let item = json!({"type": "message", "role": "user", "content": [part]});
        masked(1, json!({"type": "conversation.item.create", "item": item}).to_string().as_bytes())
    };
    let tool = |at: usize| {
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        json!({"type": "function", "name": format!("tool_{at}"), "parameters": parameters})
    };
    let openai = "/openai/v1/realtime";
    let attacks = [
        ("update of 60 kB", openai, update(json!({"type": "realtime", "instructions": "x ".repeat(30_000)}))),
        (
            "100 tools",
            openai,
            update(json!({"type": "realtime", "tools": (0..100).map(tool).collect::<Vec<_>>()})),
        ),
        (
            "picture",
            openai,
            item(
                json!({"type": "input_image", "image_url": format!("data:image/jpeg;base64,{}", "A".repeat(8_000_000))}),
            ),
        ),
        (
            "audio",
            openai,
            masked(
                1,
                json!({"type": "input_audio_buffer.append", "audio": "AAAA".repeat(2_000_000)})
                    .to_string()
                    .as_bytes(),
            ),
        ),
        ("binary audio", "/v1/realtime", masked(2, &[1; 30_000])),
        ("pings", "/v1/realtime", [0x89, 0x80, 0, 0, 0, 0].repeat(10_000)),
        ("requests in a row", PIPELINED, b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n".repeat(200)),
    ];
    let (address, _simulator, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let server =
        Server::start(&format!("ws://{address}/v1/realtime"), &["--log", "error", "--workers", "1"]).await;
    let mut healthy = server.client().await;
    for (name, path, request) in attacks {
        let until = Instant::now() + Duration::from_secs(2);
        let attacking = join_all((0..8).map(|_| repeat(&server, path, &request, until)));
        let times = answer_times_during(attacking, &mut healthy).await;
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("{name}: p50 {p50:.1?}, p99 {p99:.1?} of {}", times.len());
        assert!(p99 < LONGEST, "{name}: {p99:?}");
    }
}
