//! Answers that are pending when an upstream is lost, a client leaves or voxbridge stops: every append is
//! answered or asked again.

use proptest::prelude::*;

use super::{
    harness::{Harness, Traffic},
    *,
};

/// A session with this many pending questions, and this far into their answers.
fn harness_with_questions(count: usize, after: u64) -> Harness {
    let mut harness = open_session(config("mode=chat", &[]));
    (0..count).for_each(|at| harness.send_json(&chat_message(&format!("question {at}"))));
    harness.advance(ms(after));
    harness
}

fn last_position(harness: &Harness, matches: impl Fn(&Traffic) -> bool) -> Option<usize> {
    harness.traffic.iter().rposition(|(_, traffic)| matches(traffic))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn chat_is_answered_or_ends_when_upstream_is_lost(count in 1..5usize, after in 0..6000u64) {
        let mut harness = harness_with_questions(count, after);
        let before = harness.events("response.done").len();
        let is_partial = !harness.events("response.output.delta").is_empty()
            && harness.texts.last().unwrap().contains("response.output.delta");
        harness.break_lanes();
        harness.advance(ms(60_000));
        if is_partial {
            prop_assert!(harness.is_closed(), "the rest of the answer is lost");
            return Ok(());
        }
        prop_assert_eq!(harness.events("response.done").len(), count);
        let resent = (0..count).filter(|at| {
            sent_texts(&harness).iter().filter(|text| text.contains(&format!("question {at}"))).count() == 2
        });
        prop_assert_eq!(resent.count(), count - before);
    }

    #[test]
    fn disconnect_or_drain_waits_for_pending_chat_answers(count in 1..4usize, after in 0..3000u64, stops: bool) {
        let mut harness = harness_with_questions(count, after);
        if stops { harness.drain() } else { harness.close_client() }
        harness.advance(ms(60_000));
        prop_assert!(harness.finished);
        let dones = received_texts(&harness).iter().filter(|text| text.contains("response.done")).count();
        prop_assert_eq!(dones, count);
        let last_done = last_position(&harness, |traffic| matches!(traffic, Traffic::Received(_, text) if text.contains("response.done")));
        let close = last_position(&harness, |traffic| matches!(traffic, Traffic::Sent(_, text) if text.contains("session.close")));
        prop_assert!(last_done < close, "the lane closes during a generation");
    }
}
