//! SGLang-Omni as an upstream: its own realtime server with a scripted model, where Python can install it, and the simulator.

use super::*;

/// An upstream of one of the two kinds, and a bridge in front of it.
struct Upstream {
    bench: Bench,
    server: Server,
}

enum Server {
    Simulator(SocketAddr, InputRecorder, #[expect(dead_code, reason = "stops the server")] RunningServer),
    Package(PackageServer, PathBuf),
}

impl Upstream {
    /// The simulator and, where it is installed, the package. The audio of the package's sessions is recorded under a
    /// directory with this name.
    async fn both(name: &str, profile: &str, faults: &[&str], options: &[&str]) -> Vec<Self> {
        let cfg = SimulatorConfig {
            dialect: SimDialect::SglangOmni,
            workers: SimDialect::SglangOmni.default_workers(),
            timing: SimTiming::instant(),
            faults: faults.iter().map(|fault| fault.parse().unwrap()).collect(),
            record: true,
            ..SimulatorConfig::default()
        };
        let (address, simulator, recorder) = start_simulator("127.0.0.1:0", cfg, None).await;
        let mut servers = vec![(address, Server::Simulator(address, recorder, simulator))];
        let dir = scratch(name);
        for old in fs::read_dir(&dir).unwrap() {
            fs::remove_file(old.unwrap().path()).unwrap();
        }
        let record = ["--record", dir.to_str().unwrap()];
        if let Some(package) = PackageServer::sglang_omni(&[options, &record[..]].concat()) {
            servers.push((package.address(), Server::Package(package, dir)));
        }
        let mut upstreams = Vec::new();
        for (address, server) in servers {
            let upstream: UpstreamConfig = upstream_of(SimDialect::SglangOmni, address);
            let config =
                Config { profile: Some(profile.into()), upstream: vec![upstream], ..Config::default() };
            let bench = Bench::with_config(SimulatorConfig::default(), config).await;
            upstreams.push(Self { bench, server });
        }
        upstreams
    }

    const fn name(&self) -> &'static str {
        match self.server {
            Server::Simulator(..) => "simulator",
            Server::Package(..) => "package",
        }
    }

    const fn address(&self) -> SocketAddr {
        match &self.server {
            Server::Simulator(address, ..) => *address,
            Server::Package(server, _) => server.address(),
        }
    }

    /// The audio that reached a model and is not zero, by session.
    fn heard(&self) -> Vec<Vec<i16>> {
        let sessions: Vec<Vec<i16>> = match &self.server {
            Server::Simulator(_, recorder, _) => {
                let mut sessions = BTreeMap::<ConnId, Vec<i16>>::new();
                for (conn, unit) in recorder.duplex_units() {
                    let samples = unit.samples.iter().map(|sample| (sample * 32_768.0) as i16);
                    sessions.entry(conn).or_default().extend(samples);
                }
                sessions.into_values().collect()
            }
            Server::Package(server, dir) => {
                let reports = server.reports();
                let ids = reports.iter().filter_map(|it| it.get("instructions").and(it["session"].as_str()));
                ids.map(|id| samples(&fs::read(dir.join(format!("{id}.pcm"))).unwrap())).collect()
            }
        };
        sessions.iter().map(|samples| not_zero(samples)).collect()
    }

    /// Pictures that reached a model.
    fn pictures(&self) -> usize {
        match &self.server {
            Server::Simulator(_, recorder, _) => {
                recorder.duplex_units().iter().map(|(_, unit)| unit.frame_count).sum()
            }
            Server::Package(server, _) => {
                let images = |report: &Value| report["images"].as_array().map_or(0, Vec::len);
                server.reports().iter().map(images).sum()
            }
        }
    }

    /// A client of another program than the bridge.
    async fn other_client(&self) -> Client {
        dial(self.address(), "/v1/realtime").await
    }
}

/// The turn of this audio; checks that it is complete from its beginning, and in order.
#[track_caller]
fn turn_of(audio: &[i16]) -> u64 {
    let marks: Vec<_> = audio.iter().map(|sample| read_watermark(*sample).expect("no watermark")).collect();
    assert_eq!(marks[0].1, 0, "the turn begins with its first sample");
    assert!(marks.windows(2).all(|pair| pair[1] == (pair[0].0, (pair[0].1 + 1) % 8190)));
    marks[0].0
}

fn not_zero(samples: &[i16]) -> Vec<i16> {
    samples.iter().copied().filter(|sample| *sample != 0).collect()
}

/// The part of a recording that a client sends: whole frames.
fn sent(name: &str) -> Vec<i16> {
    let samples = recording(name);
    samples[..samples.len() / 320 * 320].to_vec()
}

/// Checks that the sessions heard everything in order. A session may repeat what its predecessor did not answer.
#[track_caller]
fn assert_heard(sessions: &[Vec<i16>], said: &[i16], server: &str) {
    let mut end = 0;
    for heard in sessions {
        let begins_at = (0..=end).rev().find(|at| said[*at..].starts_with(heard));
        let at = begins_at
            .unwrap_or_else(|| panic!("{server}: {} samples do not follow sample {end}", heard.len()));
        end = at + heard.len();
    }
    assert_eq!(end, said.len(), "{server}");
}

/// Asks and listens to the whole answer; returns its turn.
async fn ask(client: &mut Client) -> u64 {
    let frames = client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
    let audio = audio(frames);
    assert_eq!(events(frames, "tts.speaking_end")[0]["cancelled"], false, "{frames:?}");
    assert_eq!(audio.len(), 62_400, "the answer is complete");
    turn_of(&audio)
}

