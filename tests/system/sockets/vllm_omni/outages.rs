//! Broken connections, dead servers, and servers that refuse a session or end it.

use super::conversations::{config_for, is, upstream_at};
use super::*;

/// Longer than it takes to notice a dead server, and much shorter than the deadline of the model's answer.
const AT_ONCE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn broken_connection_is_resumed_in_its_own_place_past_the_line() {
    let servers = servers(Setup { max_sessions: 1, ..Setup::default() }).await;
    let runs = servers.into_iter().map(async |server| {
        let proxy = TcpProxy::to(server.address()).await;
        let bench = bench_at(proxy.address()).await;
        let mut first = bench.client("model=x").await;
        first.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        let mut second = bench.client("model=x").await;
        second.send_audio(&[0; 640], 640).await;
        assert_eq!(second.wait_for_event("session.hold").await["queue_position"], 1, "{}", server.name());
        for _ in 0..2 {
            proxy.cut();
            first.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        }
        let frames = first.close().await;
        assert!(events(&frames, "error").is_empty(), "{}: {frames:?}", server.name());
        assert_eq!(finals(&frames).len(), 3, "{}: {frames:?}", server.name());
        second.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        assert_pairs_closed(&second.close().await);
    });
    join_all(runs).await;
}

#[tokio::test]
async fn dead_server_is_replaced_at_once_by_another() {
    // One refuses connections; the other has a proxy in front of it that still takes them.
    for is_behind_proxy in [false, true] {
        let servers = [VllmVersion::V0_30, VllmVersion::V0_32];
        let servers = servers.map(|version| simulated(version, Setup::default()));
        let [first, second] = servers;
        let servers = [first.await, second.await];
        let mut proxies = Vec::new();
        for server in &servers {
            let inner = TcpProxy::to(server.address()).await;
            let outer = TcpProxy::to(inner.address()).await;
            proxies.push((outer, Some(inner)));
        }
        let upstream = proxies.iter().map(|(proxy, _)| upstream_at(proxy.address())).collect();
        let config = Config { upstream, ..config_for(servers[0].address()) };
        let bench = Bench::with_config(Default::default(), config).await;
        let mut client = bench.client("model=x").await;
        client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        let used = proxies.iter().position(|(proxy, _)| proxy.is_used()).unwrap();
        let (outer, inner) = proxies.swap_remove(used);
        drop(inner);
        outer.cut();
        let _kept = Some(outer).filter(|_| is_behind_proxy);
        let since = Instant::now();
        let error = client.wait_for_event("error").await;
        assert!(since.elapsed() < AT_ONCE, "{:?}", since.elapsed());
        assert!(error["message"].as_str().unwrap().contains("interrupted"), "{error}");
        wait_until("the other server is used", || proxies[0].0.is_used()).await;
        assert!(since.elapsed() < AT_ONCE, "{:?}", since.elapsed());
        client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        let frames = client.close().await;
        assert_eq!((finals(&frames).len(), events(&frames, "error").len()), (2, 1), "{frames:?}");
    }
}

#[tokio::test]
async fn openai_client_hears_of_the_interruption() {
    let server = simulated(VllmVersion::V0_30, Setup::default()).await;
    let proxy = TcpProxy::to(server.address()).await;
    let bench = bench_at(proxy.address()).await;
    let mut client = bench.dial("/v1/realtime?model=gpt-realtime").await;
    client.send_json(json!({"type": "session.update", "session": {"type": "realtime"}})).await;
    client.wait_for_event("session.updated").await;
    for level in [8000_i16, 8000, 0, 0, 0] {
        let second: Vec<i16> = (0..24_000).map(|at| if at % 12 < 6 { level } else { -level }).collect();
        let audio = STANDARD.encode(bytes(&second));
        client.send_json(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
    }
    client.wait_for_event("response.created").await;
    proxy.cut();
    drop(proxy);
    let error = client.wait_for_event("error").await["error"].clone();
    assert_eq!((&error["type"], &error["code"]), (&json!("server_error"), &json!("server_error")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("interrupted"), "{error}");
}

#[tokio::test]
async fn voice_is_required_only_by_a_server_that_refuses_without_one() {
    for server in servers(Setup::default()).await {
        let config = Config { voices: Default::default(), ..config_for(server.address()) };
        let bench = Bench::with_config(Default::default(), config).await;
        let mut client = bench.client("model=x").await;
        let has_own_voice = server.version() == VllmVersion::V0_32;
        if has_own_voice {
            client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
            let frames = client.close().await;
            assert!(events(&frames, "error").is_empty(), "{}: {frames:?}", server.name());
            continue;
        }
        client.send_audio(&[0; 640], 640).await;
        let since = Instant::now();
        let frames = client.read_to_end().await;
        assert!(since.elapsed() < 2 * AT_ONCE, "{}: {:?}", server.name(), since.elapsed());
        let errors = events(frames, "error");
        let words = errors.last().unwrap()["message"].as_str().unwrap();
        assert!(words.contains("ref_audio_required"), "{}: {words}", server.name());
    }
}

#[tokio::test]
async fn relayed_client_without_a_voice_has_the_configured_one() {
    for server in servers(Setup::default()).await {
        let config = Config { profile: Some("relay".into()), ..config_for(server.address()) };
        let bench = Bench::with_config(Default::default(), config).await;
        let mut client = bench.dial("/v1/realtime?mode=audio").await;
        client.send_json(json!({"type": "session.init", "payload": {"system_prompt": "Be brief."}})).await;
        client.wait_for_event("session.created").await;
        client.send_json(json!({"type": "session.close"})).await;
        assert!(events(client.read_to_end().await, "error").is_empty(), "{}", server.name());
    }
}

#[tokio::test]
async fn session_whose_output_was_not_read_is_replaced() {
    let server = simulated(VllmVersion::V0_32, Setup { turn_units: 4, ..Setup::default() }).await;
    let VllmServer::Simulated(_, address, faults, _) = &server else { unreachable!("it is simulated") };
    let bench = bench_at(*address).await;
    faults.inject(Fault::from(FaultKind::OutputBackpressure).times(1)).await;
    let mut client = bench.client("model=x").await;
    for _ in 0..2 {
        client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
    }
    assert_pairs_closed(&client.close().await);
}
