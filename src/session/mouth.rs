//! What the client hears of a text: announced once, sent in frames, ended once.

use std::time::Instant;

use bytes::Bytes;

use super::{
    action::{Action, Actions},
    link::millis,
};
use crate::{
    audio::{MODEL_RATE_HZ, output::Voice, resample::UnsupportedRate},
    event::ClientCommand,
};

/// One session's voice towards its client.
#[derive(Debug)]
pub(crate) struct Mouth {
    voice: Voice,
    out_rate_hz: u32,
    /// A rate set while a text was spoken.
    next_voice: Option<(Voice, u32)>,
    frame_max_bytes: usize,
    text: Option<Text>,
}

/// The text at hand.
#[derive(Debug)]
struct Text {
    request_id: String,
    words: String,
    asked_at: Instant,
    announced: bool,
    sent_bytes: u64,
}

impl Mouth {
    /// Speaks at the model's own rate, in frames of at most `frame_max_bytes`.
    pub(crate) fn new(frame_max_bytes: usize) -> Self {
        Self {
            voice: Voice::default(),
            out_rate_hz: MODEL_RATE_HZ,
            next_voice: None,
            // Frames hold whole samples.
            frame_max_bytes: (frame_max_bytes & !1).max(2),
            text: None,
        }
    }

    /// Speaks at another rate from the next text on.
    ///
    /// # Errors
    /// [`UnsupportedRate`] for a rate out of range; the old one stays.
    pub(crate) fn set_rate(&mut self, out_rate_hz: u32) -> Result<(), UnsupportedRate> {
        self.next_voice = Some((Voice::new(out_rate_hz)?, out_rate_hz));
        Ok(())
    }

    /// A text is to be spoken; the last one has ended.
    pub(crate) fn begin(&mut self, now: Instant, request_id: String, words: String) {
        if let Some((voice, out_rate_hz)) = self.next_voice.take() {
            self.voice = voice;
            self.out_rate_hz = out_rate_hz;
        }
        self.text = Some(Text { request_id, words, asked_at: now, announced: false, sent_bytes: 0 });
    }

    /// Whether the client hears something: the microphone is muted then.
    pub(crate) fn is_audible(&self) -> bool {
        self.text.as_ref().is_some_and(|text| text.announced)
    }

    /// Sends audio of the model, float32.
    pub(crate) fn say(&mut self, now: Instant, samples: &[f32], out: &mut Actions) {
        let mut bytes = Vec::new();
        self.voice.push(samples, &mut bytes);
        self.send(now, bytes, out);
    }

    /// Sends what the resampler still holds.
    pub(crate) fn finish(&mut self, now: Instant, out: &mut Actions) {
        let mut bytes = Vec::new();
        self.voice.flush(&mut bytes);
        self.send(now, bytes, out);
    }

    /// Forgets what the resampler still holds.
    pub(crate) fn forget(&mut self) {
        self.voice.clear();
    }

    /// Ends the text. What was not announced never was (golden c10e).
    pub(crate) fn end(&mut self, now: Instant, cancelled: bool, out: &mut Actions) {
        self.forget();
        let Some(text) = self.text.take().filter(|text| text.announced) else { return };
        if cancelled {
            out.push(Action::DropAudio(text.sent_bytes));
        }
        out.client(ClientCommand::SpeakingEnded {
            request_id: text.request_id,
            at_ms: millis(now - text.asked_at),
            cancelled,
            audio_ms: text.sent_bytes / 2 * 1000 / u64::from(self.out_rate_hz),
        });
    }

    /// Sends audio, after its announcement.
    fn send(&mut self, now: Instant, bytes: Vec<u8>, out: &mut Actions) {
        let Some(text) = self.text.as_mut().filter(|_| !bytes.is_empty()) else { return };
        if !text.announced {
            text.announced = true;
            out.client(ClientCommand::SpeakingStarted {
                request_id: text.request_id.clone(),
                at_ms: millis(now - text.asked_at),
                text: text.words.clone(),
            });
        }
        text.sent_bytes += bytes.len() as u64;
        let mut bytes = Bytes::from(bytes);
        while !bytes.is_empty() {
            let frame = bytes.split_to(bytes.len().min(self.frame_max_bytes));
            out.client(ClientCommand::Audio(frame));
        }
    }
}
