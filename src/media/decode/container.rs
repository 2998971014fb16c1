//! Recognizes containers by their first bytes and opens the demultiplexer of each.

use super::mp4::MediaStart;
use super::source::{CancelFlag, Source};
use super::{flac, lengths, mp4, ogg, wav, webm};
use crate::media::MediaError;
use bytes::Bytes;
use std::time::Duration;
use symphonia::core::errors::Error;
use symphonia::core::formats::{FormatOptions, FormatReader};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::default::formats::{
    AdtsReader, FlacReader, IsoMp4Reader, MkvReader, MpaReader, OggReader, WavReader,
};

/// File format around the encoded audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// RIFF WAVE.
    Wav,
    /// MPEG audio frames, with or without ID3 tags.
    Mp3,
    /// AAC frames with ADTS headers.
    Adts,
    /// MP4, M4A, QuickTime: ISO base media files.
    Mp4,
    /// WebM and Matroska.
    Webm,
    /// Ogg.
    Ogg,
    /// Native FLAC.
    Flac,
}

/// Box types that begin an ISO base media file. Files of old QuickTime versions have no `ftyp`.
const FIRST_MP4_BOXES: [&[u8]; 6] = [b"ftyp", b"moov", b"mdat", b"wide", b"free", b"styp"];

impl Container {
    /// Name for error messages and [`super::MediaInfo`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wav => "wav",
            Self::Mp3 => "mp3",
            Self::Adts => "aac",
            Self::Mp4 => "mp4",
            Self::Webm => "webm",
            Self::Ogg => "ogg",
            Self::Flac => "flac",
        }
    }

    /// The error of a file with damage behind this much audio.
    pub(super) fn broken(self, at: Duration, problem: &Error) -> MediaError {
        MediaError::Broken { container: self.name(), at, problem: problem.to_string() }
    }

    /// Recognizes a file by its first bytes. Names and MIME types are often wrong (OpenAI REST field notes §5).
    pub(super) fn sniff(file: &[u8]) -> Option<Self> {
        match file {
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Some(Self::Wav),
            [b'f', b'L', b'a', b'C', ..] => Some(Self::Flac),
            [b'O', b'g', b'g', b'S', ..] => Some(Self::Ogg),
            [0x1a, 0x45, 0xdf, 0xa3, ..] => Some(Self::Webm),
            // Frame sync of eleven bits, a version that exists, and Layer III.
            [0xff, flags, ..] if flags & 0xe6 == 0xe2 && flags & 0x18 != 0x08 => Some(Self::Mp3),
            // Frame sync of twelve bits and the layer number that MPEG audio does not use.
            [0xff, flags, ..] if flags & 0xf6 == 0xf0 => Some(Self::Adts),
            _ if file.get(4..8).is_some_and(|kind| FIRST_MP4_BOXES.contains(&kind)) => Some(Self::Mp4),
            _ => None,
        }
    }

    /// Opens the demultiplexer, which reads the headers. Leaves out what decoding does not need: metadata, other tracks.
    pub(super) fn open(self, file: Bytes, cancel: CancelFlag) -> Result<Opened, Error> {
        let (parts, start) = match self {
            Self::Mp4 => {
                let mp4 = mp4::keep_audio_track(&lengths::repair_mp4(file))?;
                (mp4.parts, mp4.start)
            }
            _ => (self.plain_parts(file)?, None),
        };
        if parts.is_empty() {
            return Ok(Opened { format: None, start });
        }
        let stream =
            MediaSourceStream::new(Box::new(Source::new(parts, cancel)), MediaSourceStreamOptions::default());
        Ok(Opened { format: Some(self.demultiplex(stream)?), start })
    }

    fn plain_parts(self, file: Bytes) -> Result<Vec<Bytes>, Error> {
        match self {
            Self::Wav => wav::with_plain_header(&file),
            Self::Flac => flac::without_metadata(&file),
            Self::Webm => webm::with_plain_header(&file),
            Self::Ogg => ogg::keep_audio(&file),
            // ID3 tags were removed before.
            Self::Mp3 | Self::Adts | Self::Mp4 => Ok(vec![file]),
        }
    }

    fn demultiplex(self, stream: MediaSourceStream<'static>) -> Result<Box<dyn FormatReader>, Error> {
        let options = FormatOptions::default();
        Ok(match self {
            Self::Wav => Box::new(WavReader::try_new(stream, options)?),
            Self::Mp3 => Box::new(MpaReader::try_new(stream, options)?),
            Self::Adts => Box::new(AdtsReader::try_new(stream, options)?),
            Self::Mp4 => Box::new(IsoMp4Reader::try_new(stream, options)?),
            Self::Webm => Box::new(MkvReader::try_new(stream, options)?),
            Self::Ogg => Box::new(OggReader::try_new(stream, options)?),
            Self::Flac => Box::new(FlacReader::try_new(stream, options)?),
        })
    }
}

/// A demultiplexer at its first packet.
pub(super) struct Opened {
    /// `None` if the file has no audio.
    pub(super) format: Option<Box<dyn FormatReader>>,
    /// Where playback begins, if not with the first packet.
    pub(super) start: Option<MediaStart>,
}

/// Removes ID3v2 tags (id3.org, "ID3v2.4.0 main structure" §3.1) before the audio. Returns the rest and whether there
/// was a tag.
pub(super) fn skip_id3(mut file: Bytes) -> (Bytes, bool) {
    let mut tagged = false;
    while let [b'I', b'D', b'3', _, _, flags, a, b, c, d, ..] = file[..] {
        let body = [a, b, c, d].iter().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
        let footer = if flags & 0x10 == 0 { 0 } else { 10 };
        file = file.slice((10 + body + footer).min(file.len())..);
        tagged = true;
    }
    (file, tagged)
}
