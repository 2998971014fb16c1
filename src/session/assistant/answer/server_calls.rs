//! Calls of an answer on tool servers: the model is asked again with their results, and goes on in the same answer.

use std::time::Instant;

use super::{Answer, words_to_speak};
use crate::{
    session::{
        assistant::{
            calling::Calling,
            entries::Entries,
            offer::{CallCounts, Offer, OfferedTool},
            spoken_words::SpokenWords,
        },
        outbox::Observation,
        tools::Tools,
    },
    spelling::profile::ToolRules,
    vocabulary::{Entry, EntryId, EntryPart, EntryPlace, Role, ToolCall},
};

/// State of an answer that may call tools on servers.
#[derive(Debug, Default)]
pub(in crate::session::assistant) struct ServerCalls {
    /// Tools that the model may call in the question in progress.
    pub(super) offer: Offer,
    pub(in crate::session::assistant) counts: CallCounts,
    /// Since when calls are running or words of the last question are being spoken; `None` while the model is asked.
    since: Option<Instant>,
    /// The user was told that it takes a while.
    has_said_to_wait: bool,
    /// Entries with the words of earlier questions. The whole answer takes their place at its end.
    said: Vec<EntryId>,
    /// Length of the answer's text and of its audio before the question in progress.
    pub(super) start: QuestionStart,
}

/// Length of an answer before a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QuestionStart {
    pub(super) text_bytes: usize,
    pub(super) audio_samples: u64,
}

impl ServerCalls {
    /// The state of an answer whose model is offered these tools.
    pub(in crate::session::assistant) fn new(offer: Offer) -> Self {
        Self { offer, ..Self::default() }
    }

    /// True while calls are running, or the words before them are being spoken.
    pub(in crate::session::assistant) const fn are_running(&self) -> bool {
        self.since.is_some()
    }
}

impl Answer {
    /// Number of the answer.
    pub(in crate::session::assistant) const fn segment_id(&self) -> u32 {
        self.turn.segment_id
    }

    /// Length of the answer so far.
    pub(super) const fn length(&self) -> QuestionStart {
        QuestionStart { text_bytes: self.turn.text.len(), audio_samples: self.turn.audio_samples }
    }

    /// Words of the model since the question in progress began.
    pub(super) fn words_of_question(&self) -> &str {
        self.turn.text.get(self.server_calls.start.text_bytes..).unwrap_or_default()
    }

    /// Takes the calls of tools on servers, if the model has made any: it is asked again after them.
    pub(in crate::session::assistant) fn take_server_calls(
        &mut self,
        now: Instant,
        entries: &mut Entries,
        tools: &mut Tools,
    ) -> Vec<(u32, ToolCall)> {
        let offer = &self.server_calls.offer;
        let is_of_server = |(_, call): &(u32, ToolCall)| offer.find_of_server(&call.name).is_some();
        let (of_servers, of_client): (Vec<_>, _) =
            std::mem::take(&mut self.turn.calls).into_iter().partition(is_of_server);
        self.turn.calls = of_client;
        if !of_servers.is_empty() {
            tools.lanes.finish(now, &mut self.ask);
            match &mut self.spoken {
                Some(spoken) => {
                    self.filter.finish(&mut spoken.waiting);
                    spoken.finish();
                }
                None => self.filter.finish(&mut self.turn.text),
            }
            self.server_calls.since = Some(now);
            self.note_words(entries, tools);
        }
        of_servers
    }

    /// Shows the model in its next question what it has said before the calls.
    fn note_words(&mut self, entries: &mut Entries, tools: &mut Tools) {
        let mut words = self.words_of_question().to_owned();
        self.spoken.iter().for_each(|spoken| spoken.push_unmade_words(&mut words));
        if !words.trim().is_empty() {
            let id = EntryId(tools.segment_ids.next_id());
            let parts = vec![EntryPart::Text(words.trim().to_owned())];
            self.server_calls.said.push(id);
            self.add_to_conversation(Entry { id, role: Role::Assistant, parts }, entries);
        }
    }

