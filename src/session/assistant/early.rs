//! The early question: asked when the user pauses, before it is certain that the turn is over.
//!
//! Its answer is kept back until the turn ends, and then released unchanged. If the user goes on, the question is withdrawn:
//! its lane is retired like that of any cancelled answer, and the client never knows. A session has one at a time, and only
//! while no one waits for its lane's worker and another worker is free.

use std::{
    mem::size_of_val,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Assistant,
    answer::{Question, begin_calling},
    offer::CallCounts,
};
use crate::session::{
    effects::Effects,
    floor::{Claim, Permission},
    lanes::{
        LaneId, LaneSignal, Lanes, Owner,
        ask::{Ask, Reply},
        backoff::ConnectionFailure,
    },
    measurement::{EarlyQuestionResult, Measurement},
    outbox::Action,
    tools::Tools,
    usage::{UsageMeter, chat_input},
};
use crate::vocabulary::{
    AnswerRequest, Entry, EntryId, EntryPart, EntryPlace, LaneRequest, PauseId, Role, ToolCall,
};

/// Most output that is kept back: some 40 s of audio, more than a model makes in the longest pause.
const KEPT_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Time without early questions after the next lane had to queue beside a withdrawn question: no second worker is free.
const PAUSE_AFTER_QUEUE: Duration = Duration::from_secs(60);

/// The early question of a session, if there is one.
#[derive(Debug, Default)]
pub(super) struct EarlyQuestion {
    /// The pause and the utterance up to it, while the driver looks for a free worker.
    candidate: Option<(PauseId, Arc<Vec<i16>>)>,
    asked: Option<AskedEarly>,
    not_before: Option<Instant>,
}

/// An early question that was sent, and the answer so far.
#[derive(Debug)]
struct AskedEarly {
    /// It has no lane once the answer is complete.
    ask: Ask,
    usage: UsageMeter,
    /// The answer was cut by its bound.
    hit_limit: bool,
    /// The model calls tools without being prompted.
    is_native: bool,
    output: Vec<Output>,
    bytes: usize,
}

/// Output of the model that is kept back.
#[derive(Debug)]
enum Output {
    Text(String),
    Audio(Vec<f32>),
    Call(ToolCall),
    /// The answer is complete. Text and audio are all of it if the upstream did not stream.
    Done(Option<String>, Vec<f32>),
    /// The upstream refused the question.
    Refused(ConnectionFailure),
}

impl EarlyQuestion {
    /// True if the question was sent on this lane.
    pub(super) fn is_on(&self, id: LaneId) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.ask.lane() == Some(id))
    }

    /// Memory of the output that is kept back, bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.asked.as_ref().map_or(0, |asked| asked.bytes)
    }

    /// No second worker is free beside that of a withdrawn question.
    pub(super) fn pause_from(&mut self, now: Instant) {
        self.not_before = Some(now + PAUSE_AFTER_QUEUE);
    }
}

impl Assistant {
    /// Looks for a free worker at the begin of a pause, if the question may be asked early.
    pub(crate) fn consider_early(
        &mut self,
        now: Instant,
        pause: PauseId,
        audio: &Arc<Vec<i16>>,
        tools: &mut Tools,
    ) {
        if let Some(id) = self.ready_lane(now, tools) {
            self.early.candidate = Some((pause, Arc::clone(audio)));
            tools.floor.out.push(Action::FindWorker(pause, tools.lanes.lane(id)));
        }
    }

    /// The lane on which the question may be asked early.
    fn ready_lane(&self, now: Instant, tools: &Tools) -> Option<LaneId> {
        let detection = tools.settings.turn_detection;
        let may_ask = self.rules.answer.eager
            && detection.answers_utterances()
            && !self.is_busy()
            && self.early.asked.is_none()
            && self.early.not_before.is_none_or(|at| at <= now)
            && !tools.lanes.is_any_draining()
            && tools.floor.may_speak(Claim::Answer) == Permission::Now;
        let init = LaneRequest::Init(self.next_voice(tools));
        self.dialled.filter(|id| may_ask && tools.lanes.is_ready(*id) && tools.lanes.can_serve(*id, &init))
    }

