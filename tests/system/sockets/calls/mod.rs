//! Calls by WebRTC: their requests, their limits, and a conversation.

mod client;
#[path = "../../../../src/server/webrtc/crypto.rs"]
mod crypto;
mod live;
mod pipecat;

use client::CallClient;
use tokio::net::UdpSocket;
use voxbridge::config::WebRtcConfig;

use super::*;

fn config() -> Config {
    let webrtc = WebRtcConfig { listen: Some("127.0.0.1:0".to_owned()), advertise: None };
    Config { profile: Some("assistant".to_owned()), webrtc, ..Config::default() }
}

async fn bench() -> Bench {
    Bench::of(config()).await
}

/// The status, the head and the body of the answer to a request.
async fn request(bench: &Bench, line: &str, headers: &str, body: &str) -> (u16, String, String) {
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    let answer = bench.http(&request).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
}

const SDP: &str = "Content-Type: application/sdp\r\n";

/// A client whose call was accepted, and the call's path.
async fn call(bench: &Bench, line: &str) -> (CallClient, String) {
    let (mut client, offer) = CallClient::new().await;
    let (status, head, answer) = request(bench, line, SDP, &offer).await;
    assert_eq!(status, 201, "{answer}");
    assert!(head.contains("content-type: application/sdp"), "{head}");
    client.take_answer(&answer);
    let location = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    (client, location.to_owned())
}

fn code(body: &str) -> Value {
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{body}"));
    assert!(body["error"]["message"].is_string(), "{body}");
    body["error"]["code"].clone()
}

#[tokio::test]
async fn call_is_answered_interrupted_and_hung_up() {
    let bench = bench().await;
    let (mut client, location) = call(&bench, "POST /v1/realtime/calls?model=gpt-realtime").await;
    let created = client.wait_for("session.created").await;
    assert_eq!(created["session"]["model"], "gpt-realtime");
    let format = json!({ "type": "audio/pcm", "rate": 24000 });
    client.send(&json!({ "type": "session.update", "session": {
        "type": "realtime",
        "audio": { "input": { "format": format, "transcription": { "model": "whisper-1" } } },
    } }));
    client.wait_for("session.updated").await;
    // Lost packets are made up for.
    client.is_lossy = true;
    client.speak(&recording("goforward"));
    client.wait_for("input_audio_buffer.speech_started").await;
    client.wait_for("conversation.item.input_audio_transcription.completed").await;
    let started = client.wait_for("output_audio_buffer.started").await;
    assert_eq!(started["response_id"], client.event("response.created").unwrap()["response"]["id"]);
    client.run_until("sound", |client| client.sounds.iter().filter(|sound| **sound).count() > 20).await;
    client.events.clear();
    client.packets_at.clear();
    client.speak(&recording("goforward"));
    let cleared = client.wait_for("output_audio_buffer.cleared").await;
    assert_eq!(cleared["response_id"], started["response_id"]);
    let at = client.events.iter().position(|event| event["type"] == "output_audio_buffer.cleared").unwrap();
    let from = client.packets_at[at];
    client.run_until("silence", |client| client.sounds.len() > from + 10).await;
    // One packet may be on its way, and the codec rings into the next.
    assert_eq!(client.sounds[from + 2..from + 10], [false; 8]);
    let done = client.wait_for("response.done").await;
    let truncated = client.event("conversation.item.truncated").unwrap();
    assert_eq!(truncated["item_id"], done["response"]["output"][0]["id"]);
    let heard_ms = truncated["audio_end_ms"].as_u64().unwrap();
    assert!((400..=20 * from as u64).contains(&heard_ms), "{heard_ms} ms of {from} packets");
    assert_eq!(done["response"]["status_details"]["reason"], "turn_detected");
    assert!(client.event("response.output_audio.delta").is_none(), "audio does not come by the channel");

    assert_eq!(bench.sessions.len(), 1);
    let (status, ..) = request(&bench, &format!("POST {location}/hangup"), "", "").await;
    assert_eq!(status, 200);
    client.run_until("the end", CallClient::is_over).await;
    wait_until("the session ends", || bench.sessions.is_empty()).await;
    let (status, _, body) = request(&bench, &format!("DELETE {location}"), "", "").await;
    assert_eq!((status, code(&body)), (404, json!("call_not_found")));
}

