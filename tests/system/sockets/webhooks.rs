//! Webhooks of real sessions, at a receiver on a socket.

use super::*;

pub(crate) type Received = Arc<Mutex<Vec<Value>>>;

/// Takes messages, and answers each with 204.
pub(crate) async fn receive(listener: TcpListener, received: Received) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let received = received.clone();
        tokio::spawn(async move {
            let mut bytes = Vec::new();
            let body = loop {
                if stream.read_buf(&mut bytes).await.unwrap() == 0 {
                    return;
                }
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if length.is_some_and(|length| length.parse() == Ok(body.len())) {
                    break body.to_owned();
                }
            };
            received.lock().unwrap().push(serde_json::from_str(&body).unwrap());
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        });
    }
}

#[tokio::test]
async fn session_is_told_at_its_begin_after_its_turns_and_at_its_end_with_its_usage() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hooks", listener.local_addr().unwrap());
    let received = Received::default();
    tokio::spawn(receive(listener, received.clone()));
    let secret = scratch("webhooks").join("secret");
    fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let config = format!("profile = \"assistant\"\n[webhooks]\nurls = [{url:?}]\nsecret_file = {secret:?}\n");
    let bench = Bench::of(configuration(&config)).await;
    let mut client = bench.client("model=m").await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("tts.speaking_end").await;
    client.close().await;
    let has_ended = || received.lock().unwrap().iter().any(|message| message["type"] == "session.ended");
    wait_until("the end is told", has_ended).await;
    let told = received.lock().unwrap().clone();
    let of = |kind: &str| {
        told.iter().find(|message| message["type"] == kind).unwrap_or_else(|| panic!("{told:#?}"))
    };
    let (started, turn, ended) = (of("session.started"), of("turn.ended"), of("session.ended"));
    assert_has(&started["data"], json!({"/client": "macaw", "/profile": "assistant"}));
    for message in [turn, ended] {
        assert_eq!(message["data"]["session"], started["data"]["session"]);
        assert!(message["data"]["usage"]["output_tokens"].as_u64().unwrap() > 0, "{message}");
    }
    assert_eq!((&turn["data"]["interrupted"], &ended["data"]["turns"]), (&json!(false), &json!(1)));
    assert_eq!(ended["data"]["usage"], turn["data"]["usage"]);
    assert!(ended["data"]["audio_in_s"].as_f64().unwrap() > 0.5, "{ended}");
}
