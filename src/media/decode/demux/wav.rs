//! WAV files (RIFF, RF64 and BW64): only the format and the samples, with their true lengths, and files one after another.

use bytes::Bytes;
use symphonia::core::errors::Error;

use super::blocks::{Blocks, Format};
use super::mpeg::MpegAudio;
use super::wav_format::WavFormat;
use crate::media::decode::fields::le32;
use crate::media::decode::packet::{Demuxer, Event, Stream};

/// The files in a row.
pub(in crate::media::decode) struct Wav {
    file: Bytes,
    part: Box<dyn Demuxer>,
    /// Position of the next file.
    next: usize,
}

impl Wav {
    /// Opens the first file.
    pub(in crate::media::decode) fn open(file: Bytes) -> Result<Self, Error> {
        let (part, next) = open_part(&file, 0, true)?;
        Ok(Self { file, part, next })
    }
}

impl Demuxer for Wav {
    fn next(&mut self) -> Result<Option<Event>, Error> {
        if let Some(event) = self.part.next()? {
            return Ok(Some(event));
        }
        if !is_wav(&self.file, self.next) {
            return Ok(None);
        }
        (self.part, self.next) = open_part(&self.file, self.next, false)?;
        self.part.next()
    }
}

/// True if a file begins here.
pub(in crate::media::decode) fn is_wav(file: &[u8], at: usize) -> bool {
    let begins = |kind: &[u8]| file.get(at..at + 4) == Some(kind);
    (begins(b"RIFF") || begins(b"RF64") || begins(b"BW64")) && file.get(at + 8..at + 12) == Some(b"WAVE")
}

/// Reads the headers at a position. Returns the audio and the position behind it.
fn open_part(file: &Bytes, start: usize, is_first: bool) -> Result<(Box<dyn Demuxer>, usize), Error> {
    let chunks = Chunks::find(file, start).ok_or(Error::DecodeError("there is no data chunk"))?;
    let damaged = Error::DecodeError("the format chunk is missing or damaged");
    let format = chunks.format.and_then(WavFormat::parse).ok_or(damaged)?;
    let claimed = data_len(file, chunks.data_at);
    let end = data_end(file, chunks.data_at, claimed);
    let data = file.slice(chunks.data_at..end);
    let part: Box<dyn Demuxer> = match format {
        WavFormat::Blocks(format) => {
            let stream = stream(&format, data.len().max(claimed) as u64, is_first);
            Box::new(Blocks::new(stream, data, format.layout))
        }
        WavFormat::MpegAudio => Box::new(MpegAudio::new(data)),
        WavFormat::Unsupported(name) => Box::new(Blocks::unsupported(name)),
    };
    Ok((part, next_part(file, end)))
}

fn stream(format: &Format, data_len: u64, is_first: bool) -> Stream {
    Stream {
        params: format.params(),
        duration: Some(format.time_of(data_len)),
        is_duration_certain: is_first,
        ..Stream::default()
    }
}

/// The chunks that matter.
#[derive(Default)]
struct Chunks<'a> {
    format: Option<&'a [u8]>,
    /// Position of the samples: behind the header of the data chunk.
    data_at: usize,
}

impl<'a> Chunks<'a> {
    fn find(file: &'a [u8], start: usize) -> Option<Self> {
        let mut chunks = Self::default();
        let mut at = start + 12;
        loop {
            let body_at = at.checked_add(8)?;
            let header = file.get(at..body_at)?;
            let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
            let end = body_at.checked_add(len)?;
            match &header[..4] {
                b"data" => return Some(Self { data_at: body_at, ..chunks }),
                b"fmt " => chunks.format = Some(file.get(body_at..end)?),
                _ => {}
            }
            at = behind_padding(file, end, len)?;
        }
    }
}

fn is_chunk_name(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| (b' '..=b'~').contains(byte))
}

/// Position behind the byte that pads a chunk of odd length. Some programs leave it out, so that the next name stands there.
fn behind_padding(file: &[u8], end: usize, len: usize) -> Option<usize> {
    let is_name = file.get(end..end.checked_add(4)?).is_some_and(is_chunk_name);
    end.checked_add(if is_name { 0 } else { len % 2 })
}

/// The length that the data chunk claims, or what the file has if it was written as a stream: a program that writes to a
/// pipe does not know the length. ffmpeg writes 0xFFFFFFFF, Macaw and sox something near 0x7FFFFFFF, others 0. RF64 states
/// another length elsewhere.
fn data_len(file: &[u8], data_at: usize) -> usize {
    let claimed = le32(file, data_at - 4).unwrap_or(0);
    let is_unknown = claimed == 0 || claimed >= UNKNOWN_FROM_BYTES;
    if is_unknown { file.len() - data_at } else { claimed as usize }
}

/// Claimed data lengths from here on mean "unknown": just below 2 GB, where sox subtracts the header.
const UNKNOWN_FROM_BYTES: u32 = 0x7fff_0000;

/// End of the samples. They go on behind the claimed length if neither a chunk nor a file follows: a recorder stated a length
/// and recorded on. At a claimed length without end, another file may follow anywhere.
fn data_end(file: &[u8], data_at: usize, claimed: usize) -> usize {
    let end = data_at.saturating_add(claimed);
    if end < file.len() {
        let is_chunk = |at: usize| file.get(at..at + 4).is_none_or(is_chunk_name);
        let is_padding = file[end..].iter().all(|byte| *byte == 0);
        if is_chunk(end) || is_chunk(end + 1) || is_padding {
            return end;
        }
    }
    let is_joined = |at: &usize| is_wav(file, *at);
    let riffs =
        memchr::memmem::find_iter(&file[data_at..], b"WAVEfmt ").map(|at| (data_at + at).saturating_sub(8));
    riffs.filter(|at| *at > data_at).find(is_joined).unwrap_or(file.len())
}

/// Position of the file behind the chunks that follow the samples, if there is one.
fn next_part(file: &[u8], end: usize) -> usize {
    let mut at = end;
    while at < file.len() && !is_wav(file, at) && !is_wav(file, at + 1) {
        let Some(len) = le32(file, at + 4) else { return file.len() };
        at = at.saturating_add(8).saturating_add(len as usize).saturating_add(len as usize % 2);
    }
    if is_wav(file, at + 1) && !is_wav(file, at) { at + 1 } else { at }
}