#[tokio::test]
async fn conversation_with_barge_in_loses_no_sample() {
    for upstream in Upstream::both("sglang_omni_barge_in", "conversation", &[], &[]).await {
        let mut client = upstream.bench.client("model=x").await;
        assert_eq!(ask(&mut client).await, 1);
        // The second answer is interrupted, while the model speaks on.
        client.stream_until(&recording("goforward"), is("audio")).await;
        let frames = client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        assert_eq!(
            events(frames, "tts.speaking_end")[0]["cancelled"],
            true,
            "{}: {frames:?}",
            upstream.name()
        );
        let interrupted = client.received.len();
        // The third answers the interruption.
        client.stream_until(&[], is("tts.speaking_end")).await;
        assert_eq!(turn_of(&audio(&client.received[interrupted..])), 3, "{}", upstream.name());
        let heard = upstream.heard();
        let frames = client.close().await;
        assert_pairs_closed(&frames);
        assert!(events(&frames, "error").is_empty(), "{frames:?}");
        let question = not_zero(&sent("goforward"));
        // The third question stopped at the barge-in.
        let said = question.repeat(3);
        assert_heard(&heard, &said[..heard.concat().len()], upstream.name());
        assert!(heard.concat().len() > 2 * question.len(), "{}", upstream.name());
    }
}

#[tokio::test]
async fn pictures_reach_the_model_with_their_unit() {
    for upstream in Upstream::both("sglang_omni_video", "video", &[], &[]).await {
        let mut client = upstream.bench.client("model=x").await;
        client.send_json(json!({"type": "video.frame", "image": PICTURE})).await;
        assert_eq!(ask(&mut client).await, 1);
        let large = STANDARD.encode([b"\xff\xd8\xff", &[0; 524_286][..]].concat());
        client.send_json(json!({"type": "video.frame", "image": large})).await;
        assert_eq!(ask(&mut client).await, 2);
        assert_eq!(upstream.pictures(), 1, "{}: a larger picture is left out", upstream.name());
        assert!(events(&client.close().await, "error").is_empty());
    }
}

#[tokio::test]
async fn full_context_moves_the_conversation_to_another_session() {
    for upstream in Upstream::both(
        "sglang_omni_context",
        "conversation",
        &["context-full=300"],
        &["--context-units", "10"],
    )
    .await
    {
        let mut client = upstream.bench.client("model=x").await;
        // The end of a session may cut an answer.
        for _ in 0..3 {
            client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        }
        let heard = upstream.heard();
        let frames = client.close().await;
        assert!(heard.len() > 1, "{}", upstream.name());
        assert!(events(&frames, "error").iter().all(|error| error["recoverable"] == true), "{frames:?}");
        assert_heard(&heard, &not_zero(&sent("goforward")).repeat(3), upstream.name());
    }
}

#[tokio::test]
async fn third_client_waits_in_the_bridge_until_one_of_two_leaves() {
    for upstream in Upstream::both("sglang_omni_line", "conversation", &[], &[]).await {
        let mut first = upstream.bench.client("model=x").await;
        let mut second = upstream.bench.client("model=x").await;
        tokio::join!(ask(&mut first), ask(&mut second));
        let mut third = upstream.bench.client("model=x").await;
        third.send_audio(&bytes(&recording("goforward")), 640).await;
        // The number of the server's sessions shows when it refuses this one.
        let notice = third.wait_for_event("session.hold").await;
        assert_eq!(notice["queue_position"], 1, "{}: {notice}", upstream.name());
        first.close().await;
        third.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        let frames = third.close().await;
        assert!(events(&frames, "error").is_empty(), "{}: {frames:?}", upstream.name());
        assert!(events(&second.close().await, "error").is_empty(), "{}", upstream.name());
    }
}

#[tokio::test]
async fn server_whose_sessions_other_programs_use_is_busy_and_used_as_soon_as_it_has_room() {
    for upstream in Upstream::both("sglang_omni_busy", "conversation", &[], &[]).await {
        let others = [upstream.other_client().await, upstream.other_client().await];
        let mut client = upstream.bench.client("model=x").await;
        client.wait_for_event("session.hold").await;
        for mut other in others {
            other.send_json(json!({"type": "session.close", "event_id": "a"})).await;
            other.read_to_end().await;
        }
        ask(&mut client).await;
        assert!(events(&client.close().await, "error").is_empty(), "{}", upstream.name());
    }
}

#[tokio::test]
async fn session_is_closed_politely() {
    for upstream in Upstream::both("sglang_omni_close", "conversation", &[], &[]).await {
        let mut client = upstream.bench.client("model=x").await;
        ask(&mut client).await;
        client.close().await;
        match &upstream.server {
            Server::Simulator(_, recorder, _) => {
                let closed = || recorder.all().iter().any(|it| format!("{it:?}").contains("session.close"));
                wait_until("the bridge closes the session", closed).await;
            }
            Server::Package(server, _) => {
                let closed = || server.reports().iter().any(|it| it.get("closed").is_some());
                wait_until("the bridge closes the session", closed).await;
            }
        }
        // Both sessions are free again.
        let free = async { (upstream.other_client().await, upstream.other_client().await) };
        timeout(Duration::from_secs(20), free).await.unwrap();
    }
}
