//! Audio from the client: base64 in a field, and frames whose format their messages say.

use std::sync::Arc;

use super::RequestHandler;
use super::framing::{
    FrameAudioFormat,
    announced::{AnnouncedAudio, AnnouncedPart},
};
use crate::{
    audio::{file_format::stream_format, input_converter::InputConverter, pcm},
    error::{Error, ErrorKind},
    spelling::ClientMapping,
    vocabulary::{ClientRequest, Setting},
};

/// Audio from one client.
#[derive(Debug)]
pub(super) struct AudioInput {
    mapping: Arc<ClientMapping>,
    /// Buffer for audio that was base64.
    decoded: Vec<u8>,
    /// Format of the audio, where its messages say it.
    format: FrameAudioFormat,
    /// Where in an utterance the audio is, with [`Framing::Announced`](crate::spelling::client::Framing::Announced).
    announced: AnnouncedAudio,
    start: StreamStart,
}

/// Kind of the audio of a connection, by its first bytes.
#[derive(Debug, Clone, Copy)]
enum StreamStart {
    Unknown,
    Raw,
    /// A file of this format, whose rest cannot be heard either.
    File(&'static str),
}

impl StreamStart {
    /// Rejects audio of a connection that began with a file: its bytes would be heard as noise.
    fn check(&mut self, audio: &[u8]) -> Result<(), Error> {
        if matches!(self, Self::Unknown) && !audio.is_empty() {
            *self = stream_format(audio).map_or(Self::Raw, Self::File);
        }
        let Self::File(format) = self else { return Ok(()) };
        let detail = format!("audio: it is a file ({format}); send raw audio in the format of the session");
        Err(Error::new(ErrorKind::Invalid, detail))
    }
}

impl AudioInput {
    pub(super) fn new(mapping: Arc<ClientMapping>) -> Self {
        Self {
            mapping,
            decoded: Vec::new(),
            format: FrameAudioFormat::default(),
            announced: AnnouncedAudio::default(),
            start: StreamStart::Unknown,
        }
    }

    /// Length of the last audio that was base64, bytes.
    pub(super) const fn decoded_bytes(&self) -> usize {
        self.decoded.len()
    }

    /// Rejects a message with too much audio.
    pub(super) fn check_size(&self, bytes: usize) -> Result<(), Error> {
        let max = self.mapping.audio_in.frame_max_bytes;
        if bytes > max {
            let error = Error::new(ErrorKind::FrameTooLarge, format!("{bytes} bytes (max {max})"));
            return Err(if self.mapping.has_audio_in_json { error.of_field("audio") } else { error });
        }
        Ok(())
    }

    /// Passes on the audio of a binary message, behind its format if that is another one.
    pub(super) fn pass(
        &mut self,
        audio: &[u8],
        format: Option<FrameAudioFormat>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        self.check_size(audio.len())?;
        self.start.check(audio)?;
        if let Some(format) = format {
            self.note_format(format, handle)?;
        }
        handle(ClientRequest::Audio(audio));
        Ok(())
    }

    /// Notes the format of a message's audio. Changes the settings if it is another one.
    pub(super) fn note_format(
        &mut self,
        format: FrameAudioFormat,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        if format == self.format {
            return Ok(());
        }
        let own = &self.mapping.audio_in;
        let rate_hz = if format.rate_hz == 0 { own.rate_hz } else { format.rate_hz };
        let channels = match format.channels {
            0 => own.channels,
            channels => u16::try_from(channels).unwrap_or(u16::MAX),
        };
        InputConverter::with_encoding(own.encoding, rate_hz, channels)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("audio frame: {error}")))?;
        self.format = format;
        handle(ClientRequest::Adjust(vec![Setting::InputRateHz(rate_hz), Setting::InputChannels(channels)]));
        Ok(())
    }

    /// Passes on the base64 audio of a command, if there is any.
    pub(super) fn pass_base64(
        &mut self,
        command: &str,
        base64: &str,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        // Checked before decoding too, so that a long text costs nothing. Padding makes a text up to 2 bytes too long.
        self.check_size((base64.len() / 4 * 3).saturating_sub(2))?;
        self.decoded.clear();
        pcm::decode_base64(base64, &mut self.decoded).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("'{command}': the audio is not base64: {error}"))
                .of_field("audio")
        })?;
        self.check_size(self.decoded.len())?;
        self.start.check(&self.decoded).map_err(|error| error.of_field("audio"))?;
        if !self.decoded.is_empty() {
            handle(ClientRequest::Audio(&self.decoded));
        }
        Ok(())
    }

    /// Reads audio with a header before each utterance. The end of an utterance is a request for its final transcript.
    pub(super) fn pass_announced(
        &mut self,
        mut message: &[u8],
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        while let Some(part) = self.announced.next(&mut message) {
            let is_end = match part {
                AnnouncedPart::Header { rate_hz, bytes } => {
                    self.check_size(bytes)?;
                    let sample_bytes = self.mapping.audio_in.encoding.bytes_per_sample();
                    if rate_hz == 0 || bytes % sample_bytes != 0 {
                        let detail =
                            format!("header: {rate_hz} Hz, {bytes} bytes of {sample_bytes} for each sample");
                        return Err(Error::new(ErrorKind::Invalid, detail));
                    }
                    self.note_format(FrameAudioFormat { rate_hz, channels: 0 }, handle)?;
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
