//! Whatever is on its way when an upstream is lost, a client leaves or voxbridge stops: every append is answered or asked
//! again.

use proptest::prelude::*;

use super::{
    pair::{Pair, Traffic},
    support::{chat, config, ms, opened, received, sent},
};

/// Questions in flight, and where in their answers something happens.
fn asked(count: usize, after: u64) -> Pair {
    let mut pair = opened(config("mode=chat", &[]));
    (0..count).for_each(|at| pair.client(&chat(&format!("question {at}"))));
    pair.advance(ms(after));
    pair
}

fn position(pair: &Pair, is: impl Fn(&Traffic) -> bool) -> Option<usize> {
    pair.traffic.iter().rposition(|(_, traffic)| is(traffic))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_chat_that_loses_its_upstream_is_answered_or_ends(count in 1..5usize, after in 0..6000u64) {
        let mut pair = asked(count, after);
        let before = pair.events("response.done").len();
        let begun = !pair.events("response.output.delta").is_empty()
            && pair.texts.last().unwrap().contains("response.output.delta");
        pair.break_lanes();
        pair.advance(ms(60_000));
        if begun {
            prop_assert!(pair.closed(), "the rest of an answer cannot be had");
            return Ok(());
        }
        prop_assert_eq!(pair.events("response.done").len(), count);
        let again = (0..count).filter(|at| {
            sent(&pair).iter().filter(|text| text.contains(&format!("question {at}"))).count() == 2
        });
        prop_assert_eq!(again.count(), count - before);
    }

    #[test]
    fn who_leaves_a_chat_or_stops_waits_for_all_answers(count in 1..4usize, after in 0..3000u64, stops: bool) {
        let mut pair = asked(count, after);
        if stops { pair.drain() } else { pair.close_client() }
        pair.advance(ms(60_000));
        prop_assert!(pair.finished);
        let dones = received(&pair).iter().filter(|text| text.contains("response.done")).count();
        prop_assert_eq!(dones, count);
        let done = position(&pair, |traffic| matches!(traffic, Traffic::Received(_, text) if text.contains("response.done")));
        let close = position(&pair, |traffic| matches!(traffic, Traffic::Sent(_, text) if text.contains("session.close")));
        prop_assert!(done < close, "a generation that goes on is left");
    }
}
