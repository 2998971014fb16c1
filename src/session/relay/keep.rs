//! What the client said and no upstream has taken, and what one has taken and not answered. Both are bounded.

use std::collections::VecDeque;

/// Appends on their way of which more is remembered than their number: a client that floods an upstream which never answers
/// must not fill the memory.
const MOST_SENT: usize = 1024;

/// A message spelled for the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) text: String,
    /// What is told about the answer to an append; none for any other message.
    pub(super) append: Option<Append>,
}

/// What is remembered of an append.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Append {
    /// Its name for the upstream.
    pub(super) input_id: Option<Box<str>>,
    /// The name is the client's own.
    pub(super) own_id: bool,
    /// The client's name for the answer.
    pub(super) response_id: Option<Box<str>>,
    /// The model was told to listen.
    pub(super) forced: bool,
    pub(super) audio_ms: u64,
}

/// What waits for an upstream, oldest first.
#[derive(Debug, Default)]
pub(super) struct Keep {
    words: VecDeque<Words>,
    bytes: usize,
    audio_ms: u64,
    /// Messages that were dropped for want of room.
    pub(super) dropped: u64,
}

impl Keep {
    pub(super) fn push(&mut self, words: Words) {
        self.count(&words);
        self.words.push_back(words);
    }

    /// Puts what was on its way before everything that waits.
    pub(super) fn push_front(&mut self, words: Words) {
        self.count(&words);
        self.words.push_front(words);
    }

    fn count(&mut self, words: &Words) {
        self.bytes += words.text.len();
        self.audio_ms += words.append.as_ref().map_or(0, |append| append.audio_ms);
    }

