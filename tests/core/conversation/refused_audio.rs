//! Servers that refuse all audio, with an error after which their session goes on.

use super::{support::*, *};

#[test]
fn refusals_of_all_audio_are_logged_and_told_in_the_server_s_words() {
    for (fault, words) in [
        ("inference-fails", "bad_event: sample_rate_hz must be 24000"),
        ("input-backpressure", "input_backpressure: Duplex session has too many pending input bytes"),
    ] {
        let mut config = config(ServerKind::Pytorch, &[fault]);
        (config.simulator.dialect, config.simulator.vllm_version) =
            (SimDialect::VllmOmni, VllmVersion::V0_32);
        config.upstream = "vllm-omni";
        let mut conversation = Conversation::without_rollover_events(config);
        conversation.stream_silence(20_000);
        let told = conversation.harness.events("error");
        let names_words = |text: &str| text.contains(words);
        assert!(told.iter().any(|error| names_words(error["message"].as_str().unwrap())), "{told:?}");
        let is_logged = |observation: &Observation| matches!(observation, Observation::LaneFailed { words, .. } if names_words(words));
        assert!(conversation.harness.observations.iter().any(is_logged), "{fault}");
    }
}
