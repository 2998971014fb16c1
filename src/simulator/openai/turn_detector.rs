//! `server_vad`: finds the user's speech by its loudness, as the other simulated servers do.

/// Samples of a frame, 20 ms at 24 kHz.
const FRAME_SAMPLES: usize = 480;
const FRAME_MS: u64 = 20;

/// RMS from which a frame is speech.
const AUDIBLE_RMS: f64 = 0.005;

/// Audible frames within which speech begins.
const ONSET_FRAMES: u64 = 5;

/// Settings of the detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DetectorConfig {
    /// Audio before the speech that belongs to it.
    pub(super) prefix_ms: u64,
    /// Silence that ends the speech.
    pub(super) silence_ms: u64,
    pub(super) creates_response: bool,
    pub(super) interrupts_response: bool,
}

/// Begin or end of the user's speech, in ms of the session's audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpeechEdge {
    Started(u64),
    Stopped(u64),
}

/// Finds edges in the session's audio.
#[derive(Debug, Default)]
pub(super) struct TurnDetector {
    /// Samples that make no frame yet.
    rest: Vec<i16>,
    /// Frames that were looked at.
    frames: u64,
    is_speaking: bool,
    /// Frames at the end that contradict the state.
    opposing: u64,
}

impl TurnDetector {
    /// Takes samples at 24 kHz; returns the edges with the number of these samples up to each.
    pub(super) fn push(&mut self, samples: &[i16], config: DetectorConfig) -> Vec<(usize, SpeechEdge)> {
        let held = self.rest.len();
        self.rest.extend_from_slice(samples);
        let frames = std::mem::take(&mut self.rest);
        let (mut edges, mut used) = (Vec::new(), 0);
        for frame in frames.chunks_exact(FRAME_SAMPLES) {
            used += FRAME_SAMPLES;
            edges.extend(self.push_frame(frame, config).map(|edge| (used.saturating_sub(held), edge)));
        }
        self.rest = frames[used..].to_vec();
        edges
    }

    fn push_frame(&mut self, frame: &[i16], config: DetectorConfig) -> Option<SpeechEdge> {
        self.frames += 1;
        let is_audible = rms(frame) >= AUDIBLE_RMS;
        self.opposing = if is_audible == self.is_speaking { 0 } else { self.opposing + 1 };
        let now_ms = self.frames * FRAME_MS;
        if !self.is_speaking && self.opposing >= ONSET_FRAMES {
            (self.is_speaking, self.opposing) = (true, 0);
            return Some(SpeechEdge::Started(
                now_ms.saturating_sub(ONSET_FRAMES * FRAME_MS + config.prefix_ms),
            ));
        }
        if self.is_speaking && self.opposing * FRAME_MS >= config.silence_ms.max(FRAME_MS) {
            (self.is_speaking, self.opposing) = (false, 0);
            return Some(SpeechEdge::Stopped(now_ms));
        }
        None
    }

    /// Forgets the speech, but not the time.
    pub(super) fn reset(&mut self) {
        *self = Self { frames: self.frames, ..Self::default() };
    }
}

fn rms(samples: &[i16]) -> f64 {
    let power: f64 = samples.iter().map(|sample| (f64::from(*sample) / 32_768.0).powi(2)).sum();
    (power / samples.len().max(1) as f64).sqrt()
}
