//! The audio that a client has read: its audio is all that it was told of, in order and without gaps, up to where it ends.

use super::*;

/// Samples of a millisecond that the client plays.
const SAMPLES_PER_MS: u64 = 24;

#[derive(Debug, Default)]
pub(crate) struct Hearing {
    /// Runs of equal samples of what is being played: the sample and how many.
    runs: Option<Vec<(i16, usize)>>,
    /// Samples of the speech being sent that the server discarded before the client read them.
    dropped_samples: usize,
    /// The same of each speech whose end the client has not read.
    dropped: VecDeque<usize>,
    /// The model speaks, not a text.
    is_turn: bool,
    /// The upstream said what no one asked, which may end or disorder a text.
    pub(crate) has_strays: bool,
    /// The client got an error since the speech began.
    had_error: bool,
    /// Number of deltas of a lane's answers, and samples of each.
    answers: BTreeMap<i16, (u32, usize)>,
    /// Texts that were heard to their end.
    pub(crate) whole_texts: usize,
}

impl Hearing {
    /// Answers of this lane have this many deltas of this many samples.
    pub(crate) fn expect_deltas(&mut self, lane_sample: i16, answer: (u32, usize)) {
        self.answers.insert(lane_sample / LEVELS, answer);
    }

    pub(crate) fn drop_unread(&mut self, bytes: usize) {
        self.dropped_samples += bytes / 2;
    }

    pub(crate) fn on_sent(&mut self, message: &Message) {
        if matches!(message, Message::Text(json) if json.contains("tts.speaking_end")) {
            self.dropped.push_back(std::mem::take(&mut self.dropped_samples));
        }
    }

    pub(crate) fn on_read(&mut self, message: &Message) {
        match message {
            Message::Binary(audio) => self.play(audio),
            Message::Text(json) => self.on_event(&serde_json::from_str(json).expect("messages are JSON")),
            Message::Close(..) => {}
        }
    }

    fn on_event(&mut self, event: &Value) {
        match event["type"].as_str().expect("the message has a type") {
            "tts.speaking_start" => {
                self.is_turn = event["request_id"].as_str().is_some_and(|id| id.starts_with("turn_"));
                self.had_error = false;
                assert!(self.runs.replace(Vec::new()).is_none(), "speech begins twice: {event}");
            }
            "tts.speaking_end" => self.end_speech(event),
            "error" => self.had_error = true,
            _ => {}
        }
    }

    fn play(&mut self, audio: &[u8]) {
        let runs = self.runs.as_mut().expect("audio outside speaking_start … speaking_end");
        for two in audio.chunks_exact(2) {
            let sample = i16::from_le_bytes([two[0], two[1]]);
            match runs.last_mut().filter(|(last, _)| *last == sample) {
                Some((_, count)) => *count += 1,
                None => runs.push((sample, 1)),
            }
        }
    }

    fn end_speech(&mut self, event: &Value) {
        let runs = self.runs.take().expect("speech that never began has no end");
        let heard_samples: usize = runs.iter().map(|(_, count)| count).sum();
        let told_ms = event["audio_ms"].as_u64().expect("the event has its audio's length");
        let (heard_ms, is_cancelled) = (heard_samples as u64 / SAMPLES_PER_MS, event["cancelled"] == true);
        let dropped_ms = self.dropped.pop_front().expect("the end was sent") as u64 / SAMPLES_PER_MS;
        // A cancelled turn was sent ahead of its playback, and the session does not know what its client has not read.
        let is_true = told_ms <= heard_ms + dropped_ms + 2 && (is_cancelled || heard_ms <= told_ms + 1);
        assert!(is_true, "{heard_samples} samples were heard: {event}");
        if !self.is_turn && !self.has_strays {
            self.check_text(&runs, is_cancelled);
        }
    }

    /// The audio of a text: of each part, all deltas from the first one on. Another lane repeats a part that broke off.
    fn check_text(&mut self, runs: &[(i16, usize)], is_cancelled: bool) {
        let mut last = None;
        for (at, (sample, count)) in runs.iter().enumerate() {
            let (lane, delta) = (sample / LEVELS, sample % LEVELS);
            let (deltas, samples) = self.answers[&lane];
            let is_first = i64::from(delta) % i64::from(deltas) == 0;
            let is_next = last == Some((lane, delta - 1));
            assert!(is_next || is_first, "delta {delta} of lane {lane} follows {last:?}");
            last = Some((lane, delta));
            let is_cut = at + 1 == runs.len() && is_cancelled && *count < samples;
            assert!(*count == samples || is_cut, "{count} of {samples} of delta {delta} of lane {lane}");
        }
        let is_whole =
            last.is_none_or(|(lane, delta)| (i64::from(delta) + 1) % i64::from(self.answers[&lane].0) == 0);
        assert!(is_whole || is_cancelled || self.had_error, "the last part ends at {last:?}");
        self.whole_texts += usize::from(is_whole && !is_cancelled);
    }
}
