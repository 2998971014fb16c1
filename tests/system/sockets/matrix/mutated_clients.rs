//! Clients with slightly wrong messages: each one is answered or closed with a code.

use proptest::prelude::*;

use super::*;

/// The messages of one client: indices of valid messages with their mutations.
fn any_mutated_session() -> impl Strategy<Value = (Protocol, Vec<(usize, Mutation)>)> {
    let protocol = prop::sample::select(&PROTOCOLS[..]);
    (protocol, prop::collection::vec((0..8usize, any_mutation()), 1..8))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_client_messages_are_answered_or_close_with_code(scripts in prop::collection::vec(any_mutated_session(), 12)) {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let bench = &bench().await;
            let clients = scripts.iter().map(|(protocol, script)| async move {
                let mut client = protocol.open_session(bench).await;
                let valid = protocol.valid_messages();
                for (which, mutation) in script {
                    let text = mutation.apply(&valid[which % valid.len()]);
                    send_ignoring_errors(&mut client, Message::text(text)).await;
                }
                let outcome = protocol.probe_session(&mut client).await;
                assert_ne!(outcome, Outcome::Lost, "{protocol:?} {script:?}: {}", describe_received(&client));
                // The client caused the error, so 1011 (server error) would be wrong.
                assert!(!matches!(outcome, Outcome::Closed(1011)), "{protocol:?} {script:?}: {}", describe_received(&client));
                let closes = client.received.iter().filter(|frame| matches!(frame, ClientFrame::Close(..))).count();
                assert!(closes <= 1, "{}", describe_received(&client));
            });
            join_all(clients).await;
            // The bridge still serves every protocol.
            for protocol in PROTOCOLS {
                let mut client = protocol.open_session(bench).await;
                assert_eq!(protocol.probe_session(&mut client).await, Outcome::Works, "{protocol:?}");
            }
        });
    }
}
