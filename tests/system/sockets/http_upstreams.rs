//! Upstreams that are reached by HTTP requests: transcripts, speech and answers in turns, and how they fail.

use std::sync::atomic::AtomicU64;

use futures_util::future::FutureExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use voxbridge::audio::wav;

use super::*;

const APIS: [HttpApi; 3] = [HttpApi::VllmOmni, HttpApi::SglangOmni, HttpApi::OpenaiAudio];

fn simulator(api: HttpApi) -> SimulatorConfig {
    SimulatorConfig { http_api: Some(api), workers: 4, ..instant_simulator() }
}

/// Has a text spoken, and returns the frames until its end.
async fn speak(client: &mut Client, text: &str) -> Vec<ClientFrame> {
    let from = client.received.len();
    client.send_json(json!({"type": "tts.speak", "text": text})).await;
    client.wait_for_event("tts.speaking_end").await;
    client.received[from..].to_vec()
}

/// Sends an utterance, and returns the frames until its end.
pub(crate) async fn transcribe(client: &mut Client) -> Vec<ClientFrame> {
    let from = client.received.len();
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("vad.speech_end").await;
    client.received[from..].to_vec()
}

#[track_caller]
fn assert_transcribed(frames: &[ClientFrame]) {
    let finals = events(frames, "transcript.final");
    assert_eq!(finals.len(), 1, "{frames:#?}");
    assert!(finals[0]["text"].as_str().unwrap().starts_with("simulated transcript: "), "{}", finals[0]);
}

/// Paths of the requests so far, and their bodies where they are JSON.
fn requests(recorder: &InputRecorder) -> Vec<(String, Value)> {
    let request = |input: RecordedInput| match input {
        RecordedInput::Request(_, path, body) => {
            Some((path, serde_json::from_slice(&body).unwrap_or_default()))
        }
        _ => None,
    };
    recorder.all().into_iter().filter_map(request).collect()
}

#[tokio::test]
async fn utterances_and_texts_are_requests_to_each_server() {
    for api in APIS {
        let bench = Bench::with_config(simulator(api), Config::default()).await;
        let mut client = bench.client("model=x").await;
        for _ in 0..2 {
            assert_transcribed(&transcribe(&mut client).await);
            let frames = speak(&mut client, "Good morning, and a fine day to you.").await;
            // Fourteen characters a second, and the silence before.
            assert!(audio(&frames).len().abs_diff(24_000 * 36 / 14 + 2880) < 100, "{api:?}");
        }
        let frames = client.close().await;
        assert_pairs_closed(&frames);
        assert!(events(&frames, "error").is_empty(), "{api:?}: {frames:#?}");
        // The words of a transcript come as they are known.
        assert!(events(&frames, "transcript.partial").len() >= 2, "{api:?}: {frames:#?}");
        let paths: Vec<_> = requests(&bench.recorder).into_iter().map(|(path, _)| path).collect();
        let (transcribe, speak) = match api {
            HttpApi::VllmOmni => ("/v1/chat/completions", "/v1/chat/completions"),
            _ => ("/v1/audio/transcriptions", "/v1/audio/speech"),
        };
        assert_eq!(paths, [transcribe, speak, transcribe, speak], "{api:?}");
        let heard = bench.recorder.asr_audio();
        assert!(heard.len() == 2 && heard.iter().all(|audio| audio.len() > 16_000), "{api:?}");
    }
}

#[tokio::test]
async fn voice_is_sent_with_the_request() {
    let dir = scratch("http_voice");
    let sample: Vec<i16> = (0..16_000).map(|at| ((at as f32 * 0.05).sin() * 8000.0) as i16).collect();
    fs::write(dir.join("calm.wav"), wav::write_s16(&sample, 16_000)).unwrap();
    for (api, place) in [(HttpApi::VllmOmni, "/ref_audio"), (HttpApi::SglangOmni, "/ref_audio")] {
        let voices = [("calm".to_owned(), dir.join("calm.wav"))].into();
        let bench = Bench::with_config(simulator(api), Config { voices, ..Config::default() }).await;
        let mut client = bench.client("model=x").await;
        let plain = audio(&speak(&mut client, "One moment.").await);
        client.send_json(json!({"type": "tts.speak", "text": "One moment.", "voice": "calm"})).await;
        let from = client.received.len();
        client.wait_for_event("tts.speaking_end").await;
        let calm = audio(&client.received[from..]);
        assert_eq!(plain.len(), calm.len());
        assert_ne!(plain, calm, "{api:?}: the voice is audible");
        client.close().await;
        let requests = requests(&bench.recorder);
        assert!(requests[0].1.pointer(place).is_none());
        let voice = requests[1].1.pointer(place).unwrap().as_str().unwrap();
        assert!(voice.starts_with("data:audio/wav;base64,UklGR") && voice.len() > 40_000, "{api:?}");
    }
}

