//! What the client hears: one text after the other, each announced once, sent as it is heard, ended once.
//!
//! A text is what a client asked to be spoken, or a turn of the model. Whoever makes one begins it, says it piece by
//! piece and finishes it; when it leaves is decided here, by the profile's pace. A text has ended when the client has
//! heard its last sample: until then the microphone is muted, and until then it can be taken back.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::session::{
    measurement::{Asked, Figure},
    outbox::{Action, Actions, Observation},
    upstream::connection::millis,
};
use crate::{
    audio::{
        MODEL_RATE_HZ, encoding::Encoding, output_converter::Voice, playout::Pace, resample::UnsupportedRate,
    },
    error::{Error, ErrorKind},
    event::ClientCommand,
    mapping::profile::{Playout, Rhythm},
};

/// With more than this waiting to be heard, no more of a text is asked for.
const AHEAD: Duration = Duration::from_secs(30);
/// What the model makes of a turn at a time: so long after a turn's first audio comes the next, however short the first
/// one is (the documented legacy server begins with half of it).
const UNIT_SAMPLES: u64 = MODEL_RATE_HZ as u64;
/// Most that may wait: a model was seen 34 s ahead (field notes §7.16), and memory is bounded.
const AHEAD_MAX: Duration = Duration::from_secs(90);

/// Whose text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The client's: it asked for it.
    Request,
    /// The model's own.
    Turn,
}

/// One session's voice towards its client.
#[derive(Debug)]
pub(crate) struct Mouth {
    voice: Voice,
    encoding: Encoding,
    out_rate_hz: u32,
    /// A format set while a text was spoken.
    next_voice: Option<(Voice, Encoding, u32)>,
    frame_max_bytes: usize,
    playout: Playout,
    pace: Pace,
    /// The front one is being heard, the back one is being made.
    texts: VecDeque<Text>,
    /// When the user was last heard to speak, until that is answered.
    asked_at: Option<Instant>,
    /// Audio that was sent, in all.
    sent: Duration,
}

#[derive(Debug)]
struct Text {
    by: By,
    request_id: String,
    words: String,
    asked_at: Instant,
    /// Made and not sent.
    waiting: VecDeque<Bytes>,
    /// Samples of the model it was made from.
    made: u64,
    /// Its first audio has come to the front.
    begun: bool,
    announced: bool,
    /// No more of it is made.
    complete: bool,
    /// Some of it was dropped.
    overflowed: bool,
    sent_bytes: u64,
}

impl Mouth {
    /// Speaks at the model's own rate, in frames of at most `frame_max_bytes`.
    pub(crate) fn new(frame_max_bytes: usize, playout: Playout) -> Self {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let lead = (playout.pace == Rhythm::RealTime).then(|| ms(playout.lead_ms));
        Self {
            voice: Voice::default(),
            encoding: Encoding::default(),
            out_rate_hz: MODEL_RATE_HZ,
            next_voice: None,
            frame_max_bytes,
            playout,
            pace: Pace::new(lead, ms(playout.hold_max_ms)),
            texts: VecDeque::new(),
            asked_at: None,
            sent: Duration::ZERO,
        }
    }

    /// Speaks in another encoding and at another rate from the next text on.
    ///
    /// # Errors
    /// [`UnsupportedRate`] for a rate out of range; the old one stays.
    pub(crate) fn set_format(&mut self, encoding: Encoding, out_rate_hz: u32) -> Result<(), UnsupportedRate> {
        self.next_voice = Some((Voice::of(encoding, out_rate_hz)?, encoding, out_rate_hz));
        Ok(())
    }

    /// A text begins; `words` are told with its first audio.
    pub(crate) fn begin(&mut self, now: Instant, by: By, request_id: String, words: String) {
        if let Some((voice, encoding, out_rate_hz)) = self.next_voice.take_if(|_| self.texts.is_empty()) {
            self.voice = voice;
            self.encoding = encoding;
            self.out_rate_hz = out_rate_hz;
        }
        self.texts.push_back(Text {
            by,
            request_id,
            words,
            asked_at: now,
            waiting: VecDeque::new(),
            made: 0,
            begun: false,
            announced: false,
            complete: false,
            overflowed: false,
            sent_bytes: 0,
        });
    }

    /// The user was heard to speak.
    pub(crate) const fn asked(&mut self, now: Instant) {
        self.asked_at = Some(now);
    }

    /// How much audio was sent so far.
    pub(crate) const fn sent(&self) -> Duration {
        self.sent
    }

