//! REST over real sockets: recordings to words, texts to speech, in the styles of OpenAI, Macaw and Deepgram.

use tokio::task::JoinSet;
use voxbridge::trace::{record::InputKind, replay::replay};

use super::*;

/// Longer than any step takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const BEARER: &str = "Authorization: Bearer k\r\n";
pub(crate) const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
pub(crate) const SPEECH: &str = "/v1/audio/speech";

/// An answer, its head in lower case.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn of(received: &[u8]) -> Self {
        let end = received.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer");
        let head = String::from_utf8(received[..end].to_vec()).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: received[end + 4..].to_vec() }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends a request and reads the answer. HTTP/1.0, because its answers are not in chunks.
pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head =
        format!("{method} {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses does not read on.
    let _ = stream.write_all(body).await;
    let mut received = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("no answer").unwrap();
    Answer::of(&received)
}

/// A form with a recording, unless it is empty, and these fields.
pub(crate) fn form(recording: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    if !recording.is_empty() {
        body.extend_from_slice(
            b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.mp3\"\r\n\r\n",
        );
        body.extend_from_slice(recording);
        body.extend_from_slice(b"\r\n");
    }
    for (name, value) in fields {
        let field = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(field.as_bytes());
    }
    body.extend_from_slice(b"--b--\r\n");
    body
}

pub(crate) async fn upload(
    bench: &Bench,
    headers: &str,
    recording: &[u8],
    fields: &[(&str, &str)],
) -> Answer {
    let headers = format!("{headers}Content-Type: multipart/form-data; boundary=b\r\n");
    request(bench.address(), "POST", TRANSCRIPTIONS, &headers, &form(recording, fields)).await
}

pub(crate) async fn speak(bench: &Bench, headers: &str, body: &Value) -> Answer {
    request(bench.address(), "POST", SPEECH, headers, body.to_string().as_bytes()).await
}

/// A WAV file: int16 mono at 16 kHz.
pub(crate) fn wav(samples: &[i16]) -> Vec<u8> {
    let data = bytes_of(samples);
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    file.extend_from_slice(&16_000u32.to_le_bytes());
    file.extend_from_slice(&32_000u32.to_le_bytes());
    file.extend_from_slice(b"\x02\0\x10\0data");
    file.extend_from_slice(&u32::try_from(data.len()).unwrap().to_le_bytes());
    file.extend_from_slice(&data);
    file
}

/// Two utterances with a pause of 3 s.
pub(crate) fn two_utterances() -> Vec<i16> {
    let one = recording("goforward");
    [one.as_slice(), &vec![0; 48_000], &one].concat()
}

#[tokio::test]
async fn recording_is_transcribed_in_every_format() {
    let bench = Bench::start().await;
    let file = wav(&two_utterances());
    let model = ("model", "whisper-1");
    let answer = upload(&bench, BEARER, &file, &[model]).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{answer:?}");
    let text = answer.json()["text"].as_str().unwrap().to_owned();
    assert_eq!(text.matches("simulated transcript").count(), 2, "{text}");
    let seconds = file.len() as u64 / 32_000 + 1;
    assert_eq!(answer.json()["usage"], json!({"type": "duration", "seconds": seconds}));

    let verbose = upload(&bench, BEARER, &file, &[model, ("response_format", "verbose_json")]).await.json();
    assert_eq!((&verbose["text"], &verbose["task"]), (&json!(text), &json!("transcribe")));
    let segments = verbose["segments"].as_array().unwrap();
    assert_eq!(segments.len(), 2);
    let times = |index: usize| ["start", "end"].map(|name| segments[index][name].as_f64().unwrap());
    let shift = times(1)[0] - times(0)[0];
    let expected = (recording("goforward").len() + 48_000) as f64 / 16_000.0;
    assert!((shift - expected).abs() < 0.3, "{segments:?}");
    assert!(times(0)[1] > times(0)[0] && times(0)[1] < times(1)[0]);

    for (format, start) in [("text", "simulated"), ("srt", "1\n00:00:00,"), ("vtt", "WEBVTT\n\n00:00:00.")] {
        let answer = upload(&bench, BEARER, &file, &[("response_format", format), model]).await;
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        let body = answer.text();
        assert!(body.starts_with(start) && body.matches("simulated transcript").count() == 2, "{body}");
    }
    assert!(bench.sessions.is_empty(), "every session has ended");
}

