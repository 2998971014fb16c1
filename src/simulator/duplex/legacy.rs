//! What a step says in the legacy dialect: one message for each append, whatever came of it (field notes §4, §6.4).

use serde_json::json;

use super::{
    super::legacy::say_failure,
    Duplex, Step, Then,
    reply::{Say, What},
};
use crate::simulator::{
    messages,
    session_context::{Bench, Ending},
};

impl Duplex {
    /// The server has said that the context is full, and went on.
    pub(in super::super) const fn was_full(&self) -> bool {
        self.was_full
    }

    /// Says what the step brought.
    pub(super) fn legacy_step(
        &mut self,
        step: Step,
        documented: bool,
        bench: &mut Bench<'_>,
    ) -> Result<(), Ending> {
        let tokens = bench.model.kv_cache_length;
        combined(&step.says, tokens).into_iter().for_each(|message| bench.say(message));
        let reason = match step.then {
            Then::Next => return Ok(()),
            Then::Fails => {
                say_failure(bench, documented, "simulated: the step failed");
                return Ok(());
            }
            Then::ContextFull if !documented => {
                if !std::mem::replace(&mut self.was_full, true) {
                    bench.say(messages::legacy_closed("context_full"));
                }
                return Ok(());
            }
            Then::ContextFull => "context_full",
            Then::Crash(_) if documented => "error",
            Then::Crash(_) | Then::Abort => return Err(Ending::Aborted),
        };
        bench.say(messages::legacy_closed(reason));
        Err(Ending::Polite)
    }
}

/// All of a step in one message. Listening that was doubled comes twice; what would come behind it has no place here.
fn combined(says: &[Say], tokens: u64) -> Vec<String> {
    let listens = says.iter().filter(|say| matches!(say.what, What::Listen)).count();
    if says.first().is_some_and(|say| matches!(say.what, What::Listen)) {
        let listen = json!({"type": "response.listen", "kv_cache_length": tokens}).to_string();
        return vec![listen; listens];
    }
    let (mut text, mut audio) = (String::new(), Vec::new());
    for say in says {
        match &say.what {
            What::Text(part) => text.push_str(part),
            What::Audio(part) => audio.extend_from_slice(part),
            What::Listen | What::Done(_) => {}
        }
    }
    if says.is_empty() {
        return Vec::new();
    }
    let audio = Some(messages::base64_f32(&audio)).filter(|audio| !audio.is_empty());
    let delta = json!({
        "type": "response.output_audio.delta",
        "text": text, "audio": audio, "end_of_turn": listens > 0, "kv_cache_length": tokens,
    });
    vec![delta.to_string()]
}
