//! Calls by WebRTC: OpenAI's agents library, unmodified, in headless Chromium with a recording as its microphone.

use serde_json::{Value, json};
use voxbridge::{
    config::{Config, WebRtcConfig},
    server::route::RouteConfig,
    simulator::SimulatorConfig,
};
use voxbridge_test_support::bench::Bench;

use crate::client_programs::{installed_clients, node, recording, run};

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
    let reports: Vec<Value> = serde_json::from_str(&run(page).await).unwrap();
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