#[tokio::test]
async fn assistant_answers_two_turns_with_the_history() {
    for api in [HttpApi::VllmOmni, HttpApi::SglangOmni] {
        let config = Config { profile: Some("assistant".into()), ..Config::default() };
        let bench = Bench::with_config(simulator(api), config).await;
        let mut client = bench.client("model=x").await;
        for _ in 0..2 {
            client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
        }
        let frames = client.close().await;
        assert_pairs_closed(&frames);
        assert!(!audio(&frames).is_empty() && events(&frames, "error").is_empty(), "{api:?}: {frames:#?}");
        let spoken = |(path, body): &(String, Value)| {
            (path == "/v1/chat/completions" && body["modalities"] == json!(["text", "audio"]))
                .then(|| body["messages"].as_array().unwrap().len())
        };
        let lengths: Vec<_> = requests(&bench.recorder).iter().filter_map(spoken).collect();
        assert_eq!(lengths, [2, 4], "{api:?}: instructions and the user, then also the answer and the user");
    }
}

/// Engines that add the record of the model's training to a transcript.
struct RecordingEngines;

impl SpeechEngines for RecordingEngines {
    fn recognise(&self, _: Vec<f32>) -> BoxFuture<'_, Result<String, String>> {
        async {
            Ok("go forward ten meters\n||{\"wer\": 0.0, \"reference\": \"go forward ten meters\"}".to_owned())
        }
        .boxed()
    }

    fn speak(&self, _: String) -> BoxFuture<'_, Result<Vec<f32>, String>> {
        async { Ok(vec![0.1; 24_000]) }.boxed()
    }
}

#[tokio::test]
async fn record_behind_a_transcript_reaches_no_client() {
    for http_api in [None, Some(HttpApi::VllmOmni), Some(HttpApi::SglangOmni), Some(HttpApi::OpenaiAudio)] {
        let simulator = SimulatorConfig { http_api, ..instant_simulator() };
        let engines: Option<Arc<dyn SpeechEngines>> = Some(Arc::new(RecordingEngines));
        let bench = Bench::with_options(Options { simulator, engines, ..Options::default() }).await;
        let mut client = bench.client("model=x").await;
        let frames = transcribe(&mut client).await;
        assert_eq!(events(&frames, "transcript.final")[0]["text"], "go forward ten meters", "{http_api:?}");
        let partials = events(&frames, "transcript.partial");
        assert!(!partials.is_empty(), "{http_api:?}");
        for partial in partials {
            let text = partial["text"].as_str().unwrap();
            assert!("go forward ten meters".starts_with(text), "{http_api:?}: {text}");
        }
        client.close().await;
    }
}

#[tokio::test]
async fn busy_server_is_asked_again_and_named_when_it_stays_busy() {
    for api in APIS {
        // More refusals than a request has attempts.
        let faults = vec!["queue-full,times=3".parse().unwrap()];
        let bench = Bench::with_config(SimulatorConfig { faults, ..simulator(api) }, Config::default()).await;
        let mut client = bench.client("model=x").await;
        let frames = match api {
            HttpApi::VllmOmni => transcribe(&mut client).await,
            _ => speak(&mut client, "Good morning, and a fine day to you.").await,
        };
        match api {
            HttpApi::VllmOmni => assert_transcribed(&frames),
            _ => assert!(!audio(&frames).is_empty(), "{api:?}: {frames:#?}"),
        }
        assert!(events(&client.close().await, "error").is_empty(), "{api:?}");
        assert_eq!(requests(&bench.recorder).len(), 4, "{api:?}");

        let faults = vec!["queue-full".parse().unwrap()];
        let mappings = Some(profile_with_numbers("http_busy", &[("queue_max_ms", 120_000, 2_500)]));
        let config = Config { mappings, ..Config::default() };
        let bench = Bench::with_config(SimulatorConfig { faults, ..simulator(api) }, config).await;
        let mut client = bench.client("model=x").await;
        let frames = transcribe(&mut client).await;
        let error = events(&frames, "error")[0];
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("HTTP 503") && message.contains("Queue is full"), "{api:?}: {message}");
        assert_eq!(error["recoverable"], true);
        // The upstream is not put out of service.
        let statuses = bench.http("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(statuses.starts_with("HTTP/1.1 200"), "{statuses}");
        client.close().await;
    }
}

