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

    /// What waits, but for the first.
    pub(super) fn after(&self, first: usize) -> impl Iterator<Item = &Words> {
        self.words.iter().skip(first)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// What an upstream has been given and has not answered, oldest first.
///
/// In a chat the first is answered until its answer is complete ([`Flight::complete`]); in a conversation several events
/// answer one append, and where the upstream does not name it their order tells ([`Flight::answered`]).
#[derive(Debug)]
pub(super) struct Flight {
    sent: VecDeque<Sent>,
    bytes: usize,
    bytes_max: usize,
    /// Which of them is being answered. Those before it are kept only as long as that is a guess.
    at: usize,
    /// How far its answer has come.
    rank: Rank,
    /// The upstream's name of that answer.
    response_id: Option<Box<str>>,
    steps: Steps,
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

/// Where the answer to one append ends and that to the next begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// Not known yet: by their order, but that is a guess.
    Guessed,
    /// What comes in another order than within one answer is of the next.
    Ordered,
    /// Each ends with an event of its own, and has its text and audio in any order (field notes §1.7).
    Ended,
}

/// So many answers in a row without an end of their own, and none is going to come.
const MOST_GUESSED: usize = 4;

impl Flight {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            sent: VecDeque::new(),
            bytes: 0,
            bytes_max,
            at: 0,
            rank: Rank::Nothing,
            response_id: None,
            steps: Steps::Guessed,
        }
    }

    /// An append is on its way.
    pub(super) fn push(&mut self, text: String, append: Append) {
        if self.sent.len() >= MOST_SENT {
            self.remove(0);
        }
        let fits = self.bytes + text.len() <= self.bytes_max;
        self.bytes += if fits { text.len() } else { 0 };
        self.sent.push_back(Sent { text: fits.then_some(text), append, answered: false });
    }

    fn remove(&mut self, at: usize) {
        if let Some(sent) = self.sent.remove(at) {
            self.bytes -= sent.text.map_or(0, |text| text.len());
            self.at -= usize::from(at < self.at);
        }
    }

    /// What comes before the one that is being answered has been answered.
    fn settle(&mut self) {
        while self.at > 0 {
            self.remove(0);
        }
    }

    fn named(&self, input_id: Option<&str>) -> Option<usize> {
        let id = input_id?;
        self.sent.iter().position(|sent| sent.append.input_id.as_deref() == Some(id))
    }

    /// Something of an answer came that is complete only later: which append it answers.
    pub(super) fn begun(&self, input_id: Option<&str>) -> Append {
        let sent = self.sent.get(self.named(input_id).unwrap_or(0));
        sent.map(|sent| sent.append.clone()).unwrap_or_default()
    }

    /// That answer is complete.
    pub(super) fn complete(&mut self, input_id: Option<&str>) {
        self.remove(self.named(input_id).unwrap_or(0));
    }

    /// Something came: which append it answers. Where the upstream does not say, in doubt one that was not answered yet.
    pub(super) fn answered(
        &mut self,
        rank: Rank,
        input_id: Option<&str>,
        response_id: Option<&str>,
        in_turn: bool,
    ) -> Append {
        if rank == Rank::Done && std::mem::replace(&mut self.steps, Steps::Ended) == Steps::Guessed {
            self.at = 0;
        }
        if let Some(at) = self.named(input_id) {
            self.at = at;
            self.settle();
        } else if !self.goes_on(rank, response_id, in_turn) {
            self.advance();
        }
        if self.steps == Steps::Guessed && ((rank == Rank::Listening && in_turn) || self.at >= MOST_GUESSED) {
            self.steps = Steps::Ordered;
            self.settle();
        }
        (self.rank, self.response_id) = (rank, response_id.map(Into::into));
        self.mark()
    }

    /// All of an answer came at once: which append it answers.
    pub(super) fn answered_at_once(&mut self) -> Append {
        self.settle();
        self.advance();
        (self.rank, self.response_id) = (Rank::Done, None);
        self.mark()
    }

    /// Whether this may still answer what was answered so far.
    fn goes_on(&self, rank: Rank, response_id: Option<&str>, in_turn: bool) -> bool {
        let last = self.rank;
        if rank == last && rank >= Rank::Listening {
            // Some say the end of a step twice.
            return response_id.is_some() && response_id == self.response_id.as_deref();
        }
        match self.steps {
            Steps::Ended => last < Rank::Listening || rank == Rank::Done,
            Steps::Guessed | Steps::Ordered => rank > last && (rank != Rank::Listening || in_turn),
        }
    }

    /// It is the next one that is answered.
    fn advance(&mut self) {
        let begun = self.at > 0 || self.sent.front().is_some_and(|sent| sent.answered);
        self.at = (self.at + usize::from(begun)).min(self.sent.len());
        if self.steps != Steps::Guessed || matches!(self.rank, Rank::Nothing | Rank::Listening | Rank::Done) {
            self.settle();
        }
    }

    /// What is a guess is not said to be answered.
    fn mark(&mut self) -> Append {
        let known = self.at == 0;
        let Some(sent) = self.sent.get_mut(self.at) else { return Append::default() };
        sent.answered |= known;
        sent.append.clone()
    }

    /// How many are not answered to their end.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Takes out what nothing has come of yet, latest first, and how much of it was too long to be kept.
    pub(super) fn take_unanswered(&mut self) -> (Vec<Words>, usize) {
        let bytes_max = self.bytes_max;
        let sent = std::mem::replace(self, Self::new(bytes_max)).sent;
        let mut lost = 0;
        let mut words = Vec::new();
        for sent in sent.into_iter().rev().filter(|sent| !sent.answered) {
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
        assert_eq!(flight.answered(Rank::Listening, None, None, false), append("a"));
        assert_eq!(flight.answered(Rank::Text, None, None, false), append("b"));
        assert_eq!(
            flight.answered(Rank::Speech, None, None, true),
            append("b"),
            "text and audio are of one step"
        );
        assert_eq!(
            flight.answered(Rank::Listening, None, None, true),
            append("b"),
            "and the end of their turn"
        );
        let mut whole = Flight::new(100);
        ["a", "b", "c"].iter().for_each(|id| whole.push((*id).to_owned(), append(id)));
        assert_eq!(whole.answered(Rank::Listening, None, None, false), append("a"));
        assert_eq!(whole.answered_at_once(), append("b"));
        assert_eq!(whole.answered_at_once(), append("c"));
        assert_eq!(whole.answered(Rank::Listening, None, None, true), Append::default());
        let mut named = Flight::new(100);
        ["a", "b", "c"].iter().for_each(|id| named.push((*id).to_owned(), append(id)));
        assert_eq!(named.answered(Rank::Text, Some("b"), None, false), append("b"));
        assert_eq!(named.take_unanswered(), (vec![words("c")], 0));
        assert_eq!(named.len(), 0);
    }

    /// Answers the oldest of `count` appends with a script (`t`ext, `a`udio, `l`isten, `d`one), and says what is asked again
    /// when the upstream is lost then.
    fn asked_again(count: usize, script: &str) -> String {
        let mut flight = Flight::new(100);
        let ids: Vec<String> = ('a'..).take(count).map(String::from).collect();
        ids.iter().for_each(|id| flight.push(id.clone(), append(id)));
        let mut in_turn = false;
        for event in script.chars() {
            let rank = match event {
                't' => Rank::Text,
                'a' => Rank::Speech,
                'l' => Rank::Listening,
                _ => Rank::Done,
            };
            flight.answered(rank, None, None, in_turn);
            in_turn = (in_turn || rank < Rank::Listening) && rank != Rank::Listening;
        }
        flight.take_unanswered().0.iter().rev().map(|words| words.text.as_str()).collect()
    }

    #[test]
    fn what_was_not_answered_for_sure_is_asked_again() {
        assert_eq!(asked_again(4, "lta"), "cd");
        assert_eq!(asked_again(4, "tattaa"), "bcd", "one step of the C++ back-end, before it has said so");
        assert_eq!(asked_again(4, "tattaad"), "bcd");
        assert_eq!(asked_again(4, "tattaadtta"), "cd");
        assert_eq!(asked_again(4, "tadlta"), "d", "it listens to another append than it has answered");
        assert_eq!(asked_again(4, "tatalt"), "d", "the Python back-end has said that the turn is over");
        assert_eq!(asked_again(8, "tatatatata"), "fgh", "it goes on for too long for the C++ back-end");
    }

    #[test]
    fn an_answer_that_is_complete_later_keeps_its_place() {
        for (count, deltas) in [(1, 0), (2, 1), (3, 7), (5, 2)] {
            let mut flight = Flight::new(100);
            (0..count).for_each(|id| flight.push(id.to_string(), append(&id.to_string())));
            for id in 0..count {
                (0..deltas).for_each(|_| assert_eq!(flight.begun(None), append(&id.to_string())));
                assert_eq!(flight.len(), count - id);
                flight.complete(None);
            }
        }
    }

    #[test]
    fn what_is_too_long_to_be_kept_is_counted() {
        let mut flight = Flight::new(2);
        ["a", "b", "c"].iter().for_each(|id| flight.push((*id).to_owned(), append(id)));
        assert_eq!(flight.take_unanswered(), (vec![words("b"), words("a")], 1));
    }
}
