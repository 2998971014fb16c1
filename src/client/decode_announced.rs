//! Decodes audio with a header before each utterance, [`Framing::Announced`](crate::spelling::client::Framing::Announced).

use super::{
    Codec,
    framing::{AudioFormat, announced::AnnouncedPart},
};
use crate::{
    error::{Error, ErrorKind},
    vocabulary::ClientRequest,
};

impl Codec {
    /// Reads audio with a header before each utterance. The end of an utterance is a request for its final transcript.
    pub(super) fn decode_announced(
        &mut self,
        mut message: &[u8],
        mut handle: impl FnMut(ClientRequest<'_>),
    ) -> Result<(), Error> {
        while let Some(part) = self.announced.next(&mut message) {
            let is_end = match part {
                AnnouncedPart::Header { rate_hz, bytes } => {
                    self.check_audio_size(bytes)?;
                    let sample_bytes = self.mapping.audio_in.encoding.bytes_per_sample();
                    if rate_hz == 0 || bytes % sample_bytes != 0 {
                        let detail =
                            format!("header: {rate_hz} Hz, {bytes} bytes of {sample_bytes} for each sample");
                        return Err(Error::new(ErrorKind::Invalid, detail));
                    }
                    let format = AudioFormat { rate_hz, channels: 0 };
                    self.note_format(format)?.into_iter().for_each(&mut handle);
                    self.announced.expect(bytes);
                    bytes == 0
                }
                AnnouncedPart::Audio(audio, is_last) => {
                    handle(ClientRequest::Audio(audio));
                    is_last
                }
            };
            if is_end {
                handle(ClientRequest::Finalize);
            }
        }
        Ok(())
    }
}
