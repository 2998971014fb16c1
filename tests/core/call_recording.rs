//! Recordings of whole sessions: each side is where the client heard it.

use voxbridge::{
    recording::{AudioPart, RATE_HZ, Timeline},
    session::RecordedItem,
};

use super::*;

/// Most samples between a recording and the client's own capture: 20 ms.
const BOUND: isize = RATE_HZ as isize / 50;

/// What the client plays, at the recording's rate: each frame after the one before, and nothing after a cut.
fn client_capture(harness: &Harness) -> Vec<i16> {
    let mut capture: Vec<i16> = Vec::new();
    let position = |at: &Duration| (at.as_nanos() * u128::from(RATE_HZ) / 1_000_000_000) as usize;
    for (at, frame) in &harness.log {
        match frame {
            ClientFrame::Binary(bytes) => {
                let start = capture.len().max(position(at));
                capture.resize(start, 0);
                capture
                    .extend(bytes.chunks_exact(2).map(|sample| i16::from_le_bytes([sample[0], sample[1]])));
            }
            ClientFrame::Event(event)
                if event["type"] == "tts.speaking_end" && event["cancelled"] == true =>
            {
                capture.truncate(position(at));
            }
            _ => {}
        }
    }
    capture
}

fn recorded(harness: &Harness) -> Vec<[i16; 2]> {
    let mut timeline = Timeline::new(harness.started(), Duration::from_secs(10));
    for (at, item) in &harness.recorded {
        timeline.push(*at, item);
    }
    let AudioPart { position, samples, .. } = timeline.finish(harness.started() + harness.now());
    assert_eq!((position, timeline.left_out()), (0, Duration::ZERO));
    samples
}

/// The shift at which one signal is likest the other, and how like they are then, 0 to 1.
fn best_shift(signal: &[i16], other: &[i16]) -> (isize, f64) {
    let likeness = |shift: isize| {
        let pairs = signal.iter().enumerate().step_by(7).filter_map(|(at, sample)| {
            Some((f64::from(*sample), f64::from(*other.get(at.checked_add_signed(shift)?)?)))
        });
        let (mut both, mut one, mut two) = (0.0, 1.0, 1.0);
        for (a, b) in pairs {
            (both, one, two) = (both + a * b, one + a * a, two + b * b);
        }
        both / (one * two).sqrt()
    };
    let shifts = (-2 * BOUND..=2 * BOUND).step_by(4).map(|shift| (shift, likeness(shift)));
    shifts.max_by(|one, two| one.1.total_cmp(&two.1)).unwrap()
}

#[test]
fn both_sides_are_where_the_client_heard_them_and_the_model_stops_at_a_barge_in() {
    for profile in ["assistant", "conversation"] {
        let config = HarnessConfig { profile, is_recorded: true, ..HarnessConfig::default() };
        let mut harness = Harness::new(config);
        let mut spoken = Vec::new();
        let mut stream = |harness: &mut Harness, samples: &[i16]| {
            harness.stream(samples, 20);
            spoken.extend_from_slice(samples);
        };
        for _ in 0..3 {
            let earlier = harness.events("tts.speaking_start").len();
            stream(&mut harness, &recording("goforward_16k.wav"));
            while harness.events("tts.speaking_start").len() == earlier {
                stream(&mut harness, &zeros(100));
            }
            stream(&mut harness, &zeros(700));
        }
        harness.send_json(&json!({"type": "tts.cancel"}));
        stream(&mut harness, &zeros(1_000));
        let recorded = recorded(&harness);
        let model: Vec<i16> = recorded.iter().map(|sides| sides[1]).collect();
        let (shift, likeness) = best_shift(&client_capture(&harness), &model);
        assert!(shift.abs() <= BOUND && likeness > 0.99, "{profile}: model {shift} {likeness}");
        let user: Vec<i16> = recorded.iter().map(|sides| sides[0]).collect();
        let spoken: Vec<i16> = (0..spoken.len() * 3 / 2).map(|at| spoken[at * 2 / 3]).collect();
        let (shift, likeness) = best_shift(&spoken, &user);
        assert!(shift.abs() <= BOUND && likeness > 0.9, "{profile}: user {shift} {likeness}");
        let events: Vec<_> =
            harness.recorded.iter().filter(|(_, item)| matches!(item, RecordedItem::Event(_))).collect();
        let has = |is: fn(&ClientEvent) -> bool| {
            events.iter().any(|(_, item)| matches!(item, RecordedItem::Event(event) if is(event)))
        };
        assert!(has(|event| matches!(event, ClientEvent::AnswerEnded { cancelled: true, .. })), "{profile}");
        assert!(has(|event| matches!(event, ClientEvent::TranscriptFinal { .. })), "{profile}");
    }
}

/// A session that is not recorded makes nothing for a recording, and a recorded one sends the same to its client.
#[test]
fn recording_changes_nothing_for_the_client() {
    let run = |is_recorded| {
        let mut harness =
            Harness::new(HarnessConfig { profile: "assistant", is_recorded, ..HarnessConfig::default() });
        harness.stream(&recording("goforward_16k.wav"), 20);
        harness.stream(&zeros(3_000), 20);
        (harness.recorded.len(), harness.log)
    };
    let (plain, recorded) = (run(false), run(true));
    assert!(plain.0 == 0 && recorded.0 > 100, "{} {}", plain.0, recorded.0);
    assert_eq!(format!("{:?}", plain.1), format!("{:?}", recorded.1));
}
