//! Queue of texts to speak: the client appends fragments and flushes them; texts are spoken in the order of flushes.
//!
//! Each flush is reported after its last audio. [`super::synthesizer`] speaks the texts, one at a time.

use std::collections::VecDeque;

/// Most characters waiting, including unflushed text: about an hour of speech.
const MAX_CHARS: usize = 60_000;
/// Most texts and flushes waiting.
const MAX_WAITING: usize = 256;

/// Fewest characters that are spoken before the client flushes.
const SENTENCES_MIN_CHARS: usize = 20;

/// Entry of the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TtsQueueItem {
    /// Text to speak.
    Text(String),
    /// Report that all texts before this flush were spoken; the number of the flush.
    Flushed(u32),
}

/// One session's queue.
#[derive(Debug, Default)]
pub(crate) struct TtsQueue {
    unflushed: String,
    waiting: VecDeque<TtsQueueItem>,
    /// Characters waiting, including `unflushed`.
    chars: usize,
    flushes: u32,
    clears: u32,
}

impl TtsQueue {
    /// Appends a fragment of text.
    ///
    /// # Errors
    /// Too much text waits; the fragment is rejected.
    pub(crate) fn append(&mut self, text: &str) -> Result<(), String> {
        let chars = text.chars().count();
        if self.chars + chars > MAX_CHARS {
            return Err(format!(
                "more than {MAX_CHARS} characters wait to be spoken; this text is not taken"
            ));
        }
        // Fragments may split a word, so only a new sentence gets a space before it.
        if self.unflushed.ends_with(['.', '!', '?']) && text.starts_with(char::is_uppercase) {
            self.unflushed.push(' ');
        }
        self.unflushed.push_str(text);
        self.chars += chars;
        Ok(())
    }

    /// Queues the appended text up to the end of its last whole sentence, without a report. A short beginning waits: it may be
    /// an abbreviation.
    pub(crate) fn enqueue_sentences(&mut self) {
        if self.waiting.len() >= MAX_WAITING {
            return;
        }
        let Some(end) = last_sentence_end(&self.unflushed) else { return };
        if self.unflushed[..end].chars().count() < SENTENCES_MIN_CHARS {
            return;
        }
        let rest = self.unflushed.split_off(end);
        self.enqueue_unflushed();
        self.unflushed = rest;
    }

    /// Queues the appended text, and a report of its end.
    ///
    /// # Errors
    /// Too many texts wait; the appended text stays unflushed.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        if self.waiting.len() >= MAX_WAITING {
            return Err(format!(
                "more than {MAX_WAITING} texts wait to be spoken; flush when some of them are"
            ));
        }
        self.enqueue_unflushed();
        self.waiting.push_back(TtsQueueItem::Flushed(self.flushes));
        self.flushes += 1;
        Ok(())
    }

    /// Queues the appended text without a report of its end.
    pub(crate) fn enqueue_unflushed(&mut self) {
        let text = std::mem::take(&mut self.unflushed);
        if text.trim().is_empty() {
            self.chars -= text.chars().count().min(self.chars);
        } else {
            self.waiting.push_back(TtsQueueItem::Text(text));
        }
    }

    /// Discards everything that waits; returns the number of this clear.
    pub(crate) fn clear(&mut self) -> u32 {
        self.discard_all();
        let number = self.clears;
        self.clears += 1;
        number
    }

    /// Discards everything that waits.
    pub(crate) fn discard_all(&mut self) {
        self.unflushed.clear();
        self.waiting.clear();
        self.chars = 0;
    }

    /// True if an entry waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the next entry.
    pub(crate) fn pop(&mut self) -> Option<TtsQueueItem> {
        let next = self.waiting.pop_front();
        if let Some(TtsQueueItem::Text(text)) = &next {
            self.chars -= text.chars().count().min(self.chars);
        }
        next
    }
}

/// Where the last sentence ends that something follows.
fn last_sentence_end(text: &str) -> Option<usize> {
    let is_end = |letter: char, next: Option<char>| match letter {
        '.' | '!' | '?' => next.is_some_and(char::is_whitespace),
        '。' | '！' | '？' | '\n' => next.is_some(),
        _ => false,
    };
    let followed = |(at, letter): &(usize, char)| {
        let end = at + letter.len_utf8();
        is_end(*letter, text[end..].chars().next()).then_some(end)
    };
    text.char_indices().rev().find_map(|place| followed(&place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_join_into_texts_and_flushes_keep_their_order() {
        let mut queue = TtsQueue::default();
        for piece in ["Hel", "lo.", "How are", " you?"] {
            queue.append(piece).unwrap();
        }
        queue.flush().unwrap();
        queue.flush().unwrap();
        queue.append("Bye").unwrap();
        queue.enqueue_unflushed();
        assert_eq!(queue.pop(), Some(TtsQueueItem::Text("Hello. How are you?".into())));
        assert_eq!(queue.pop(), Some(TtsQueueItem::Flushed(0)));
        assert_eq!(queue.pop(), Some(TtsQueueItem::Flushed(1)));
        assert_eq!(queue.pop(), Some(TtsQueueItem::Text("Bye".into())));
        assert_eq!((queue.pop(), queue.chars), (None, 0));
    }

    #[test]
    fn whole_sentences_are_spoken_before_the_flush() {
        let mut queue = TtsQueue::default();
        let mut append = |text: &str| {
            queue.append(text).unwrap();
            queue.enqueue_sentences();
            queue.pop()
        };
        assert_eq!(append("Dr. Smith is"), None);
        assert_eq!(append(" here now. And"), Some(TtsQueueItem::Text("Dr. Smith is here now.".into())));
        assert_eq!(append(" more of it"), None);
        assert_eq!(append(". "), None, "too short");
        assert_eq!(
            append("然后再说一句很长很长的话，还没有完。好"),
            Some(TtsQueueItem::Text(" And more of it. 然后再说一句很长很长的话，还没有完。".into()))
        );
        queue.flush().unwrap();
        assert_eq!(queue.pop(), Some(TtsQueueItem::Text("好".into())));
        assert_eq!((queue.pop(), queue.chars), (Some(TtsQueueItem::Flushed(0)), 0));
    }

    #[test]
    fn waiting_texts_are_bounded_and_can_be_cleared() {
        let mut queue = TtsQueue::default();
        let piece = "a".repeat(2000);
        let accepted = (0..100).take_while(|_| queue.append(&piece).is_ok()).count();
        assert_eq!(accepted, MAX_CHARS / 2000);
        let flushed = (0..1000).take_while(|_| queue.flush().is_ok()).count();
        assert!(flushed <= MAX_WAITING && queue.has_waiting());
        assert_eq!((queue.clear(), queue.clear()), (0, 1));
        assert!(queue.pop().is_none() && queue.append(&piece).is_ok());
    }
}
