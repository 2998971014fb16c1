//! SGLang-Omni: it reports no use of its context, and ends a session whose context is full.

use super::{support::*, *};

#[test]
fn context_that_is_full_at_any_unit_loses_nothing() {
    for context_max in some_of((120..520).step_by(25), 4) {
        let faults = [&*format!("context-full={context_max},times=1")];
        let mut conversation = Conversation::new(with_init(config(ServerKind::SglangOmni, &faults), 800));
        for _ in 0..3 {
            conversation.send_question();
            conversation.stream_silence(6_000);
        }
        conversation.stream_silence(6_000);
        assert_eq!(conversation.errors(), [], "{context_max}: a limit is no failure");
        let [(ContextFull, gap, false)] = conversation.rollovers()[..] else {
            panic!("{context_max}: {:?}", conversation.rollovers())
        };
        assert!((800..1_100).contains(&gap), "{context_max}: {gap} ms");
        conversation.turns();
        conversation.ask();
        conversation.assert_all_heard();
        conversation.close_and_check();
    }
}