/// As Open WebUI can be set to send it.
#[tokio::test]
async fn recording_may_come_as_base64_in_json() {
    let bench = Bench::start().await;
    let data = STANDARD.encode(wav(&recording("goforward")));
    let json = "Content-Type: application/json\r\n";
    let post = |body: Value| {
        let (address, headers) = (bench.address(), format!("{BEARER}{json}"));
        async move { request(address, "POST", TRANSCRIPTIONS, &headers, body.to_string().as_bytes()).await }
    };
    let body = json!({"model": "whisper-1", "language": "en", "temperature": 0.5,
        "input_audio": {"data": data, "format": "wav"}});
    let answer = post(body).await;
    assert!(answer.json()["text"].as_str().unwrap().starts_with("simulated"), "{answer:?}");
    for audio in [json!({"data": "?"}), json!({}), json!(null)] {
        let answer = post(json!({"model": "whisper-1", "input_audio": audio})).await;
        assert_eq!(answer.status, 400, "{audio}");
    }
}

#[tokio::test]
async fn transcripts_are_streamed_as_events() {
    let bench = Bench::start().await;
    let fields = [("model", "gpt-4o-transcribe"), ("stream", "True")];
    let answer = upload(&bench, BEARER, &wav(&two_utterances()), &fields).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let text = answer.text();
    let data: Vec<&str> = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    let (last, events) = data.split_last().unwrap();
    assert_eq!(*last, "[DONE]");
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["transcript.text.delta", "transcript.text.delta", "transcript.text.done"]);
    let deltas: String = events[..2].iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(events[2]["text"], deltas);
}

/// Requests pass to their session without messages; a trace spells them all the same.
#[tokio::test]
async fn trace_of_a_request_replays_to_the_same_outputs() {
    let dir = scratch("rest-traces");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let config = configuration(&format!("[trace]\ndir = {dir:?}\naudio = true\n"));
    let mut bench = Bench::of(config).await;
    let model = ("model", "whisper-1");
    let fields = [model, ("language", "en"), ("prompt", "Names."), ("hotwords", "Ann, Bob")];
    assert_eq!(upload(&bench, BEARER, &wav(&two_utterances()), &fields).await.status, 200);
    let reference = STANDARD.encode(wav(&recording("goforward")));
    let text = json!({"model": "tts-1", "input": "Hello.", "voice": "default", "instructions": "Fast.",
        "response_format": "pcm", "ref_audio": reference});
    assert_eq!(speak(&bench, BEARER, &text).await.status, 200);
    let wrong = upload(&bench, BEARER, &wav(&[0; 160]), &[model, ("language", &"x".repeat(300))]).await;
    let message = "'configure': language: String should have at most 256 characters, got 300";
    assert_eq!((wrong.status, &wrong.json()["error"]["message"]), (400, &json!(message)));
    bench.bridge.stop();
    bench.bridge.wait_until_ended().await;
    let mut commands = Vec::new();
    for file in fs::read_dir(&dir).unwrap() {
        let trace = Trace::parse(&fs::read_to_string(file.unwrap().path()).unwrap()).unwrap();
        assert!(!trace.is_truncated);
        let epoch = Instant::now().into_std();
        let outcome = replay(&trace, Library::embedded().unwrap(), epoch).unwrap();
        assert!(outcome.is_same() && outcome.not_judged.is_empty(), "{outcome:?}");
        let texts = trace.records.iter().filter(|record| record.input == Some(InputKind::Client));
        commands.extend(texts.filter_map(|record| record.text.clone()));
    }
    let count = |kind: &str| commands.iter().filter(|text| text.contains(&format!("\"{kind}\""))).count();
    assert_eq!(["configure", "speak"].map(count), [3, 1], "{commands:?}");
}

#[tokio::test]
async fn silence_is_an_empty_transcript_without_a_call_of_the_model() {
    let bench = Bench::start().await;
    let answer = upload(&bench, BEARER, &wav(&vec![0; 160_000]), &[("model", "whisper-1")]).await;
    assert_eq!((answer.status, &answer.json()["text"]), (200, &json!("")));
    assert!(bench.recorder.all().is_empty(), "the model was asked");
}

