//! Counts the tokens of an answer or a turn, request by request: a chat turn, or one unit of a conversation.

use crate::vocabulary::{
    ChatTurn, ConversationInit, EntryPart, LaneEvent, MessageMeta, ReportedUsage, TokenUsage, VoiceSample,
    usage::{PICTURE_TOKENS, input_audio_tokens, letter_tokens, letters, output_audio_tokens, text_tokens},
};

/// Tokens since the last answer.
#[derive(Debug, Default)]
pub(crate) struct UsageMeter {
    /// Tokens of the requests before.
    earlier: TokenUsage,
    /// Estimated input of the request in progress.
    input: TokenUsage,
    output_letters: u32,
    output_samples: u64,
    /// Tokens of the request in progress as the upstream reported them.
    reported: Option<ReportedUsage>,
}

impl UsageMeter {
    /// Begins to count a request whose input is estimated like this.
    pub(crate) fn begin_request(&mut self, input: TokenUsage) {
        *self = Self { earlier: self.total(), input, ..Self::default() };
    }

    /// Counts a message of the upstream.
    pub(crate) fn note_message(&mut self, event: &LaneEvent<'_>, meta: MessageMeta<'_>) {
        match event {
            LaneEvent::Text(text) => self.add_text(text),
            LaneEvent::Audio(samples) => self.output_samples += samples.len() as u64,
            // The end of an answer that was not streamed has all of it.
            LaneEvent::Done { text, audio } => {
                if self.output_letters == 0 {
                    self.add_text(text.unwrap_or_default());
                }
                if self.output_samples == 0 {
                    self.output_samples = audio.len() as u64;
                }
            }
            _ => {}
        }
        self.reported = meta.usage.or(self.reported);
    }

    fn add_text(&mut self, text: &str) {
        self.output_letters = self.output_letters.saturating_add(letters(text));
    }

    /// Forgets the request in progress, which is repeated because its upstream failed.
    pub(crate) fn discard_request(&mut self) {
        *self = Self { earlier: self.earlier, ..Self::default() };
    }

    /// All tokens so far.
    pub(crate) fn total(&self) -> TokenUsage {
        let output_text = letter_tokens(self.output_letters);
        let output_audio = output_audio_tokens(self.output_samples);
        let estimate = TokenUsage { output_text, output_audio, ..self.input };
        self.earlier.plus(self.reported.map_or(estimate, |reported| reported.complete(estimate)))
    }

    /// Takes all tokens so far, because the answer has ended.
    pub(crate) fn take(&mut self) -> TokenUsage {
        std::mem::take(self).total()
    }
}

/// Estimated input of a chat turn: everything that it carries.
pub(crate) fn chat_input(turn: &ChatTurn) -> TokenUsage {
    let mut input = prompt_input(&turn.instructions, turn.voice.as_ref());
    if turn.voice.is_some() {
        input = input.plus(prompt_input(&turn.before_voice, None));
    }
    for part in turn.messages.iter().flat_map(|message| &message.parts) {
        let of_part = match part {
            EntryPart::Text(text) => prompt_input(text, None),
            EntryPart::Audio(samples) => {
                TokenUsage { input_audio: input_audio_tokens(samples.len() as u64), ..TokenUsage::default() }
            }
            EntryPart::Picture(_) => TokenUsage { input_images: PICTURE_TOKENS, ..TokenUsage::default() },
            // They are written as text before.
            EntryPart::Call(_) | EntryPart::Result(_) => TokenUsage::default(),
        };
        input = input.plus(of_part);
    }
    input
}

/// Estimated input of a conversation's beginning.
pub(crate) fn opening_input(init: &ConversationInit) -> TokenUsage {
    prompt_input(&init.prompt, init.voice.as_ref())
}

/// Estimated input of one unit of a conversation: its samples at 16 kHz, and perhaps a picture.
pub(crate) fn unit_input(samples: usize, has_picture: bool) -> TokenUsage {
    TokenUsage {
        input_audio: input_audio_tokens(samples as u64),
        input_images: if has_picture { PICTURE_TOKENS } else { 0 },
        ..TokenUsage::default()
    }
}

fn prompt_input(text: &str, voice: Option<&VoiceSample>) -> TokenUsage {
    TokenUsage {
        input_text: text_tokens(text),
        input_audio: voice.map_or(0, |voice| input_audio_tokens(voice.samples.len() as u64)),
        ..TokenUsage::default()
    }
}
