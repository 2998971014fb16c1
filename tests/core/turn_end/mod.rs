//! The end of the user's turn: judged by a model, or by a fixed silence; and questions that are asked before it is certain.

mod eager;
mod flux;
#[cfg(feature = "turn-model")]
mod gain;
mod judged;
mod properties;

use std::time::Duration;

use serde_json::json;

use crate::harness::{ClientFrame, Harness, HarnessConfig, ScriptedJudge, bytes_of, recording, voice, zeros};
use voxbridge::{
    session::{EarlyQuestionResult, Measurement, TurnDecision},
    simulator::SimulatorConfig,
    spelling::Library,
};

const PROFILES: [&str; 7] = [
    r#"
kind = "profile"
name = "judged-speech"
title = "speech, and a model judges the ends of turns"
extends = "speech"
[listen]
turn_end = "semantic"
"#,
    r#"
kind = "profile"
name = "judged-slow"
title = "speech, and a model judges the ends of turns, or else they take 700 ms"
extends = "judged-speech"
[listen]
end_ms = 700
"#,
    r#"
kind = "profile"
name = "judged-assistant"
title = "assistant, and a model judges the ends of turns"
extends = "assistant"
[listen]
turn_end = "semantic"
"#,
    r#"
kind = "profile"
name = "eager"
title = "assistant that asks early"
extends = "assistant"
[answer]
eager = true
"#,
    r#"
kind = "profile"
name = "eager-forgetful"
title = "assistant that asks early and keeps 4 s of audio"
extends = "eager"
[answer]
history_audio_max_ms = 4000
"#,
    r#"
kind = "profile"
name = "judged-eager"
title = "assistant that asks early, and a model judges the ends of turns"
extends = "eager"
[listen]
turn_end = "semantic"
"#,
    r#"
kind = "profile"
name = "judged-conversation"
title = "conversation whose profile wants the ends of turns judged"
extends = "conversation"
[listen]
turn_end = "semantic"
"#,
];

/// A session of Macaw's client with two workers. The judge takes 80 ms and always gives this probability.
fn config(profile: &'static str, probability: Option<f32>) -> HarnessConfig {
    let mut library = Library::embedded().unwrap();
    PROFILES.iter().for_each(|file| library.add("own.toml", file).unwrap());
    HarnessConfig {
        profile,
        library,
        simulator: SimulatorConfig { workers: 2, record: true, ..SimulatorConfig::default() },
        judge: Some(judge(80, move |_| probability)),
        ..HarnessConfig::default()
    }
}

fn judge(takes_ms: u64, verdict: impl FnMut(&[i16]) -> Option<f32> + 'static) -> ScriptedJudge {
    ScriptedJudge { takes: Duration::from_millis(takes_ms), verdict: Box::new(verdict) }
}

/// Streams speech and then silence. Returns the time from the end of the speech to this event, ms.
fn silence_before(harness: &mut Harness, event: &str, silence_ms: u64) -> Option<u64> {
    let seen = harness.events(event).len();
    harness.stream(&voice(1500), 20);
    let from = harness.now();
    harness.stream(&zeros(silence_ms), 20);
    let at = |(at, frame): &(Duration, ClientFrame)| (frame.name() == event).then_some(*at);
    let at = harness.log.iter().filter_map(at).nth(seen)?;
    Some((at.saturating_sub(from)).as_millis() as u64)
}

/// Streams audio of a client of OpenAI's protocol, which sends 24 kHz, in steps of 20 ms.
fn say(harness: &mut Harness, samples: &[i16]) {
    for chunk in samples.chunks(320) {
        let fast: Vec<i16> =
            chunk.chunks(2).flat_map(|pair| [pair[0], pair[0], *pair.last().unwrap()]).collect();
        let audio = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes_of(&fast));
        harness.send_json(&json!({"type": "input_audio_buffer.append", "audio": audio}));
        harness.advance(Duration::from_millis(20));
    }
}

fn decisions(harness: &Harness) -> Vec<TurnDecision> {
    let measured = harness.measurements().into_iter();
    let decision = |it| if let Measurement::TurnDecided(decision) = it { Some(decision) } else { None };
    measured.filter_map(decision).collect()
}

fn early_questions(harness: &Harness) -> Vec<EarlyQuestionResult> {
    let measured = harness.measurements().into_iter();
    let result = |it| if let Measurement::EarlyQuestion(result) = it { Some(result) } else { None };
    measured.filter_map(result).collect()
}
