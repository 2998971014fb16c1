//! Finds what is new in the user's transcript so far, for protocols whose clients append partial transcripts.
//!
//! A client cannot take words back. While a decode revises words that were sent, nothing is new.

/// The words of the current utterance that were sent.
#[derive(Debug, Default)]
pub(super) struct UserWords {
    segment_id: u32,
    sent: String,
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
