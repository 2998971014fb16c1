//! Transcriber: sends utterances to upstreams, one or several at a time, and reports transcripts in the order of speech.
//!
//! The client protocol says how many may be transcribed at a time. Each takes a lane of its own. A lane is dialled only for
//! an utterance that waits. When the upstream has no worker for a further lane, the session does with fewer; each answer
//! lets it try one more.
//!
//! The order of events is the Macaw server's (mappings/notes/macaw.md#order): start, partials, final, end. If a final
//! takes too long, the end goes first and the final still follows.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    pause_transcript::{PauseTranscript, PauseWords},
    recognition::{InterimDecode, Recognition},
    utterance::{SpeechStart, Utterance, UtteranceState, length_ms},
    utterance_queue::{Excess, UtteranceQueue},
};
use crate::session::{
    input::speech_input::{SpeechEvent, SpeechSegment, UtteranceSoFar},
    setup::SessionSetup,
    timers::Timer,
    tools::Tools,
};
use crate::{
    audio::vad::VadConfig,
    spelling::{
        Profile,
        language::primary_language,
        profile::{HearRules, PromptRequest, SensitivityPreset},
    },
    vocabulary::{ClientEvent, ClientSettings, TranscribePrompt},
};

/// Shortest time between two interim decodes.
const MIN_INTERIM_INTERVAL: Duration = Duration::from_millis(100);

/// Longest wait of an utterance for the client's request for an answer: several round trips.
const ANSWER_REQUEST_WAIT: Duration = Duration::from_millis(500);

/// Utterances of a session that are not reported completely, and the recognitions that serve them.
#[derive(Debug)]
pub(crate) struct Transcriber {
    profile: Arc<Profile>,
    /// False if the profile drops the user's words.
    pub(crate) wants_transcript: bool,
    /// The model answers the utterance: its answer gets the first free worker, and the transcript the next.
    pub(crate) yields_to_answer: bool,
    /// The client asks for the answer to each utterance. The answer is requested before the transcript.
    pub(crate) expects_request: bool,
    /// An utterance is complete, and the client has not asked for the answer yet.
    pub(super) awaits_request: bool,
    /// Longest delay of the end of speech for its transcript.
    pub(super) speech_end_wait: Duration,
    /// Final transcripts have word times in the client protocol.
    has_word_times: bool,
    pub(crate) queue: UtteranceQueue,
    /// Most recognitions at a time.
    pub(super) parallel_max: usize,
    /// Most recognitions for now: fewer after the upstream had no worker for another.
    pub(super) lane_limit: usize,
    /// Oldest first. All but the first are further lanes.
    pub(super) recognitions: Vec<Recognition>,
    /// Words of the current turn, if it is likely over.
    pub(super) pause: Option<PauseTranscript>,
    /// A connection was released for a text to speak, or failed; the next utterance opens another.
    pub(super) worker_released: bool,
    segment_count: u32,
}

impl Transcriber {
    pub(crate) fn new(setup: &SessionSetup) -> Self {
        let profile = Arc::clone(&setup.profile);
        Self {
            wants_transcript: profile.transcribes_user(),
            yields_to_answer: profile.answers.is_some(),
            expects_request: false,
            awaits_request: false,
            speech_end_wait: setup.speech_end_wait(),
            profile,
            has_word_times: setup.has_word_times,
            queue: UtteranceQueue::new(
                match (setup.transcript_backpressure_ms(), setup.audio_in.backpressure_ms) {
                    (0, 0) => Excess::Fails,
                    (0, _) => Excess::FailsLate,
                    _ => Excess::Waits,
                },
            ),
            parallel_max: setup.transcripts.parallel_max,
            lane_limit: setup.transcripts.parallel_max,
            recognitions: Vec::new(),
            pause: None,
            worker_released: false,
            segment_count: 0,
        }
    }

    /// Voice activity detection to estimate word times with; `None` if the client gets none.
    pub(super) fn word_time_config(&self, settings: &ClientSettings) -> Option<VadConfig> {
        let estimates_usually = settings.word_times && self.profile.hear.estimated_word_times;
        let is_wanted = settings.estimated_word_times.unwrap_or(estimates_usually);
        let SensitivityPreset { threshold, gate_dbfs } = self.profile.listen.sensitivity.normal;
        (self.has_word_times && is_wanted).then_some(VadConfig {
            threshold,
            gate_dbfs,
            ..VadConfig::default()
        })
    }