#[tokio::test]
async fn server_that_dies_in_an_answer_is_asked_again_once() {
    for api in APIS {
        for fault in ["drop-mid-answer", "die-mid-answer=1"] {
            let faults = vec![format!("{fault},times=1").parse().unwrap()];
            let bench =
                Bench::with_config(SimulatorConfig { faults, ..simulator(api) }, Config::default()).await;
            let mut client = bench.client("model=x").await;
            assert_transcribed(&transcribe(&mut client).await);
            assert!(events(&client.close().await, "error").is_empty(), "{api:?} {fault}");

            let faults = vec![fault.parse().unwrap()];
            let bench =
                Bench::with_config(SimulatorConfig { faults, ..simulator(api) }, Config::default()).await;
            let mut client = bench.client("model=x").await;
            let frames = transcribe(&mut client).await;
            assert_eq!(events(&frames, "error").len(), 1, "{api:?} {fault}: {frames:#?}");
            assert_pairs_closed(&frames);
            client.close().await;
        }
    }
}

#[tokio::test]
async fn cancelled_text_drops_its_request_and_the_next_one_is_spoken() {
    for api in [HttpApi::VllmOmni, HttpApi::OpenaiAudio] {
        // The answer would take minutes.
        let timing = SimTiming { speech_second: Duration::from_secs(60), ..SimTiming::instant() };
        let bench = Bench::with_config(SimulatorConfig { timing, ..simulator(api) }, Config::default()).await;
        let mut client = bench.client("model=x").await;
        client
            .send_json(json!({"type": "tts.speak", "text": "Good morning, and a fine day to all of you."}))
            .await;
        client.wait_for_event("tts.speaking_start").await;
        client.send_json(json!({"type": "tts.cancel"})).await;
        assert_eq!(client.wait_for_event("tts.speaking_end").await["cancelled"], true);
        let left = |input: &RecordedInput| matches!(input, RecordedInput::Disconnected(_));
        let has_left = || bench.recorder.all().iter().any(left);
        wait_until("the server sees the disconnect", has_left).await;
        let short = speak(&mut client, "Yes.").await;
        assert!(!audio(&short).is_empty() && events(&short, "error").is_empty(), "{api:?}");
        assert_pairs_closed(&client.close().await);
    }
}

#[tokio::test]
async fn voice_of_the_configuration_speaks() {
    let api = HttpApi::OpenaiAudio;
    for voice in [None, Some("af_heart".to_owned())] {
        let (address, _simulator, recorder) = start_simulator("127.0.0.1:0", simulator(api), None).await;
        let upstream = UpstreamConfig { voice: voice.clone(), ..http_upstream(api, address) };
        let bench = Bench::of(Config { upstream: vec![upstream], ..Config::default() }).await;
        let mut client = bench.client("model=x").await;
        assert!(!audio(&speak(&mut client, "Yes.").await).is_empty());
        client.close().await;
        let (_, body) = requests(&recorder).remove(0);
        assert_eq!(body["voice"], voice.as_deref().unwrap_or("alloy"), "{body}");
    }
    // A server that clones a voice has no names for voices.
    let upstream = http_upstream(HttpApi::VllmOmni, "127.0.0.1:1".parse().unwrap());
    let upstream = vec![UpstreamConfig { voice: Some("x".to_owned()), ..upstream }];
    let refused = Config { upstream, ..Config::default() }.build_service().map(drop).unwrap_err();
    assert!(refused.to_string().contains("voice has no effect on the dialect vllm-omni-http"), "{refused}");
}

/// A server of one answer, written by hand; gives the heads and bodies of its requests.
pub(crate) async fn scripted_server(answer: &'static str) -> (UpstreamConfig, UnboundedReceiver<String>) {
    let (sender, received) = unbounded_channel();
    let address = serve_each(move |stream| {
        let sender = sender.clone();
        async move {
            // A connection that only shows that the server is there has no request.
            let Some((request, stream)) = read_request(stream).await else { return };
            let _over = sender.send(request);
            send_by_bytes(stream, answer).await;
        }
    })
    .await;
    (http_upstream(HttpApi::VllmOmni, address), received)
}

