//! Half an hour of conversation in virtual time: both back-ends and the legacy dialect, with and without
//! pictures, with one worker and with two. Each pair of these has a run of its own.
//!
//! Every user sample reaches a model once and in order. Every model sample reaches the user once and in
//! order. Every question is answered. A rollover costs nothing with a standby session, and the close and
//! initialisation times without one. A standby needs a server that initialises faster than the user asks.

use super::{support::*, *};

/// From `session.close` to the next `session.created`. The initialisation time is as measured
/// (mappings/notes/minicpm-o-duplex.md#rollover).
const CLOSE_MS: u64 = 600;
const INIT_MS: u64 = 12_400;
/// The same of a server that is fast enough for a standby.
const STANDBY_INIT_MS: u64 = 1_500;

/// Longest silence between two questions.
const PAUSE_MS: u64 = 12_000;

fn run_half_hour(backend: ServerKind, profile: &'static str, standby: bool) {
    let mut config = config(backend, &[]);
    config.profile = profile;
    let init_ms = if standby { STANDBY_INIT_MS } else { INIT_MS };
    config.simulator.timing.init = ms(init_ms);
    config.simulator.timing.close = ms(CLOSE_MS);
    if standby {
        config.simulator.workers = 2;
        config.library = with_profile_changes(config.library, &[STANDBY]);
    }
    let mut conversation = Conversation::new(config);
    let (mut pauses, mut frames) = (fastrand::Rng::with_seed(3), 0);
    while conversation.harness.now() < secs(30 * 60) {
        if profile == "video" {
            conversation.harness.send_json(&json!({"type": "video.frame", "image": PICTURE}));
            frames += 1;
        }
        conversation.ask();
        conversation.stream_silence(pauses.u64(2_000..PAUSE_MS));
    }
    conversation.stream_silence(5_000);
    conversation.assert_all_heard();
    conversation.assert_no_goodbye_during_answer();
    let played = conversation.assert_turns_complete(conversation.questions.len());
    let rollovers = conversation.rollovers();
    assert!(rollovers.len() >= 3, "{rollovers:?}");
    let has_its_gap = |by: bool, gap: u64| gap == if by { 0 } else { CLOSE_MS + init_ms };
    assert!(rollovers.iter().all(|(_, gap, by)| has_its_gap(*by, *gap)), "{rollovers:?}");
    let by_standby = rollovers.iter().filter(|(_, _, by)| *by).count();
    assert!(if standby { 2 * by_standby > rollovers.len() } else { by_standby == 0 }, "{rollovers:?}");
    let reported: Vec<_> =
        rollovers.iter().map(|(why, gap, by)| (why.name().to_owned(), *gap, *by)).collect();
    assert_eq!(conversation.reported_rollovers(), reported);
    assert_eq!(
        (conversation.errors(), conversation.resent_samples, conversation.frames_heard),
        (Vec::new(), 0, frames)
    );
    println!(
        "{backend:?} {profile} standby {standby}: {:.0} s, {} questions, {} rollovers {:?}, {} samples up, {played} down",
        conversation.harness.now().as_secs_f64(),
        conversation.questions.len(),
        rollovers.len(),
        rollovers[0].0,
        conversation.matched_samples,
    );
    conversation.close_and_check();
}

#[test]
fn half_hour_with_one_worker() {
    for (number, server_kind) in some_of(ServerKind::ALL.into_iter().enumerate(), 2) {
        run_half_hour(server_kind, if number % 2 == 0 { "conversation" } else { "video" }, false);
    }
}

#[test]
fn half_hour_with_standby() {
    // A standby's takeover depends little on the kind of server.
    for (number, server_kind) in some_of(ServerKind::ALL.into_iter().enumerate(), 1) {
        run_half_hour(server_kind, if number % 2 == 0 { "video" } else { "conversation" }, true);
    }
}
