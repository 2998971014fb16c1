//! Recognizes containers by their first bytes and opens the demultiplexer of each.

use std::time::Duration;

use bytes::Bytes;
use symphonia::core::errors::Error;

use super::demux::{adts, aiff, caf, flac, mp4, mpeg, ogg, wav, webm};
use super::other_formats;
use super::packet::Demuxer;
use super::search::{self, Frames};
use super::source::CancelFlag;
use crate::{audio::file_format::container_name, media::MediaError, named_enum::named_enum};

named_enum! {
    /// File format around the encoded audio.
    pub enum Container {
        /// RIFF WAVE.
        Wav = "wav",
        /// MPEG audio frames, with or without ID3 tags.
        Mp3 = "mp3",
        /// AAC frames with ADTS headers.
        Adts = "aac",
        /// MP4, M4A, QuickTime: ISO base media files.
        Mp4 = "mp4",
        /// WebM and Matroska.
        Webm = "webm",
        /// Ogg.
        Ogg = "ogg",
        /// Native FLAC.
        Flac = "flac",
        /// AIFF and AIFF-C.
        Aiff = "aiff",
        /// Core Audio Format.
        Caf = "caf",
    }
}

impl Container {
    /// The error of a file with damage behind this much audio.
    pub(super) fn broken(self, at: Duration, problem: &Error) -> MediaError {
        MediaError::Broken { container: self.name(), at, problem: problem.to_string() }
    }

    /// Recognizes a file by its first bytes, and returns it from its first byte on: tags, white space and parts of frames may
    /// stand before. Names and MIME types are often wrong (mappings/notes/openai-rest.md#uploads).
    pub(super) fn recognize(file: &Bytes) -> Result<(Self, Bytes), MediaError> {
        let start = search::skip_padding(file, |rest| Self::sniff(rest).is_some());
        if let Some(container) = Self::sniff(&file[start..]) {
            return Ok((container, file.slice(start..)));
        }
        // Frames of other codecs may look like some of MPEG's.
        if let Some(format) = other_formats::name_of(file) {
            return Err(MediaError::FormatNotSupported { format });
        }
        if let Some(first_page) = search::find_ogg(&file[start..]) {
            return Ok((Self::Ogg, file.slice(start + first_page..)));
        }
        let container = match search::find_frames(file).ok_or(MediaError::UnknownFormat)? {
            Frames::Mpeg => Self::Mp3,
            Frames::Adts => Self::Adts,
        };
        Ok((container, file.clone()))
    }

    fn sniff(file: &[u8]) -> Option<Self> {
        if wav::is_wav(file, 0) {
            return Some(Self::Wav);
        }
        let name = container_name(file)?;
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Opens the demultiplexer. `None` if the file has no audio.
    pub(super) fn open(self, file: Bytes, cancel: CancelFlag) -> Result<Option<Box<dyn Demuxer>>, Error> {
        Ok(Some(match self {
            Self::Wav => Box::new(wav::Wav::open(file)?),
            Self::Mp3 => Box::new(mpeg::MpegAudio::new(file)),
            Self::Adts => Box::new(adts::Adts::new(file)),
            Self::Mp4 => match mp4::Mp4::open(file)? {
                Some(movie) => Box::new(movie),
                None => return Ok(None),
            },
            Self::Webm => Box::new(webm::Webm::new(file)),
            Self::Ogg => Box::new(ogg::Ogg::new(file)),
            Self::Flac => Box::new(flac::Flac::new(file, cancel)),
            Self::Aiff => Box::new(aiff::open(&file)?),
            Self::Caf => caf::open(&file)?,
        }))
    }
}