    /// Whether the client hears something.
    pub(crate) fn is_audible(&self) -> bool {
        self.texts.front().is_some_and(|text| text.announced)
    }

    /// Whether something is being heard or made.
    pub(crate) fn is_busy(&self) -> bool {
        !self.texts.is_empty()
    }

    /// Whether it is a text the client asked for.
    pub(crate) fn is_busy_by(&self, by: By) -> bool {
        self.texts.iter().any(|text| text.by == by)
    }

    /// Takes audio of the model, float32, for the text being made.
    pub(crate) fn say(&mut self, now: Instant, samples: &[f32], out: &mut Actions) {
        if self.is_full(now) {
            return self.overflow(out);
        }
        let mut bytes = Vec::new();
        self.voice.push(samples, &mut bytes);
        if let Some(text) = self.texts.back_mut() {
            text.made += samples.len() as u64;
        }
        self.queue(bytes);
        self.release(now, out);
    }

    /// Whether so much waits to be heard that no more should be asked for.
    pub(crate) fn is_ahead(&self, now: Instant) -> bool {
        self.unheard(now) > AHEAD
    }

    fn is_full(&self, now: Instant) -> bool {
        self.unheard(now) > AHEAD_MAX
    }

    /// What is too far ahead is dropped, and that is said, once a text.
    fn overflow(&mut self, out: &mut Actions) {
        if let Some(text) = self.texts.back_mut().filter(|text| !text.overflowed) {
            text.overflowed = true;
            let seconds = AHEAD_MAX.as_secs();
            let words =
                format!("the upstream is more than {seconds} s ahead of what is heard; the rest is dropped");
            out.error(Error::new(ErrorKind::SpeakFailed, words));
        }
    }

    /// Takes audio that comes after its text was made; of one that is over already it is nothing any more.
    pub(crate) fn append(&mut self, now: Instant, request_id: &str, samples: &[f32], out: &mut Actions) {
        if self.texts.back().is_some_and(|text| text.request_id == request_id) {
            self.say(now, samples, out);
        }
    }

    /// How much of what was made the client has not heard.
    pub(crate) fn unheard(&self, now: Instant) -> Duration {
        let waiting: usize = self.texts.iter().flat_map(|text| &text.waiting).map(Bytes::len).sum();
        self.length(waiting) + self.pace.unplayed(now)
    }

    /// The text is made; it ends when it was heard.
    pub(crate) fn finish(&mut self, now: Instant, out: &mut Actions) {
        let mut bytes = Vec::new();
        self.voice.flush(&mut bytes);
        self.queue(bytes);
        if let Some(text) = self.texts.back_mut() {
            text.complete = true;
        }
        self.release(now, out);
    }

    /// Forgets what was made of a text nothing was heard of: it is made again.
    pub(crate) fn forget(&mut self) {
        self.voice.clear();
        if let Some(text) = self.texts.back_mut() {
            text.waiting.clear();
            text.made = 0;
        }
    }

    /// Silence at once: what was heard of ends as cancelled, of the rest the client never learns (golden c10e).
    pub(crate) fn cancel(&mut self, now: Instant, out: &mut Actions) {
        self.voice.clear();
        while let Some(text) = self.texts.pop_front() {
            self.tell_end(now, text, true, out);
        }
        self.pace.stop();
    }

    /// Sends what is due, and ends what was heard.
    pub(crate) fn release(&mut self, now: Instant, out: &mut Actions) {
        while !self.texts.is_empty() {
            self.send_due(now, out);
            let heard = self.pace.played_at().is_none_or(|at| at <= now);
            let over = self.texts.front().is_some_and(|text| text.complete && text.waiting.is_empty());
            if !heard || !over {
                return;
            }
            self.pace.stop();
            if let Some(text) = self.texts.pop_front() {
                self.tell_end(now, text, false, out);
            }
        }
    }

