//! REST in the forms of ElevenLabs, Cartesia, Speechmatics and AssemblyAI over real sockets.

use voxbridge::media::decode::{DecodeLimits, Decoder};

use super::*;

const TEXT: &str = "The quick brown fox jumps over the lazy dog.";

async fn post(bench: &Bench, path: &str, body: &Value) -> Answer {
    request(bench.address(), "POST", path, "xi-api-key: any\r\n", body.to_string().as_bytes()).await
}

/// Length of a file in any format, s.
fn seconds(file: &[u8]) -> f64 {
    let mut decoder = Decoder::open(file.to_vec().into(), DecodeLimits::default()).unwrap();
    let chunks = std::iter::from_fn(|| decoder.next_chunk());
    chunks.map(|chunk| chunk.unwrap().len()).sum::<usize>() as f64 / 16_000.0
}

#[tokio::test]
async fn elevenlabs_speech_is_whole_in_every_format() {
    let bench = Bench::start().await;
    let body = json!({"text": TEXT, "model_id": "eleven_flash_v2_5", "voice_settings": {"stability": 0.5}});
    let raw = post(&bench, "/v1/text-to-speech/any?output_format=pcm_16000", &body).await;
    let spoken = raw.body.len() as f64 / 32_000.0;
    assert!(raw.status == 200 && spoken > 1.0, "{spoken}");
    assert_eq!(raw.header("character-cost"), Some(TEXT.len().to_string().as_str()));
    for (format, mime) in [
        ("", "audio/mpeg"),
        ("?output_format=mp3_22050_32", "audio/mpeg"),
        ("?output_format=opus_48000_64", "audio/opus"),
        ("?output_format=wav_44100", "audio/wav"),
    ] {
        for end in ["", "/stream"] {
            let answer = post(&bench, &format!("/v1/text-to-speech/any{end}{format}"), &body).await;
            assert_eq!((answer.status, answer.header("content-type")), (200, Some(mime)), "{format}");
            let length = seconds(&answer.body);
            assert!((spoken - 0.01..spoken + 0.15).contains(&length), "{format}: {length} of {spoken} s");
        }
    }
    let ulaw = post(&bench, "/v1/text-to-speech/any?output_format=ulaw_8000", &body).await;
    assert_eq!(ulaw.body.len(), (spoken * 8_000.0).round() as usize);
}

#[tokio::test]
async fn elevenlabs_speech_with_times_is_whole_and_times_every_character() {
    let bench = Bench::start().await;
    let body = json!({"text": TEXT, "model_id": "eleven_flash_v2_5"});
    let raw = post(&bench, "/v1/text-to-speech/any?output_format=pcm_16000", &body).await;
    let spoken = raw.body.len() as f64 / 32_000.0;
    for end in ["/with-timestamps", "/stream/with-timestamps"] {
        for format in ["pcm_16000", "ulaw_8000", "mp3_44100_128"] {
            let path = format!("/v1/text-to-speech/any{end}?output_format={format}");
            let answer = post(&bench, &path, &body).await;
            assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
            let answers: Vec<Value> =
                answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let decode = |it: &Value| STANDARD.decode(it["audio_base64"].as_str().unwrap()).unwrap();
            let audio: Vec<u8> = answers.iter().flat_map(decode).collect();
            let length = match format {
                "pcm_16000" => audio.len() as f64 / 32_000.0,
                "ulaw_8000" => audio.len() as f64 / 8_000.0,
                _ => seconds(&audio),
            };
            assert!((spoken - 0.01..spoken + 0.15).contains(&length), "{path}: {length} of {spoken} s");
            let list = |name: &str| -> Vec<Value> {
                answers
                    .iter()
                    .flat_map(|it| it["alignment"][name].as_array().cloned().unwrap_or_default())
                    .collect()
            };
            let characters: String = list("characters").iter().map(|it| it.as_str().unwrap()).collect();
            assert_eq!(characters, TEXT);
            let ends: Vec<f64> =
                list("character_end_times_seconds").iter().map(|it| it.as_f64().unwrap()).collect();
            assert!(ends.is_sorted() && (0.5 * spoken..=spoken + 0.001).contains(ends.last().unwrap()));
        }
    }
    let refused = post(&bench, "/v1/text-to-speech/any/with-timestamps", &json!({"text": ""})).await;
    assert_eq!(refused.status, 422);
}

