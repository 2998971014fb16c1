//! Clients whose messages are almost right: whatever they say, they are answered, and end with a code if they end.

use futures_util::future::join_all;
use proptest::prelude::*;
use tokio::runtime::Runtime;
use tokio_tungstenite::tungstenite::Message;

use super::{
    bench::Seen,
    doors::{DOORS, Door, Outcome, bench, push},
    relayed::kinds,
    spoil::{Spoil, any_spoil},
};

/// What one client says: which of the valid messages, and what is wrong with it.
fn any_script() -> impl Strategy<Value = (Door, Vec<(usize, Spoil)>)> {
    let door = prop::sample::select(&DOORS[..]);
    (door, prop::collection::vec((0..8usize, any_spoil()), 1..8))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_said_is_answered_or_ends_with_a_code(scripts in prop::collection::vec(any_script(), 12)) {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let bench = &bench().await;
            let clients = scripts.iter().map(|(door, script)| async move {
                let mut client = door.enter(bench).await;
                let valid = door.valid();
                for (which, spoil) in script {
                    let text = spoil.apply(&valid[which % valid.len()]);
                    push(&mut client, Message::text(text)).await;
                }
                let outcome = door.works(&mut client).await;
                assert_ne!(outcome, Outcome::Lost, "{door:?} {script:?}: {}", kinds(&client));
                // A code that says whose fault it was: nothing here is the bridge's.
                assert!(!matches!(outcome, Outcome::Closed(1011)), "{door:?} {script:?}: {}", kinds(&client));
                let closes = client.seen.iter().filter(|seen| matches!(seen, Seen::Close(..))).count();
                assert!(closes <= 1, "{}", kinds(&client));
            });
            join_all(clients).await;
            // The bridge itself is none the worse for it.
            for door in DOORS {
                let mut client = door.enter(bench).await;
                assert_eq!(door.works(&mut client).await, Outcome::Works, "{door:?}");
            }
        });
    }
}
