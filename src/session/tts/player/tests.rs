//! What leaves when, and what is held.

use super::*;

static SECOND: [f32; MODEL_RATE_HZ as usize] = [0.25; MODEL_RATE_HZ as usize];

fn mouth() -> (Mouth, Instant, Actions) {
    holding(0)
}

fn holding(hold_max_ms: u32) -> (Mouth, Instant, Actions) {
    let playout = Playout { pace: Rhythm::RealTime, lead_ms: 300, frame_ms: 100, hold_max_ms };
    #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
    let now = Instant::now();
    (Mouth::new(65_536, playout), now, Actions::default())
}

/// What the client is told: lengths of audio in ms, and events by their first letters.
fn told(out: &mut Actions) -> Vec<String> {
    let tell = |action| match action {
        Action::Client(ClientCommand::Audio(bytes)) => Some((bytes.len() / 48).to_string()),
        Action::Client(ClientCommand::SpeakingStarted { .. }) => Some("start".to_owned()),
        Action::Client(ClientCommand::SpeakingEnded { cancelled, audio_ms, .. }) => {
            Some(format!("end {audio_ms} {cancelled}"))
        }
        Action::Client(ClientCommand::Error(_)) => Some("error".to_owned()),
        _ => None,
    };
    std::iter::from_fn(|| out.pop()).filter_map(tell).collect()
}

#[test]
fn pieces_of_any_size_leave_in_whole_frames_as_they_are_heard() {
    let (mut mouth, now, mut out) = mouth();
    mouth.begin(now, By::Turn, "t".into(), String::new());
    for piece in SECOND[..9_600].chunks(1_000) {
        mouth.say(now, piece, &mut out);
    }
    assert_eq!(told(&mut out).len(), 1 + 7, "seven times 41 ms: the lead, and no piece more");
    mouth.finish(now, &mut out);
    let mut at = now;
    while let Some(next) = mouth.next_timeout(at) {
        assert!(next > at, "nothing is due that was not done");
        at = next;
        mouth.release(at, &mut out);
    }
    assert_eq!(told(&mut out), ["100", "8", "end 400 false"], "then in frames of their own length");
    assert_eq!((at - now).as_millis(), 400, "when the last of it was heard");
}

#[test]
fn what_is_too_far_ahead_is_dropped_and_said_once() {
    let (mut mouth, now, mut out) = mouth();
    mouth.begin(now, By::Turn, "t".into(), String::new());
    for second in 1..=100 {
        mouth.say(now, &SECOND, &mut out);
        assert_eq!(mouth.is_ahead(now), second > 30, "{second}");
    }
    assert_eq!(mouth.unheard(now).as_secs(), 91);
    assert_eq!(told(&mut out).iter().filter(|told| *told == "error").count(), 1);
    mouth.cancel(now, &mut out);
    assert_eq!((told(&mut out), mouth.is_busy()), (vec!["end 300 true".to_owned()], false));
}

/// How long the first audio of a text with such first pieces is held, ms.
fn held(by: By, pieces: &[usize], hold_max_ms: u32) -> u128 {
    let (mut mouth, now, mut out) = holding(hold_max_ms);
    mouth.begin(now, by, "t".into(), String::new());
    for piece in pieces {
        mouth.say(now, &SECOND[..*piece], &mut out);
    }
    let told = told(&mut out);
    let due = if told.is_empty() { mouth.next_timeout(now).unwrap() } else { now };
    (due - now).as_millis()
}

#[test]
fn a_turn_whose_first_piece_is_short_is_held_until_the_next_must_come() {
    assert_eq!(held(By::Turn, &[12_000], 600), 500);
    assert_eq!(held(By::Turn, &[2_400], 600), 600, "no longer than the profile says");
    assert_eq!(held(By::Turn, &[12_000], 0), 0);
    assert_eq!(held(By::Turn, &[24_000], 600), 0, "nothing for a whole unit");
    assert_eq!(held(By::Turn, &[2_400; 10], 600), 0, "in however many pieces");
    assert_eq!(held(By::Request, &[12_000], 600), 0, "nothing for a text");
    let (mut mouth, now, mut out) = holding(600);
    mouth.begin(now, By::Turn, "t".into(), String::new());
    mouth.say(now, &SECOND[..12_000], &mut out);
    assert_eq!(told(&mut out), [""; 0]);
    mouth.finish(now, &mut out);
    assert_eq!(told(&mut out), ["start", "100", "100", "100"], "a turn that is over waits for nothing");
}