    pub(super) fn rules(&self) -> &HearRules {
        &self.profile.hear
    }

    pub(super) fn prompt(&self, settings: &ClientSettings) -> TranscribePrompt {
        let language = self.language(settings);
        let ClientSettings { hot_words, transcription_prompt: user_prompt, translates, .. } = settings;
        let request = PromptRequest { language, hot_words, user_prompt, translates: *translates };
        let hints = [user_prompt.trim(), &hot_words.join(", ")];
        TranscribePrompt {
            instruction: self.rules().prompt(&request),
            // `en-GB` is English.
            language: primary_language(language).into_owned(),
            hints: hints.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" "),
            translates: *translates,
        }
    }

    /// Language of the user's speech.
    fn language<'s>(&'s self, settings: &'s ClientSettings) -> &'s str {
        settings.language.as_ref().unwrap_or(&self.profile.hear.language)
    }

    /// Number of segments so far that were transcribed or will be.
    pub(crate) const fn segment_count(&self) -> u32 {
        self.segment_count
    }

    /// Handles an event of the speech input. Returns the number of the segment that it completes, if there is speech in it.
    pub(crate) fn handle_speech_event(
        &mut self,
        now: Instant,
        event: SpeechEvent,
        tools: &mut Tools,
    ) -> Option<u32> {
        let mut completed = None;
        match event {
            SpeechEvent::Started { at_ms, from_ms } => {
                let start = Some(SpeechStart { at_ms, from_ms });
                self.queue.utterances.push_back(Utterance::open(tools.segment_ids.next_id(), start));
                self.worker_released = false;
                let interval = self.rules().interim;
                tools.timers.set_or_clear(Timer::Interim, (!interval.is_zero()).then(|| now + interval));
            }
            SpeechEvent::Segment(segment) => {
                completed = self.complete_segment(now, segment, tools);
            }
            _ => {}
        }
        self.queue.drop_excess(now, self.profile.hear.backlog_max_ms);
        self.advance(now, tools);
        completed
    }

    fn complete_segment(&mut self, now: Instant, segment: SpeechSegment, tools: &mut Tools) -> Option<u32> {
        let Tools { settings, segment_ids, timers, .. } = tools;
        timers.clear(&[Timer::Interim]);
        self.segment_count += u32::from(self.wants_transcript);
        let prompt = self.prompt(settings);
        let language = if settings.translates { "en" } else { self.language(settings) }.to_owned();
        let pause_words = self.take_pause_words();
        let word_time_config = self.word_time_config(settings);
        let utterance = self.queue.utterances.back_mut()?;
        if !segment.has_speech && !segment.ends_utterance {
            // An empty commit has nothing to transcribe or report: the utterance continues.
            utterance.segment_id = segment_ids.next_id();
            return None;
        }
        utterance.completed_at = Some(now);
        utterance.audio_start_ms = segment.end_ms.saturating_sub(length_ms(&segment.audio));
        utterance.speech_ms = segment.speech_ms;
        utterance.is_cut_in_speech = segment.is_cut_in_speech;
        utterance.verdict = segment.verdict;
        // Settings of the moment of speech: the client may change them before the request is sent.
        utterance.prompt = prompt;
        utterance.language = language;
        utterance.speech_end_ms = segment.ends_utterance.then_some(segment.end_ms);
        // A segment without speech, such as the rest after a commit, has no transcript; nor has one that was not recorded.
        utterance.state = if segment.has_speech && self.wants_transcript && !segment.audio.is_empty() {
            if self.expects_request {
                self.awaits_request = true;
                // The oldest utterance decides: frequent commits must not put transcripts off for ever.
                timers.set_if_clear(Timer::AnswerRequest, now + ANSWER_REQUEST_WAIT);
            }
            match pause_words {
                PauseWords::None => UtteranceState::Waiting(segment.audio),
                PauseWords::Asked(lane, text) => UtteranceState::Requested(lane, segment.audio, text),
                PauseWords::Known(text) => utterance.settled(text, &segment.audio, word_time_config),
            }
        } else {
            UtteranceState::Settled(None)
        };
        let completed = segment.has_speech.then_some(utterance.segment_id);
        if !segment.ends_utterance {
            self.queue.utterances.push_back(Utterance::open(segment_ids.next_id(), None));
        }
        completed
    }

    /// Transcribes the utterances that waited for the client's request for an answer: it came, or it is late.
    pub(crate) fn end_request_wait(&mut self, now: Instant, tools: &mut Tools) {
        tools.timers.clear(&[Timer::AnswerRequest]);
        if std::mem::take(&mut self.awaits_request) {
            self.advance(now, tools);
        }
    }

    /// Sends the unfinished utterance's audio, if a lane is ready; schedules the next decode.
    pub(crate) fn request_interim(&mut self, now: Instant, utterance: UtteranceSoFar<'_>, tools: &mut Tools) {
        tools.timers.set(Timer::Interim, now + self.rules().interim.max(MIN_INTERIM_INTERVAL));
        let prompt = self.prompt(&tools.settings);
        // Words of a likely end are not followed by fewer words.
        let is_pending =
            self.pause.is_some() || self.recognitions.iter().any(|recognition| recognition.interim.is_some());
        let ready = self.recognitions.iter_mut().find(|recognition| tools.lanes.is_ready(recognition.id));
        if let Some(recognition) = ready.filter(|_| !is_pending) {
            let request =
                recognition.begin_interim(prompt, Arc::new(utterance.audio.to_vec()), utterance.end_ms);
            tools.lanes.request(now, recognition.id, request);
        }
    }

    /// The partial transcript that an interim decode gives; `None` without words, or for an earlier utterance.
    pub(super) fn interim_partial(&mut self, text: &str, interim: &InterimDecode) -> Option<ClientEvent> {
        let front = self.queue.utterances.front_mut();
        let utterance = front.filter(|utterance| matches!(utterance.state, UtteranceState::Recording))?;
        let (text, InterimDecode { audio_ms, audio_start_ms, .. }) = (text.trim(), interim);
        (!text.is_empty()).then(|| utterance.partial(text.to_owned(), *audio_ms, *audio_start_ms))
    }

    /// Reports every start and end of speech now: an interruption does not wait for earlier transcripts.
    pub(crate) fn report_speech_edges(&mut self, now: Instant, tools: &mut Tools) {
        self.queue.report_progress(now, Duration::ZERO, tools);
    }

    /// Makes the audio so far final. The client gets one more final transcript, which may be empty. Returns false, and does
    /// nothing, if too many wait.
    pub(crate) fn finalize(&mut self, now: Instant, at_ms: u64, tools: &mut Tools) -> bool {
        let is_accepted = self.queue.finalize(at_ms, &mut tools.segment_ids);
        self.advance(now, tools);
        is_accepted
    }

    /// Drops the unfinished utterance because the session ends; its speech ends at `at_ms`.
    pub(crate) fn abandon_recording(&mut self, now: Instant, at_ms: u64, tools: &mut Tools) {
        self.pause = None;
        self.queue.abandon_recording(now, at_ms);
        tools.timers.clear(&[Timer::Interim]);
        self.advance(now, tools);
    }

    /// Reports each utterance that waits for its transcript as lost, because the session ends.
    pub(crate) fn report_lost(&mut self, now: Instant, tools: &mut Tools) {
        self.queue.fail_unanswered();
        self.queue.report_progress(now, self.speech_end_wait, tools);
    }

    /// Gives up all pending transcripts: reports every end of speech, an open one at `at_ms`, and leaves the lane.
    pub(crate) fn stop(&mut self, now: Instant, at_ms: u64, tools: &mut Tools) {
        self.pause = None;
        self.queue.settle_all(at_ms);
        self.recognitions.iter_mut().for_each(|recognition| recognition.interim = None);
        tools.timers.clear(&[Timer::Interim, Timer::AnswerRequest]);
        self.advance(now, tools);
        for recognition in std::mem::take(&mut self.recognitions) {
            tools.lanes.retire(now, recognition.id);
        }
    }

    /// Reports finished utterances, sends the next requests, and dials or leaves lanes as needed.
    pub(crate) fn advance(&mut self, now: Instant, tools: &mut Tools) {
        self.queue.report_progress(now, self.speech_end_wait, tools);
        tools.floor.out.push_if_any(self.likely_end());
        self.update_lanes(now, &mut tools.lanes);
    }
}
