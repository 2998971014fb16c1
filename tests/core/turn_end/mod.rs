//! The end of the user's turn: judged by a model, or by a fixed silence; and questions that are asked before it is certain.

mod eager;
mod flux;
#[cfg(feature = "turn-model")]
mod gain;
mod judged;
mod properties;

use voxbridge::session::{
    EarlyQuestionResult::{self, Asked},
    TurnDecision,
};

use super::*;

/// Names of profiles, what they extend, and what is different.
const PROFILES: [[&str; 3]; 7] = [
    ["judged-speech", "speech", "[listen]\nturn_end = \"semantic\""],
    ["judged-slow", "judged-speech", "[listen]\nend_ms = 700"],
    ["judged-assistant", "assistant", "[listen]\nturn_end = \"semantic\""],
    ["eager", "assistant", "[answer]\neager = true"],
    ["eager-forgetful", "eager", "[answer]\nhistory_audio_max_ms = 4000"],
    ["judged-eager", "eager", "[listen]\nturn_end = \"semantic\""],
    ["judged-conversation", "conversation", "[listen]\nturn_end = \"semantic\""],
];

/// A session of Macaw's client with two workers. The judge takes 80 ms and always gives this probability.
fn config(profile: &'static str, probability: Option<f32>) -> HarnessConfig {
    let mut config = HarnessConfig {
        profile,
        judge: Some(judge(80, move |_| probability)),
        ..HarnessConfig::default().workers(2)
    };
    PROFILES.iter().for_each(|[name, extends, toml]| config.add_profile(name, extends, toml));
    config
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
        let audio = base64::Engine::encode(&STANDARD, bytes_of(&fast));
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
