//! Clients of other binary-PCM protocols on the `speech` profile, in virtual time.

mod acknowledged;
mod contexts;
mod encoded_speech;
mod invalid_messages;
mod lock_step;
mod plain_sockets;
mod stt;
mod tts;
mod voice_agents;
mod word_times;

use super::*;

/// Connects a client of this protocol with this query to a gateway with these faults.
fn open_client(protocol: &'static str, query: &str, faults: &[&str]) -> Harness {
    Harness::new(HarnessConfig {
        client: protocol,
        query: query.to_owned(),
        ..HarnessConfig::with_faults(faults)
    })
}

fn send_command(harness: &mut Harness, kind: &str) {
    harness.send_json(&json!({ "type": kind }));
}

/// Uploads a file as fast as the bridge accepts it, waiting under back-pressure.
fn upload(harness: &mut Harness, samples: &[i16], frame_samples: usize) {
    for frame in samples.chunks(frame_samples) {
        let free = harness.run_until(|harness| !harness.report().needs_backpressure, secs(600));
        assert!(free.is_some(), "back-pressure never ends");
        harness.send_binary(&bytes_of(frame));
    }
}

/// All events with this key or of this type.
fn events<'p>(harness: &'p Harness, key: &str) -> Vec<&'p Value> {
    let all = harness.all_events();
    all.filter(|event| event["type"] == key || event.get(key).is_some()).collect()
}

/// The close frame, if there is one.
fn close_frame(harness: &Harness) -> Option<(u16, &str)> {
    match harness.log.last() {
        Some((_, ClientFrame::Close(code, reason))) => Some((*code, reason)),
        _ => None,
    }
}

/// Waits for the session to end and checks that it did.
fn assert_session_ends(harness: &mut Harness) {
    if !harness.is_closed() {
        harness.close_client();
    }
    harness.advance(secs(120));
    assert!(harness.finished && harness.connections() == 0, "the session goes on: {:?}", harness.names());
}

/// Checks that all audio sent was received and none was dropped.
fn assert_all_heard(harness: &Harness, samples: usize) {
    let (account, dropped) = harness.bridge().sample_counts();
    assert_eq!((account.received, dropped), (samples as u64, 0), "{account:?}");
    assert_eq!(account.recorded + account.silent + account.pending, samples as u64, "{account:?}");
    let question_samples: usize = harness.question_audio.iter().map(Vec::len).sum();
    assert_eq!(question_samples as u64, account.recorded, "an utterance was sent never or twice");
}
