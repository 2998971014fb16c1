//! Encoding of voice samples. Upstream servers accept other encodings than their documentation says (mappings/notes/minicpm-o.md#voices),
//! so encodings are tried in turn.

use std::sync::Arc;

use crate::vocabulary::{LaneRequest, VoiceEncoding};

/// Encoding of voice samples for a session's upstream: tries each candidate and keeps the first that works.
#[derive(Debug)]
pub(crate) struct VoiceEncodingChoice {
    candidates: Arc<[VoiceEncoding]>,
    index: usize,
    worked: bool,
    failures: u32,
}

impl VoiceEncodingChoice {
    /// Creates a choice of these candidates; raw float32 if there are none.
    pub(crate) const fn new(candidates: Arc<[VoiceEncoding]>) -> Self {
        Self { candidates, index: 0, worked: false, failures: 0 }
    }

    fn current(&self) -> VoiceEncoding {
        self.candidates.get(self.index).copied().unwrap_or(VoiceEncoding::F32le)
    }

    /// Sets the encoding of a command's voice; returns it, if the command has a voice.
    pub(crate) fn encode_voice(&self, mut command: LaneRequest) -> (LaneRequest, Option<VoiceEncoding>) {
        let encoding = self.current();
        let encoded = command.voice_mut().map(|voice| voice.encoding = encoding);
        (command, encoded.map(|()| encoding))
    }

    /// Records that an upstream accepted this encoding.
    pub(crate) fn mark_worked(&mut self, encoding: VoiceEncoding) {
        self.index =
            self.candidates.iter().position(|candidate| *candidate == encoding).unwrap_or(self.index);
        (self.worked, self.failures) = (true, 0);
    }

    /// Records that an initialisation failed. An encoding that worked before is given up after two failures, because
    /// initialisation can fail for other reasons.
    pub(crate) fn mark_failed(&mut self, encoding: VoiceEncoding) {
        if encoding != self.current() {
            return;
        }
        self.failures += 1;
        if !self.worked || self.failures > 1 {
            self.index = (self.index + 1) % self.candidates.len().max(1);
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_encoding_is_replaced_and_working_encoding_is_kept() {
        use VoiceEncoding::{F32le, Wav};
        let mut encodings = VoiceEncodingChoice::new([F32le, Wav].into());
        let tried = |encodings: &VoiceEncodingChoice| encodings.current();
        assert_eq!(tried(&encodings), F32le);
        encodings.mark_failed(F32le);
        encodings.mark_failed(F32le);
        assert_eq!(tried(&encodings), Wav, "the second failure came from a lane opened earlier");
        encodings.mark_failed(Wav);
        assert_eq!(tried(&encodings), F32le, "the first candidate follows the last");
        encodings.mark_worked(Wav);
        encodings.mark_failed(Wav);
        assert_eq!(tried(&encodings), Wav, "one failure does not discard a working encoding");
        encodings.mark_failed(Wav);
        assert_eq!(tried(&encodings), F32le);
        let mut only = VoiceEncodingChoice::new([F32le].into());
        only.mark_failed(F32le);
        assert_eq!(tried(&only), F32le);
    }
}