#[tokio::test]
async fn wrong_requests_get_errors_in_the_clients_own_form() {
    let mut config = Config::default();
    config.routes.push(RouteConfig { model: "whisper-*".into(), ..RouteConfig::catch_all("speech") });
    let bench = Bench::of(config).await;
    let file = wav(&recording("goforward"));
    let model = ("model", "whisper-1");
    let too_large = vec![0; 25 * 1024 * 1024 + 1];
    type Case<'a> = (&'a [u8], &'a [(&'a str, &'a str)], u16, u16, &'a str);
    let cases: [Case<'_>; 8] = [
        (&[], &[model], 400, 422, "file"),
        (&file, &[], 400, 422, "model"),
        (&file, &[("model", "nova")], 404, 404, "not found"),
        (&file, &[model, ("response_format", "docx")], 400, 400, "docx"),
        (&file, &[model, ("temperature", "3")], 400, 422, "temperature"),
        (&file, &[model, ("stream", "often")], 400, 422, "stream"),
        (b"this is no audio file at all", &[model], 400, 400, "audio"),
        (&too_large, &[model], 413, 413, "25 MiB"),
    ];
    for (recording, fields, openai, macaw, words) in cases {
        for (headers, status) in [(BEARER, openai), ("", macaw)] {
            let answer = upload(&bench, headers, recording, fields).await;
            assert_eq!(answer.status, status, "{fields:?} {answer:?}");
            let body = answer.json();
            match status {
                422 => assert_eq!(body["detail"][0]["loc"], json!(["body", words])),
                _ => assert!(body["error"]["message"].as_str().unwrap().contains(words), "{body}"),
            }
        }
    }
    let plain = request(bench.address(), "POST", TRANSCRIPTIONS, BEARER, b"{}").await;
    assert!(plain.status == 400 && plain.text().contains("multipart/form-data"), "{plain:?}");
    let method = request(bench.address(), "GET", SPEECH, BEARER, b"").await;
    assert_eq!((method.status, method.header("allow")), (405, Some("post")));
    assert!(bench.sessions.is_empty());
}

#[tokio::test]
async fn text_is_spoken_in_every_format() {
    let bench = Bench::start().await;
    let text = "Hello there, this is a test of the speech endpoint.";
    let body = json!({"model": "tts-1", "input": text, "voice": "alloy", "response_format": "pcm"});
    let pcm = speak(&bench, BEARER, &body).await;
    assert_eq!((pcm.status, pcm.header("content-type")), (200, Some("audio/pcm")), "{:?}", pcm.head);
    assert!(samples(&pcm.body).len() > 12_000, "{}", pcm.body.len());
    let wav = speak(&bench, "", &json!({"model": "kokoro-v1", "input": text})).await;
    assert_eq!(wav.header("content-type"), Some("audio/wav"), "Macaw's default");
    assert_eq!(wav.body[44..], pcm.body, "{} {}", wav.body.len(), pcm.body.len());
    let events = json!({"model": "tts-1", "input": text, "voice": {"id": "v"}, "response_format": "wav", "stream_format": "sse"});
    let events = speak(&bench, BEARER, &events).await.text();
    assert!(events.starts_with("data: {") && events.contains("speech.audio.delta"), "{events}");
    assert!(events.trim_end().lines().next_back().unwrap().contains("speech.audio.done"));
}

#[tokio::test]
async fn reference_voice_reaches_the_model() {
    let bench = Bench::start().await;
    let voice = STANDARD.encode(bytes_of(&recording("goforward")));
    let body = json!({"model": "kokoro-v1", "input": "Hello.", "ref_audio": voice});
    assert_eq!(speak(&bench, "", &body).await.status, 200);
    let inputs = format!("{:?}", bench.recorder.all());
    assert!(inputs.contains("ref_audio"), "the model was given no reference voice: {inputs:.400}");
    let broken = json!({"model": "kokoro-v1", "input": "Hello.", "ref_audio": "QUJ"});
    assert_eq!(speak(&bench, "", &broken).await.status, 400);
}

#[tokio::test]
async fn wrong_speech_requests_get_errors() {
    let bench = Bench::start().await;
    let long = "x".repeat(4097);
    for (body, openai, macaw) in [
        (json!({"input": "x"}), 400, 422),
        (json!({"model": "m"}), 400, 422),
        (json!({"model": "m", "input": ""}), 400, 422),
        (json!({"model": "m", "input": long}), 400, 422),
        (json!({"model": "m", "input": 5}), 400, 422),
        (json!({"model": "m", "input": "x", "response_format": "aac"}), 400, 422),
        (json!({"model": "m", "input": "x", "speed": 9}), 400, 422),
        (json!([]), 400, 422),
    ] {
        assert_eq!(speak(&bench, BEARER, &body).await.status, openai, "{body}");
        assert_eq!(speak(&bench, "", &body).await.status, macaw, "{body}");
    }
}