#[tokio::test]
async fn elevenlabs_errors_name_the_field_or_the_cause() {
    let bench = Bench::start().await;
    for (path, body, field) in [
        ("/v1/text-to-speech/any", json!({}), "text"),
        ("/v1/text-to-speech/any", json!({"text": ""}), "text"),
        ("/v1/text-to-speech/any", json!({"text": "x".repeat(40_001)}), "text"),
        ("/v1/text-to-speech/any?output_format=aac_1", json!({"text": "x"}), "output_format"),
    ] {
        let answer = post(&bench, path, &body).await;
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert_eq!(answer.json()["detail"][0]["loc"], json!(["body", field]));
    }
    let get = request(bench.address(), "GET", "/v1/speech-to-text", "", b"").await;
    assert_eq!(get.status, 405);
}

#[tokio::test]
async fn elevenlabs_recordings_become_words_with_times() {
    let bench = Bench::start().await;
    let headers = "xi-api-key: any\r\nContent-Type: multipart/form-data; boundary=b\r\n";
    let send = |recording: Vec<u8>, fields: &'static [(&str, &str)]| {
        let (address, body) = (bench.address(), form(&recording, fields));
        async move { request(address, "POST", "/v1/speech-to-text", headers, &body).await }
    };
    let recording = wav(&two_utterances());
    let answer = send(recording.clone(), &[("model_id", "scribe_v2"), ("language_code", "eng")]).await;
    let body = answer.json();
    assert_eq!((answer.status, &body["language_code"]), (200, &json!("eng")), "{body}");
    let words = body["words"].as_array().unwrap();
    let text: String = words.iter().map(|word| word["text"].as_str().unwrap()).collect();
    assert!(body["text"] == text && !text.is_empty(), "{body}");
    let starts: Vec<_> = words.iter().map(|word| word["start"].as_f64().unwrap()).collect();
    assert!(starts.is_sorted() && words.iter().any(|word| word["type"] == "spacing"), "{body}");
    let without = &[("model_id", "scribe_v2"), ("timestamps_granularity", "none")];
    let without = send(recording.clone(), without).await.json();
    assert!(without["words"][0]["start"].is_null() && without["text"] == body["text"], "{without}");
    for (recording, fields, field) in [
        (recording, &[][..], "model_id"),
        (Vec::new(), &[("model_id", "scribe_v2")], "file"),
        (Vec::new(), &[("model_id", "scribe_v2"), ("source_url", "https://example.com/a.mp3")], "file"),
    ] {
        let answer = send(recording, fields).await;
        assert_eq!((answer.status, answer.json()["detail"][0]["loc"][1].clone()), (422, json!(field)));
    }
}

#[tokio::test]
async fn cartesia_speech_has_the_container_and_encoding_that_were_asked_for() {
    let bench = Bench::start().await;
    let generate = |format: Value| {
        let body = json!({"model_id": "sonic-3", "transcript": TEXT, "voice": {"mode": "id", "id": "any"},
            "output_format": format});
        let bench = &bench;
        async move { post(bench, "/tts/bytes", &body).await }
    };
    let raw = |encoding| json!({"container": "raw", "encoding": encoding, "sample_rate": 16_000});
    let spoken = generate(raw("pcm_s16le")).await.body.len() / 2;
    assert!(spoken > 16_000);
    for (encoding, sample_bytes) in [("pcm_f32le", 4), ("pcm_mulaw", 1), ("pcm_alaw", 1)] {
        assert_eq!(generate(raw(encoding)).await.body.len(), spoken * sample_bytes, "{encoding}");
    }
    let spoken = spoken as f64 / 16_000.0;
    for format in [
        json!({"container": "wav", "encoding": "pcm_f32le", "sample_rate": 44_100}),
        json!({"container": "mp3", "sample_rate": 44_100, "bit_rate": 128_000}),
    ] {
        let length = seconds(&generate(format.clone()).await.body);
        assert!((spoken - 0.01..spoken + 0.15).contains(&length), "{format}: {length} of {spoken} s");
    }
    for format in [
        Value::Null,
        json!({"container": "ogg", "sample_rate": 44_100}),
        json!({"container": "raw", "encoding": "pcm_s24le", "sample_rate": 44_100}),
        json!({"container": "mp3", "sample_rate": 7}),
        json!({"container": "mp3", "sample_rate": "fast"}),
    ] {
        let answer = generate(format).await;
        let body = answer.json();
        assert_eq!((answer.status, &body["title"]), (400, &json!("Bad Request")), "{body}");
        assert!(["error_code", "message", "request_id"].iter().all(|name| body[name].is_string()), "{body}");
    }
}

