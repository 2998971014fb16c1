//! Messages of the client that wait for an upstream, and appends that wait for their answer. Both are bounded.

use std::collections::VecDeque;

/// Bound on the appends in flight: a client must not fill the memory through an upstream that never answers.
const SENT_MAX: usize = 1024;

/// Message encoded for the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientMessage {
    pub(super) text: String,
    /// Metadata of an append; `None` for any other message.
    pub(super) append: Option<AppendMeta>,
}

/// Metadata of an append.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AppendMeta {
    /// Id for the upstream.
    pub(super) input_id: Option<Box<str>>,
    /// The id is the client's own.
    pub(super) is_client_id: bool,
    /// Client's id for the answer.
    pub(super) response_id: Option<Box<str>>,
    /// The append forces the model to listen.
    pub(super) force_listen: bool,
    pub(super) audio_ms: u64,
}

/// Messages that wait for an upstream, oldest first.
#[derive(Debug, Default)]
pub(super) struct Pending {
    messages: VecDeque<ClientMessage>,
    bytes: usize,
    audio_ms: u64,
    pub(super) dropped: DroppedMessages,
}

/// Messages dropped because the queue was full.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct DroppedMessages {
    pub(super) count: u64,
    pub(super) audio_ms: u64,
}

impl Pending {
    pub(super) fn push(&mut self, message: ClientMessage) {
        self.add_totals(&message);
        self.messages.push_back(message);
    }

    /// Puts a message before all others, because it was in flight.
    pub(super) fn push_front(&mut self, message: ClientMessage) {
        self.add_totals(&message);
        self.messages.push_front(message);
    }

    fn add_totals(&mut self, message: &ClientMessage) {
        self.bytes += message.text.len();
        self.audio_ms += message.append.as_ref().map_or(0, |append| append.audio_ms);
    }

    pub(super) fn pop(&mut self) -> Option<ClientMessage> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.text.len();
        self.audio_ms -= message.append.as_ref().map_or(0, |append| append.audio_ms);
        Some(message)
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the oldest messages above these limits.
    pub(super) fn drop_oldest(&mut self, bytes_max: usize, audio_max_ms: u64) {
        while (self.bytes > bytes_max || self.audio_ms > audio_max_ms)
            && let Some(message) = self.pop()
        {
            self.dropped.count += 1;
            self.dropped.audio_ms += message.append.map_or(0, |append| append.audio_ms);
        }
    }

    /// Messages after the first `first` ones.
    pub(super) fn iter_after(&self, first: usize) -> impl Iterator<Item = &ClientMessage> {
        self.messages.iter().skip(first)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Appends that an upstream has received and not answered, oldest first.
///
/// In chat, the first append is answered when its answer is complete ([`InFlightAppends::complete_answer`]). In a
/// conversation, several messages answer one append. If the upstream does not name the append, their order decides
/// ([`InFlightAppends::match_reply`]).
#[derive(Debug)]
pub(super) struct InFlightAppends {
    sent: VecDeque<SentAppend>,
    bytes: usize,
    bytes_max: usize,
    /// Index of the append being answered. Earlier ones are kept only while the index is a guess.
    current: usize,
    /// Progress of its answer.
    stage: ReplyStage,
    /// Upstream's id of the answer.
    response_id: Option<Box<str>>,
    boundaries: StepBoundaries,
}

#[derive(Debug)]
struct SentAppend {
    /// `None` if the message was too long to keep.
    text: Option<String>,
    append: AppendMeta,
    answered: bool,
}

/// Order of the messages that answer one append (mappings/notes/minicpm-o-duplex.md#units): text, audio, and `listen`
/// at the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum ReplyStage {
    #[default]
    Nothing,
    Text,
    Speech,
    Listening,
    /// The answer is complete.
    Done,
}

/// How the answers to successive appends are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepBoundaries {
    /// Not known yet. The order of the messages gives a guess.
    Guessed,
    /// A message out of order belongs to the next append.
    Ordered,
    /// Each answer has an end event, and its text and audio may come in any order
    /// (mappings/notes/llama-cpp-omni.md#events).
    Ended,
}

/// Answers without an end event after which the upstream is assumed to send none.
const GUESSED_MAX: usize = 4;