#[tokio::test]
async fn answer_is_played_to_its_end_and_audio_in_json_is_an_error() {
    let bench = bench().await;
    // The beta's path.
    let (mut client, location) = call(&bench, "POST /v1/realtime?model=gpt-realtime").await;
    assert!(location.starts_with("/v1/realtime/calls/rtc_"), "{location}");
    client.wait_for("session.created").await;
    client.send(&json!({ "type": "input_audio_buffer.append", "audio": "AAAA" }));
    assert_eq!(client.wait_for("error").await["error"]["code"], "invalid_value");
    let item =
        json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hi" }] });
    client.send(&json!({ "type": "conversation.item.create", "item": item }));
    client.send(&json!({ "type": "response.create" }));
    client.wait_for("output_audio_buffer.stopped").await;
    assert_eq!(client.wait_for("response.done").await["response"]["status"], "completed");
    assert!(client.sounds.contains(&true));
    let (status, ..) = request(&bench, &format!("DELETE {location}"), "", "").await;
    assert_eq!(status, 200);
    client.run_until("the end", CallClient::is_over).await;
}

#[tokio::test]
async fn wrong_requests_are_rejected_in_openais_form() {
    let bench = bench().await;
    let line = "POST /v1/realtime/calls?model=gpt-realtime";
    let (_, offer) = CallClient::new().await;
    let form = |parts: &[(&str, &str)]| -> String {
        let parts = parts.iter().map(|(name, text)| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
        });
        parts.chain(["--b--".to_owned()]).collect()
    };
    let form_type = "Content-Type: multipart/form-data; boundary=b\r\n";
    for (headers, body, expected) in [
        (SDP, "v=0".to_owned(), (400, "invalid_offer")),
        (SDP, "hello".to_owned(), (400, "invalid_offer")),
        (SDP, offer.replace("m=audio", "m=video"), (400, "invalid_offer")),
        (SDP, offer.replace("a=fingerprint", "a=nothing"), (400, "invalid_offer")),
        (SDP, format!("{offer}{}", "m=video 9 x\r\n".repeat(9)), (400, "invalid_offer")),
        (SDP, format!("{offer}{}", "a=x\r\n".repeat(8000)), (413, "file_too_large")),
        ("Content-Type: application/json\r\n", "{}".to_owned(), (415, "unsupported_content_type")),
        ("", offer.clone(), (415, "unsupported_content_type")),
        (form_type, form(&[("session", "{}")]), (400, "invalid_request")),
        (form_type, form(&[("sdp", &offer), ("session", "[]")]), (400, "invalid_type")),
        (form_type, form(&[("sdp", &offer), ("session", r#"{"voice": 1}"#)]), (400, "invalid_value")),
    ] {
        let (status, _, answer) = request(&bench, line, headers, &body).await;
        assert_eq!((status, code(&answer)), (expected.0, json!(expected.1)), "{body}: {answer}");
    }
    let session = r#"{"type": "realtime", "model": "gpt-x", "instructions": "Be brief."}"#;
    let (mut client, offer) = CallClient::new().await;
    let body = form(&[("sdp", &offer), ("session", session)]);
    let (status, _, answer) = request(&bench, "POST /v1/realtime/calls", form_type, &body).await;
    assert_eq!(status, 201, "{answer}");
    client.take_answer(&answer);
    let created = client.wait_for("session.created").await;
    assert_eq!(created["session"]["model"], "gpt-x");
    assert_eq!(created["session"]["instructions"], "Be brief.");
}

/// Settings with instructions of this length.
fn instructions(bytes: usize) -> Value {
    json!({ "type": "session.update", "session": { "type": "realtime", "instructions": "x".repeat(bytes) } })
}

#[tokio::test]
async fn large_pictures_and_texts_do_not_silence_a_call() {
    let bench = bench().await;
    let (mut client, _) = call(&bench, "POST /v1/realtime/calls?model=m").await;
    client.wait_for("session.created").await;
    let add = |content: Value| {
        let item = json!({ "type": "message", "role": "user", "content": content });
        json!({ "type": "conversation.item.create", "item": item })
    };
    // More than the channel holds by default.
    client.send(&add(json!([{ "type": "input_text", "text": "x".repeat(150_000) }])));
    let added = client.wait_for("conversation.item.added").await;
    assert_eq!(added["item"]["content"][0]["text"].as_str().unwrap().len(), 150_000);
    client.wait_for("conversation.item.done").await;
    client.events.clear();
    let picture = [&[0xff, 0xd8, 0xff][..], &[0; 120_000]].concat();
    let url = format!("data:image/jpeg;base64,{}", STANDARD.encode(picture));
    client
        .send(&add(json!([{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "Hi"}])));
    let added = client.wait_for("conversation.item.added").await;
    assert_eq!(added["item"]["content"][0], json!({ "type": "input_image", "image_url": null }));
    client.send(&instructions(10));
    client.wait_for("session.updated").await;
    client.speak(&recording("goforward"));
    client.wait_for("input_audio_buffer.speech_stopped").await;
}

#[tokio::test]
async fn event_that_the_channel_cannot_carry_becomes_an_error_and_the_call_goes_on() {
    let bench = bench().await;
    let (mut client, offer) = CallClient::new().await;
    let line = offer.lines().find(|line| line.starts_with("a=max-message-size:")).unwrap();
    let offer = offer.replace(line, "a=max-message-size:16384");
    let (status, _, answer) = request(&bench, "POST /v1/realtime/calls?model=m", SDP, &offer).await;
    assert_eq!(status, 201, "{answer}");
    client.take_answer(&answer);
    client.wait_for("session.created").await;
    client.send(&instructions(20_000));
    let error = client.wait_for("error").await;
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("'session.updated'"), "{message}");
    client.send(&instructions(10));
    client.wait_for("session.updated").await;
}

#[tokio::test]
async fn only_the_first_track_is_heard() {
    let bench = bench().await;
    let (mut client, offer) = CallClient::with_tracks(2).await;
    let (status, head, answer) = request(&bench, "POST /v1/realtime/calls?model=m", SDP, &offer).await;
    assert_eq!(status, 201, "{answer}");
    client.take_answer(&answer);
    client.wait_for("session.created").await;
    client.speak(&recording("goforward"));
    client.wait_for("response.done").await;
    let location = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    request(&bench, &format!("DELETE {location}"), "", "").await;
    client.run_until("the end", CallClient::is_over).await;
    let metrics = bench.metrics.render();
    let count = |fate: &str| -> u64 {
        let name = format!("voxbridge_call_packets_total{{fate=\"{fate}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
    };
    assert!(count("received") > 50, "{metrics}");
    assert!(count("late") + count("reordered") < count("received") / 10, "{metrics}");
}

#[tokio::test]
async fn call_that_waits_for_its_client_delays_no_shutdown() {
    let mut bench = bench().await;
    let (_, offer) = CallClient::new().await;
    assert_eq!(request(&bench, "POST /v1/realtime/calls?model=m", SDP, &offer).await.0, 201);
    pause();
    let start = Instant::now();
    bench.bridge.stop();
    bench.bridge.wait_for_end().await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test]
async fn query_cannot_change_what_the_call_is() {
    let bench = bench().await;
    let query = "model=m&transport=x&call_rate_in=8000&call_rate_out=8000";
    let (mut client, _) = call(&bench, &format!("POST /v1/realtime/calls?{query}")).await;
    client.wait_for("session.created").await;
    let spoken = recording("goforward");
    client.speak(&spoken);
    client.wait_for("input_audio_buffer.speech_started").await;
    let stopped = client.wait_for("input_audio_buffer.speech_stopped").await;
    // At 8 kHz, the recording would last six times as long. Silence surrounds it.
    let spoken_ms = spoken.len() as u64 / 16;
    assert!(stopped["audio_end_ms"].as_u64().unwrap() < spoken_ms * 3, "{stopped}");
    client.wait_for("output_audio_buffer.started").await;
}

#[tokio::test]
async fn pages_may_read_where_the_call_is() {
    let bench = bench().await;
    let origin = "Origin: http://localhost:5173\r\nAccess-Control-Request-Method: POST\r\n";
    for path in ["/v1/realtime/calls", "/v1/realtime?model=m", "/v1/realtime/client_secrets"] {
        let (status, head, _) = request(&bench, &format!("OPTIONS {path}"), origin, "").await;
        assert_eq!(status, 204, "{path}");
        assert!(head.contains("access-control-allow-methods: post"), "{head}");
        assert!(head.contains("access-control-allow-headers: authorization, *"), "{head}");
        assert!(head.contains("access-control-allow-origin: http://localhost:5173"), "{head}");
    }
    let (status, head, _) = request(&bench, "POST /v1/realtime/client_secrets", origin, "{}").await;
    assert_eq!(status, 200);
    assert!(head.contains("access-control-allow-origin: http://localhost:5173"), "{head}");
    let (_, offer) = CallClient::new().await;
    let headers = format!("{SDP}Origin: http://localhost:5173\r\n");
    let (status, head, _) = request(&bench, "POST /v1/realtime/calls", &headers, &offer).await;
    assert_eq!(status, 201);
    assert!(head.contains("access-control-expose-headers: location"), "{head}");
    assert!(head.contains("access-control-allow-origin: http://localhost:5173"), "{head}");
    let foreign = format!("{SDP}Origin: https://evil.example\r\n");
    let (status, head, _) = request(&bench, "POST /v1/realtime/calls", &foreign, &offer).await;
    assert_eq!(status, 403);
    assert!(!head.contains("access-control"), "{head}");
    let (status, head, _) =
        request(&bench, "OPTIONS /v1/realtime/client_secrets", "Origin: https://evil.example\r\n", "").await;
    assert!(status == 204 && !head.contains("access-control-allow-origin"), "{head}");
}

/// A bench with two keys, and the headers of their owners.
async fn keyed_bench(name: &str) -> (Bench, [String; 2]) {
    let dir = scratch(name);
    let keys =
        "[[key]]\nname = \"ann\"\nkey = \"ann-s3cret\"\n[[key]]\nname = \"bob\"\nkey = \"bob-s3cret\"\n";
    fs::write(dir.join("keys.toml"), keys).unwrap();
    let mut config = config();
    config.access.keys = Some(dir.join("keys.toml"));
    let owners = ["ann", "bob"].map(|name| format!("Authorization: Bearer {name}-s3cret\r\n"));
    (Bench::of(config).await, owners)
}

#[tokio::test]
async fn second_connection_hears_the_call_and_commands_it() {
    let (bench, [ann, bob]) = keyed_bench("calls-second").await;
    let (mut client, offer) = CallClient::new().await;
    let line = "POST /v1/realtime/calls?model=m";
    let (accepted, head, answer) = request(&bench, line, &format!("{ann}{SDP}"), &offer).await;
    assert_eq!(accepted, 201);
    let location = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    let path = format!("/v1/realtime?call_id={}", location.rsplit('/').next().unwrap());
    let status = async |path: &str, key: &str| -> u16 {
        let (head, _) = bench.open_websocket(path, key).await;
        head[9..12].parse().unwrap()
    };
    // A server opens its connection as soon as it knows where the call is, and may configure the session at once.
    let (head, mut early) = bench.open_websocket(&path, &ann).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let session = json!({ "type": "realtime", "instructions": "Be early." });
    early.send_json(json!({ "type": "session.update", "session": session })).await;
    assert!(bench.sessions.is_empty(), "the call has no session before its client connects");
    client.take_answer(&answer);
    client.wait_for("session.created").await;
    early.wait_for_event("session.created").await;
    let updated = client.wait_for("session.updated").await;
    assert_eq!(updated["session"]["instructions"], "Be early.");
    client.events.clear();
    assert_eq!(status(&path, "").await, 401);
    assert_eq!(status(&path, &bob).await, 404);
    assert_eq!(status("/v1/realtime?call_id=rtc_x", &ann).await, 404);

    let mut others = Vec::new();
    for _ in 0..3 {
        let (head, other) = bench.open_websocket(&path, &ann).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        others.push(other);
    }
    assert_eq!(status(&path, &ann).await, 404, "no fifth connection");
    let mut other = others.pop().unwrap();
    let session = json!({ "type": "realtime", "instructions": "Be brief." });
    other.send_json(json!({ "type": "session.update", "session": session })).await;
    let updated = client.wait_for("session.updated").await;
    assert_eq!(updated["session"]["instructions"], "Be brief.");
    assert_eq!(other.wait_for_event("session.updated").await, updated);
    other.send_json(json!({ "type": "input_audio_buffer.append", "audio": "AAAA" })).await;
    assert_eq!(other.wait_for_event("error").await["error"]["code"], "invalid_value");
    let item =
        json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hi" }] });
    client.send(&json!({ "type": "conversation.item.create", "item": item }));
    other.send_json(json!({ "type": "response.create" })).await;
    client.wait_for("output_audio_buffer.stopped").await;
    other.wait_for_event("output_audio_buffer.stopped").await;
    // A connection may go, and the call goes on.
    drop(others.pop());
    assert_eq!(request(&bench, &format!("POST {location}/hangup"), &ann, "").await.0, 200);
    let frames = other.read_to_end().await;
    assert!(frames.iter().all(|frame| !matches!(frame, ClientFrame::Audio(_))), "no audio");
    client.run_until("the end", CallClient::is_over).await;
    wait_until("the session ends", || bench.sessions.is_empty()).await;
}

#[tokio::test]
async fn connection_that_joins_at_any_time_gets_the_greeting_with_the_present_settings() {
    let bench = bench().await;
    let (mut client, offer) = CallClient::new().await;
    let (_, head, answer) = request(&bench, "POST /v1/realtime/calls?model=m", SDP, &offer).await;
    let location = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    let id = location.rsplit('/').next().unwrap();
    let paths = ["/v1", "/openai/v1"].map(|start| format!("{start}/realtime?call_id={id}"));
    let mut early = bench.dial(&paths[0]).await;
    client.take_answer(&answer);
    let mut present = client.wait_for("session.created").await;
    assert_eq!(early.wait_for_event("session.created").await, present);
    for instructions in ["Be late.", "Be later."] {
        for path in &paths {
            let mut late = bench.dial(path).await;
            let greeting = late.wait_for_event("session.created").await;
            assert_eq!((greeting["session"].clone(), late.received.len()), (present["session"].clone(), 1));
        }
        let session = json!({ "type": "realtime", "instructions": instructions });
        client.send(&json!({ "type": "session.update", "session": session }));
        present = client.wait_for("session.updated").await;
        assert_eq!(early.wait_for_event("session.updated").await, present);
        assert_eq!(present["session"]["instructions"], instructions);
        client.events.clear();
    }
    assert_eq!(events(&early.received, "session.created").len(), 1, "greeted once");
}

#[tokio::test]
async fn call_is_admitted_when_its_client_connects() {
    let config = Config { sessions_max: Some(1), ..config() };
    let bench = Bench::of(config).await;
    // Offers whose clients never come hold nothing.
    for _ in 0..4 {
        let (_, offer) = CallClient::new().await;
        assert_eq!(request(&bench, "POST /v1/realtime/calls?model=m", SDP, &offer).await.0, 201);
    }
    assert!(bench.sessions.is_empty());
    let waiting = "voxbridge_waiting{kind=\"calls\"} 4";
    assert!(bench.metrics.render().contains(waiting), "{}", bench.metrics.render());
    let (mut late, offer) = CallClient::new().await;
    let (_, _, answer) = request(&bench, "POST /v1/realtime/calls?model=m", SDP, &offer).await;
    let (mut first, _) = call(&bench, "POST /v1/realtime/calls?model=m").await;
    first.wait_for("session.created").await;
    let (_, other) = CallClient::new().await;
    let (status, ..) = request(&bench, "POST /v1/realtime/calls?model=m", SDP, &other).await;
    assert_eq!(status, 503, "a full server says so at once");
    // This client connects when the only place is taken.
    late.take_answer(&answer);
    let refused = late.wait_for("error").await;
    assert_eq!(refused["error"]["message"], "too many sessions");
    late.run_until("the end", CallClient::is_over).await;
    assert_eq!(bench.sessions.len(), 1);
}

#[tokio::test]
async fn only_the_key_that_began_a_call_ends_it() {
    let (bench, [ann, bob]) = keyed_bench("calls-keys").await;
    let (_, offer) = CallClient::new().await;
    let (status, ..) = request(&bench, "POST /v1/realtime/calls", SDP, &offer).await;
    assert_eq!(status, 401);
    let (_, _, secret) = request(&bench, "POST /v1/realtime/client_secrets", &ann, "{}").await;
    let secret: Value = serde_json::from_str(&secret).unwrap();
    let by_secret = format!("Authorization: Bearer {}\r\n{SDP}", secret["value"].as_str().unwrap());
    let (status, head, _) = request(&bench, "POST /v1/realtime/calls", &by_secret, &offer).await;
    assert_eq!(status, 201);
    let location = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    let line = format!("POST {location}/hangup");
    assert_eq!(request(&bench, &line, "", "").await.0, 401);
    assert_eq!(request(&bench, &line, &bob, "").await.0, 404);
    assert_eq!(request(&bench, &line, &ann, "").await.0, 200);
}

#[tokio::test]
async fn calls_that_do_not_connect_are_bounded_and_strangers_get_no_packet() {
    let bench = bench().await;
    let (mut client, offer) = CallClient::new().await;
    let line = "POST /v1/realtime/calls";
    let (status, _, answer) = request(&bench, line, SDP, &offer).await;
    assert_eq!(status, 201);
    for _ in 0..7 {
        assert_eq!(request(&bench, line, SDP, &offer).await.0, 201);
    }
    let (status, head, body) = request(&bench, line, SDP, &offer).await;
    assert_eq!((status, code(&body)), (503, json!("service_unavailable")));
    assert!(head.contains("retry-after"), "{head}");

    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = answer.lines().find_map(|line| line.strip_prefix("a=candidate:")).unwrap();
    let port = server.split(' ').nth(5).unwrap();
    let name = answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap();
    let user = format!("{name}:x");
    let padding = vec![0; user.len().next_multiple_of(4) - user.len()];
    let attribute = [&[0, 6, 0, user.len() as u8][..], user.as_bytes(), &padding].concat();
    let request =
        [&[0, 1, 0, attribute.len() as u8, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12], &attribute].concat();
    for packet in [request.as_slice(), b"", &[0x80; 100], &[22; 300], &request[..request.len() - 3]] {
        stranger.send_to(packet, format!("127.0.0.1:{port}")).await.unwrap();
    }
    // The server has read the packets before it has connected a client that comes after them.
    client.take_answer(&answer);
    client.wait_for("session.created").await;
    let nothing = stranger.try_recv(&mut [0; 100]).map_err(|error| error.kind());
    assert_eq!(nothing, Err(std::io::ErrorKind::WouldBlock));
    assert_eq!(self::request(&bench, line, SDP, &offer).await.0, 201, "a connected call does not count");
}

#[tokio::test]
async fn server_sends_no_more_than_it_gets_before_the_clients_address_is_proven() {
    let bench = bench().await;
    let (mut client, _) = call(&bench, "POST /v1/realtime/calls").await;
    // As if the client's address was forged: what the server says after the ICE checks comes to a stranger.
    client.is_deaf_to_dtls = true;
    client.run_until("two answers", |client| client.traffic.dtls_packets >= 2).await;
    let traffic = &client.traffic;
    println!("{traffic:?}");
    assert!(traffic.received_bytes <= traffic.sent_bytes, "{traffic:?}");
    assert!(traffic.longest_answer <= traffic.shortest_check, "{traffic:?}");
}

#[tokio::test]
async fn changed_packets_end_no_call() {
    let bench = bench().await;
    let line = "POST /v1/realtime/calls";
    let ((mut changed, _), (mut other, _)) = (call(&bench, line).await, call(&bench, line).await);
    for client in [&mut changed, &mut other] {
        client.wait_for("session.created").await;
    }
    // This client's packets are changed from the first one on, so that it may never connect.
    let (mut broken, _) = call(&bench, line).await;
    broken.changes = Some(fastrand::Rng::with_seed(1));
    changed.changes = Some(fastrand::Rng::with_seed(2));
    changed.speak(&recording("goforward"));
    other.speak(&recording("goforward"));
    let answers = async { tokio::join!(changed.wait_for("response.done"), other.wait_for("response.done")) };
    broken.step_until(answers).await;
    assert!(changed.traffic.changed_packets > 300, "{:?}", changed.traffic);
    let (mut after, _) = call(&bench, line).await;
    after.wait_for("session.created").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_share_one_port() {
    const CALLS: usize = 50;
    let (bench, (stop, stopped)) = (bench().await, watch::channel(false));
    let mut running = Vec::new();
    for _ in 0..CALLS {
        let (mut client, _) = call(&bench, "POST /v1/realtime/calls").await;
        client.wait_for("session.created").await;
        client.is_muted = true;
        let mut stopped = stopped.clone();
        running.push(tokio::spawn(async move {
            client.step_until(stopped.wait_for(|stopped| *stopped)).await;
            client
        }));
    }
    assert_eq!(bench.sessions.len(), CALLS);
    stop.send_replace(true);
    let mut ids = BTreeSet::new();
    for client in running {
        let mut client = client.await.unwrap();
        client.run_until("packets", |client| client.sounds.len() > 3).await;
        ids.insert(client.event("session.created").unwrap()["session"]["id"].to_string());
    }
    assert_eq!(ids.len(), CALLS);
}