/// A text without words is a short file of silence, and no failure of the model.
#[tokio::test]
async fn text_without_words_is_silence_in_every_format() {
    let bench = Bench::start().await;
    for text in ["\u{1F604}", "...", "\"", "  ", "**", "\u{2014}"] {
        for format in ["mp3", "opus", "flac", "wav", "pcm"] {
            let body = json!({"model": "m", "input": text, "response_format": format});
            let answer = speak(&bench, BEARER, &body).await;
            assert!(answer.status == 200 && answer.body.len() > 40, "{body}: {answer:?}");
        }
        let events = json!({"model": "m", "input": text, "response_format": "pcm", "stream_format": "sse"});
        let answer = speak(&bench, BEARER, &events).await;
        assert!(answer.status == 200 && answer.text().contains("speech.audio.done"), "{events}");
    }
    assert_eq!(speak(&bench, "", &json!({"model": "m", "input": "  "})).await.status, 400, "as Macaw's");
    let errors = bench.metrics.render();
    let is_counted = |line: &&str| line.starts_with("voxbridge_errors_total{") && !line.ends_with(" 0");
    assert_eq!(errors.lines().find(is_counted), None);
}

/// The types and words are those of the real server (shared recordings of Macaw's REST API).
#[tokio::test]
async fn macaw_clients_get_field_errors_of_their_server() {
    let bench = Bench::start().await;
    let file = wav(&recording("goforward"));
    let hot = upload(&bench, "", &file, &[("model", "m"), ("temperature", "3")]).await;
    let too_hot = json!({"detail": [{"type": "less_than_equal", "loc": ["body", "temperature"],
        "msg": "Input should be less than or equal to 2", "input": "3", "ctx": {"le": 2.0}}]});
    assert_eq!((hot.status, hot.json()), (422, too_hot));
    let empty = speak(&bench, "", &json!({"model": "m", "input": ""})).await;
    let too_short = json!({"detail": [{"type": "string_too_short", "loc": ["body", "input"],
        "msg": "String should have at least 1 character", "input": "", "ctx": {"min_length": 1}}]});
    assert_eq!((empty.status, empty.json()), (422, too_short));
    let format = speak(&bench, "", &json!({"model": "m", "input": "x", "response_format": "aac"})).await;
    assert_eq!(format.json()["detail"][0]["type"], "literal_error");
    let broken = request(bench.address(), "POST", SPEECH, "", b"{\"model\":").await;
    assert_eq!((broken.status, &broken.json()["detail"][0]["type"]), (422, &json!("json_invalid")));
    let blank = speak(&bench, "", &json!({"model": "m", "input": "   "})).await;
    assert_eq!(blank.json()["error"]["message"], "The 'input' field cannot be empty.");
    let mp3 = speak(&bench, "", &json!({"model": "m", "input": "x", "response_format": "mp3"})).await;
    assert_eq!((mp3.status, mp3.header("content-type")), (200, Some("audio/mpeg")), "beyond Macaw");
}