impl InFlightAppends {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            sent: VecDeque::new(),
            bytes: 0,
            bytes_max,
            current: 0,
            stage: ReplyStage::Nothing,
            response_id: None,
            boundaries: StepBoundaries::Guessed,
        }
    }

    /// Records an append that was sent.
    pub(super) fn push(&mut self, text: &str, append: AppendMeta) {
        if self.sent.len() >= SENT_MAX {
            self.remove(0);
        }
        let fits = self.bytes + text.len() <= self.bytes_max;
        self.bytes += if fits { text.len() } else { 0 };
        self.sent.push_back(SentAppend { text: fits.then(|| text.to_owned()), append, answered: false });
    }

    /// Memory of the kept appends, bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove(&mut self, at: usize) {
        if let Some(sent) = self.sent.remove(at) {
            self.bytes -= sent.text.map_or(0, |text| text.len());
            self.current -= usize::from(at < self.current);
        }
    }

    /// Removes the appends before the one being answered.
    fn drop_answered(&mut self) {
        while self.current > 0 {
            self.remove(0);
        }
    }

    fn position_of(&self, input_id: Option<&str>) -> Option<usize> {
        let id = input_id?;
        self.sent.iter().position(|sent| sent.append.input_id.as_deref() == Some(id))
    }

    /// Append that a part of a chat answer belongs to.
    pub(super) fn current_append(&self, input_id: Option<&str>) -> AppendMeta {
        let sent = self.sent.get(self.position_of(input_id).unwrap_or(0));
        sent.map(|sent| sent.append.clone()).unwrap_or_default()
    }

    /// Removes the append whose answer is complete.
    pub(super) fn complete_answer(&mut self, input_id: Option<&str>) {
        self.remove(self.position_of(input_id).unwrap_or(0));
    }

    /// Append that a message answers. If the upstream does not name the append, ambiguity favours one that was not
    /// answered yet.
    pub(super) fn match_reply(
        &mut self,
        stage: ReplyStage,
        input_id: Option<&str>,
        response_id: Option<&str>,
        in_turn: bool,
    ) -> AppendMeta {
        if stage == ReplyStage::Done
            && std::mem::replace(&mut self.boundaries, StepBoundaries::Ended) == StepBoundaries::Guessed
        {
            self.current = 0;
        }
        if let Some(at) = self.position_of(input_id) {
            self.current = at;
            self.drop_answered();
        } else if !self.continues_answer(stage, response_id, in_turn) {
            self.advance();
        }
        if self.boundaries == StepBoundaries::Guessed
            && ((stage == ReplyStage::Listening && in_turn) || self.current >= GUESSED_MAX)
        {
            self.boundaries = StepBoundaries::Ordered;
            self.drop_answered();
        }
        (self.stage, self.response_id) = (stage, response_id.map(Into::into));
        self.mark_answered()
    }

    /// Append that a message with a whole answer belongs to.
    pub(super) fn match_whole_answer(&mut self) -> AppendMeta {
        self.drop_answered();
        self.advance();
        (self.stage, self.response_id) = (ReplyStage::Done, None);
        self.mark_answered()
    }

    /// True if the message can belong to the answer in progress.
    fn continues_answer(&self, stage: ReplyStage, response_id: Option<&str>, in_turn: bool) -> bool {
        let last = self.stage;
        if stage == last && stage >= ReplyStage::Listening {
            // Some upstreams report the end of a step twice.
            return response_id.is_some() && response_id == self.response_id.as_deref();
        }
        match self.boundaries {
            StepBoundaries::Ended => last < ReplyStage::Listening || stage == ReplyStage::Done,
            StepBoundaries::Guessed | StepBoundaries::Ordered => {
                stage > last && (stage != ReplyStage::Listening || in_turn)
            }
        }
    }

    /// Moves on to the next append.
    fn advance(&mut self) {
        let has_begun = self.current > 0 || self.sent.front().is_some_and(|sent| sent.answered);
        self.current = (self.current + usize::from(has_begun)).min(self.sent.len());
        if self.boundaries != StepBoundaries::Guessed
            || matches!(self.stage, ReplyStage::Nothing | ReplyStage::Listening | ReplyStage::Done)
        {
            self.drop_answered();
        }
    }

    /// Marks the current append as answered, unless the index is a guess.
    fn mark_answered(&mut self) -> AppendMeta {
        let is_certain = self.current == 0;
        let Some(sent) = self.sent.get_mut(self.current) else { return AppendMeta::default() };
        sent.answered |= is_certain;
        sent.append.clone()
    }

    /// Appends without a complete answer.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Takes out the appends without any answer, latest first, and the number of those that were too long to keep.
    pub(super) fn take_unanswered(&mut self) -> (Vec<ClientMessage>, usize) {
        let bytes_max = self.bytes_max;
        let sent = std::mem::replace(self, Self::new(bytes_max)).sent;
        let mut too_long = 0;
        let mut messages = Vec::new();
        for sent in sent.into_iter().rev().filter(|sent| !sent.answered) {
            match sent.text {
                Some(text) => messages.push(ClientMessage { text, append: Some(sent.append) }),
                None => too_long += 1,
            }
        }
        (messages, too_long)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn append(id: &str) -> AppendMeta {
        AppendMeta { input_id: Some(id.into()), audio_ms: 1000, ..AppendMeta::default() }
    }

    fn message(id: &str) -> ClientMessage {
        ClientMessage { text: id.to_owned(), append: Some(append(id)) }
    }

    #[test]
    fn full_queue_drops_its_oldest_messages() {
        let mut pending = Pending::default();
        ["a", "b", "c", "d"].iter().for_each(|id| pending.push(message(id)));
        pending.drop_oldest(100, 3000);
        let dropped = |count| DroppedMessages { count, audio_ms: count * 1000 };
        assert_eq!((pending.len(), pending.dropped, pending.bytes()), (3, dropped(1), 3));
        pending.drop_oldest(1, 3000);
        assert_eq!(pending.pop(), Some(message("d")));
        assert_eq!((pending.bytes(), pending.dropped), (0, dropped(3)));
    }

    #[test]
    fn replies_match_appends_by_id_or_by_order() {
        let mut in_flight = InFlightAppends::new(100);
        ["a", "b", "c"].iter().for_each(|id| in_flight.push(id, append(id)));
        assert_eq!(in_flight.match_reply(ReplyStage::Listening, None, None, false), append("a"));
        assert_eq!(in_flight.match_reply(ReplyStage::Text, None, None, false), append("b"));
        assert_eq!(
            in_flight.match_reply(ReplyStage::Speech, None, None, true),
            append("b"),
            "text and audio belong to one step"
        );
        assert_eq!(
            in_flight.match_reply(ReplyStage::Listening, None, None, true),
            append("b"),
            "the end of the turn belongs to the same step"
        );
        let mut whole = InFlightAppends::new(100);
        ["a", "b", "c"].iter().for_each(|id| whole.push(id, append(id)));
        assert_eq!(whole.match_reply(ReplyStage::Listening, None, None, false), append("a"));
        assert_eq!(whole.match_whole_answer(), append("b"));
        assert_eq!(whole.match_whole_answer(), append("c"));
        assert_eq!(whole.match_reply(ReplyStage::Listening, None, None, true), AppendMeta::default());
        let mut named = InFlightAppends::new(100);
        ["a", "b", "c"].iter().for_each(|id| named.push(id, append(id)));
        assert_eq!(named.match_reply(ReplyStage::Text, Some("b"), None, false), append("b"));
        assert_eq!(named.take_unanswered(), (vec![message("c")], 0));
        assert_eq!(named.len(), 0);
    }

    /// Answers the oldest of `count` appends by a script (`t`ext, `a`udio, `l`isten, `d`one). Returns the appends that
    /// are sent again if the upstream is lost then.
    fn resent_after_loss(count: usize, script: &str) -> String {
        let mut in_flight = InFlightAppends::new(100);
        let ids: Vec<String> = ('a'..).take(count).map(String::from).collect();
        ids.iter().for_each(|id| in_flight.push(id, append(id)));
        let mut in_turn = false;
        for event in script.chars() {
            let stage = match event {
                't' => ReplyStage::Text,
                'a' => ReplyStage::Speech,
                'l' => ReplyStage::Listening,
                _ => ReplyStage::Done,
            };
            in_flight.match_reply(stage, None, None, in_turn);
            in_turn = (in_turn || stage < ReplyStage::Listening) && stage != ReplyStage::Listening;
        }
        in_flight.take_unanswered().0.iter().rev().map(|message| message.text.as_str()).collect()
    }

    #[test]
    fn appends_without_a_certain_answer_are_resent() {
        assert_eq!(resent_after_loss(4, "lta"), "cd");
        assert_eq!(
            resent_after_loss(4, "tattaa"),
            "bcd",
            "one step of the C++ back-end, before its first `done`"
        );
        assert_eq!(resent_after_loss(4, "tattaad"), "bcd");
        assert_eq!(resent_after_loss(4, "tattaadtta"), "cd");
        assert_eq!(
            resent_after_loss(4, "tadlta"),
            "d",
            "`listen` and the answer belong to different appends"
        );
        assert_eq!(
            resent_after_loss(4, "tatalt"),
            "d",
            "`listen` ended the turn, so this is the Python back-end"
        );
        assert_eq!(
            resent_after_loss(8, "tatatatata"),
            "fgh",
            "too many steps without `done` for the C++ back-end"
        );
    }

    #[test]
    fn answer_completed_later_keeps_its_append() {
        for (count, deltas) in [(1, 0), (2, 1), (3, 7), (5, 2)] {
            let mut in_flight = InFlightAppends::new(100);
            (0..count).for_each(|id| in_flight.push(&id.to_string(), append(&id.to_string())));
            for id in 0..count {
                (0..deltas).for_each(|_| assert_eq!(in_flight.current_append(None), append(&id.to_string())));
                assert_eq!(in_flight.len(), count - id);
                in_flight.complete_answer(None);
            }
        }
    }

    #[test]
    fn appends_too_long_to_keep_are_counted() {
        let mut in_flight = InFlightAppends::new(2);
        ["a", "b", "c"].iter().for_each(|id| in_flight.push(id, append(id)));
        assert_eq!(in_flight.take_unanswered(), (vec![message("b"), message("a")], 1));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(usize),
        PushFront(usize),
        Pop,
        DropOldest(usize, u64),
        Reply(ReplyStage, Option<usize>),
        WholeAnswer,
        CompleteAnswer(Option<usize>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let stage = prop_oneof![
            Just(ReplyStage::Text),
            Just(ReplyStage::Speech),
            Just(ReplyStage::Listening),
            Just(ReplyStage::Done)
        ];
        prop_oneof![
            4 => (0_usize..40).prop_map(Step::Push),
            1 => (0_usize..40).prop_map(Step::PushFront),
            1 => Just(Step::Pop),
            1 => (0_usize..80, 0_u64..5000).prop_map(|(bytes, ms)| Step::DropOldest(bytes, ms)),
            2 => (stage, proptest::option::of(0_usize..40)).prop_map(|(stage, id)| Step::Reply(stage, id)),
            1 => Just(Step::WholeAnswer),
            1 => proptest::option::of(0_usize..40).prop_map(Step::CompleteAnswer),
        ]
    }

    proptest! {
        #![proptest_config(crate::property_config::property_config(256))]
        /// Too many bytes would hold the client back for ever, and too few never.
        #[test]
        fn bytes_are_those_of_the_messages_that_are_kept(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut pending, mut in_flight) = (Pending::default(), InFlightAppends::new(100));
            for (number, step) in steps.into_iter().enumerate() {
                let id = |id: Option<usize>| id.map(|id| id.to_string());
                match step {
                    Step::Push(length) => {
                        let append = append(&number.to_string());
                        let text = "x".repeat(length);
                        in_flight.push(&text, append.clone());
                        pending.push(ClientMessage { text, append: Some(append) });
                    }
                    Step::PushFront(length) => {
                        pending.push_front(ClientMessage { text: "x".repeat(length), append: None });
                    }
                    Step::Pop => drop(pending.pop()),
                    Step::DropOldest(bytes_max, audio_max_ms) => {
                        pending.drop_oldest(bytes_max, audio_max_ms);
                        prop_assert!(pending.bytes() <= bytes_max && pending.audio_ms <= audio_max_ms);
                    }
                    Step::Reply(stage, input) => drop(in_flight.match_reply(stage, id(input).as_deref(), None, true)),
                    Step::WholeAnswer => drop(in_flight.match_whole_answer()),
                    Step::CompleteAnswer(input) => in_flight.complete_answer(id(input).as_deref()),
                }
                prop_assert_eq!(pending.bytes(), pending.messages.iter().map(|kept| kept.text.len()).sum::<usize>());
                let audio_ms = pending.messages.iter().filter_map(|kept| kept.append.as_ref()).map(|it| it.audio_ms);
                prop_assert_eq!(pending.audio_ms, audio_ms.sum::<u64>());
                let texts = in_flight.sent.iter().filter_map(|sent| sent.text.as_ref());
                prop_assert_eq!(in_flight.bytes(), texts.map(String::len).sum::<usize>());
                prop_assert!(in_flight.bytes() <= 100);
            }
            in_flight.take_unanswered();
            prop_assert_eq!(in_flight.bytes(), 0);
        }
    }

    #[test]
    fn appends_in_flight_are_bounded() {
        let mut in_flight = InFlightAppends::new(2 * SENT_MAX);
        (0..=SENT_MAX).for_each(|_| in_flight.push("x", AppendMeta::default()));
        assert_eq!((in_flight.len(), in_flight.bytes()), (SENT_MAX, SENT_MAX));
    }
}