/// Reads a request: its head and its body.
async fn read_request(mut stream: TcpStream) -> Option<(String, TcpStream)> {
    let length = |request: &[u8]| {
        let text = String::from_utf8_lossy(request);
        let (head, _) = text.split_once("\r\n\r\n")?;
        let field = |line: &str| {
            line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok()
        };
        Some(head.len() + 4 + head.lines().find_map(field)?)
    };
    let mut request = Vec::new();
    while length(&request).is_none_or(|length| request.len() < length) {
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
    Some((String::from_utf8_lossy(&request).into_owned(), stream))
}

/// Sends an answer byte by byte, as long as the client takes it.
async fn send_by_bytes(mut stream: TcpStream, answer: &str) {
    stream.set_nodelay(true).unwrap();
    for byte in answer.as_bytes() {
        if stream.write_all(std::slice::from_ref(byte)).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    let _left = stream.shutdown().await;
}

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Chunks of a stream.
fn chunked(events: &[&str]) -> String {
    let chunk = |event: &&str| format!("{:x}\r\n{event}\r\n", event.len());
    events.iter().map(chunk).collect::<String>() + "0\r\n\r\n"
}

fn leaked(text: String) -> &'static str {
    text.leak()
}

#[tokio::test]
async fn answer_that_comes_byte_by_byte_is_whole() {
    let delta = |text: &str| {
        format!(
            "data: {{\"object\":\"chat.completion.chunk\",\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\r\n\r\n"
        )
    };
    let events = [": ping\n\n".to_owned(), delta("go "), delta("forward"), "data: [DONE]\n\n".to_owned()];
    let answer = chunked(&events.iter().map(String::as_str).collect::<Vec<_>>());
    let (upstream, mut requests) = scripted_server(leaked(format!("{STREAM_HEAD}{answer}"))).await;
    let dir = scratch("http_token");
    fs::write(dir.join("token"), "secret-word\n").unwrap();
    let upstream = UpstreamConfig { token_file: Some(dir.join("token")), ..upstream };
    let config = Config { upstream: vec![upstream], ..Config::default() };
    let bench = Bench::of(config).await;
    let mut client = bench.client("model=x").await;
    let frames = transcribe(&mut client).await;
    assert_eq!(events_text(&frames, "transcript.partial"), ["go", "go forward"]);
    assert_eq!(events_text(&frames, "transcript.final"), ["go forward"]);
    client.close().await;
    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
    let head = request.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
    for line in [
        "authorization: bearer secret-word",
        "host: 127.0.0.1:",
        "content-type: application/json",
        "traceparent: 00-",
    ] {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert!(request.ends_with("\"model\":\"openbmb/MiniCPM-o-4_5\"}"));
}

fn events_text(frames: &[ClientFrame], kind: &str) -> Vec<String> {
    events(frames, kind).iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn failures_below_and_above_http_are_told_with_their_cause() {
    let short = || {
        Some(profile_with_numbers(
            "http_failures",
            &[("answer_max_ms", 30_000, 300), ("first_answer_max_ms", 15_000, 300)],
        ))
    };
    for (answer, words) in [
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", "lost the connection"),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
            "lost the connection",
        ),
        (
            "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 22\r\n\r\n{\"detail\":\"Not Found\"}",
            "HTTP 404 for /chat/completions: Not Found",
        ),
        // A head without an end, and a stream without an answer.
        ("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: silence\n", "without an answer"),
    ] {
        let (upstream, _requests) = scripted_server(answer).await;
        let config = Config { upstream: vec![upstream], mappings: short(), ..Config::default() };
        let bench = Bench::of(config).await;
        let mut client = bench.client("model=x").await;
        let frames = transcribe(&mut client).await;
        assert!(format!("{frames:?}").contains(words), "{answer}: {frames:#?}");
        client.close().await;
    }
}

/// Answers that only the configuration can cause: statuses, and the same in the middle of a stream.
fn misconfigured() -> Vec<&'static str> {
    let statuses = [301, 302, 307, 401, 402, 403, 404, 405, 407].map(|status| {
        leaked(format!("HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{{\"detail\":\"no\"}}"))
    });
    let error = "data: {\"error\":{\"message\":\"no\",\"code\":401}}\r\n\r\n";
    statuses.into_iter().chain([leaked(format!("{STREAM_HEAD}{}", chunked(&[error])))]).collect()
}

#[tokio::test]
async fn request_that_misconfigured_upstreams_refuse_is_served_by_another() {
    let good = start_simulator("127.0.0.1:0", simulator(HttpApi::VllmOmni), None).await;
    for answer in misconfigured() {
        let mut upstreams = Vec::new();
        let mut asked = Vec::new();
        for name in ["wrong-1", "wrong-2", "wrong-3"] {
            let (upstream, requests) = scripted_server(answer).await;
            upstreams.push(UpstreamConfig { name: Some(name.to_owned()), ..upstream });
            asked.push(requests);
        }
        upstreams.push(UpstreamConfig {
            name: Some("good".to_owned()),
            ..http_upstream(HttpApi::VllmOmni, good.0)
        });
        let config = Config { upstream: upstreams.clone(), ..Config::default() };
        let bench = Bench::of(config).await;
        let mut client = bench.client("model=x").await;
        for _ in 0..2 {
            assert_transcribed(&transcribe(&mut client).await);
            assert!(!audio(&speak(&mut client, "Good morning.").await).is_empty());
        }
        let frames = client.close().await;
        assert!(events(&frames, "error").is_empty(), "{answer}: {frames:#?}");
        let mut counts =
            asked.iter_mut().map(|requests| std::iter::from_fn(|| requests.try_recv().ok()).count());
        assert!(counts.all(|count| count <= 2), "{answer}: each is asked once for each purpose");

        // None serves it: the client gets the error with the advice, after one request to each.
        let config = Config { upstream: upstreams[..3].to_vec(), ..Config::default() };
        let bench = Bench::of(config).await;
        let mut client = bench.client("model=x").await;
        let frames = transcribe(&mut client).await;
        let errors = events(&frames, "error");
        assert_eq!(errors.len(), 1, "{answer}: {frames:#?}");
        let message = errors[0]["message"].as_str().unwrap();
        assert!(message.contains("no"), "{message}");
        assert_eq!(message.contains("`token`, `model` and URL"), !answer.contains("200 OK"), "{message}");
        let counts: Vec<_> = asked
            .iter_mut()
            .map(|requests| std::iter::from_fn(|| requests.try_recv().ok()).count())
            .collect();
        assert_eq!(counts, [1; 3], "{answer}");
        client.close().await;
    }
}

/// A server that sends `head`, and then `unit` again and again as long as it is read; counts the bytes.
async fn endless_server(head: &'static str, unit: &'static str) -> (UpstreamConfig, Arc<AtomicU64>) {
    let sent = Arc::<AtomicU64>::default();
    let count = sent.clone();
    let address = serve_each(move |stream| {
        let count = count.clone();
        async move {
            let Some((_, mut stream)) = read_request(stream).await else { return };
            let units = unit.repeat(16_384 / unit.len());
            let mut bytes = head;
            while stream.write_all(bytes.as_bytes()).await.is_ok() {
                count.fetch_add(bytes.len() as u64, Relaxed);
                bytes = &units;
            }
        }
    })
    .await;
    (http_upstream(HttpApi::VllmOmni, address), sent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn server_that_streams_nothing_ends_soon_and_delays_no_other_client() {
    const PLAIN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    for (head, unit) in [
        (PLAIN, ":\n"),
        (PLAIN, "\r\n"),
        (PLAIN, "data: x\n"),
        (PLAIN, "data:\n"),
        (PLAIN, "event: x\n"),
        (PLAIN, ":"),
        (STREAM_HEAD, "1\r\n:\r\n1\r\n\n\r\n"),
        ("", "HTTP/1.1 100 Continue\r\n\r\n"),
        ("", "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
    ] {
        let (upstream, sent) = endless_server(head, unit).await;
        let config = Config { upstream: vec![upstream], ..Config::default() };
        let bench = Bench::of(config).await;
        let mut neighbour = bench.client("model=x").await;
        let mut client = bench.client("model=x").await;
        let asking = async {
            client.send_json(json!({"type": "tts.speak", "text": "One moment."})).await;
            client.wait_for_event("error").await
        };
        let mut longest = Duration::ZERO;
        let waiting = async {
            loop {
                let asked = Instant::now();
                neighbour.send_json(json!({"type": "no.such"})).await;
                neighbour.wait_for_event("error").await;
                longest = longest.max(asked.elapsed());
                sleep(Duration::from_millis(2)).await;
            }
        };
        let started = Instant::now();
        let error = tokio::select! {
            error = timeout(Duration::from_secs(20), asking) => error.expect("no error"),
            () = waiting => unreachable!(),
        };
        let (took, sent) = (started.elapsed(), sent.load(Relaxed));
        println!(
            "{unit:?}: neighbour {longest:.1?}, error after {took:.1?} and {sent} bytes: {}",
            error["message"]
        );
        assert!(longest < Duration::from_millis(500), "{unit:?}: a neighbour waits {longest:?}");
        // One MiB for each attempt, six times as much in chunks of one byte, and what the sockets hold.
        assert!(sent < 60 << 20, "{unit:?}: {sent} bytes");
        client.close().await;
        neighbour.close().await;
    }
}
