//! Utterance: one segment of speech, from its first sound to its transcript.

use std::{sync::Arc, time::Instant};

use crate::session::{
    growing_text::GrowingText, input::speech_input::pause::TurnVerdict, lanes::LaneId,
    measurement::Measurement, outbox::Actions,
};
use crate::{
    audio::{
        SPEECH_RATE_HZ,
        vad::VadConfig,
        word_times::{WordTime, estimate_word_times},
    },
    error::{Error, ErrorKind},
    vocabulary::{ClientEvent, EndCause, Speaker, TranscribePrompt},
};

/// A segment of speech: a whole utterance, or the part of an utterance before a commit.
#[derive(Debug)]
pub(crate) struct Utterance {
    pub(crate) segment_id: u32,
    /// Start of the utterance, if this segment is its first.
    pub(crate) speech_start: Option<SpeechStart>,
    pub(crate) start_reported: bool,
    /// End of the utterance, ms, if this segment is its last.
    pub(crate) speech_end_ms: Option<u64>,
    /// Start of the segment's audio, ms.
    pub(crate) audio_start_ms: u64,
    /// Start and end of the speech in it, ms.
    pub(crate) speech_ms: (u64, u64),
    /// It was too long, and the speech goes on without a pause.
    pub(crate) is_cut_in_speech: bool,
    /// How the pause at its end was judged, and what ended it.
    pub(crate) verdict: TurnVerdict,
    /// The client asked for a final at this point, and gets one even if the transcript is empty.
    pub(crate) finalized: bool,
    /// When the audio was complete.
    pub(crate) completed_at: Option<Instant>,
    /// The client got the end of speech before the final transcript.
    pub(crate) released: bool,
    pub(crate) attempts: u32,
    /// Prompt of the request and its language, as set when the audio was complete.
    pub(crate) prompt: TranscribePrompt,
    pub(crate) language: String,
    pub(crate) state: UtteranceState,
    pub(crate) first_transcript: FirstTranscriptTimer,
    /// Length of the longest partial transcript that the client got, characters.
    pub(crate) longest_partial_chars: usize,
}

/// Words of an utterance, for what later prompts tell the model.
#[derive(Debug)]
pub(crate) struct UserWords {
    pub(crate) segment_id: u32,
    pub(crate) text: String,
}

/// Start of an utterance in the received audio.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpeechStart {
    /// Position of the decision, ms.
    pub(crate) at_ms: u64,
    /// Position of the first sound, ms.
    pub(crate) from_ms: u64,
}

/// Measures the time to the first words of one utterance, once.
#[derive(Debug, Default)]
pub(crate) struct FirstTranscriptTimer(bool);

impl FirstTranscriptTimer {
    /// Measures that words are sent. Words before the utterance's end do not count.
    pub(crate) fn take(&mut self, now: Instant, completed_at: Option<Instant>) -> Option<Measurement> {
        let at = completed_at.filter(|_| !std::mem::replace(&mut self.0, true))?;
        Some(Measurement::FirstTranscript { after: now - at })
    }
}

#[derive(Debug)]
pub(crate) enum UtteranceState {
    /// The user is still speaking.
    Recording,
    /// The audio waits for an upstream.
    Waiting(Arc<Vec<i16>>),
    /// The audio was sent on this lane; the text received so far.
    Requested(LaneId, Arc<Vec<i16>>, GrowingText),
    /// Done; the result to report to the client.
    Settled(Option<Result<Transcript, Error>>),
}

#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub(crate) text: String,
    pub(crate) duration_ms: u64,
    /// Language of the request; `None` if there was none.
    pub(crate) language: Option<String>,
    pub(crate) words: Vec<WordTime>,
}

impl Utterance {
    pub(crate) const fn open(segment_id: u32, speech_start: Option<SpeechStart>) -> Self {
        Self {
            segment_id,
            speech_start,
            start_reported: false,
            speech_end_ms: None,
            audio_start_ms: 0,
            speech_ms: (0, 0),
            is_cut_in_speech: false,
            verdict: TurnVerdict { probability: None, cause: EndCause::Timeout },
            finalized: false,
            completed_at: None,
            released: false,
            attempts: 0,
            prompt: TranscribePrompt {
                instruction: String::new(),
                language: String::new(),
                hints: String::new(),
                translates: false,
            },
            language: String::new(),
            state: UtteranceState::Recording,
            first_transcript: FirstTranscriptTimer(false),
            longest_partial_chars: 0,
        }
    }

