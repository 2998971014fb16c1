//! Uploads whose upstream fails in the middle: the words until then are answered, in a form that clients accept.

use futures_util::FutureExt as _;

use super::*;

/// Recognises this number of utterances, and fails for good after them.
struct FailsAfter(AtomicUsize);

impl SpeechEngines for FailsAfter {
    fn recognise(&self, _: Vec<f32>) -> BoxFuture<'_, Result<String, String>> {
        let is_left = self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        async move { if is_left { Ok("the first words".to_owned()) } else { Err("out of memory".to_owned()) } }
            .boxed()
    }

    fn speak(&self, _: String) -> BoxFuture<'_, Result<Vec<f32>, String>> {
        async { Err("no voice".to_owned()) }.boxed()
    }
}

async fn failing_after(utterances: usize) -> Bench {
    let profile =
        profile_with_numbers(&format!("rest-fails-after-{utterances}"), &[("retry_total_ms", 10_000, 200)]);
    let config = Config { mappings: Some(profile), ..Config::default() };
    let engines: Arc<dyn SpeechEngines> = Arc::new(FailsAfter(AtomicUsize::new(utterances)));
    Bench::with_options(Options {
        simulator: instant_simulator(),
        engines: Some(engines),
        config,
        ..Options::default()
    })
    .await
}

#[tokio::test]
async fn finished_words_are_answered_when_the_upstream_fails() {
    for (format, words) in [
        ("json", ""),
        ("verbose_json", ""),
        ("text", "the first words\n[incomplete: Nothing after "),
        ("srt", "\n\n2\n00:00:0"),
        ("vtt", "[incomplete:\nNothing"),
    ] {
        let bench = failing_after(1).await;
        let fields = [("model", "whisper-1"), ("response_format", format)];
        let answer = upload(&bench, BEARER, &wav(&two_utterances()), &fields).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let from: f64 = answer.header("x-voxbridge-incomplete-from").expect("a header").parse().unwrap();
        assert!((1.0..5.0).contains(&from), "{from}");
        match answer.header("content-type") {
            Some("application/json") => {
                let body = answer.json();
                assert_has(&body, json!({"/text": "the first words", "/incomplete/from": from}));
                let message = body["incomplete"]["message"].as_str().unwrap();
                assert!(message.starts_with("Nothing after "), "{message}");
            }
            _ => {
                assert!(
                    answer.text().contains(words) && answer.text().contains("the first words"),
                    "{answer:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn words_of_a_damaged_recording_are_marked_as_incomplete() {
    let whole = wav(&two_utterances());
    let cut = &whole[..whole.len() * 6 / 10];
    let bench = failing_after(9).await;
    for format in ["json", "verbose_json", "text", "srt", "vtt"] {
        let fields = [("model", "whisper-1"), ("response_format", format)];
        let answer = upload(&bench, BEARER, cut, &fields).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let from: f64 = answer.header("x-voxbridge-incomplete-from").expect("a header").parse().unwrap();
        let length = (cut.len() - 44) as f64 / 32_000.0;
        assert!((from - length).abs() < 0.01, "{from} s of {length} s");
        // Subtitles break lines.
        let text = answer.text().replace('\n', " ");
        assert!(text.contains("damaged or cut off after"), "{format}: {text}");
        if format == "json" {
            assert_eq!(answer.json()["incomplete"]["code"], "invalid_audio");
        }
    }
    let answer = upload(&bench, BEARER, cut, &[("model", "whisper-1"), ("stream", "true")]).await;
    assert!(answer.text().contains("\"incomplete\""), "{}", answer.text());
    let answer = upload(&bench, BEARER, &whole, &[("model", "whisper-1")]).await;
    assert_eq!((answer.header("x-voxbridge-incomplete-from"), answer.json().get("incomplete")), (None, None));
}

#[tokio::test]
async fn deepgram_clients_get_a_warning() {
    let bench = failing_after(1).await;
    let answer =
        request(bench.address(), "POST", "/v1/listen?model=nova-3", "", &wav(&two_utterances())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.json();
    assert_eq!(body["results"]["channels"][0]["alternatives"][0]["transcript"], "the first words");
    assert!(body["metadata"]["warnings"][0]["message"].as_str().unwrap().starts_with("Nothing after "));
}

#[tokio::test]
async fn upload_without_any_words_still_fails() {
    let bench = failing_after(0).await;
    let answer = upload(&bench, BEARER, &wav(&two_utterances()), &[("model", "whisper-1")]).await;
    assert!([502, 503].contains(&answer.status), "{answer:?}");
}
