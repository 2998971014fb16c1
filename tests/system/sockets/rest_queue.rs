//! REST requests whose upstream never has a worker for them: HTTP 503 in every form, never an empty result.

use super::*;

/// A bridge whose upstream's queue does not move.
async fn stuck() -> Bench {
    let times = [("queue_stuck_ms", 15_000, 200), ("queue_max_ms", 120_000, 800)];
    let config =
        Config { mappings: Some(profile_with_numbers("rest-stuck-queue", &times)), ..Config::default() };
    let faults = vec!["stuck-queue".parse().unwrap()];
    Bench::with_config(SimulatorConfig { faults, ..instant_simulator() }, config).await
}

#[tokio::test]
async fn transcript_in_a_stuck_queue_is_refused_in_every_form() {
    let bench = stuck().await;
    for fields in [
        &[("response_format", "json")][..],
        &[("response_format", "verbose_json")],
        &[("response_format", "text")],
        &[("response_format", "srt")],
        &[("response_format", "vtt")],
        &[("stream", "true")],
    ] {
        let fields = [&[("model", "whisper-1")], fields].concat();
        let answer = upload(&bench, BEARER, &wav(&two_utterances()), &fields).await;
        assert_eq!(answer.status, 503, "{fields:?}: {answer:?}");
        assert!(answer.header("retry-after").is_some(), "{fields:?}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"], "service_unavailable", "{fields:?}");
    }
    let answer =
        request(bench.address(), "POST", "/v1/listen?model=nova-3", "", &wav(&two_utterances())).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
}

#[tokio::test]
async fn speech_in_a_stuck_queue_is_refused_in_every_form() {
    let bench = stuck().await;
    for (path, body) in [
        (SPEECH, json!({"model": "tts-1", "input": "Good morning.", "voice": "default"})),
        (SPEECH, json!({"model": "tts-1", "input": "Good day.", "voice": "default", "stream_format": "sse"})),
        ("/v1/speak", json!({"text": "Good morning."})),
    ] {
        let headers = format!("{BEARER}Content-Type: application/json\r\n");
        let answer = request(bench.address(), "POST", path, &headers, body.to_string().as_bytes()).await;
        assert_eq!(answer.status, 503, "{path} {body}: {answer:?}");
        assert!(answer.header("retry-after").is_some(), "{path}: {answer:?}");
    }
}