    /// An empty utterance that only reports that all before it is final: the audio before `at_ms`.
    pub(crate) fn finality_marker(segment_id: u32, at_ms: u64) -> Self {
        let open = Self::open(segment_id, None);
        let state = UtteranceState::Settled(None);
        Self { finalized: true, state, audio_start_ms: at_ms, speech_ms: (at_ms, at_ms), ..open }
    }

    /// The state with these words of the utterance's audio (16 kHz), with estimated times if wanted.
    pub(crate) fn settled(
        &self,
        text: String,
        audio: &[i16],
        word_times: Option<VadConfig>,
    ) -> UtteranceState {
        let words = word_times
            .map_or_else(Vec::new, |config| estimate_word_times(&text, audio, self.audio_start_ms, config));
        let language = Some(self.language.clone());
        UtteranceState::Settled(Some(Ok(Transcript { text, duration_ms: length_ms(audio), language, words })))
    }

    /// Gives up the transcript for this cause.
    pub(crate) fn fail(&mut self, kind: ErrorKind, cause: &str) {
        let id = self.segment_id;
        let error = Error::new(kind, format!("utterance {id} was not transcribed: {cause}"));
        self.state = UtteranceState::Settled(Some(Err(Error { segment_id: Some(id), ..error })));
    }

    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self.state, UtteranceState::Waiting(_))
    }

    /// True if the audio was sent on this lane.
    pub(crate) fn is_requested_on(&self, lane: LaneId) -> bool {
        matches!(self.state, UtteranceState::Requested(its_lane, ..) if its_lane == lane)
    }

    /// Reports the transcript and the end of a settled utterance; returns false if the utterance is not settled.
    pub(crate) fn report_if_settled(
        &mut self,
        now: Instant,
        words: &mut Vec<UserWords>,
        out: &mut Actions,
    ) -> bool {
        let UtteranceState::Settled(result) = &mut self.state else { return false };
        let result = result.take();
        let is_empty = matches!(result, Some(Err(_)) | None);
        let text = if let Some(Ok(transcript)) = &result { transcript.text.clone() } else { String::new() };
        match result {
            Some(Ok(transcript)) => {
                words.push(UserWords { segment_id: self.segment_id, text: transcript.text.clone() });
                out.measure_if_any(self.first_transcript.take(now, self.completed_at));
                out.push_client(self.final_transcript(transcript));
            }
            Some(Err(error)) => out.push_error(error),
            None => {}
        }
        // The client asked for this final and waits for it.
        if is_empty && self.finalized {
            out.push_client(self.final_transcript(Transcript::default()));
        }
        if let Some(end_ms) = self.speech_end_ms {
            out.push_client(ClientEvent::TurnEnded {
                text,
                segment_id: self.segment_id,
                confidence: self.verdict.probability.unwrap_or(1.0),
                cause: self.verdict.cause,
                start_ms: self.audio_start_ms,
                audio_ms: end_ms.saturating_sub(self.audio_start_ms),
            });
        }
        if let (Some(at_ms), false) = (self.speech_end_ms, self.released) {
            out.push_client(ClientEvent::SpeechEnded { at_ms, segment_id: self.segment_id });
        }
        true
    }

    /// A partial transcript: the words of this audio so far.
    pub(crate) fn partial(&mut self, text: String, audio_ms: u64, start_ms: u64) -> ClientEvent {
        self.longest_partial_chars = self.longest_partial_chars.max(text.chars().count());
        let (speaker, segment_id) = (Speaker::User, self.segment_id);
        ClientEvent::TranscriptPartial { speaker, text, segment_id, audio_ms, start_ms }
    }

    fn final_transcript(&self, transcript: Transcript) -> ClientEvent {
        let Transcript { text, duration_ms, language, words } = transcript;
        ClientEvent::TranscriptFinal {
            speaker: Speaker::User,
            text,
            segment_id: self.segment_id,
            duration_ms,
            start_ms: self.audio_start_ms,
            speech_ms: self.speech_ms,
            utterance_ended: self.speech_end_ms.is_some() && !self.finalized,
            finalized: self.finalized,
            language,
            words,
        }
    }
}

/// Length of audio at 16 kHz, ms.
pub(crate) fn length_ms(audio: &[i16]) -> u64 {
    audio.len() as u64 * 1000 / u64::from(SPEECH_RATE_HZ)
}
