//! Transcriber: sends utterances to upstreams, one or several at a time, and reports transcripts in the order of speech.
//!
//! The client protocol says how many may be transcribed at a time. Each takes a lane of its own. A lane is dialled only for
//! an utterance that waits. When the upstream has no worker for a further lane, the session does with fewer; each answer
//! lets it try one more.
//!
//! The order of events is the Macaw server's (field notes macaw.md §1.8): start, partials, final, end. If a final takes
//! too long, the end goes first and the final still follows.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    recognition::{InterimDecode, Recognition},
    utterance::{SpeechStart, Utterance, UtteranceState, length_ms},
    utterance_queue::UtteranceQueue,
};
use crate::session::{
    growing_text::GrowingText,
    input::speech_input::{SpeechEvent, SpeechSegment},
    setup::SessionSetup,
    timers::Timer,
    upstream::LaneContext,
    upstream::connection::{ConnectionEvent, UpstreamConnection},
};
use crate::{
    audio::vad::VadConfig,
    event::{DisconnectReason, Lane, LaneCommand},
    mapping::{
        Profile,
        profile::{HearRules, PromptRequest, SensitivityPreset},
    },
};

/// Longest time that a further lane stays in the upstream's queue, where it takes a place from other clients. A worker that
/// only cleans up after the last session is free within this time.
const FURTHER_LANE_QUEUE_MAX: Duration = Duration::from_secs(2);

/// Shortest time between two interim decodes.
const MIN_INTERIM_INTERVAL: Duration = Duration::from_millis(100);

/// Settings of the client that apply to transcription.
#[derive(Debug)]
pub(crate) struct TranscribeOptions {
    pub(crate) language: String,
    pub(crate) hot_words: Vec<String>,
    /// The client's own words for the prompt.
    pub(crate) user_prompt: String,
    /// Speech is translated into English instead of transcribed.
    pub(crate) translates: bool,
    /// The client wants partial transcripts.
    pub(crate) partials: bool,
    /// Word times are estimated for final transcripts.
    pub(crate) word_times: bool,
}

impl TranscribeOptions {
    /// Language of the transcripts.
    fn transcript_language(&self) -> &str {
        if self.translates { "en" } else { &self.language }
    }
}

/// Utterances of a session that are not reported completely, and the recognitions that serve them.
#[derive(Debug)]
pub(crate) struct Transcriber {
    profile: Arc<Profile>,
    /// False if the profile drops the user's words.
    pub(crate) wants_transcript: bool,
    /// The model answers the utterance: its answer gets the first free worker, and the transcript the next.
    pub(crate) yields_to_answer: bool,
    /// Longest delay of the end of speech for its transcript.
    pub(super) speech_end_wait: Duration,
    pub(crate) options: TranscribeOptions,
    pub(crate) queue: UtteranceQueue,
    /// Most recognitions at a time.
    pub(super) parallel_max: usize,
    /// Most recognitions for now: fewer after the upstream had no worker for another.
    pub(super) lane_limit: usize,
    /// Oldest first. All but the first are further lanes.
    pub(super) recognitions: Vec<Recognition>,
    /// A connection was released for a text to speak, or failed; the next utterance opens another.
    pub(super) worker_released: bool,
    segment_count: u32,
}

impl Transcriber {
    pub(crate) fn new(setup: &SessionSetup) -> Self {
        let profile = Arc::clone(&setup.profile);
        let options = TranscribeOptions {
            language: profile.hear.language.clone(),
            hot_words: Vec::new(),
            user_prompt: String::new(),
            translates: false,
            partials: profile.hear.partials,
            word_times: setup.estimates_word_times(),
        };
        Self {
            wants_transcript: profile.transcribes_user(),
            yields_to_answer: profile.answers.is_some(),
            speech_end_wait: setup.speech_end_wait(),
            profile,
            options,
            // Where back-pressure stops the client, no waiting audio is dropped.
            queue: UtteranceQueue::new(setup.audio_in.backpressure_ms > 0),
            parallel_max: setup.transcripts.parallel_max,
            lane_limit: setup.transcripts.parallel_max,
            recognitions: Vec::new(),
            worker_released: false,
            segment_count: 0,
        }
    }

