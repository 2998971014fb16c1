//! Which of the model's words the client has, and which wait.

use super::sentences::Sentences;

/// The model's words on one connection.
#[derive(Debug)]
pub(super) struct AnswerWords {
    /// The words, for protocols with [`crate::vocabulary::EventName::AnswerSentence`].
    pub(super) sentences: Sentences,
    /// The same words, for protocols with [`crate::vocabulary::EventName::AnswerDelta`].
    pub(super) deltas: Sentences,
    /// Words of an answer whose first audio has not been announced. They wait for the announcement.
    pub(super) unannounced: Option<WaitingWords>,
    /// The client knows of a speech that has not ended.
    pub(super) is_speaking: bool,
    /// Answers are spoken.
    pub(super) speaks: bool,
    /// The words of spoken answers are sent.
    pub(super) sends_spoken: bool,
}

/// The words of an answer so far.
#[derive(Debug)]
pub(super) struct WaitingWords {
    pub(super) segment_id: u32,
    pub(super) text: String,
}

impl Default for AnswerWords {
    fn default() -> Self {
        Self {
            sentences: Sentences::default(),
            deltas: Sentences::default(),
            unannounced: None,
            is_speaking: false,
            speaks: true,
            sends_spoken: true,
        }
    }
}
