//! Queue of texts to speak: the client appends fragments and flushes them; texts are spoken in the order of flushes.
//!
//! Each flush is reported after its last audio. Fragments with different ids belong to different texts, which are collected and
//! flushed on their own. [`super::synthesizer`] speaks the texts, one at a time.

use std::collections::VecDeque;

use super::text_normalization::complete_sentences;

/// Most characters waiting, including unflushed text: about an hour of speech.
const MAX_CHARS: usize = 60_000;
/// Most texts and flushes waiting.
const MAX_WAITING: usize = 256;
/// Most texts that are collected at a time.
const MAX_COLLECTED: usize = 16;

/// Entry of the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TtsQueueItem {
    /// Text to speak, and its id.
    Text(String, Option<String>),
    /// Report that all texts before this flush were spoken; the number of the flush, and its id.
    Flushed(u32, Option<String>),
}

/// One session's queue.
#[derive(Debug, Default)]
pub(crate) struct TtsQueue {
    /// Complete sentences are spoken without a flush.
    speaks_sentences: bool,
    collected: Vec<CollectedText>,
    waiting: VecDeque<TtsQueueItem>,
    /// Characters waiting, including collected ones.
    chars: usize,
    flushes: u32,
    clears: u32,
    /// Id of the text that was taken last.
    last_taken: Option<String>,
}

/// Fragments of a text that was not flushed.
#[derive(Debug, Default)]
struct CollectedText {
    id: Option<String>,
    text: String,
    /// Bytes of its complete sentences.
    complete: usize,
}

impl TtsQueue {
    /// An empty queue. With `speaks_sentences`, complete sentences are spoken without a flush.
    pub(crate) fn new(speaks_sentences: bool) -> Self {
        Self { speaks_sentences, ..Self::default() }
    }

    /// Appends a fragment of the text with this id.
    ///
    /// # Errors
    /// Too much text waits; the fragment is rejected.
    pub(crate) fn append(&mut self, text: &str, id: Option<String>) -> Result<(), String> {
        let chars = text.chars().count();
        if self.chars + chars > MAX_CHARS {
            return Err(format!(
                "more than {MAX_CHARS} characters wait to be spoken; this text is not taken"
            ));
        }
        if self.collected.len() >= MAX_COLLECTED {
            self.collected.retain(|collected| !collected.text.trim().is_empty() || collected.id == id);
        }
        let known = self.collected.iter().position(|collected| collected.id == id);
        if known.is_none() && self.collected.len() >= MAX_COLLECTED {
            return Err(format!(
                "more than {MAX_COLLECTED} texts are collected at a time; flush some of them"
            ));
        }
        let at = known.unwrap_or_else(|| {
            self.collected.push(CollectedText { id, ..CollectedText::default() });
            self.collected.len() - 1
        });
        let collected = &mut self.collected[at];
        // Fragments may split a word, so only a new sentence gets a space before it.
        if collected.text.ends_with(['.', '!', '?']) && text.starts_with(char::is_uppercase) {
            collected.text.push(' ');
        }
        collected.text.push_str(text);
        self.chars += chars;
        if self.speaks_sentences {
            collected.complete += complete_sentences(&collected.text[collected.complete..]);
        }
        Ok(())
    }

    /// Queues the collected text with this id, or all of it without an id, and a report of its end.
    ///
    /// # Errors
    /// Too many texts wait; the collected text stays.
    pub(crate) fn flush(&mut self, id: Option<String>) -> Result<(), String> {
        self.enqueue(id.as_deref())?;
        self.waiting.push_back(TtsQueueItem::Flushed(self.flushes, id));
        self.flushes += 1;
        Ok(())
    }

    /// Queues the collected text with this id, or all of it without an id, without a report of its end.
    ///
    /// # Errors
    /// Too many texts wait; the collected text stays.
    pub(crate) fn enqueue(&mut self, id: Option<&str>) -> Result<(), String> {
        if self.waiting.len() >= MAX_WAITING {
            return Err(format!(
                "more than {MAX_WAITING} texts wait to be spoken; flush when some of them are"
            ));
        }
        let is_meant = |collected: &mut CollectedText| id.is_none() || collected.id.as_deref() == id;
        for collected in self.collected.extract_if(.., is_meant) {
            match collected.text.trim().is_empty() {
                true => self.chars -= collected.text.chars().count().min(self.chars),
                false => self.waiting.push_back(TtsQueueItem::Text(collected.text, collected.id)),
            }
        }
        Ok(())
    }

    /// Queues all collected text, at the end of the session's input.
    pub(crate) fn enqueue_all(&mut self) {
        for collected in std::mem::take(&mut self.collected) {
            if !collected.text.trim().is_empty() {
                self.waiting.push_back(TtsQueueItem::Text(collected.text, collected.id));
            }
        }
    }

    /// Discards what waits and has this id, or everything without an id. Returns the number of this clear, and whether the text
    /// that was taken last is meant, too.
    pub(crate) fn clear(&mut self, id: Option<&str>) -> (u32, bool) {
        let concerns_last = id.is_none() || self.last_taken.as_deref() == id;
        match id {
            None => self.discard_all(),
            Some(id) => {
                self.collected.retain(|collected| collected.id.as_deref() != Some(id));
                self.waiting.retain(|item| item.id() != Some(id));
                let collected = self.collected.iter().map(|collected| collected.text.as_str());
                let texts = collected.chain(self.waiting.iter().map(TtsQueueItem::text));
                self.chars = texts.map(|text| text.chars().count()).sum();
            }
        }
        let number = self.clears;
        self.clears += 1;
        (number, concerns_last)
    }