    pub(super) fn pop(&mut self) -> Option<Words> {
        let words = self.words.pop_front()?;
        self.bytes -= words.text.len();
        self.audio_ms -= words.append.as_ref().map_or(0, |append| append.audio_ms);
        Some(words)
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the oldest until the rest is within these bounds.
    pub(super) fn drop_oldest(&mut self, bytes_max: usize, audio_max_ms: u64) {
        while (self.bytes > bytes_max || self.audio_ms > audio_max_ms) && self.pop().is_some() {
            self.dropped += 1;
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// What an upstream has been given and has not answered, oldest first.
#[derive(Debug)]
pub(super) struct Flight {
    sent: VecDeque<Sent>,
    bytes: usize,
    bytes_max: usize,
    /// How far the answer to the first one has come.
    rank: Rank,
}

#[derive(Debug)]
struct Sent {
    /// None for what is too long to be kept.
    text: Option<String>,
    append: Append,
    answered: bool,
}

/// The order of what answers one append (field notes §1.6): text, audio, and `listen` where a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Rank {
    #[default]
    Nothing,
    Text,
    Speech,
    Listening,
    /// Nothing more comes of it.
    Done,
}

impl Rank {
    /// Whether this may still answer what was answered so far.
    fn goes_on(self, last: Self, in_turn: bool) -> bool {
        self > last && (self != Self::Listening || in_turn)
    }
}

impl Flight {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { sent: VecDeque::new(), bytes: 0, bytes_max, rank: Rank::Nothing }
    }

    /// An append is on its way.
    pub(super) fn push(&mut self, text: String, append: Append) {
        if self.sent.len() >= MOST_SENT {
            self.pop();
        }
        let fits = self.bytes + text.len() <= self.bytes_max;
        self.bytes += if fits { text.len() } else { 0 };
        self.sent.push_back(Sent { text: fits.then_some(text), append, answered: false });
    }

    fn pop(&mut self) {
        if let Some(sent) = self.sent.pop_front() {
            self.bytes -= sent.text.map_or(0, |text| text.len());
        }
    }

    /// Something came: which append it answers. Where the upstream does not say, in doubt one that was not answered yet.
    pub(super) fn answered(&mut self, rank: Rank, input_id: Option<&str>, in_turn: bool) -> Append {
        let named = input_id
            .and_then(|id| self.sent.iter().position(|sent| sent.append.input_id.as_deref() == Some(id)));
        let same = rank.goes_on(self.rank, in_turn);
        let skip = match (named, self.sent.front()) {
            (Some(at), _) => at,
            (None, Some(front)) if front.answered && !same => 1,
            _ => 0,
        };
        (0..skip).for_each(|_| self.pop());
        self.rank = rank;
        let Some(front) = self.sent.front_mut() else { return Append::default() };
        front.answered = true;
        front.append.clone()
    }

    /// All of an answer came at once: which append it answers.
    pub(super) fn answered_at_once(&mut self) -> Append {
        self.rank = Rank::Done;
        self.answered(Rank::Nothing, None, false);
        self.rank = Rank::Done;
        self.sent.front().map(|sent| sent.append.clone()).unwrap_or_default()
    }

    /// The answer to the oldest is complete.
    pub(super) fn complete(&mut self) {
        self.pop();
        self.rank = Rank::Nothing;
    }

    /// Whether something is not answered to its end.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Takes out what nothing has come of yet, latest first, and how much of it was too long to be kept.
    pub(super) fn take_unanswered(&mut self) -> (Vec<Words>, usize) {
        let sent = std::mem::take(&mut self.sent).into_iter().rev().filter(|sent| !sent.answered);
        self.bytes = 0;
        self.rank = Rank::Nothing;
        let mut lost = 0;
        let mut words = Vec::new();
        for sent in sent {
            match sent.text {
                Some(text) => words.push(Words { text, append: Some(sent.append) }),
                None => lost += 1,
            }
        }
        (words, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(id: &str) -> Append {
        Append { input_id: Some(id.into()), audio_ms: 1000, ..Append::default() }
    }

    fn words(id: &str) -> Words {
        Words { text: id.to_owned(), append: Some(append(id)) }
    }

    #[test]
    fn what_waits_is_bounded_and_the_oldest_goes() {
        let mut keep = Keep::default();
        ["a", "b", "c", "d"].iter().for_each(|id| keep.push(words(id)));
        keep.drop_oldest(100, 3000);
        assert_eq!((keep.len(), keep.dropped, keep.bytes()), (3, 1, 3));
        keep.drop_oldest(1, 3000);
        assert_eq!(keep.pop(), Some(words("d")));
        assert_eq!((keep.bytes(), keep.dropped), (0, 3));
    }

    #[test]
    fn answers_find_their_append_by_name_or_by_their_order() {
        let mut flight = Flight::new(100);
        ["a", "b", "c"].iter().for_each(|id| flight.push((*id).to_owned(), append(id)));
        assert_eq!(flight.answered(Rank::Listening, None, false), append("a"));
        assert_eq!(flight.answered(Rank::Text, None, false), append("b"));
        assert_eq!(flight.answered(Rank::Speech, None, true), append("b"), "text and audio are of one step");
        assert_eq!(flight.answered(Rank::Listening, None, true), append("b"), "and the end of their turn");
        let mut whole = Flight::new(100);
        ["a", "b", "c"].iter().for_each(|id| whole.push((*id).to_owned(), append(id)));
        assert_eq!(whole.answered(Rank::Listening, None, false), append("a"));
        assert_eq!(whole.answered_at_once(), append("b"));
        assert_eq!(whole.answered_at_once(), append("c"));
        assert_eq!(whole.answered(Rank::Listening, None, true), Append::default());
        let mut named = Flight::new(100);
        ["a", "b", "c"].iter().for_each(|id| named.push((*id).to_owned(), append(id)));
        assert_eq!(named.answered(Rank::Text, Some("b"), false), append("b"));
        assert_eq!(named.take_unanswered(), (vec![words("c")], 0));
        assert!(named.is_empty());
    }

    #[test]
    fn what_is_too_long_to_be_kept_is_counted() {
        let mut flight = Flight::new(2);
        ["a", "b", "c"].iter().for_each(|id| flight.push((*id).to_owned(), append(id)));
        assert_eq!(flight.take_unanswered(), (vec![words("b"), words("a")], 1));
    }
}
