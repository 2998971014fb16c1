//! Plug-ins of other models than MiniCPM-o on vLLM-Omni's duplex endpoint, without the models.

use voxbridge_test_support::{
    bench::{events, recording},
    servers::PackageServer,
};

use super::conversations::{bench_at, is};

#[tokio::test]
async fn qwen3_omni_in_turns_is_refused_with_the_reason() {
    let Some(server) = PackageServer::vllm_omni_plugin("qwen3") else { return };
    let bench = bench_at(server.address()).await;
    let mut client = bench.client("model=x").await;
    client.stream_until(&recording("goforward"), is("error")).await;
    let frames = client.close().await;
    assert!(!events(&frames, "error").is_empty(), "{frames:?}");
}