#[tokio::test]
async fn speechmatics_speech_is_wav_or_samples() {
    let bench = Bench::start().await;
    let wav = post(&bench, "/generate/sarah", &json!({"text": TEXT})).await;
    let raw = post(&bench, "/generate/sarah?output_format=pcm_16000", &json!({"text": TEXT})).await;
    assert_eq!((wav.status, wav.header("content-type")), (200, Some("audio/wav")));
    assert_eq!((wav.body.len() - 44, raw.status), (raw.body.len(), 200));
    let empty = post(&bench, "/generate/sarah", &json!({"text": ""})).await;
    assert_eq!((empty.status, &empty.json()["code"]), (400, &json!(400)));
}

#[tokio::test]
async fn cartesia_events_have_the_samples_of_the_whole_text() {
    let bench = Bench::start().await;
    let format = json!({"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000});
    let body = |format: &Value| {
        json!({"model_id": "sonic-3", "transcript": TEXT, "voice": {"mode": "id", "id": "any"},
            "output_format": format, "context_id": "mine"})
    };
    let whole = post(&bench, "/tts/bytes", &body(&format)).await;
    let streamed = post(&bench, "/tts/sse", &body(&format)).await;
    assert_eq!(
        (streamed.status, streamed.header("content-type")),
        (200, Some("text/event-stream; charset=utf-8"))
    );
    let events = streamed.text();
    let events = events.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let events: Vec<Value> = events.map(|event| serde_json::from_str(event).unwrap()).collect();
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(*last, json!({"type": "done", "context_id": "mine", "done": true, "status_code": 200}));
    let mut samples = Vec::new();
    for chunk in chunks {
        assert_has(chunk, json!({"/type": "chunk", "/context_id": "mine", "/done": false}));
        samples.extend(STANDARD.decode(chunk["data"].as_str().unwrap()).unwrap());
    }
    assert_eq!(samples.len(), whole.body.len());
    let wav = post(&bench, "/tts/sse", &body(&json!({"container": "wav", "sample_rate": 44_100}))).await;
    assert_eq!((wav.status, &wav.json()["title"]), (400, &json!("Bad Request")), "{wav:?}");
}

#[tokio::test]
async fn assemblyai_speech_has_the_encoding_and_container_that_were_asked_for() {
    let bench = Bench::start().await;
    let raw = post(&bench, "/v1/speech", &json!({"text": TEXT, "voice_id": "aai-jane"})).await;
    assert_eq!((raw.status, raw.header("x-tts-sample-rate")), (200, Some("24000")), "{raw:?}");
    assert_eq!(raw.header("x-tts-billed-characters"), Some(TEXT.len().to_string().as_str()));
    let spoken = raw.body.len() as f64 / 48_000.0;
    assert!(spoken > 1.0);
    for more in [json!({"container": "wav"}), json!({"encoding": "mp3", "bit_rate": 64_000})] {
        let mut body = json!({"text": TEXT});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let length = seconds(&post(&bench, "/v1/speech", &body).await.body);
        assert!((spoken - 0.01..spoken + 0.15).contains(&length), "{more}: {length} of {spoken} s");
    }
    let ulaw = json!({"text": TEXT, "encoding": "mulaw", "sample_rate": 8000});
    let ulaw = post(&bench, "/v1/speech", &ulaw).await;
    assert_eq!(ulaw.body.len(), (spoken * 8_000.0).round() as usize);
    for wrong in [
        json!({}),
        json!({"text": ""}),
        json!({"text": "x", "encoding": "opus"}),
        json!({"text": "x", "sample_rate": 7}),
    ] {
        let answer = post(&bench, "/v1/speech", &wrong).await;
        let body = answer.json();
        assert!(answer.status == 400 && body["code"].is_string() && body["message"].is_string(), "{body}");
    }
}
