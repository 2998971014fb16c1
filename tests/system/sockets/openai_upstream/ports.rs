//! Every way in to a server of OpenAI's Realtime API, in both versions: REST, and clients that transcribe, speak and converse.

use super::*;

const BOTH: [RealtimeServer; 2] = [RealtimeServer::Openai, RealtimeServer::VllmOmni];
const TRANSLATIONS: &str = "/v1/audio/translations";

async fn bench(kind: RealtimeServer, profile: &str) -> Bench {
    let dialect = SimDialect::OpenaiRealtime(kind);
    let simulator = SimulatorConfig { dialect, workers: 4, ..instant_simulator() };
    let routes = vec![RouteConfig::catch_all(profile)];
    Bench::with_config(simulator, Config { routes, ..Config::default() }).await
}

#[tokio::test]
async fn recordings_are_transcribed() {
    for kind in BOTH {
        let bench = bench(kind, "speech").await;
        let file = wav(&recording("goforward"));
        for (format, words) in
            [("json", "simulated transcript"), ("verbose_json", "segments"), ("srt", "-->")]
        {
            let answer = upload(&bench, "", &file, &[("model", "any"), ("response_format", format)]).await;
            assert_eq!(answer.status, 200, "{kind:?} {format}: {}", answer.text());
            assert!(answer.text().contains(words), "{kind:?} {format}: {}", answer.text());
        }
        let streamed = upload(&bench, "", &file, &[("model", "any"), ("stream", "true")]).await;
        assert!(streamed.text().contains("transcript.text.done"), "{kind:?}: {}", streamed.text());
    }
}

/// OpenAI's model for transcripts does not translate. A model that answers does.
#[tokio::test]
async fn recordings_are_translated_or_the_remedy_is_named() {
    for kind in BOTH {
        let bench = bench(kind, "speech").await;
        let headers = "Content-Type: multipart/form-data; boundary=b\r\n";
        let body = form(&wav(&recording("goforward")), &[("model", "any")]);
        let answer = request(bench.address(), "POST", TRANSLATIONS, headers, &body).await;
        match kind {
            RealtimeServer::VllmOmni => {
                assert_eq!(answer.status, 200, "{}", answer.text());
                assert!(answer.text().contains("simulated transcript"), "{}", answer.text());
            }
            RealtimeServer::Openai => {
                assert!(answer.status >= 400, "{}", answer.text());
                assert!(answer.text().contains("serves"), "{}", answer.text());
            }
        }
        let again = upload(&bench, "", &wav(&recording("goforward")), &[("model", "any")]).await;
        assert_eq!(again.status, 200, "{kind:?}: transcripts go on: {}", again.text());
    }
}

#[tokio::test]
async fn texts_become_speech() {
    for kind in BOTH {
        let bench = bench(kind, "speech").await;
        for format in ["pcm", "wav", "mp3"] {
            let text = "This is spoken. And this as well.";
            let body = json!({"model": "any", "input": text, "voice": "alloy", "response_format": format});
            let answer = speak(&bench, "", &body).await;
            assert_eq!(answer.status, 200, "{kind:?} {format}: {}", String::from_utf8_lossy(&answer.body));
            assert!(answer.body.len() > 4000, "{kind:?} {format}: {} bytes", answer.body.len());
        }
    }
}

#[tokio::test]
async fn socket_clients_are_transcribed_spoken_to_and_answered() {
    for kind in BOTH {
        for profile in ["speech", "live", "assistant", "conversation"] {
            let bench = bench(kind, profile).await;
            let mut client = bench.client("model=x").await;
            if profile == "speech" || profile == "live" {
                client.send_json(json!({"type": "tts.speak", "text": "This is spoken. And more."})).await;
                client.wait_for_event("tts.speaking_end").await;
                client.send_utterance(&recording("goforward")).await;
                let words = client.wait_for_event("transcript.final").await;
                assert!(words["text"].as_str().unwrap().contains("simulated"), "{kind:?} {profile}: {words}");
            } else {
                let is_over = |frame: &ClientFrame| frame.kind() == "tts.speaking_end";
                client.stream_until(&recording("goforward"), is_over).await;
            }
            let frames = client.close().await;
            assert_pairs_closed(&frames);
            assert!(events(&frames, "error").is_empty(), "{kind:?} {profile}: {frames:?}");
            assert!(audio(&frames).len() > 4000, "{kind:?} {profile}: {} samples", audio(&frames).len());
        }
    }
}
