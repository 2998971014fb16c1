//! The user's transcript for protocols whose clients append its parts: what is new in a partial transcript, and the spaces
//! between the transcripts of a turn.
//!
//! A client cannot take words back. While a decode revises words that were sent, nothing is new.

/// The words of the user on one connection.
#[derive(Debug, Default)]
pub(super) struct UserWords {
    /// The current utterance, and its words that were sent.
    segment_id: u32,
    sent: String,
    /// The transcript that is being sent, behind a space if it is not the first of the user's turn.
    joined: String,
    /// The user's turn has a transcript.
    has_transcript: bool,
}

impl UserWords {
    /// The words behind those that were sent; `None` if nothing does.
    pub(super) fn take_new<'t>(&mut self, segment_id: u32, text: &'t str) -> Option<&'t str> {
        if self.segment_id != segment_id {
            self.segment_id = segment_id;
            self.sent.clear();
        }
        let new = text.strip_prefix(self.sent.as_str()).filter(|new| !new.is_empty())?;
        self.sent.push_str(new);
        Some(new)
    }

    /// Adds the transcript of an utterance to the user's turn.
    pub(super) fn add_transcript(&mut self, text: &str) {
        self.joined.clear();
        self.joined.push_str(if self.has_transcript { " " } else { "" });
        self.joined.push_str(text);
        self.has_transcript = true;
    }

    /// The last transcript, behind a space if it is not the first of the user's turn.
    pub(super) fn joined(&self) -> &str {
        &self.joined
    }

    /// Ends the user's turn.
    pub(super) const fn end_turn(&mut self) {
        self.has_transcript = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revised_words_are_not_sent_twice() {
        let mut words = UserWords::default();
        let mut sent = Vec::new();
        for (segment_id, text) in
            [(1, "go"), (1, "go"), (1, "go for"), (1, "Go fore"), (1, "go forward"), (2, "go"), (2, "")]
        {
            sent.extend(words.take_new(segment_id, text).map(str::to_owned));
        }
        assert_eq!(sent, ["go", " for", "ward", "go"]);
    }
}
