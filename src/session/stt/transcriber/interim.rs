//! Interim decodes: transcribes an unfinished utterance and sends the result as a partial transcript.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{TranscribeOptions, Transcriber};
use crate::{
    event::{ClientCommand, LaneCommand, Speaker},
    session::{
        stt::utterance::{UtteranceState, length_ms},
        upstream::LaneContext,
    },
};

/// A pending decode of an unfinished utterance.
#[derive(Debug)]
pub(crate) struct InterimDecode {
    pub(crate) text: String,
    /// Length of the audio sent, ms.
    pub(crate) audio_ms: u64,
    /// Start of that audio, ms.
    pub(crate) audio_start_ms: u64,
}

impl Transcriber {
    /// True if an interim decode is due; the session then calls [`Transcriber::request_interim`] with the audio.
    pub(crate) fn is_interim_due(&self, now: Instant) -> bool {
        self.next_interim_at.is_some_and(|due| due <= now)
    }

    /// Requests an interim decode if the lane is ready, and schedules the next one.
    pub(crate) fn request_interim(
        &mut self,
        now: Instant,
        (audio, end_ms): (&[i16], u64),
        options: &TranscribeOptions<'_>,
        context: &mut LaneContext,
    ) {
        self.next_interim_at = Some(now + options.rules.interim.max(Duration::from_millis(100)));
        let ready_connection = self.connection.as_mut().filter(|connection| connection.is_ready());
        if let (Some(connection), None) = (ready_connection, &self.interim) {
            let (audio, audio_ms) = (Arc::new(audio.to_vec()), length_ms(audio));
            connection.send_request(
                now,
                LaneCommand::Transcribe { prompt: options.prompt(), audio },
                context,
            );
            self.interim = Some(InterimDecode {
                text: String::new(),
                audio_ms,
                audio_start_ms: end_ms.saturating_sub(audio_ms),
            });
        }
    }

    pub(crate) fn report_interim(
        &self,
        text: &str,
        interim: &InterimDecode,
        options: &TranscribeOptions<'_>,
        context: &mut LaneContext,
    ) {
        let front =
            self.utterances.front().filter(|utterance| matches!(utterance.state, UtteranceState::Recording));
        if let (Some(utterance), true, false) = (front, options.partials, text.trim().is_empty()) {
            context.out.push_client(ClientCommand::TranscriptPartial {
                speaker: Speaker::User,
                text: text.trim().to_owned(),
                segment_id: utterance.segment_id,
                audio_ms: interim.audio_ms,
                start_ms: interim.audio_start_ms,
            });
        }
    }
}