    /// Voice activity detection to estimate word times with; `None` if the client gets none.
    pub(super) fn word_time_config(&self) -> Option<VadConfig> {
        let SensitivityPreset { threshold, gate_dbfs } = self.profile.listen.sensitivity.normal;
        self.options.word_times.then_some(VadConfig { threshold, gate_dbfs, ..VadConfig::default() })
    }

    pub(super) fn rules(&self) -> &HearRules {
        &self.profile.hear
    }

    fn prompt(&self) -> String {
        let TranscribeOptions { language, hot_words, user_prompt, translates, .. } = &self.options;
        self.rules().prompt(&PromptRequest { language, hot_words, user_prompt, translates: *translates })
    }

    /// Number of segments so far that were transcribed or will be.
    pub(crate) const fn segment_count(&self) -> u32 {
        self.segment_count
    }

    /// True if it waits in the upstream's queue, without a worker.
    pub(crate) fn is_queued(&self) -> bool {
        !self.holds_worker() && self.recognitions.iter().any(|it| it.connection.is_queued())
    }

    /// True if this is one of its lanes.
    pub(crate) fn owns_lane(&self, lane: Lane) -> bool {
        self.recognitions.iter().any(|recognition| recognition.lane() == lane)
    }

    /// True if it has a lane.
    pub(crate) const fn has_lanes(&self) -> bool {
        !self.recognitions.is_empty()
    }

    /// True if a lane holds an upstream worker.
    pub(crate) fn holds_worker(&self) -> bool {
        self.recognitions.iter().any(|recognition| recognition.connection.holds_worker())
    }

    pub(super) fn recognition_mut(&mut self, lane: Lane) -> Option<&mut Recognition> {
        self.recognitions.iter_mut().find(|recognition| recognition.lane() == lane)
    }

    /// Handles an event of the speech input. Returns the number of the segment that it completes, if there is speech in it.
    pub(crate) fn handle_speech_event(
        &mut self,
        now: Instant,
        event: SpeechEvent,
        context: &mut LaneContext,
    ) -> Option<u32> {
        let mut completed = None;
        match event {
            SpeechEvent::Started { at_ms, from_ms } => {
                let start = Some(SpeechStart { at_ms, from_ms });
                self.queue.utterances.push_back(Utterance::open(context.segment_ids.next_id(), start));
                self.worker_released = false;
                let interval = self.rules().interim;
                context.timers.set_or_clear(Timer::Interim, (!interval.is_zero()).then(|| now + interval));
            }
            SpeechEvent::Segment(segment) => completed = self.complete_segment(now, segment, context),
            _ => {}
        }
        self.queue.drop_excess(self.profile.hear.backlog_max_ms);
        self.advance(now, context);
        completed
    }

    fn complete_segment(
        &mut self,
        now: Instant,
        segment: SpeechSegment,
        context: &mut LaneContext,
    ) -> Option<u32> {
        context.timers.clear(&[Timer::Interim]);
        self.segment_count += u32::from(self.wants_transcript);
        let prompt = self.prompt();
        let utterance = self.queue.utterances.back_mut()?;
        if !segment.has_speech && !segment.ends_utterance {
            // An empty commit has nothing to transcribe or report: the utterance continues.
            utterance.segment_id = context.segment_ids.next_id();
            return None;
        }
        utterance.completed_at = Some(now);
        utterance.audio_start_ms = segment.end_ms.saturating_sub(length_ms(&segment.audio));
        utterance.speech_ms = segment.speech_ms;
        // Settings of the moment of speech: the client may change them before the request is sent.
        utterance.prompt = prompt;
        utterance.language = self.options.transcript_language().to_owned();
        utterance.speech_end_ms = segment.ends_utterance.then_some(segment.end_ms);
        // A segment without speech, such as the rest after a commit, has no transcript.
        utterance.state = if segment.has_speech && self.wants_transcript {
            UtteranceState::Waiting(segment.audio)
        } else {
            UtteranceState::Settled(None)
        };
        let completed = segment.has_speech.then_some(utterance.segment_id);
        if !segment.ends_utterance {
            self.queue.utterances.push_back(Utterance::open(context.segment_ids.next_id(), None));
        }
        completed
    }

