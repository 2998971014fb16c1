//! Plug-ins of other models than MiniCPM-o on vLLM-Omni's duplex endpoint, without the models: what they take and say has a
//! rate and units of its own.

use voxbridge_test_support::{
    bench::{audio, events, recording},
    servers::PackageServer,
};

use super::conversations::{bench_at, is};

/// Levels of the scripted answer, as whole hundredths of full scale, each once, in order.
fn levels(samples: &[i16]) -> Vec<i16> {
    let mut levels: Vec<i16> =
        samples.iter().map(|sample| (f64::from(*sample) / 327.67).round() as i16).collect();
    levels.retain(|level| [0, 5, 10, 15].contains(level));
    levels.dedup();
    levels.retain(|level| *level != 0);
    levels
}

#[tokio::test]
async fn nemotron_voicechat_answers_at_a_rate_of_its_own() {
    let Some(server) = PackageServer::vllm_omni_plugin("nemotron") else { return };
    let bench = bench_at(server.address()).await;
    let mut client = bench.client("model=x").await;
    client.stream_until(&recording("goforward"), is("tts.speaking_end")).await;
    let frames = client.close().await;
    assert!(events(&frames, "error").is_empty(), "{frames:?}");
    let spoken = audio(&frames);
    assert_eq!(levels(&spoken), [5, 10, 15]);
    // 36 frames of 80 ms.
    let loud = spoken.iter().filter(|sample| **sample > 1000).count();
    assert!(loud.abs_diff(24_000 * 36 * 80 / 1000) < 480, "{loud} samples");
}

#[tokio::test]
async fn qwen3_omni_in_turns_is_refused_with_the_reason() {
    let Some(server) = PackageServer::vllm_omni_plugin("qwen3") else { return };
    let bench = bench_at(server.address()).await;
    let mut client = bench.client("model=x").await;
    client.stream_until(&recording("goforward"), is("error")).await;
    let frames = client.close().await;
    let errors = events(&frames, "error");
    assert!(!errors.is_empty(), "{frames:?}");
}
