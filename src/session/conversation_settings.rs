//! Settings of the client that concern conversations, in turns and in full duplex. Those that the profile or its upstreams cannot
//! follow are noted.

use super::{Session, client_requests::NO_TOOLS, outbox::Observation};
use crate::vocabulary::ToolOffer;

/// Note on tools for operators.
const TOOLS_NOTE: &str = "tools: the model is prompted, not trained, to call them; each call is checked against its schema, and a wrong one is asked for once more";

impl Session {
    pub(super) fn set_instructions(&mut self, text: String) {
        match &mut self.assistant {
            Some(assistant) => assistant.settings.instructions = Some(text),
            None => self.note_no_effect("instructions do nothing", "its prompts are in its file"),
        }
    }

    /// Transcribes the user from now on, or no longer, beside a conversation. A profile in full duplex that transcribes the user
    /// always does, because the words are part of later prompts.
    pub(super) fn transcribe_user(&mut self, on: bool) {
        let profile = &self.setup.profile;
        if profile.answers.is_some() {
            self.transcriber.wants_transcript = on;
        } else if profile.dialogue.is_some() {
            let is_wanted = (on && self.setup.can_transcribe) || profile.transcribes_user();
            self.transcriber.wants_transcript = is_wanted;
            self.intake.speech_input.record_utterances(is_wanted);
            if on && !is_wanted {
                self.note_no_effect("a transcript of the user is not made", "no upstream transcribes");
            }
        }
    }

    pub(super) fn set_max_tokens(&mut self, max: Option<u32>) {
        match &mut self.assistant {
            Some(assistant) => assistant.settings.max_tokens = max,
            None if max.is_some() => {
                self.note_no_effect("a bound on answers does nothing", "its model speaks in full duplex");
            }
            None => {}
        }
    }

    pub(super) fn set_temperature(&mut self, temperature: Option<f64>) {
        let because = match &mut self.assistant {
            Some(assistant) if self.setup.takes_temperature => {
                return assistant.settings.temperature = temperature;
            }
            Some(_) => "its upstreams have none for single answers",
            None => "it is in its file",
        };
        if temperature.is_some() {
            self.note_no_effect("a temperature does nothing", because);
        }
    }

    /// Sets the tools that the model may call.
    pub(super) fn set_tools(&mut self, offer: ToolOffer) {
        let note = match &mut self.assistant {
            Some(assistant) if self.setup.profile.calls_tools() => {
                let has_tools = !offer.tools.is_empty();
                assistant.settings.tools = offer;
                Some(Observation::Note(TOOLS_NOTE.to_owned())).filter(|_| has_tools)
            }
            _ if offer.tools.is_empty() => None,
            _ => return self.note_no_effect("tools do nothing", NO_TOOLS),
        };
        note.into_iter().for_each(|note| self.tools.out.observe(note));
    }
}
