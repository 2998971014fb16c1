//! Half an hour of conversation in virtual time: both back-ends and the legacy dialect, with and without pictures, with one worker and with two.
//!
//! Every sample of the user reaches a model once and in its place, every sample of the model's turns reaches the user once
//! and in its place, every question is answered, and each change of the upstream session costs what it must: nothing with
//! a session in readiness, the goodbye and the initialisation without.

use super::flavour::Flavour;
use serde_json::json;

use super::support::*;

/// From the goodbye to the next `session.created`; the initialisation as measured (field notes §7.2).
const CLOSE_MS: u64 = 600;
const INIT_MS: u64 = 12_400;

/// Longest silence between two questions.
const PAUSE_MS: u64 = 12_000;

fn half_an_hour(backend: Flavour, profile: &'static str, standby: bool) {
    let mut config = config(backend, &[]);
    config.profile = profile;
    config.simulator.timing.init = ms(INIT_MS);
    config.simulator.timing.close = ms(CLOSE_MS);
    if standby {
        config.simulator.workers = 2;
        config.library = with_rules(config.library, &[STANDBY]);
    }
    let mut talk = Talk::new(config);
    let (mut pauses, mut frames) = (fastrand::Rng::with_seed(3), 0);
    while talk.pair.now() < secs(30 * 60) {
        if profile == "video" {
            talk.pair.client(&json!({"type": "video.frame", "image": "/9j/4AAQ"}));
            frames += 1;
        }
        talk.ask();
        talk.quiet(pauses.u64(2_000..PAUSE_MS));
    }
    talk.quiet(5_000);
    talk.proves();
    talk.never_left_waiting();
    let played = talk.heard_all(talk.questions.len());
    let gap_ms = if standby { 0 } else { CLOSE_MS + INIT_MS };
    let rollovers = talk.rollovers();
    assert!(rollovers.len() >= 3, "{rollovers:?}");
    assert!(rollovers.iter().all(|(_, gap, by)| (*gap, *by) == (gap_ms, standby)), "{rollovers:?}");
    let told: Vec<_> = rollovers.iter().map(|(why, gap, by)| (why.name().to_owned(), *gap, *by)).collect();
    assert_eq!(talk.told_rollovers(), told);
    assert_eq!((talk.errors(), talk.again, talk.frames_heard), (Vec::new(), 0, frames));
    println!(
        "{backend:?} {profile} standby {standby}: {:.0} s, {} questions, {} rollovers {:?}, {} samples up, {played} down",
        talk.pair.now().as_secs_f64(),
        talk.questions.len(),
        rollovers.len(),
        rollovers[0].0,
        talk.proved,
    );
    talk.ends_well();
}

#[test]
fn audio_with_one_worker() {
    Flavour::ALL.into_iter().for_each(|flavour| half_an_hour(flavour, "conversation", false));
}

#[test]
fn audio_with_a_session_in_readiness() {
    Flavour::ALL.into_iter().for_each(|flavour| half_an_hour(flavour, "conversation", true));
}

#[test]
fn video_with_one_worker() {
    Flavour::ALL.into_iter().for_each(|flavour| half_an_hour(flavour, "video", false));
}

#[test]
fn video_with_a_session_in_readiness() {
    Flavour::ALL.into_iter().for_each(|flavour| half_an_hour(flavour, "video", true));
}
