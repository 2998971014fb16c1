//! Plug-ins of other models than MiniCPM-o on vLLM-Omni's duplex endpoint, without the models.

use super::{conversations::is, *};

/// Levels of the stretches of the model's audio, in hundredths of full scale; silence is 0.
fn levels(audio: &[i16]) -> Vec<i32> {
    let level = |part: &[i16]| (f64::from(part[part.len() / 2]) / 327.67).round() as i32;
    let mut levels: Vec<i32> = audio.chunks(480).map(level).collect();
    // At an edge, a resampler is in between.
    levels.retain(|level| level % 5 == 0);
    levels.dedup();
    levels.retain(|level| *level != 0);
    levels
}

/// RMS of the loudest half second.
fn loudest(samples: &[i16], rate_hz: usize) -> f64 {
    let rms = |part: &[i16]| {
        let energy: f64 = part.iter().map(|sample| f64::from(*sample).powi(2)).sum();
        (energy / part.len() as f64).sqrt()
    };
    samples.chunks_exact(rate_hz / 2).map(rms).fold(0.0, f64::max)
}

/// Models that send audio all the time, with the rate that each takes.
const CLOCKED: [(&str, usize); 2] = [("personaplex", 24_000), ("nemotron", 16_000)];

#[tokio::test]
async fn models_that_never_pause_hear_at_their_rate_and_answer_twice() {
    for (plugin, rate_hz) in CLOCKED {
        let Some(server) = PackageServer::vllm_omni_plugin(plugin) else { return };
        let bench = bench_at(server.address()).await;
        let mut client = bench.client("model=x").await;
        let said = recording("goforward");
        for _ in 0..2 {
            client.stream_until(&said, is("tts.speaking_end")).await;
        }
        let frames = client.close().await;
        assert_pairs_closed(&frames);
        assert!(events(&frames, "error").is_empty(), "{plugin}: {frames:?}");
        assert_eq!(finals(&frames), ["Part 1. Part 2. Part 3."; 2], "{plugin}");
        assert_eq!(levels(&audio(&frames)), [5, 10, 15, 5, 10, 15], "{plugin}");
        let record = server.record().await;
        assert_eq!(record.len(), 1, "{plugin}: one session");
        let heard = loudest(&recorded_samples(&record[0]), rate_hz);
        let expected = loudest(&said, 16_000);
        assert!((heard / expected - 1.0).abs() < 0.15, "{plugin}: {heard} for {expected}");
    }
}

#[tokio::test]
async fn interrupted_model_that_never_pauses_keeps_its_session_and_answers_the_next_question() {
    for (plugin, _) in CLOCKED {
        let Some(server) = PackageServer::vllm_omni_plugin(plugin) else { return };
        server.script(json!({"turn_units": 6})).await;
        let bench = bench_at(server.address()).await;
        let mut client = bench.client("model=x").await;
        client.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
        client.stream_until(&[], is("audio")).await;
        client.send_json(json!({"type": "tts.cancel"})).await;
        let frames = client.stream_until(&[], is("tts.speaking_end")).await;
        assert_eq!(events(frames, "tts.speaking_end")[0]["cancelled"], true, "{plugin}");
        let before = client.received.len();
        client.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
        client.stream_until(&[], is("tts.speaking_end")).await;
        let answer = audio(&client.received[before..]);
        assert_eq!(levels(&answer), [5, 10, 15, 20, 25, 30], "{plugin}: the interrupted answer is heard");
        assert!(events(&client.close().await, "error").is_empty(), "{plugin}");
        let record = server.record().await;
        assert_eq!(record.len(), 1, "{plugin}: one session");
    }
}

#[tokio::test]
async fn qwen3_omni_in_turns_is_refused_with_the_reason() {
    let Some(server) = PackageServer::vllm_omni_plugin("qwen3") else { return };
    let bench = bench_at(server.address()).await;
    let mut client = bench.client("model=x").await;
    client.stream_until(&recording("goforward"), is("error")).await;
    let frames = client.close().await;
    assert!(!events(&frames, "error").is_empty(), "{frames:?}");
}
