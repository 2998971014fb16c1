//! What clients of other binary-PCM protocols live through on the `speech` profile, in virtual time.

mod hostile;
mod listening;
mod speaking;
mod stepping;

use std::time::Duration;

use crate::pair::{Pair, PairConfig, Seen, bytes_of, recording, zeros};
use serde_json::{Value, json};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A client of this protocol with this query, against a gateway with these faults.
fn client(protocol: &'static str, query: &str, faults: &[&str]) -> Pair {
    Pair::new(PairConfig { client: protocol, query: query.to_owned(), ..PairConfig::with_faults(faults) })
}

/// Someone who speaks without a pause.
fn voice(ms: u64) -> Vec<i16> {
    let spoken = &recording("librivox_0870_16k.wav")[16 * 200..16 * 6700];
    spoken.iter().copied().cycle().take((16 * ms) as usize).collect()
}

/// A short utterance with the silence that ends it.
fn utterance() -> Vec<i16> {
    [voice(1200), zeros(800)].concat()
}

/// Sends a file as fast as it is taken: a client that is held back waits until it is not.
fn upload(pair: &mut Pair, samples: &[i16], frame_samples: usize) {
    for frame in samples.chunks(frame_samples) {
        let free = pair.run_until(|pair| !pair.bridge().holds_back(), secs(600));
        assert!(free.is_some(), "the client is held back for ever");
        pair.client_binary(&bytes_of(frame));
    }
}

/// Every event with this key, or of this type.
fn events<'p>(pair: &'p Pair, key: &str) -> Vec<&'p Value> {
    let all = pair.log.iter().filter_map(|(_, seen)| match seen {
        Seen::Event(event) => Some(event),
        _ => None,
    });
    all.filter(|event| event["type"] == key || event.get(key).is_some()).collect()
}

/// The close frame, when there is one.
fn closed(pair: &Pair) -> Option<(u16, &str)> {
    match pair.log.last() {
        Some((_, Seen::Close(code, reason))) => Some((*code, reason)),
        _ => None,
    }
}

/// Lets the session come to its end, and checks that it did, whatever became of it.
fn ends(pair: &mut Pair) {
    if !pair.closed() {
        pair.close_client();
    }
    pair.advance(secs(120));
    assert!(pair.finished && pair.connections() == 0, "it does not end: {:?}", pair.names());
}

/// Audio that was sent is audio that was taken, and nothing of it was dropped.
fn assert_all_heard(pair: &Pair, samples: usize) {
    let (account, dropped) = pair.bridge().account();
    assert_eq!((account.taken, dropped), (samples as u64, 0), "{account:?}");
    assert_eq!(account.recorded + account.silent + account.pending, samples as u64, "{account:?}");
    let heard: usize = pair.heard.iter().map(Vec::len).sum();
    assert_eq!(heard as u64, account.recorded, "not every utterance was asked, or one was asked twice");
}
