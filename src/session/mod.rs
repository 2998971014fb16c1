//! One client session, sans-IO: settings, utterances, texts to speak, the conversation, and the lanes that serve them.
//!
//! Takes neutral events with the instant of their arrival, and appends [`outbox::Action`]s. Knows no wire format, clock
//! or task.
//!
//! A message of an upstream goes through [`lanes`] to its owner, and a frame of the client through [`microphone`] and
//! [`input`] to the conversation and the transcriber. Either returns [`effects`], and [`follow_up`] runs the steps below.
//!
//! - [`opening`] makes a session of its [`setup`]; [`client_requests`] handles what clients ask for, [`texts_to_speak`] what they
//!   want spoken, [`setting_changes`] what they set; [`settings`] is what follows from the settings in force
//! - [`microphone`] takes the client's audio, [`input`] finds utterances in it; [`drop_report`] reports what was dropped
//! - [`pauses`] handles pauses in the user's speech, for the end-of-turn model and for early questions
//! - [`lanes`] are the upstream sessions with their owners, [`floor`] decides who is heard and plays it
//! - the owners: [`stt`] makes transcripts of utterances, [`tts`] audio of texts, [`dialogue`] converses in full duplex, and
//!   [`assistant`] takes turns
//! - [`outbox`] is what leaves, [`timers`] are all deadlines, and [`tools`] are these with lanes and floor; [`usage`] counts tokens,
//!   [`pace`] estimates how long words take
//! - [`user_silence`] lets the model answer a silence, for clients that ask for it
//! - [`shutdown`] ends a session by the deadlines of [`drain_plan`]; [`measurement`] and [`status`] serve operators
//!
//! A newcomer changes the owner that a behaviour belongs to. This file only decides which owner gets a client's message.
//! A client of the model's own protocol has another kind of session: [`crate::bridge`]'s relay.
//!
//! # What an input changes
//!
//! Each input is handled by its owner first. Then it takes the steps that its effects ask for, in this order:
//!
//! 1. `play`: sends audio that is due, if [`timers::Timer::Playout`] has expired
//! 2. `speak_next_queued`: speaks the next queued text once nothing else is being spoken
//! 3. `advance_dialogue`: lets the conversation continue ([`dialogue`] lists its own steps), or begins and ends answers
//! 4. `report_dropped`: reports audio that was dropped
//! 5. `finish_if_quiet`: starts to close a draining session that interrupts no one
//! 6. `report_transcripts`: reports silence, and replies to a client in lock step
//! 7. `track_backpressure`: arms the timer of an utterance without audio
//! 8. `track_user_silence`: arms the timer of a silence that is answered
//! 9. `track_replies`: arms the timer of an idle client
//! 10. `arm_outputs`: dials lanes that had to wait, and arms the timers of the floor and of the lanes
//! 11. `finish_if_answered`: ends a closing session whose replies are sent
//!
//! | input | effects | steps |
//! |---|---|---|
//! | a frame of audio that decides nothing | `FRAME` | the floor's timer if audio may leave, the next unit of a conversation, and 6 |
//! | a keep-alive, a picture | `NONE` | none |
//! | more audio or text of the speech that is being played | `DELTA` | the next unit of a conversation, and the floor's timer |
//! | other output of the conversation's model | `MODEL` | 1–5, 9–11 |
//! | anything else | `ALL` | 1–11 |
//! | the same, and a text waits in an upstream's queue | `WORKER_WANTED` | idle workers are given back, then 1–11 |
//! | the same, and a lane that was left has changed | `LANE_LEFT` | lanes that waited for it are dialled, then 1–11 |
//!
//! A frame or delta takes all its steps while the session drains, and when a timer has expired by its instant.

mod acknowledged_audio;
pub(crate) mod assistant;
mod client_requests;
pub(crate) mod dialogue;
pub(crate) mod drain_plan;
mod drop_report;
pub(crate) mod effects;
pub(crate) mod floor;
mod follow_up;
pub(crate) mod growing_text;
pub(crate) mod input;
pub(crate) mod lanes;
pub(crate) mod measurement;
mod microphone;
mod opening;
pub(crate) mod outbox;
pub(crate) mod output_filter;
mod pace;
mod pauses;
mod setting_changes;
mod settings;
mod setup;
mod shutdown;
mod status;
pub(crate) mod stt;
mod texts_to_speak;
pub(crate) mod timers;
pub(crate) mod tools;
pub(crate) mod tts;
pub(crate) mod usage;
mod user_silence;

use std::time::{Duration, Instant};

