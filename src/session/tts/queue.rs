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
    /// Text to speak.
    Text(QueuedText),
    /// Report that all texts before this flush were spoken; the number of the flush, and its id.
    Flushed(u32, Option<String>),
}

/// A text with its id, and the voice and the language that were set when its first fragment came.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct QueuedText {
    pub(crate) text: String,
    pub(crate) id: Option<String>,
    pub(crate) voice: Option<String>,
    pub(crate) language: Option<String>,
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
}

/// Fragments of a text that was not flushed.
#[derive(Debug, Default)]
struct CollectedText {
    queued: QueuedText,
    /// Bytes of its complete sentences.
    complete: usize,
}

impl TtsQueue {
    /// An empty queue. With `speaks_sentences`, complete sentences are spoken without a flush.
    pub(crate) fn new(speaks_sentences: bool) -> Self {
        Self { speaks_sentences, ..Self::default() }
    }

    /// Appends a fragment: to the text with its id, if there is one, which keeps its voice and language.
    ///
    /// # Errors
    /// Too much text waits; the fragment is rejected.
    pub(crate) fn append(&mut self, fragment: QueuedText) -> Result<(), String> {
        let chars = fragment.chars();
        if self.chars + chars > MAX_CHARS {
            return Err(format!(
                "more than {MAX_CHARS} characters wait to be spoken; this text is not taken"
            ));
        }
        if self.collected.len() >= MAX_COLLECTED {
            let is_dropped = |it: &mut CollectedText| it.queued.is_blank() && it.queued.id != fragment.id;
            for dropped in self.collected.extract_if(.., is_dropped) {
                self.chars -= dropped.queued.chars();
            }
        }
        let known = self.collected.iter().position(|collected| collected.queued.id == fragment.id);
        if known.is_none() && self.collected.len() >= MAX_COLLECTED {
            return Err(format!(
                "more than {MAX_COLLECTED} texts are collected at a time; flush some of them"
            ));
        }
        self.chars += chars;
        let at = match known {
            Some(at) if !self.collected[at].queued.is_blank() => {
                let text = &mut self.collected[at].queued.text;
                // Fragments may split a word, so only a new sentence gets a space before it.
                if text.ends_with(['.', '!', '?']) && fragment.text.starts_with(char::is_uppercase) {
                    text.push(' ');
                    self.chars += 1;
                }
                text.push_str(&fragment.text);
                at
            }
            Some(at) => {
                let before = std::mem::take(&mut self.collected[at].queued.text);
                self.collected[at].queued = QueuedText { text: before + &fragment.text, ..fragment };
                at
            }
            None => {
                self.collected.push(CollectedText { queued: fragment, complete: 0 });
                self.collected.len() - 1
            }
        };
        if self.speaks_sentences {
            let CollectedText { queued, complete } = &mut self.collected[at];
            *complete += complete_sentences(&queued.text[*complete..]);
        }
        Ok(())
    }

    /// Queues the collected text with this id, or all of it without an id, and a report of its end.
    ///
    /// # Errors
    /// Too many texts wait; the collected text stays.
    pub(crate) fn flush(&mut self, id: Option<String>) -> Result<(), String> {
        self.enqueue(id.as_deref())?;
        self.push_flush(id);
        Ok(())
    }

    /// Queues all collected text and a report of its end, however many texts wait. Returns the number of flushes so far.
    pub(crate) fn flush_all(&mut self) -> u32 {
        self.enqueue_all();
        self.push_flush(None);
        self.flushes
    }

    fn push_flush(&mut self, id: Option<String>) {
        self.waiting.push_back(TtsQueueItem::Flushed(self.flushes, id));
        self.flushes += 1;
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
        self.enqueue_collected(id);
        Ok(())
    }

    fn enqueue_collected(&mut self, id: Option<&str>) {
        let is_meant = |it: &mut CollectedText| id.is_none() || it.queued.id.as_deref() == id;
        for CollectedText { queued, .. } in self.collected.extract_if(.., is_meant) {
            match queued.is_blank() {
                true => self.chars -= queued.chars(),
                false => self.waiting.push_back(TtsQueueItem::Text(queued)),
            }
        }
    }

    /// Queues all collected text, at the end of the session's input.
    pub(crate) fn enqueue_all(&mut self) {
        self.enqueue_collected(None);
    }

    /// Discards what waits and has this id, or everything without an id. Returns the number of this clear.
    pub(crate) fn clear(&mut self, id: Option<&str>) -> u32 {
        match id {
            None => self.discard_all(),
            Some(id) => {
                self.collected.retain(|collected| collected.queued.id.as_deref() != Some(id));
                self.waiting.retain(|item| item.id() != Some(id));
                let collected = self.collected.iter().map(|collected| collected.queued.chars());
                self.chars = collected.chain(self.waiting.iter().map(TtsQueueItem::chars)).sum();
            }
        }
        let number = self.clears;
        self.clears += 1;
        number
    }

    /// Number of flushes so far.
    pub(crate) const fn flushes(&self) -> u32 {
        self.flushes
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
        let next = self.waiting.pop_front().or_else(|| self.take_sentences().map(TtsQueueItem::Text));
        self.chars -= next.as_ref().map_or(0, TtsQueueItem::chars);
        next
    }