    /// Discards everything that waits.
    pub(crate) fn discard_all(&mut self) {
        self.collected.clear();
        self.waiting.clear();
        self.chars = 0;
    }

    /// True if an entry waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.collected.iter().any(|collected| collected.complete > 0)
    }

    /// Takes the next entry. Complete sentences of texts that were not flushed come last.
    pub(crate) fn pop(&mut self) -> Option<TtsQueueItem> {
        let next = self.waiting.pop_front().or_else(|| self.take_sentences());
        if let Some(TtsQueueItem::Text(text, id)) = &next {
            self.chars -= text.chars().count().min(self.chars);
            self.last_taken.clone_from(id);
        }
        next
    }

    /// Takes the complete sentences of the oldest text that has some.
    fn take_sentences(&mut self) -> Option<TtsQueueItem> {
        let collected = self.collected.iter_mut().find(|collected| collected.complete > 0)?;
        let rest = collected.text.split_off(std::mem::take(&mut collected.complete));
        let sentences = std::mem::replace(&mut collected.text, rest);
        Some(TtsQueueItem::Text(sentences, collected.id.clone()))
    }
}

impl TtsQueueItem {
    fn id(&self) -> Option<&str> {
        match self {
            Self::Text(_, id) | Self::Flushed(_, id) => id.as_deref(),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Text(text, _) => text,
            Self::Flushed(..) => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str, id: Option<&str>) -> Option<TtsQueueItem> {
        Some(TtsQueueItem::Text(text.into(), id.map(str::to_owned)))
    }

    fn flushed(number: u32, id: Option<&str>) -> Option<TtsQueueItem> {
        Some(TtsQueueItem::Flushed(number, id.map(str::to_owned)))
    }

    #[test]
    fn fragments_join_into_texts_and_flushes_keep_their_order() {
        let mut queue = TtsQueue::default();
        for piece in ["Hel", "lo.", "How are", " you?"] {
            queue.append(piece, None).unwrap();
        }
        queue.flush(None).unwrap();
        queue.flush(None).unwrap();
        queue.append("Bye", None).unwrap();
        queue.enqueue_all();
        assert_eq!(queue.pop(), text("Hello. How are you?", None));
        assert_eq!(queue.pop(), flushed(0, None));
        assert_eq!(queue.pop(), flushed(1, None));
        assert_eq!(queue.pop(), text("Bye", None));
        assert_eq!((queue.pop(), queue.chars), (None, 0));
    }

    #[test]
    fn texts_with_ids_are_collected_and_cleared_on_their_own() {
        let mut queue = TtsQueue::default();
        for (piece, id) in [("One ", "a"), ("Two ", "b"), ("more", "a"), (" ", "c")] {
            queue.append(piece, Some(id.to_owned())).unwrap();
        }
        queue.flush(Some("a".to_owned())).unwrap();
        queue.flush(Some("c".to_owned())).unwrap();
        queue.enqueue(Some("b")).unwrap();
        assert_eq!(queue.pop(), text("One more", Some("a")));
        assert_eq!(queue.clear(Some("b")), (0, false));
        assert_eq!(queue.clear(Some("a")), (1, true), "its text is being spoken");
        assert_eq!(queue.pop(), flushed(1, Some("c")));
        assert_eq!((queue.pop(), queue.chars), (None, 0));
    }

    #[test]
    fn complete_sentences_are_spoken_without_a_flush() {
        let mut queue = TtsQueue::new(true);
        for piece in ["It costs 3.", "5 euro. Is", " that much? I do"] {
            queue.append(piece, None).unwrap();
        }
        assert!(queue.has_waiting());
        assert_eq!(queue.pop(), text("It costs 3.5 euro. Is that much? ", None));
        assert!(!queue.has_waiting() && queue.pop().is_none());
        queue.append(" not.", None).unwrap();
        queue.flush(None).unwrap();
        assert_eq!(queue.pop(), text("I do not.", None));
        assert_eq!((queue.pop(), queue.chars), (flushed(0, None), 0));
    }

    #[test]
    fn waiting_texts_are_bounded_and_can_be_cleared() {
        let mut queue = TtsQueue::default();
        let piece = "a".repeat(2000);
        let accepted = (0..100).take_while(|_| queue.append(&piece, None).is_ok()).count();
        assert_eq!(accepted, MAX_CHARS / 2000);
        let flushed = (0..1000).take_while(|_| queue.flush(None).is_ok()).count();
        assert!(flushed <= MAX_WAITING && queue.has_waiting());
        assert_eq!((queue.clear(None), queue.clear(None)), ((0, true), (1, true)));
        assert!(queue.pop().is_none() && queue.append(&piece, None).is_ok());
        queue.discard_all();
        let texts = (0..100).take_while(|id| queue.append("a", Some(id.to_string())).is_ok()).count();
        assert_eq!(texts, MAX_COLLECTED);
    }
}