    /// Adds an entry to the conversation that the answer belongs to.
    pub(in crate::session::assistant) fn add_to_conversation(&mut self, entry: Entry, entries: &mut Entries) {
        let request = &mut self.request;
        if !request.is_remembered && request.entries.is_none() {
            request.entries = Some(entries.to_list());
        }
        match &mut request.entries {
            Some(own) => {
                request.bytes += entry.bytes();
                own.push(entry);
            }
            None => _ = entries.add(entry, EntryPlace::End),
        }
    }

    /// Counts a call of this tool of a server.
    ///
    /// # Errors
    /// Why it may not be called.
    pub(in crate::session::assistant) fn count_server_call(
        &mut self,
        name: &str,
    ) -> Result<OfferedTool, String> {
        let ServerCalls { offer, counts, .. } = &mut self.server_calls;
        let offered = offer.find_of_server(name).ok_or_else(|| format!("there is no function {name}"))?;
        counts.add(offered)?;
        Ok(offered.clone())
    }

    /// True if the answer also calls tools of the client.
    pub(in crate::session::assistant) const fn calls_client(&self) -> bool {
        !self.turn.calls.is_empty()
    }

    /// True once all words so far were spoken, and nothing speaks them any more.
    pub(in crate::session::assistant) fn has_spoken(&self) -> bool {
        self.spoken.as_ref().is_none_or(|spoken| spoken.is_done() && spoken.lane().is_none())
    }

    /// When the user is told that the calls take a while; `None` if the profile has no words for it, the user hears the model's
    /// own, or wants no speech.
    pub(in crate::session::assistant) fn waiting_words_at(&self, rules: &ToolRules) -> Option<Instant> {
        let ServerCalls { since, has_said_to_wait, .. } = &self.server_calls;
        let is_wanted = self.speaks && !has_said_to_wait && !rules.waiting_words.trim().is_empty();
        let is_silent = self.turn.text.trim().is_empty()
            && self.turn.audio_samples == 0
            && !self.spoken.as_ref().is_some_and(SpokenWords::has_words);
        since.filter(|_| is_wanted && is_silent).map(|since| since + rules.waiting_time)
    }

    /// Tells the user that the calls take a while.
    pub(in crate::session::assistant) fn say_to_wait(&mut self, rules: &ToolRules) {
        self.server_calls.has_said_to_wait = true;
        let spoken = self.spoken.get_or_insert_with(|| SpokenWords::new(self.speak_attempts));
        spoken.waiting.push_str(rules.waiting_words.trim());
        spoken.finish();
    }

    /// Drops words about waiting that cannot be spoken. Returns false for words of the model.
    pub(super) fn drop_waiting_words(&mut self, now: Instant, tools: &mut Tools) -> bool {
        let ServerCalls { since, has_said_to_wait, .. } = self.server_calls;
        let Some(spoken) = self.spoken.as_mut().filter(|_| since.is_some() && has_said_to_wait) else {
            return false;
        };
        spoken.stop(now, &mut tools.lanes);
        let note = "waiting_words: no upstream could speak them";
        tools.floor.out.observe(Observation::NoEffect(note.to_owned()));
        true
    }

    /// Prepares the question with the results of the calls.
    pub(in crate::session::assistant) fn ask_after_calls(
        &mut self,
        offer: Offer,
        calling: Option<Calling>,
        tools: &mut Tools,
    ) {
        self.server_calls.since = None;
        self.server_calls.offer = offer;
        self.filter.clear();
        (self.calling, self.is_native, self.heard_bytes) = (calling, false, None);
        self.ask.reset_attempts();
        match (&mut self.spoken, words_to_speak(self.speaks, self.calling.as_ref(), self.speak_attempts)) {
            (Some(spoken), Some(_)) => spoken.resume(),
            (spoken, next) => *spoken = next,
        }
        if self.turn.text.ends_with(|letter: char| !letter.is_whitespace()) {
            self.say(" ", tools);
        }
        self.server_calls.start = self.length();
    }

    /// Ends the wait for the calls: the answer is over, because the client's tools are called, too.
    pub(in crate::session::assistant) const fn end_calls(&mut self) {
        self.server_calls.since = None;
    }

    /// Removes the words of earlier questions from the conversation: the answer is complete, and has them.
    pub(super) fn forget_said_words(&self, entries: &mut Entries) {
        self.server_calls.said.iter().for_each(|id| entries.remove(*id));
    }
}