    /// When [`Mouth::release`] has something to do.
    pub(crate) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let text = self.texts.front()?;
        match self.next_length(text) {
            Some(length) => Some(self.pace.next(now, length)),
            None if text.complete => self.pace.played_at(),
            None => None,
        }
    }

    fn queue(&mut self, bytes: Vec<u8>) {
        if let Some(text) = self.texts.back_mut().filter(|_| !bytes.is_empty()) {
            text.waiting.push_back(bytes.into());
        }
    }

    /// Sends of the front text what may leave now.
    fn send_due(&mut self, now: Instant, out: &mut Actions) {
        while let Some(length) = self.texts.front().and_then(|text| self.next_length(text)) {
            let frame_bytes = self.frame_bytes();
            let Some(text) = self.texts.front_mut() else { return };
            if !std::mem::replace(&mut text.begun, true) {
                self.pace.begin(now);
            }
            self.pace.lacks(text.lacks());
            if self.pace.next(now, length) > now {
                return;
            }
            let frame = text.take(frame_bytes);
            if self.pace.sent(now, length) {
                out.observe(Observation::Underrun);
            }
            self.sent += length;
            let asked_at = if text.by == By::Turn { &mut self.asked_at } else { &mut Some(text.asked_at) };
            if !text.announced
                && let Some(at) = asked_at.take()
            {
                let asked = if text.by == By::Turn { Asked::Question } else { Asked::Text };
                out.measured(Figure::FirstAudio { asked, after: now - at });
            }
            text.send(now, frame, out);
        }
    }

    /// How long the front text's next frame is.
    fn next_length(&self, text: &Text) -> Option<Duration> {
        let frame_bytes = self.frame_bytes();
        // As many pieces as fill a frame: an upstream may cut its audio as small as it likes.
        let mut bytes = 0;
        for piece in &text.waiting {
            bytes += piece.len();
            if bytes >= frame_bytes {
                break;
            }
        }
        (bytes > 0).then(|| self.length(bytes.min(frame_bytes)))
    }

    fn length(&self, bytes: usize) -> Duration {
        // Rounded up: frames that follow one another without a gap must not look as if there were one.
        Duration::from_nanos((self.samples(bytes as u64) * 1_000_000_000).div_ceil(self.out_rate_hz.into()))
    }

    const fn samples(&self, bytes: u64) -> u64 {
        bytes / self.encoding.bytes() as u64
    }

    fn frame_bytes(&self) -> usize {
        let sample = self.encoding.bytes();
        let paced = (u64::from(self.out_rate_hz) * u64::from(self.playout.frame_ms) / 1000).max(1);
        // Frames hold whole samples.
        let most = (self.frame_max_bytes / sample).max(1);
        sample
            * match self.playout.pace {
                Rhythm::Burst => most,
                Rhythm::RealTime => most.min(paced as usize),
            }
    }

    fn tell_end(&self, now: Instant, text: Text, cancelled: bool, out: &mut Actions) {
        if !text.announced {
            return;
        }
        if cancelled {
            out.push(Action::DropAudio(text.sent_bytes));
        }
        out.client(ClientCommand::SpeakingEnded {
            request_id: text.request_id,
            at_ms: millis(now - text.asked_at),
            cancelled,
            audio_ms: self.samples(text.sent_bytes) * 1000 / u64::from(self.out_rate_hz),
        });
    }
}

impl Text {
    /// By how much it is too short to last until the model makes more of it. Of a text all is made as fast as it can be.
    fn lacks(&self) -> Duration {
        let missing = match self.by {
            By::Turn if !self.complete => UNIT_SAMPLES.saturating_sub(self.made),
            By::Turn | By::Request => 0,
        };
        Duration::from_nanos(missing * 1_000_000_000 / UNIT_SAMPLES)
    }

    /// Takes out at most so many bytes; only what comes in smaller pieces is copied.
    fn take(&mut self, bytes: usize) -> Bytes {
        let Some(front) = self.waiting.front_mut() else { return Bytes::new() };
        if front.len() > bytes {
            return front.split_to(bytes);
        }
        if front.len() == bytes || self.waiting.len() == 1 {
            return self.waiting.pop_front().unwrap_or_default();
        }
        let mut frame = Vec::with_capacity(bytes);
        while let Some(front) = self.waiting.front_mut().filter(|_| frame.len() < bytes) {
            let part = front.split_to(front.len().min(bytes - frame.len()));
            frame.extend_from_slice(&part);
            if front.is_empty() {
                self.waiting.pop_front();
            }
        }
        frame.into()
    }

    /// Sends a frame, after the text's announcement.
    fn send(&mut self, now: Instant, frame: Bytes, out: &mut Actions) {
        if !std::mem::replace(&mut self.announced, true) {
            out.client(ClientCommand::SpeakingStarted {
                request_id: self.request_id.clone(),
                at_ms: millis(now - self.asked_at),
                text: std::mem::take(&mut self.words),
            });
        }
        self.sent_bytes += frame.len() as u64;
        out.client(ClientCommand::Audio(frame));
    }
}

#[cfg(test)]
mod tests;
