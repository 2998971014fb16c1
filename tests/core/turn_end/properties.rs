//! Properties of sessions with judged pauses and early questions, over arbitrary speech, pauses and verdicts.

use proptest::prelude::*;

use super::*;

/// Speech and the pause after it, ms, and the verdict on the pause.
fn turns() -> impl Strategy<Value = Vec<(u64, u64, Option<f32>)>> {
    let verdict = prop_oneof![Just(None), (0.0f32..1.0).prop_map(Some)];
    vec((300u64..1500, 60u64..1500, verdict), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Events are in order, each early question ends once, and every worker is given back.
    #[test]
    fn sessions_with_pauses_keep_the_protocol_and_every_worker(
        turns in turns(),
        profile in select(vec!["eager", "judged-eager", "judged-assistant", "judged-speech"]),
        takes_ms in 0u64..600,
        workers in 1usize..4,
        has_free_worker in any::<bool>(),
    ) {
        let mut config = HarnessConfig { has_free_worker, ..config(profile, None) }.workers(workers);
        let mut verdicts = turns.iter().map(|(.., verdict)| *verdict).collect::<Vec<_>>().into_iter().cycle();
        config.judge = Some(judge(takes_ms, move |_| verdicts.next().flatten()));
        let mut harness = Harness::new(config);
        for (speech_ms, pause_ms, _) in turns {
            harness.stream(&voice(speech_ms), 20);
            harness.stream(&zeros(pause_ms), 20);
        }
        harness.advance(Duration::from_secs(8));
        harness.send_json(&json!({"type": "session.close"}));
        harness.advance(Duration::from_secs(60));
        prop_assert!(harness.is_over() && harness.lost_workers() == 0);
        prop_assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
        let mut is_asked = false;
        for result in early_questions(&harness) {
            prop_assert_eq!(result == Asked, !is_asked, "{:?}", early_questions(&harness));
            is_asked = result == Asked;
        }
        prop_assert!(!is_asked, "a question has no end");
    }
}