    /// Asks early: a worker is free in this pause.
    pub(crate) fn ask_early(&mut self, now: Instant, pause: PauseId, tools: &mut Tools) {
        let Some((_, audio)) = self.early.candidate.take_if(|(known, _)| *known == pause) else { return };
        let Some(lane) = self.ready_lane(now, tools) else { return };
        self.dialled = None;
        // The conversation as it would be at the end of the turn.
        let mut entries = self.entries.clone();
        let parts = vec![EntryPart::Audio(audio)];
        entries.add(Entry { id: EntryId(u32::MAX), role: Role::User, parts }, EntryPlace::End);
        let request = AnswerRequest::default();
        let offer = self.server_tools.offer(&tools.settings.tools, &CallCounts::default());
        let is_native = tools.lanes.calls_tools(lane);
        let begin = || begin_calling(&request, &self.rules, &offer.tools, self.asks_silently, &entries);
        let calling = (!is_native).then(begin).flatten();
        let speaks = tools.settings.spoken_answers;
        let question = Question::new(&request, &offer.tools, calling.as_ref(), is_native, speaks);
        let turn = self.rules.chat_turn(&self.profile, tools, &question, &entries);
        let mut usage = UsageMeter::default();
        usage.begin_request(chat_input(&turn));
        let mut ask = Ask::new(Owner::Assistant);
        ask.use_lane(Some(lane));
        tools.lanes.ask(now, &mut ask, LaneRequest::Chat(Box::new(turn)));
        tools.lanes.measure(Measurement::EarlyQuestion(EarlyQuestionResult::Asked));
        self.early.asked =
            Some(AskedEarly { ask, usage, hit_limit: false, is_native, output: Vec::new(), bytes: 0 });
    }

    /// Keeps output of the model back.
    pub(super) fn keep_early_output(
        &mut self,
        now: Instant,
        signal: LaneSignal<'_>,
        tools: &mut Tools,
    ) -> Effects {
        let Some(asked) = &mut self.early.asked else { return Effects::ALL };
        if let Some((event, meta)) = &signal.message {
            asked.usage.note_message(event, *meta);
            asked.hit_limit |= meta.hit_limit;
        }
        let output = match signal.into_reply() {
            Reply::Failed(failure) if !failure.may_repeat() => Output::Refused(failure),
            // The answer is asked for again at the end of the turn.
            Reply::Empty | Reply::Failed(_) => {
                self.replace_early(now, tools);
                return Effects::ALL;
            }
            Reply::Text(text) => Output::Text(text.to_owned()),
            Reply::Audio(samples) => Output::Audio(samples.to_vec()),
            Reply::Call { call_id, name, arguments } => {
                let [call_id, name, arguments] = [call_id, name, arguments].map(str::to_owned);
                Output::Call(ToolCall { call_id, name, arguments })
            }
            Reply::Done { text, audio } => Output::Done(text.map(str::to_owned), audio.to_vec()),
            Reply::None | Reply::Queued | Reply::QueueStuck(_) | Reply::Ready => return Effects::MODEL,
        };
        asked.bytes += match &output {
            Output::Text(text) => text.len(),
            Output::Audio(samples) | Output::Done(_, samples) => size_of_val(&samples[..]),
            Output::Call(call) => call.bytes(),
            Output::Refused(failure) => failure.detail.len(),
        };
        if matches!(output, Output::Done(..) | Output::Refused(_)) {
            tools.lanes.finish(now, &mut asked.ask);
        }
        asked.output.push(output);
        if asked.bytes > KEPT_MAX_BYTES {
            self.replace_early(now, tools);
        }
        Effects::MODEL
    }

    /// Withdraws the early question: no one hears its answer. Returns true if there was one.
    pub(crate) fn withdraw_early(&mut self, now: Instant, lanes: &mut Lanes) -> bool {
        self.early.candidate = None;
        let Some(mut asked) = self.early.asked.take() else { return false };
        lanes.measure(Measurement::EarlyQuestion(EarlyQuestionResult::Withdrawn));
        lanes.leave(now, &mut asked.ask);
        true
    }

    /// Withdraws an early question whose answer cannot be used, and dials for the question at the end of the turn. Returns true
    /// if there was one.
    pub(crate) fn replace_early(&mut self, now: Instant, tools: &mut Tools) -> bool {
        let is_withdrawn = self.withdraw_early(now, &mut tools.lanes);
        if is_withdrawn {
            self.prepare(now, tools);
        }
        is_withdrawn
    }

    /// Gives the answer that has just begun what was made of it early: text and audio in their order, and the lane.
    pub(super) fn release_early(&mut self, now: Instant, tools: &mut Tools) {
        self.early.candidate = None;
        let fits = self.current.as_ref().is_some_and(|answer| !answer.request.by_client);
        if !fits {
            self.withdraw_early(now, &mut tools.lanes);
            return;
        }
        let Some(asked) = self.early.asked.take() else { return };
        tools.lanes.measure(Measurement::EarlyQuestion(EarlyQuestionResult::Used));
        if let Some(answer) = &mut self.current {
            answer.take_over(asked.ask, asked.usage, asked.hit_limit);
            answer.set_native(asked.is_native, |_, _| None);
        }
        for output in asked.output {
            let Some(answer) = &mut self.current else { return };
            match output {
                Output::Text(text) => answer.push_text(now, &text, tools),
                Output::Audio(samples) => answer.push_audio(now, &samples, tools),
                Output::Call(call) => answer.push_call(call, tools),
                Output::Done(text, audio) => self.complete(now, text.as_deref(), &audio, tools),
                Output::Refused(failure) => self.handle_failure(now, failure, tools),
            }
        }
    }
}
