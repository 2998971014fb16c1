//! Transcriber: sends utterances to an upstream one after the other, and reports transcripts in the order of speech.
//!
//! The order of events is the Macaw server's (field notes macaw.md §1.8): start, partials, final, end. If a final takes
//! too long, the end goes first and the final still follows.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    interim::InterimDecode,
    utterance::{SpeechStart, Utterance, UtteranceState, length_ms},
    utterance_queue::UtteranceQueue,
};
use crate::session::{
    growing_text::GrowingText,
    input::speech_input::{SpeechEvent, SpeechSegment},
    measurement::LanePurpose,
    setup::SessionSetup,
    timers::Timer,
    upstream::LaneContext,
    upstream::connection::UpstreamConnection,
};
use crate::{
    audio::vad::VadConfig,
    event::{DisconnectReason, Lane, LaneCommand, Mode},
    mapping::{
        Profile,
        profile::{HearRules, PromptRequest, SensitivityPreset},
    },
};

/// Purpose and upstream mode of the transcriber's lanes.
const LANE_PURPOSE_AND_MODE: (LanePurpose, Mode) = (LanePurpose::Transcribe, Mode::Chat);

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

/// Utterances of a session that are not reported completely, and the lane that serves them.
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
    pub(super) connection: Option<UpstreamConnection>,
    /// The connection was released for a text to speak, or failed; the next utterance opens another.
    pub(super) worker_released: bool,
    segment_count: u32,
    pub(super) interim: Option<InterimDecode>,
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
            connection: None,
            worker_released: false,
            segment_count: 0,
            interim: None,
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

    /// True if the lane waits in the upstream's queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.connection.as_ref().is_some_and(UpstreamConnection::is_queued)
    }

    /// The lane in use.
    pub(crate) fn lane(&self) -> Option<Lane> {
        self.connection.as_ref().map(UpstreamConnection::lane)
    }

    /// True if the lane holds an upstream worker.
    pub(crate) fn holds_worker(&self) -> bool {
        self.connection.as_ref().is_some_and(UpstreamConnection::holds_worker)
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

    pub(crate) fn handle_opened(&mut self, now: Instant, context: &mut LaneContext) {
        if let Some(connection) = &mut self.connection {
            connection.handle_opened(now, context);
        }
    }

    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        reason: &DisconnectReason,
        context: &mut LaneContext,
    ) {
        if let Some(connection) = &mut self.connection {
            let connection_event = connection.handle_closed(now, reason, context);
            self.handle_connection_event(now, connection_event, context);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, context: &mut LaneContext) {
        if let Some(connection) = &mut self.connection {
            let connection_event = connection.handle_timeout(now, context);
            self.handle_connection_event(now, connection_event, context);
        }
        self.advance(now, context);
    }

    /// Earliest deadline of the lane.
    pub(crate) fn lane_deadline(&self) -> Option<Instant> {
        self.connection.as_ref()?.deadline()
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
        let ready = self.connection.as_mut().filter(|connection| connection.is_ready());
        if let (Some(connection), None) = (ready, &self.interim) {
            self.interim = Some(InterimDecode::request(now, connection, prompt, audio, end_ms, context));
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

    /// Returns an idle worker, because a text to speak waits for one.
    pub(crate) fn release_idle_worker(&mut self, now: Instant, context: &mut LaneContext) {
        let is_busy = self.connection.as_ref().is_some_and(UpstreamConnection::is_awaiting_reply)
            || self
                .queue
                .utterances
                .iter()
                .any(|utterance| matches!(utterance.state, UtteranceState::Waiting(_)));
        if self.connection.is_some() && !is_busy {
            self.worker_released = true;
            self.retire_connection(now, context);
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
        self.interim = None;
        context.timers.clear(&[Timer::Interim]);
        self.advance(now, context);
        self.retire_connection(now, context);
    }

    pub(super) fn retire_connection(&mut self, now: Instant, context: &mut LaneContext) {
        if let Some(connection) = self.connection.take() {
            connection.retire(now, context);
        }
    }

    /// Reports finished utterances, sends the next request, and dials or leaves the lane as needed.
    pub(crate) fn advance(&mut self, now: Instant, context: &mut LaneContext) {
        self.queue.report_progress(now, self.speech_end_wait, context);
        let is_settled = self.queue.utterances.is_empty();
        let waiting = self
            .queue
            .utterances
            .iter_mut()
            .find(|utterance| matches!(utterance.state, UtteranceState::Waiting(_)));
        match (&mut self.connection, waiting) {
            (Some(connection), Some(utterance)) => {
                if let (UtteranceState::Waiting(audio), true) = (&utterance.state, connection.is_ready()) {
                    let audio = audio.clone();
                    let prompt = utterance.prompt.clone();
                    connection.send_request(
                        now,
                        LaneCommand::Transcribe { prompt, audio: audio.clone() },
                        context,
                    );
                    utterance.state = UtteranceState::Requested(audio, GrowingText::default());
                }
            }
            (None, _) if !context.can_dial() => {}
            (None, Some(_)) => {
                self.worker_released = false;
                self.connection = Some(UpstreamConnection::open(
                    now,
                    LANE_PURPOSE_AND_MODE,
                    LaneCommand::Init(None),
                    context,
                ));
            }
            // Dials at the first sound, so that queueing and initialisation overlap the user's speech.
            (None, None)
                if !is_settled
                    && !self.worker_released
                    && self.wants_transcript
                    && !self.yields_to_answer =>
            {
                self.connection = Some(UpstreamConnection::open(
                    now,
                    LANE_PURPOSE_AND_MODE,
                    LaneCommand::Init(None),
                    context,
                ));
            }
            (Some(_), None) if is_settled && self.interim.is_none() => self.retire_connection(now, context),
            (Some(_) | None, None) => {}
        }
    }
}
