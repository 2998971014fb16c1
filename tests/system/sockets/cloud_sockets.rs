//! Clients of speech services in the cloud: paths with a voice in them, keys in the service's own headers and parameters, and a
//! page that takes the settings and answers a URL.

use voxbridge_test_support::bench::request;

use super::*;

async fn bench_with_key(name: &str) -> Bench {
    let dir = scratch(name);
    let keys = dir.join("keys.toml");
    fs::write(&keys, "[[key]]\nname = \"app\"\nkey = \"app-s3cret\"\n").unwrap();
    let config: Config = toml::from_str(&format!("[access]\nkeys = {keys:?}\n")).unwrap();
    Bench::of(config).await
}

#[tokio::test]
async fn part_of_the_path_is_a_parameter() {
    let bench = Bench::start().await;
    for (path, status) in [
        ("/v1/text-to-speech/a%20voice/stream-input?model_id=m", "101"),
        ("/v1/text-to-speech/a/multi-stream-input", "101"),
        ("/v2/en", "101"),
        ("/v2", "101"),
        ("/v2/realtime", "404"),
        ("/v1/text-to-speech//stream-input", "404"),
        ("/v1/text-to-speech/a/b/stream-input", "404"),
        // Deepgram's path has no part in braces, and so comes before Speechmatics' languages.
        ("/v2/listen?model=flux-general-en", "101"),
    ] {
        let (head, _) = bench.open_websocket(path, "").await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {head}");
    }
    let mut flux = bench.dial("/v2/listen?model=flux-general-en").await;
    flux.wait_for_event("Connected").await;
}

#[tokio::test]
async fn keys_are_taken_from_the_protocols_own_places() {
    let bench = bench_with_key("cloud-keys").await;
    for (path, headers, status) in [
        ("/v1/speech-to-text/realtime", "xi-api-key: app-s3cret\r\n", "101"),
        ("/v1/speech-to-text/realtime?token=app-s3cret", "", "101"),
        ("/v1/text-to-speech/v/stream-input", "xi-api-key: app-s3cret\r\n", "101"),
        ("/v3/ws?token=app-s3cret&sample_rate=16000", "", "101"),
        ("/v3/ws?sample_rate=16000", "Authorization: app-s3cret\r\n", "101"),
        ("/tts/websocket?api_key=app-s3cret", "", "101"),
        ("/tts/websocket?api_key=app-s3cret&access_token=other", "", "400"),
        ("/tts/websocket?api_key=wrong", "", "401"),
        ("/tts/websocket?token=app-s3cret", "", "401"),
        ("/v3/ws", "xi-api-key: app-s3cret\r\n", "401"),
        ("/v1/speech-to-text/realtime", "", "401"),
    ] {
        let (head, _) = bench.open_websocket(path, headers).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {headers}: {head}");
    }
}

#[tokio::test]
async fn page_with_settings_answers_a_url_that_has_them() {
    let bench = bench_with_key("cloud-page").await;
    let key = "X-Gladia-Key: app-s3cret\r\n";
    let settings = json!({
        "encoding": "wav/pcm", "sample_rate": 8000, "endpointing": 0.3,
        "realtime_processing": {"custom_vocabulary_config": {"vocabulary": ["a", {"value": "b"}]}},
        "messages_config": {"receive_acknowledgments": true},
    });
    let (head, answer) = request(&bench, "POST /v2/live?region=eu-west", key, &settings.to_string()).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let url = answer["url"].as_str().unwrap();
    let path = url.strip_prefix("ws://voice.local:8000").unwrap();
    assert!(answer["id"].is_string() && answer["created_at"].as_str().unwrap().ends_with('Z'), "{answer}");
    assert!(path.starts_with("/v2/live/socket?region=eu-west&") && path.ends_with("&token=app-s3cret"));
    let mut client = bench.dial(path).await;
    client.wait_for_event("start_recording").await;
    client.send_audio(&[0; 320], 320).await;
    assert_eq!(client.wait_for_event("audio_chunk").await["data"]["byte_range"], json!([0, 320]));
    client.send_json(json!({"type": "stop_recording"})).await;
    client.wait_for_event("end_session").await;

    for (headers, body, status, words) in [
        ("", "{}", "401", ""),
        ("X-Gladia-Key: wrong\r\n", "{}", "401", ""),
        (key, "{", "400", "not JSON"),
        (key, "[]", "400", "not an object"),
        (key, r#"{"sample_rate": "fast"}"#, "400", "sample_rate"),
        (key, r#"{"endpointing": 11}"#, "400", "less than or equal to 10, got 11"),
    ] {
        let (head, answer) = request(&bench, "POST /v2/live", headers, body).await;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{body}: {head}");
        assert!(answer["message"].as_str().unwrap_or_default().contains(words), "{body}: {answer}");
    }
}