#[tokio::test]
async fn deepgram_clients_upload_and_speak() {
    let bench = Bench::start().await;
    let path = "/v1/listen?model=nova-3&language=en&utterances=true&smart_format=true&keyterm=voxbridge";
    let token = "Authorization: Token k\r\nContent-Type: audio/wav\r\n";
    let answer = request(bench.address(), "POST", path, token, &wav(&two_utterances())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.json();
    let transcript = body["results"]["channels"][0]["alternatives"][0]["transcript"].as_str().unwrap();
    assert_eq!(transcript.matches("simulated transcript").count(), 2);
    assert_eq!(body["results"]["utterances"].as_array().unwrap().len(), 2);
    let url =
        request(bench.address(), "POST", path, "Content-Type: application/json\r\n", b"{\"url\":\"x\"}");
    let url = url.await;
    assert!(url.status == 400 && url.json()["err_msg"].as_str().unwrap().contains("URL"), "{url:?}");

    let path = "/v1/speak?model=aura-2-thalia-en&encoding=linear16&container=none&sample_rate=8000";
    let spoken = request(bench.address(), "POST", path, token, br#"{"text":"Hello there."}"#).await;
    assert_eq!((spoken.status, spoken.header("dg-model-name")), (200, Some("aura-2-thalia-en")));
    assert!(!spoken.body.is_empty());
    let body = br#"{"text":"Hello there."}"#;
    let g711 = "/v1/speak?encoding=mulaw&container=none";
    let g711 = request(bench.address(), "POST", g711, token, body).await;
    assert_eq!(g711.body.len(), spoken.body.len() / 2, "8 kHz is the default of mulaw");
    let mp3 = request(bench.address(), "POST", "/v1/speak?encoding=mp3&bit_rate=32000", token, body).await;
    assert_eq!(mp3.body[2] >> 4, 4, "32 kbit/s");
}

#[tokio::test]
async fn compressed_body_is_refused_by_its_name() {
    let bench = Bench::start().await;
    for (path, kind) in [(TRANSCRIPTIONS, "multipart/form-data; boundary=b"), (SPEECH, "application/json")] {
        for (encoding, status) in [("gzip", 415), ("br, gzip", 415), ("identity", 400)] {
            let headers = format!("{BEARER}Content-Type: {kind}\r\nContent-Encoding: {encoding}\r\n");
            let answer = request(bench.address(), "POST", path, &headers, b"\x1f\x8b\x08\0").await;
            assert_eq!(answer.status, status, "{path} {encoding}: {answer:?}");
            assert_eq!(answer.text().contains(encoding), status == 415, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn json_of_windows_and_of_cut_texts_is_read() {
    let bench = Bench::start().await;
    for text in [
        "\u{feff}{\"input\": \"Hello.\", \"model\": \"m\", \"voice\": \"alloy\"}",
        r#"{"input": "Hello \ud83d", "model": "m", "voice": "alloy"}"#,
    ] {
        let answer = request(bench.address(), "POST", SPEECH, BEARER, text.as_bytes()).await;
        assert_eq!(answer.status, 200, "{text}: {answer:?}");
    }
}

#[tokio::test]
async fn models_voices_and_health_are_listed() {
    let bench = Bench::start().await;
    let get = |path: &'static str| request(bench.address(), "GET", path, BEARER, b"");
    let models = get("/v1/models").await.json();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("minicpm-o")));
    assert_eq!(get("/v1/models/whisper-1").await.json()["object"], "model", "the route takes any model");
    assert_eq!(get("/v1/voices").await.json()["object"], "list");
    assert_eq!(get("/health").await.json()["status"], "ok");
    let head = request(bench.address(), "HEAD", "/health", "", b"").await;
    assert_eq!((head.status, head.text()), (200, String::new()));
    assert_eq!(get("/v1/models/openbmb%2FMiniCPM-o").await.json()["id"], "openbmb/MiniCPM-o");
}

/// The worker of a request whose client has gone is free again.
#[tokio::test]
async fn client_that_hangs_up_ends_its_session() {
    let simulator = SimulatorConfig {
        timing: SimTiming::default(),
        faults: vec!["never-answers".parse::<Fault>().unwrap()],
        ..instant_simulator()
    };
    let bench = Bench::with_config(simulator, Config::default()).await;
    let mut stream = TcpStream::connect(bench.address()).await.unwrap();
    let body = form(&wav(&recording("goforward")), &[("model", "whisper-1")]);
    let head = format!(
        "POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\
         Content-Type: multipart/form-data; boundary=b\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let waits = async {
        while bench.sessions.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, waits).await.expect("no session");
    drop(stream);
    wait_until("the sessions end", || bench.sessions.is_empty()).await;
}

#[tokio::test]
async fn full_pool_is_a_429_that_says_when_to_try_again() {
    let faults = vec!["queue-full".parse::<Fault>().unwrap()];
    let profile = profile_with_numbers("rest-full-pool", &[("retry_total_ms", 10_000, 200)]);
    let config = Config { mappings: Some(profile), ..Config::default() };
    let bench = Bench::with_config(SimulatorConfig { faults, ..instant_simulator() }, config).await;
    let answer = upload(&bench, BEARER, &wav(&recording("goforward")), &[("model", "whisper-1")]).await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("5")), "{answer:?}");
    assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
    let spoken = speak(&bench, BEARER, &json!({"model": "m", "input": "Hello."})).await;
    assert_eq!(spoken.status, 429, "{spoken:?}");
    let file = wav(&recording("goforward"));
    let listened = request(bench.address(), "POST", "/v1/listen?model=nova-3", "", &file).await;
    assert_eq!((listened.status, listened.header("retry-after")), (429, Some("5")), "{listened:?}");
    assert_eq!(listened.json()["err_code"], "TOO_MANY_REQUESTS");
}

/// A request is no pending handshake while it is served, however long it takes.
#[tokio::test]
async fn long_request_outlives_the_handshake_timeout() {
    let bench = Bench::start().await;
    let mut stream = TcpStream::connect(bench.address()).await.unwrap();
    let body = form(&wav(&recording("goforward")), &[("model", "whisper-1")]);
    let head = format!(
        "POST {TRANSCRIPTIONS} HTTP/1.0\r\nHost: x\r\nContent-Length: {}\r\n\
         Content-Type: multipart/form-data; boundary=b\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (first, rest) = body.split_at(1000);
    stream.write_all(first).await.unwrap();
    // The request is served as soon as its head has come.
    stream.write_all(&rest[..1000]).await.unwrap();
    pause();
    advance(Duration::from_secs(25)).await;
    resume();
    stream.write_all(&rest[1000..]).await.unwrap();
    let mut received = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("no answer").unwrap();
    assert_eq!(Answer::of(&received).status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_requests_at_once_lose_nothing() {
    let simulator = SimulatorConfig { workers: 8, ..instant_simulator() };
    let bench = Arc::new(Bench::with_config(simulator, Config::default()).await);
    let file = Arc::new(wav(&recording("goforward")));
    let mut running = JoinSet::new();
    for _ in 0..200 {
        let (bench, file) = (bench.clone(), file.clone());
        running.spawn(async move { upload(&bench, BEARER, &file, &[("model", "whisper-1")]).await });
    }
    // A conversation beside them goes on.
    let mut client = bench.client("model=m").await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("transcript.final").await;
    for answer in running.join_all().await {
        // SDKs repeat a 429 after the time that it names.
        assert!([200, 429].contains(&answer.status), "{answer:?}");
        if answer.status == 200 {
            let text = answer.json()["text"].as_str().unwrap().to_owned();
            assert!(text.starts_with("simulated transcript"), "{text}");
        }
    }
}

/// Removes, repeats, changes or inserts some bytes.
fn mutate(body: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    for _ in 0..rng.usize(1..5) {
        let at = rng.usize(..body.len().max(1));
        let end = (at + rng.usize(..40)).min(body.len());
        match rng.u8(..4) {
            0 => drop(body.drain(at..end)),
            1 => {
                let repeated = body[at..end].to_vec();
                body.splice(at..at, repeated);
            }
            2 if at < body.len() => body[at] = rng.u8(..),
            _ => body.splice(at..at, *b"\r\n--b\r\n").for_each(drop),
        }
    }
}

/// The server answers every request in its own words, and no session is left behind.
#[tokio::test]
async fn mutated_requests_are_answered() {
    let bench = Bench::start().await;
    let mut rng = fastrand::Rng::with_seed(16);
    let upload = form(&wav(&recording("goforward")[..8000]), &[("model", "whisper-1"), ("stream", "true")]);
    let spoken = json!({"model": "tts-1", "input": "Hello.", "voice": "alloy", "response_format": "wav"});
    let is_form = "Content-Type: multipart/form-data; boundary=b\r\n";
    for _ in 0..150 {
        for (path, headers, body) in [
            (TRANSCRIPTIONS, is_form, upload.clone()),
            (SPEECH, BEARER, spoken.to_string().into_bytes()),
            ("/v1/listen", "", wav(&recording("goforward")[..8000])),
        ] {
            let mut body = body;
            mutate(&mut body, &mut rng);
            let answer = request(bench.address(), "POST", path, headers, &body).await;
            let is_known = [200, 400, 404, 413, 422].contains(&answer.status);
            assert!(is_known, "{path} {answer:?}");
        }
    }
    wait_until("the sessions end", || bench.sessions.is_empty()).await;
    assert_eq!(request(bench.address(), "GET", "/health", "", b"").await.status, 200);
}
