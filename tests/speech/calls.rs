//! Calls by WebRTC: OpenAI's agents library, unmodified, in headless Chromium with a recording as its microphone, and aiortc.

use futures_util::future::join_all;
use voxbridge::config::WebRtcConfig;
use voxbridge_test_support::wait::wait_until;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn agents_library_talks_and_interrupts_in_a_browser() {
    if installed_clients().is_none() {
        return;
    }
    let webrtc = WebRtcConfig { listen: Some("127.0.0.1:0".to_owned()), advertise: None };
    let duplex = RouteConfig { model: "duplex".to_owned(), ..RouteConfig::catch_all("conversation") };
    let routes = vec![duplex, RouteConfig::catch_all("assistant")];
    let config = Config { webrtc, routes, ..Config::default() };
    let bench =
        Bench::with_config(SimulatorConfig { workers: 8, ..SimulatorConfig::default() }, config).await;
    let mut page = node("call_page.cjs");
    page.arg(format!("http://{}", bench.address())).arg(recording("goforward_16k.wav"));
    page.args(["gpt-realtime", "duplex"]);
    let reports: Vec<Value> = serde_json::from_str(&run_in_turn(page, ClientWeight::Browser).await).unwrap();
    let [assistant, duplex] = reports.as_slice() else { panic!("{reports:?}") };
    assert_eq!(assistant["statuses"], json!(["cancelled", "completed"]));
    assert_eq!(assistant["users"].as_array().unwrap().len(), 2);
    for report in [assistant, duplex] {
        assert_eq!(report["errors"], json!([]));
        assert!(report["callId"].as_str().unwrap().starts_with("rtc_"));
        let heard = report["sound"].as_array().unwrap().iter().filter(|step| step[1] == true).count();
        assert!(heard > 20, "heard in {heard} steps of 10 ms");
        let kinds: Vec<_> = report["events"].as_array().unwrap().iter().map(|event| &event[1]).collect();
        for kind in ["session.updated", "output_audio_buffer.started", "output_audio_buffer.cleared"] {
            assert!(kinds.contains(&&json!(kind)), "{kind} is missing: {kinds:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_converses_by_openais_live_api_while_its_server_attaches() {
    if installed_clients().is_none() {
        return;
    }
    let webrtc = WebRtcConfig { listen: Some("127.0.0.1:0".to_owned()), advertise: None };
    let config = Config { webrtc, ..Config::default() };
    let bench =
        Bench::with_config(SimulatorConfig { workers: 4, ..SimulatorConfig::default() }, config).await;
    let mut page = node("live_page.cjs");
    page.arg(format!("http://{}", bench.address())).arg(recording("goforward_16k.wav"));
    let report: Value = serde_json::from_str(&run_in_turn(page, ClientWeight::Browser).await).unwrap();
    assert_eq!(report["errors"], json!([]), "{report}");
    assert_eq!(report["closed"], "close_requested");
    assert!(report["id"].as_str().unwrap().starts_with("rtc_") && report["id"] == report["attached"]["id"]);
    assert!(!report["input"].as_str().unwrap().is_empty() && !report["output"].as_str().unwrap().is_empty());
    let loud = report["loud"].as_array().unwrap().iter().filter(|step| **step == true).count();
    assert!(loud > 20, "heard in {loud} steps of 10 ms");
    let attached = report["attached"]["types"].as_array().unwrap();
    for kind in [
        "session.started",
        "session.input_transcript.delta",
        "session.output_transcript.delta",
        "session.closed",
    ] {
        assert!(attached.contains(&json!(kind)), "{kind} is missing: {attached:?}");
    }
    wait_until("the session ends", || bench.sessions.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aiortc_talks_with_each_codec() {
    if installed_clients().is_none() {
        return;
    }
    let webrtc = WebRtcConfig { listen: Some("127.0.0.1:0".to_owned()), advertise: None };
    let config = Config { webrtc, profile: Some("assistant".to_owned()), ..Config::default() };
    let bench =
        Bench::with_config(SimulatorConfig { workers: 8, ..SimulatorConfig::default() }, config).await;
    let calls = ["audio/opus", "audio/G722", "audio/PCMU", "audio/PCMA"].map(|codec| {
        let mut client = python("call_client.py", &["aiortc", "livekit", "openai"]);
        client.arg(format!("http://{}", bench.address())).arg(recording("goforward_16k.wav")).arg(codec);
        async move { (codec, run(client).await) }
    });
    for (codec, report) in join_all(calls).await {
        let report: Value = serde_json::from_str(&report).unwrap();
        let kinds = report["events"].as_array().unwrap();
        for kind in ["output_audio_buffer.started", "response.done", "closed"] {
            assert!(kinds.contains(&json!(kind)), "{codec}: {kind} is missing: {kinds:?}");
        }
        assert!(!kinds.contains(&json!("error")), "{codec}: {kinds:?}");
        assert!(report["user"].is_string(), "{codec}: {report}");
        assert!(report["heard_s"].as_f64().unwrap() > 0.5, "{codec}: {report}");
    }
    wait_until("the sessions end", || bench.sessions.is_empty()).await;
}
