//! Framing `announced`: a header before the audio of each utterance says its rate and length, in bytes. Both are u32, little
//! endian. Messages may cut header and audio anywhere.

/// Length of a header, bytes.
const HEADER_BYTES: usize = 8;

/// Where in an utterance the client's audio is.
#[derive(Debug, Default)]
pub(in crate::client::mapped) struct AnnouncedAudio {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Audio of the utterance that is missing, bytes.
    missing: usize,
}

/// A part of a message.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client::mapped) enum AnnouncedPart<'f> {
    /// A complete header.
    Header { rate_hz: u32, bytes: usize },
    /// Audio, and whether the utterance ends with it.
    Audio(&'f [u8], bool),
}

impl AnnouncedAudio {
    /// Takes the next part off a message; `None` at its end.
    pub(in crate::client::mapped) fn next<'f>(
        &mut self,
        message: &mut &'f [u8],
    ) -> Option<AnnouncedPart<'f>> {
        if self.missing > 0 {
            let (audio, rest) = message.split_at(self.missing.min(message.len()));
            *message = rest;
            self.missing -= audio.len();
            return (!audio.is_empty()).then_some(AnnouncedPart::Audio(audio, self.missing == 0));
        }
        let (head, rest) = message.split_at((HEADER_BYTES - self.header_bytes).min(message.len()));
        *message = rest;
        self.header[self.header_bytes..self.header_bytes + head.len()].copy_from_slice(head);
        self.header_bytes += head.len();
        if self.header_bytes < HEADER_BYTES {
            return None;
        }
        self.header_bytes = 0;
        let [r0, r1, r2, r3, l0, l1, l2, l3] = self.header;
        let bytes = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        Some(AnnouncedPart::Header { rate_hz: u32::from_le_bytes([r0, r1, r2, r3]), bytes })
    }

    /// Expects the audio that a header announced.
    pub(in crate::client::mapped) const fn expect(&mut self, bytes: usize) {
        self.missing = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_audio_may_be_cut_anywhere() {
        let header = |rate_hz: u32, bytes: u32| [rate_hz.to_le_bytes(), bytes.to_le_bytes()].concat();
        let stream =
            [header(16_000, 5), vec![1, 2, 3, 4, 5], header(8000, 0), header(44_100, 1), vec![6]].concat();
        for length in 1..=stream.len() {
            let mut audio = AnnouncedAudio::default();
            let (mut headers, mut bytes, mut ends) = (Vec::new(), Vec::new(), 0);
            for mut message in stream.chunks(length) {
                while let Some(part) = audio.next(&mut message) {
                    match part {
                        AnnouncedPart::Header { rate_hz, bytes } => {
                            headers.push((rate_hz, bytes));
                            audio.expect(bytes);
                        }
                        AnnouncedPart::Audio(part, is_last) => {
                            bytes.extend_from_slice(part);
                            ends += usize::from(is_last);
                        }
                    }
                }
                assert!(message.is_empty());
            }
            assert_eq!(headers, [(16_000, 5), (8000, 0), (44_100, 1)], "{length}");
            assert_eq!((bytes, ends), (vec![1, 2, 3, 4, 5, 6], 2), "{length}");
        }
    }
}
