//! What a session measures of itself, in virtual time: the figures are those that happened.

use std::time::Duration;

use serde_json::json;
use voxbridge::session::{Asked, Figure, Observation, Purpose, Reason, Stage, State};

use super::{
    flavour::Flavour,
    mic::{Mic, ask, spoken, voices},
    ms,
    pair::{Pair, PairConfig, recording, zeros},
};

fn figures(pair: &Pair) -> impl Iterator<Item = Figure> {
    pair.observed.iter().filter_map(|seen| match seen {
        Observation::Measured(figure) => Some(*figure),
        _ => None,
    })
}

fn all<T>(pair: &Pair, wanted: impl Fn(Figure) -> Option<T>) -> Vec<T> {
    figures(pair).filter_map(wanted).collect()
}

/// One way takes so long.
const LATENCY: Duration = ms(20);
const ROUND: Duration = ms(40);

fn config(profile: &'static str) -> PairConfig {
    let mut config = PairConfig { profile, latency: LATENCY, seed: 7, ..PairConfig::default() };
    Flavour::Pytorch.serves(&mut config);
    config.simulator.timing.init = ms(2000);
    config.simulator.timing.listen_step = ms(200);
    config.simulator.timing.speak_step = ms(600);
    config
}

#[test]
fn an_interrupted_conversation_tells_what_it_took() {
    let (mut pair, mut mic) = (Pair::new(config("conversation")), Mic::of_ms(20));
    assert_eq!(pair.bridge().state(), State::Opening);
    mic.silence(&mut pair, 4200);
    assert_eq!(pair.bridge().state(), State::Idle);
    ask(&mut pair, &mut mic, 0);
    assert!(mic.until(&mut pair, |pair| !pair.events("tts.speaking_start").is_empty(), 15_000));
    assert_eq!(pair.bridge().state(), State::Speaking);
    mic.silence(&mut pair, 300);
    mic.record(&mut pair, &voices()[1].samples);
    mic.silence(&mut pair, 3000);
    assert!(spoken(&pair)[0].cancelled());
    let steps = all(&pair, |figure| match figure {
        Figure::Step { took, unit, .. } => Some((took, unit)),
        _ => None,
    });
    let answered = pair.received_count("\"response.listen\"") + spoken(&pair).len();
    assert!(steps.len() >= answered.min(8), "{} steps", steps.len());
    for (took, unit) in &steps {
        assert_eq!(*unit, Duration::from_secs(1));
        let step = if *took < ms(500) { ms(200) } else { ms(600) };
        assert!(*took >= step + ROUND && *took <= step + ROUND + ms(550), "{took:?}");
    }
    pair.client(&json!({"type": "session.close"}));
    let opened = all(&pair, |figure| match figure {
        Figure::LaneDialled { purpose, .. } => Some(purpose),
        _ => None,
    });
    assert_eq!(opened, [Purpose::Converse]);
    let init = all(&pair, |figure| match figure {
        Figure::LaneInitialised { after, .. } => Some(after),
        _ => None,
    });
    assert_eq!(init, [ms(2000) + ROUND]);
    let audio = all(&pair, |figure| match figure {
        Figure::FirstAudio { asked, after } => Some((asked, after)),
        _ => None,
    });
    assert!(audio.iter().all(|(asked, _)| *asked == Asked::Question), "{audio:?}");
    assert!(audio[0].1 > ms(600) + ROUND && audio[0].1 < ms(5000), "{audio:?}");
    let stage = |wanted: Stage| {
        all(&pair, |figure| match figure {
            Figure::BargeIn { stage, after } if stage == wanted => Some(after),
            _ => None,
        })
    };
    // A hundred milliseconds of speech decide, and a frame has to be whole.
    assert!(stage(Stage::Noticed)[0] >= ms(96) && stage(Stage::Noticed)[0] <= ms(140));
    assert_eq!(stage(Stage::Told)[0], Duration::ZERO, "with the frame that decides");
    let yielded = stage(Stage::Yielded)[0];
    assert!(yielded >= ms(200) + ROUND && yielded < ms(2000), "{yielded:?}");
    assert_eq!(all(&pair, ending), [Reason::ClientClose]);
    assert_eq!(pair.bridge().state(), State::Ending);
    let tally = pair.bridge().tally().unwrap();
    assert!(tally.came > Duration::from_secs(9) && tally.appended > ms(4000), "{tally:?}");
    let heard = pair.audio().len() as f64 / 24_000.0;
    assert!(tally.sent.as_secs_f64() >= heard - 0.001 && heard > 0.5, "{tally:?} {heard}");
}

fn ending(figure: Figure) -> Option<Reason> {
    match figure {
        Figure::Ending(reason) => Some(reason),
        _ => None,
    }
}

#[test]
fn an_utterance_and_a_text_tell_what_they_took() {
    let mut pair = Pair::new(config("speech"));
    let question = [recording("goforward_16k.wav"), zeros(2000)].concat();
    pair.stream(&question, 20);
    assert_eq!(pair.events("transcript.final").len(), 1);
    assert_eq!(pair.bridge().state(), State::Idle);
    pair.client(&json!({"type": "tts.speak", "text": "Hello there.", "request_id": "a"}));
    assert_eq!(pair.bridge().state(), State::Answering);
    let asked = pair.now();
    pair.next_event("tts.speaking_start");
    let took = pair.now() - asked;
    pair.advance(ms(2000));
    assert_eq!(pair.events("tts.speaking_end").len(), 1);
    pair.close_client();
    let audio = all(&pair, |figure| match figure {
        Figure::FirstAudio { asked, after } => Some((asked, after)),
        _ => None,
    });
    assert_eq!(audio, [(Asked::Text, took)]);
    let words = all(&pair, |figure| match figure {
        Figure::FirstTranscript { after } => Some(after),
        _ => None,
    });
    assert_eq!(words.len(), 1);
    assert!(words[0] < Duration::from_secs(10), "{words:?}");
    let lanes = all(&pair, |figure| match figure {
        Figure::LaneDialled { purpose, .. } => Some(purpose),
        _ => None,
    });
    assert_eq!(lanes, [Purpose::Transcribe, Purpose::Speak]);
    assert_eq!(all(&pair, |figure| matches!(figure, Figure::LaneGranted { .. }).then_some(())).len(), 2);
    assert_eq!(all(&pair, ending), [Reason::ClientGone]);
    let tally = pair.bridge().tally().unwrap();
    assert_eq!(tally.came.as_millis(), question.len() as u128 / 16);
    assert_eq!(tally.sent.as_millis(), pair.audio().len() as u128 / 24);
}

#[test]
fn a_relayed_session_tells_of_its_lane() {
    let mut config = config("relay");
    config.query = "mode=chat".into();
    let mut pair = Pair::relayed(config, &["minicpm-o"]);
    pair.advance(Duration::from_secs(1));
    assert_eq!(all(&pair, |figure| matches!(figure, Figure::LaneGranted { .. }).then_some(())).len(), 1);
    pair.close_client();
    assert_eq!(all(&pair, ending), [Reason::ClientGone]);
    assert_eq!(pair.bridge().tally(), None);
}