    pub(crate) fn handle_opened(&mut self, now: Instant, lane: Lane, context: &mut LaneContext) {
        if let Some(recognition) = self.recognition_mut(lane) {
            recognition.connection.handle_opened(now, context);
        }
    }

    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        lane: Lane,
        reason: &DisconnectReason,
        context: &mut LaneContext,
    ) {
        let close = |connection: &mut UpstreamConnection, context: &mut LaneContext| {
            connection.handle_closed(now, reason, context)
        };
        self.act_on_connection(now, lane, context, close);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, context: &mut LaneContext) {
        for index in (0..self.recognitions.len()).rev() {
            let Some(lane) = self.recognitions.get(index).map(Recognition::lane) else { continue };
            self.act_on_connection(now, lane, context, |connection, context| {
                connection.handle_timeout(now, context)
            });
        }
        self.advance(now, context);
    }

    /// Lets the connection of a lane handle an input, and follows what came of it.
    fn act_on_connection(
        &mut self,
        now: Instant,
        lane: Lane,
        context: &mut LaneContext,
        act: impl FnOnce(&mut UpstreamConnection, &mut LaneContext) -> ConnectionEvent,
    ) {
        let Some(recognition) = self.recognition_mut(lane) else { return };
        let connection_event = act(&mut recognition.connection, context);
        // Another attempt has another lane.
        let lane = recognition.lane();
        self.handle_connection_event(now, lane, connection_event, context);
    }

    /// Earliest deadline of the lanes.
    pub(crate) fn lane_deadline(&self) -> Option<Instant> {
        let of_connections = self.recognitions.iter().filter_map(|it| it.connection.deadline());
        of_connections.chain(self.recognitions.iter().skip(1).filter_map(queue_deadline)).min()
    }

    /// Sends the unfinished utterance's audio, which ends at `end_ms`, if the lane is ready; schedules the next decode.
    pub(crate) fn request_interim(
        &mut self,
        now: Instant,
        audio: &[i16],
        end_ms: u64,
        context: &mut LaneContext,
    ) {
        context.timers.set(Timer::Interim, now + self.rules().interim.max(MIN_INTERIM_INTERVAL));
        let prompt = self.prompt();
        let is_pending = self.recognitions.iter().any(|recognition| recognition.interim.is_some());
        let ready = self.recognitions.iter_mut().find(|recognition| recognition.connection.is_ready());
        if let Some(recognition) = ready.filter(|_| !is_pending) {
            recognition.request_interim(now, prompt, audio, end_ms, context);
        }
    }

    pub(super) fn report_interim(&mut self, text: &str, interim: &InterimDecode, context: &mut LaneContext) {
        let front = self
            .queue
            .utterances
            .front_mut()
            .filter(|utterance| matches!(utterance.state, UtteranceState::Recording));
        if let (Some(utterance), true, false) = (front, self.options.partials, text.trim().is_empty()) {
            let (audio_ms, start_ms) = (interim.audio_ms, interim.audio_start_ms);
            utterance.push_partial(text.trim().to_owned(), audio_ms, start_ms, context);
        }
    }

    /// Reports every start and end of speech now: an interruption does not wait for earlier transcripts.
    pub(crate) fn report_speech_edges(&mut self, now: Instant, context: &mut LaneContext) {
        self.queue.report_progress(now, Duration::ZERO, context);
    }

    /// Makes the audio so far final. The client gets one more final transcript, which may be empty.
    pub(crate) fn finalize(&mut self, now: Instant, context: &mut LaneContext) {
        self.queue.finalize(context);
        self.advance(now, context);
    }

    /// Returns idle workers, because a text to speak waits for one.
    pub(crate) fn release_idle_worker(&mut self, now: Instant, context: &mut LaneContext) {
        if self.queue.waiting_count() == 0 {
            while let Some(lane) = self.last_unused() {
                self.worker_released = true;
                self.retire(now, lane, context);
            }
        }
    }

    /// Drops the unfinished utterance because the session ends; its speech ends at `at_ms`.
    pub(crate) fn abandon_recording(&mut self, now: Instant, at_ms: u64, context: &mut LaneContext) {
        self.queue.abandon_recording(now, at_ms);
        context.timers.clear(&[Timer::Interim]);
        self.advance(now, context);
    }

    /// Gives up all pending transcripts: reports every end of speech, an open one at `at_ms`, and leaves the lane.
    pub(crate) fn stop(&mut self, now: Instant, at_ms: u64, context: &mut LaneContext) {
        self.queue.settle_all(at_ms);
        self.recognitions.iter_mut().for_each(|recognition| recognition.interim = None);
        context.timers.clear(&[Timer::Interim]);
        self.advance(now, context);
        for recognition in std::mem::take(&mut self.recognitions) {
            recognition.connection.retire(now, context);
        }
    }

    /// Leaves the connection of a lane.
    pub(super) fn retire(&mut self, now: Instant, lane: Lane, context: &mut LaneContext) {
        if let Some(index) = self.recognitions.iter().position(|recognition| recognition.lane() == lane) {
            self.recognitions.remove(index).connection.retire(now, context);
        }
    }

    /// Reports finished utterances, sends the next requests, and dials or leaves lanes as needed.
    pub(crate) fn advance(&mut self, now: Instant, context: &mut LaneContext) {
        self.queue.report_progress(now, self.speech_end_wait, context);
        self.send_requests(now, context);
        self.leave_queue(now, context);
        self.retire_unneeded(now, context);
        self.dial_needed(now, context);
    }

    /// Sends the oldest waiting utterances on the ready lanes.
    fn send_requests(&mut self, now: Instant, context: &mut LaneContext) {
        for recognition in self.recognitions.iter_mut().filter(|it| it.connection.is_ready()) {
            let Some(utterance) = self.queue.first_waiting() else { return };
            let UtteranceState::Waiting(audio) = &utterance.state else { return };
            let audio = audio.clone();
            let request = LaneCommand::Transcribe { prompt: utterance.prompt.clone(), audio: audio.clone() };
            recognition.connection.send_request(now, request, context);
            utterance.state = UtteranceState::Requested(recognition.lane(), audio, GrowingText::default());
        }
    }

    /// Leaves the upstream's queue with further lanes that have waited for too long.
    fn leave_queue(&mut self, now: Instant, context: &mut LaneContext) {
        let is_late = |it: &&Recognition| queue_deadline(it).is_some_and(|at| at <= now);
        while let Some(lane) = self.recognitions.iter().skip(1).find(is_late).map(Recognition::lane) {
            self.leave(now, lane, context);
        }
    }

    /// True for a lane that is not the first.
    pub(super) fn is_further_lane(&self, lane: Lane) -> bool {
        self.recognitions.iter().skip(1).any(|recognition| recognition.lane() == lane)
    }

    /// Leaves a further lane because the upstream has no worker for it.
    pub(super) fn leave(&mut self, now: Instant, lane: Lane, context: &mut LaneContext) {
        self.retire(now, lane, context);
        self.lane_limit = self.recognitions.len().max(1);
    }

    /// Leaves unused lanes for which no utterance waits. One is kept while the user speaks.
    fn retire_unneeded(&mut self, now: Instant, context: &mut LaneContext) {
        let needed = self.queue.waiting_count().max(usize::from(self.queue.is_recording()));
        while self.unused_count() > needed
            && let Some(lane) = self.last_unused()
        {
            self.retire(now, lane, context);
        }
    }

    /// Dials for utterances that wait. The first lane is dialled at the first sound, so that queueing and initialisation
    /// overlap the user's speech.
    fn dial_needed(&mut self, now: Instant, context: &mut LaneContext) {
        let expects_utterance = self.recognitions.is_empty()
            && self.queue.is_recording()
            && !self.worker_released
            && self.wants_transcript
            && !self.yields_to_answer;
        let needed = self.queue.waiting_count().max(usize::from(expects_utterance));
        while self.unused_count() < needed
            && self.recognitions.len() < self.lane_limit
            && context.can_dial_beside(self.lane_limit - self.recognitions.len() - 1)
        {
            self.worker_released = false;
            self.recognitions.push(Recognition::open(now, context));
        }
    }

    fn unused_count(&self) -> usize {
        self.recognitions.iter().filter(|recognition| recognition.is_unused()).count()
    }

    /// The newest lane without an outstanding answer, if possible one without a worker.
    fn last_unused(&self) -> Option<Lane> {
        let unused = || self.recognitions.iter().filter(|recognition| recognition.is_unused());
        let without_worker = unused().rfind(|recognition| !recognition.connection.holds_worker());
        without_worker.or_else(|| unused().next_back()).map(Recognition::lane)
    }
}

/// When a further lane leaves the upstream's queue.
fn queue_deadline(recognition: &Recognition) -> Option<Instant> {
    recognition.connection.queue_position().map(|(_, since)| since + FURTHER_LANE_QUEUE_MAX)
}