    /// Takes the complete sentences of the oldest text that has some.
    fn take_sentences(&mut self) -> Option<QueuedText> {
        let CollectedText { queued, complete } = self.collected.iter_mut().find(|it| it.complete > 0)?;
        let rest = queued.text.split_off(std::mem::take(complete));
        let text = std::mem::replace(&mut queued.text, rest);
        Some(QueuedText { text, ..queued.clone() })
    }
}

impl QueuedText {
    fn chars(&self) -> usize {
        self.text.chars().count()
    }

    fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }
}

impl TtsQueueItem {
    fn id(&self) -> Option<&str> {
        match self {
            Self::Text(QueuedText { id, .. }) | Self::Flushed(_, id) => id.as_deref(),
        }
    }

    fn chars(&self) -> usize {
        match self {
            Self::Text(text) => text.chars(),
            Self::Flushed(..) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(text: &str, id: Option<&str>) -> QueuedText {
        QueuedText { text: text.to_owned(), id: id.map(str::to_owned), ..QueuedText::default() }
    }

    fn text(text: &str, id: Option<&str>) -> Option<TtsQueueItem> {
        Some(TtsQueueItem::Text(fragment(text, id)))
    }

    fn flushed(number: u32, id: Option<&str>) -> Option<TtsQueueItem> {
        Some(TtsQueueItem::Flushed(number, id.map(str::to_owned)))
    }

    #[test]
    fn fragments_join_into_texts_and_flushes_keep_their_order() {
        let mut queue = TtsQueue::default();
        for piece in ["Hel", "lo.", "How are", " you?"] {
            queue.append(fragment(piece, None)).unwrap();
        }
        queue.flush(None).unwrap();
        queue.flush(None).unwrap();
        queue.append(fragment("Bye", None)).unwrap();
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
            queue.append(fragment(piece, Some(id))).unwrap();
        }
        queue.flush(Some("a".to_owned())).unwrap();
        queue.flush(Some("c".to_owned())).unwrap();
        queue.enqueue(Some("b")).unwrap();
        assert_eq!(queue.pop(), text("One more", Some("a")));
        assert_eq!((queue.clear(Some("b")), queue.clear(Some("a"))), (0, 1));
        assert_eq!(queue.pop(), flushed(1, Some("c")));
        assert_eq!((queue.pop(), queue.chars), (None, 0));
    }

    #[test]
    fn complete_sentences_are_spoken_without_a_flush() {
        let mut queue = TtsQueue::new(true);
        for piece in ["It costs 3.", "5 euro. Is", " that much? I do"] {
            queue.append(fragment(piece, None)).unwrap();
        }
        assert!(queue.has_waiting());
        assert_eq!(queue.pop(), text("It costs 3.5 euro. Is that much? ", None));
        assert!(!queue.has_waiting() && queue.pop().is_none());
        queue.append(fragment(" not.", None)).unwrap();
        queue.flush(None).unwrap();
        assert_eq!(queue.pop(), text("I do not.", None));
        assert_eq!((queue.pop(), queue.chars), (flushed(0, None), 0));
    }

    #[test]
    fn waiting_texts_are_bounded_and_can_be_cleared() {
        let mut queue = TtsQueue::default();
        let piece = "a".repeat(2000);
        let accepted = (0..100).take_while(|_| queue.append(fragment(&piece, None)).is_ok()).count();
        assert_eq!((accepted, queue.chars), (MAX_CHARS / 2000, MAX_CHARS));
        assert!(queue.append(fragment("a", None)).is_err());
        // The first flush adds the text, too.
        let flushed = (0..1000).take_while(|_| queue.flush(None).is_ok()).count();
        assert_eq!((flushed, queue.waiting.len()), (MAX_WAITING - 1, MAX_WAITING));
        queue.pop();
        assert!(queue.flush(None).is_ok() && queue.flush(None).is_err(), "room for one more");
        assert_eq!((queue.clear(None), queue.clear(None)), (0, 1));
        assert!(queue.pop().is_none() && queue.append(fragment(&piece, None)).is_ok());
        queue.discard_all();
        let append =
            |queue: &mut TtsQueue, id: i32, text| queue.append(fragment(text, Some(&id.to_string())));
        assert_eq!((0..100).take_while(|id| append(&mut queue, *id, "a").is_ok()).count(), MAX_COLLECTED);
        queue.discard_all();
        // Blank texts make room for others, of their characters too.
        (0..100).for_each(|id| append(&mut queue, id, "\n").unwrap());
        assert!(queue.chars <= MAX_COLLECTED);
        queue.enqueue_all();
        assert_eq!((queue.pop(), queue.chars), (None, 0));
    }

    #[test]
    fn text_keeps_the_voice_of_its_first_fragment() {
        let mut queue = TtsQueue::default();
        let voiced = |text, id, voice: &str| QueuedText {
            voice: Some(voice.to_owned()),
            language: Some("en".to_owned()),
            ..fragment(text, Some(id))
        };
        for (piece, id, voice) in [("One ", "a", "ada"), ("Two", "b", "bob"), ("more", "a", "bob")] {
            queue.append(voiced(piece, id, voice)).unwrap();
        }
        queue.enqueue(None).unwrap();
        assert_eq!(queue.pop(), Some(TtsQueueItem::Text(voiced("One more", "a", "ada"))));
        assert_eq!(queue.pop(), Some(TtsQueueItem::Text(voiced("Two", "b", "bob"))));
    }
}