use self::{
    acknowledged_audio::AcknowledgedAudio,
    assistant::Assistant,
    dialogue::Dialogue,
    drain_plan::DrainPlan,
    drop_report::DropReport,
    effects::Effects,
    floor::{Floor, SpeechSource},
    input::speech_input::{SpeechEvent, StreamedAudio},
    microphone::AudioIntake,
    stt::transcriber::Transcriber,
    tools::Tools,
    tts::{queue::TtsQueue, synthesizer::Synthesizer},
};
pub use self::{
    dialogue::UplinkCounts,
    input::{
        read_window::ReadWindow,
        speech_input::{SampleCounts, pause::TurnDecision},
    },
    measurement::{
        AudioOrigin, AudioTotals, BargeInStage, EarlyQuestionResult, EndReason, Measurement, SessionState,
    },
    outbox::Observation,
    setup::{RelaySetup, SessionSetup},
    status::SessionReport,
    tts::voices::{DEFAULT_VOICE, VoiceCatalog},
};
use crate::{
    audio::scratch,
    error::Error,
    vocabulary::{ClientEvent, ClientRequest, CloseReason, MicrophoneMode},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionPhase {
    /// The session accepts input.
    Open,
    /// The session closes once all replies are sent, or [`timers::Timer::Finish`] expires.
    Finishing(CloseReason),
    /// The client side is closed; lanes may still be closing.
    Ended,
}

/// Last activity of the client, and whether it waits.
#[derive(Debug)]
struct ClientActivity {
    /// The client may be silent for this long; `None` without a limit.
    idle_timeout: Option<Duration>,
    idle_since: Instant,
    /// The client waited for a reply after the last input.
    was_awaiting_reply: bool,
    /// The client has sent audio.
    has_sent_audio: bool,
    /// When the last pending reply was sent.
    last_replied_at: Option<Instant>,
    /// Instant at which the user's silence after an answer began, and the position in the audio then, ms.
    user_silence: Option<(Instant, u64)>,
    /// Since when no audio has arrived, although the client was read.
    silence_since: Instant,
    /// Length of the last audio frame.
    last_frame_length: Duration,
    /// Audio that was acknowledged.
    acknowledged: AcknowledgedAudio,
    /// The driver should not read from the client, as of the last input that may have changed that.
    had_backpressure: bool,
}

/// One client session.
#[derive(Debug)]
pub(crate) struct Session {
    setup: SessionSetup,
    session_id: String,
    opened_at: Instant,
    phase: SessionPhase,
    /// State for operators, as of the last input that may have changed it.
    state: SessionState,
    /// Plan of a graceful end, while the session waits for a moment that interrupts no one.
    drain_plan: Option<DrainPlan<CloseReason>>,
    /// The client has ended its input and waits for its replies, as long as they make progress.
    waits_for_progress: bool,
    activity: ClientActivity,
    intake: AudioIntake,
    drop_report: DropReport,
    transcriber: Transcriber,
    synthesizer: Synthesizer,
    tts_queue: TtsQueue,
    dialogue: Option<Box<Dialogue>>,
    assistant: Option<Box<Assistant>>,
    pub(crate) tools: Tools,
}

impl Session {
    pub(crate) fn id(&self) -> &str {
        &self.session_id
    }

    /// Counts of all samples, and the number of sample groups dropped as too far ahead of the clock.
    pub(crate) fn sample_counts(&self) -> (SampleCounts, u64) {
        (self.intake.speech_input.sample_counts(), self.intake.dropped_groups)
    }

    /// Counts of the conversation's audio; `None` without a conversation.
    pub(crate) fn uplink_counts(&self) -> Option<UplinkCounts> {
        self.dialogue.as_ref().map(|dialogue| dialogue.uplink_counts())
    }

    /// True while the driver should stop reading from the client: too much audio waits for a transcript, or the client
    /// itself waits for a reply.
    fn needs_backpressure(&self) -> bool {
        let max_backlog_ms = self.setup.transcript_backpressure_ms();
        self.phase == SessionPhase::Open
            && ((max_backlog_ms > 0 && self.transcriber.queue.backlog_ms() > max_backlog_ms)
                || self.tools.out.awaits_final())
    }

    /// Audio totals so far.
    pub(crate) fn audio_totals(&self) -> AudioTotals {
        status::audio_totals(self)
    }

    /// Handles a command or audio of the client.
    pub(crate) fn handle_client_request(&mut self, now: Instant, event: ClientRequest<'_>) {
        if self.phase != SessionPhase::Open {
            return self.handle_late_client_request(now, &event);
        }
        match event {
            ClientRequest::Audio(bytes) => {
                let is_first = !std::mem::replace(&mut self.activity.has_sent_audio, true);
                let is_decisive = self.handle_audio(now, bytes) || is_first;
                if self.setup.answers_frames {
                    self.answer_frame(bytes.len());
                }
                if !is_decisive {
                    return self.follow(now, Effects::FRAME);
                }
            }
            ClientRequest::Played(turn) => self.tools.floor.confirm_played(now, turn, &mut self.tools.out),
            ClientRequest::PauseAudio => self.tools.floor.hold(now),
            ClientRequest::ResumeAudio => self.tools.floor.release(now, &mut self.tools.out),
            ClientRequest::Configure(settings) => {
                self.apply_settings(now, settings);
                self.report_settings();
            }
            ClientRequest::Adjust(settings) => self.apply_settings(now, settings),
            ClientRequest::AppendText(text, id) => self.append_text(now, text, id),
            ClientRequest::Flush(id) => self.update_tts_queue(now, |queue| queue.flush(id)),
            ClientRequest::SpeakAppended(id) => {
                self.update_tts_queue(now, |queue| queue.enqueue(id.as_deref()));
            }
            ClientRequest::Clear(request_id) => self.clear_texts(now, request_id),
            ClientRequest::Finalize => {
                self.finalize_transcripts(now);
            }
            ClientRequest::Complete => self.complete(now),
            ClientRequest::Finish => self.finish_after_replies(now),
            ClientRequest::KeepAlive => {
                self.activity.idle_since = now;
                return self.follow(now, Effects::NONE);
            }
            ClientRequest::Speak(request) => self.start_speech(now, *request),
            ClientRequest::CancelSpeech => {
                self.stop_speech(now);
                self.activity.idle_since = now;
            }
            ClientRequest::Commit { may_be_empty } => self.commit_audio(now, may_be_empty),
            ClientRequest::ClearAudio => {
                self.intake.speech_input.clear(&mut self.intake.speech_events);
                self.process_speech_events(now);
                if let Some(assistant) = &mut self.assistant {
                    assistant.withdraw_early(now, &mut self.tools.lanes);
                    assistant.release_prepared(now, &mut self.tools.lanes);
                }
                let at_ms = self.intake.speech_input.listened_ms();
                self.transcriber.abandon_recording(now, at_ms, &mut self.tools);
                self.pass_on_words();
                self.tools.out.push_client(ClientEvent::AudioCleared);
            }
            ClientRequest::VideoFrame(frame) => {
                self.add_picture(now, frame);
                return self.follow(now, Effects::NONE);
            }
            ClientRequest::AddEntry(entry, place) => {
                self.add_entry(now, *entry, place);
                return self.follow(now, Effects::NONE);
            }
            ClientRequest::RemoveEntry(id) => self.change_entries(now, |entries| entries.remove(id)),
            ClientRequest::TruncateEntry(id, heard_ms) => {
                self.change_conversation(now, |assistant| assistant.truncate(id, heard_ms));
            }
            ClientRequest::Answer(request) => self.request_answer(now, *request),
            ClientRequest::Close(reason) => self.begin_shutdown(now, reason),
        }
        self.follow(now, Effects::ALL);
    }

    /// Handles a frame of audio. Returns true if it starts or ends an utterance, or interrupts.
    fn handle_audio(&mut self, now: Instant, bytes: &[u8]) -> bool {
        let Tools { settings, floor, out, .. } = &mut self.tools;
        let is_muted = floor.is_audible() && settings.microphone == MicrophoneMode::Muted;
        if let Some(echo) = &mut self.intake.speech_input.echo {
            echo.begin_frame(now, floor.take_playback());
        }
        let frame = self.intake.take_frame(now, bytes, is_muted, out);
        (self.activity.idle_since, self.activity.silence_since) = (now, now);
        self.activity.last_frame_length = frame.length;
        if let Some(dialogue) = &mut self.dialogue {
            // The dialogue does not wait for audio that the model gets as silence.
            let is_heard = !is_muted && !is_uplink_silenced(floor);
            dialogue.user.note_frame(now, frame, is_heard);
        }
        if frame.is_dropped {
            self.report_dropped(now);
            return false;
        }
        if frame.has_speech {
            floor.note_user_speech(now);
        }
        if self.intake.speech_events.is_empty() {
            self.forward_to_dialogue();
            return false;
        }
        self.process_speech_events(now);
        true
    }

    /// Passes microphone audio to the conversation.
    fn forward_to_dialogue(&mut self) {
        let Some(dialogue) = &mut self.dialogue else { return };
        let StreamedAudio { mut audio, start } = std::mem::take(&mut self.intake.speech_input.stream);
        if !audio.is_empty() {
            let is_silenced = is_uplink_silenced(&self.tools.floor) || dialogue.is_paused();
            dialogue.uplink.push(&mut audio[start..], is_silenced);
            scratch::put_back(audio);
        }
    }

    /// Passes audio to the conversation and speech events to the transcriber. Returns true if an utterance was completed.
    pub(super) fn process_speech_events(&mut self, now: Instant) -> bool {
        self.forward_to_dialogue();
        let mut events = std::mem::take(&mut self.intake.speech_events);
        let mut has_completed = false;
        for event in events.drain(..) {
            match &event {
                SpeechEvent::InterruptionSuspected => self.tools.floor.pause(now),
                SpeechEvent::SuspicionDismissed => self.tools.floor.resume(now, &mut self.tools.out),
                SpeechEvent::Interrupted => self.handle_barge_in(now),
                SpeechEvent::Paused { .. }
                | SpeechEvent::Resumed
                | SpeechEvent::EndLikely(_)
                | SpeechEvent::Decided(_) => self.handle_pause(now, &event),
                SpeechEvent::Started { .. } | SpeechEvent::Segment(_) => {}
            }
            self.track_utterance_end(&event);
            let audio = match &event {
                SpeechEvent::Segment(segment) => Some(segment.audio.clone()),
                SpeechEvent::Started { .. } => {
                    self.withdraw_early(now);
                    self.prepare_answer(now);
                    None
                }
                _ => None,
            };
            let completed = self.transcriber.handle_speech_event(now, event, &mut self.tools);
            self.pass_on_words();
            if let Some((segment_id, audio)) = completed.zip(audio) {
                has_completed = true;
                self.handle_committed(now, segment_id, audio);
            }
        }
        self.intake.speech_events = events;
        has_completed
    }

    /// Has the assistant dial for the utterance that begins.
    fn prepare_answer(&mut self, now: Instant) {
        if let Some(assistant) = &mut self.assistant {
            assistant.prepare(now, &mut self.tools);
        }
    }

    /// Handles a barge-in: the user speaks during playback. The client has been notified of the speech before.
    fn handle_barge_in(&mut self, now: Instant) {
        self.transcriber.report_speech_edges(now, &mut self.tools.timers, &mut self.tools.out);
        self.pass_on_words();
        let after = self.intake.speech_input.speech_length();
        self.tools.out.measure(Measurement::BargeIn { stage: BargeInStage::Noticed, after });
        let is_floor_taken = self.is_floor_taken();
        if let Some(dialogue) = self.dialogue.as_mut().filter(|_| is_floor_taken) {
            dialogue.restore_held();
        }
        self.stop_speech(now);
    }

    /// Watches for barge-ins while something is playing and the microphone is open.
    pub(super) fn update_barge_in_watch(&mut self) {
        let Some(rules) = self.setup.profile.barge_in() else { return };
        let settings = &self.tools.settings;
        let interrupts = self.assistant.is_none() || settings.turn_detection.interrupts;
        let is_speaking = self.dialogue.as_ref().is_some_and(|dialogue| dialogue.is_speaking())
            || self.assistant.as_ref().is_some_and(|assistant| assistant.is_busy())
            || self.tools.floor.is_audible();
        let is_mic_open = settings.microphone == MicrophoneMode::Open;
        self.intake
            .speech_input
            .watch_barge_in(Some(rules).filter(|_| is_speaking && is_mic_open && interrupts));
    }

    /// Stops all speech: the current text, the model's turn or answer, and answers that the client did not ask for.
    pub(super) fn stop_speech(&mut self, now: Instant) {
        self.synthesizer.cancel(now, &mut self.tools);
        if let Some(assistant) = &mut self.assistant {
            assistant.interrupt(now, &mut self.tools);
        }
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.interrupt(now, &mut self.tools);
        }
    }

    /// Reports invalid input to the client; the session continues.
    pub(crate) fn report_error(&mut self, error: Error) {
        if self.phase == SessionPhase::Open {
            self.tools.out.push_error(error);
        }
    }

    /// Reports an event to the log.
    pub(crate) fn observe(&mut self, observation: Observation) {
        self.tools.out.observe(observation);
    }

    /// True if a text of the client is being spoken or about to be.
    fn is_floor_taken(&self) -> bool {
        self.tools.floor.is_busy_with(SpeechSource::Text)
    }
}

/// True while the model hears silence: the client plays a text that it asked for.
fn is_uplink_silenced(floor: &Floor) -> bool {
    floor.is_audible() && floor.is_busy_with(SpeechSource::Text)
}

/// Whole milliseconds of a duration, saturating.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
