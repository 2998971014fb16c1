//! WAV files with a header that symphonia understands: only the format and the samples, with their true lengths.

use bytes::Bytes;
use symphonia::core::errors::Error;

/// Writes a new header. Leaves out tags and everything else that is neither the format nor the samples.
///
/// A file that was cut off keeps the data length that its header claims, so that [`super::Decoder`] reports the
/// missing audio.
pub(super) fn with_plain_header(file: &Bytes) -> Result<Vec<Bytes>, Error> {
    let chunks = Chunks::find(file).ok_or(Error::DecodeError("there is no data chunk"))?;
    let format = plain_format(chunks.format.unwrap_or_default())?;
    let data_len = data_len(file, chunks.data_at);
    let mut head = b"RIFF\0\0\0\0WAVE".to_vec();
    append_chunk(&mut head, *b"fmt ", &format);
    if let Some(fact) = chunks.fact {
        append_chunk(&mut head, *b"fact", fact);
    }
    head.extend_from_slice(b"data");
    head.extend_from_slice(&data_len.to_le_bytes());
    // The largest number stands for "unknown".
    let riff_len = (as_u32(head.len()) - 8).saturating_add(data_len).min(u32::MAX - 1);
    head[4..8].copy_from_slice(&riff_len.to_le_bytes());
    Ok(vec![head.into(), file.slice(chunks.data_at..)])
}

fn append_chunk(head: &mut Vec<u8>, kind: [u8; 4], body: &[u8]) {
    head.extend_from_slice(&kind);
    head.extend_from_slice(&as_u32(body.len()).to_le_bytes());
    head.extend_from_slice(body);
    head.resize(head.len().next_multiple_of(2), 0);
}

/// The chunks that matter.
#[derive(Default)]
struct Chunks<'a> {
    format: Option<&'a [u8]>,
    /// Number of samples, where the format needs it.
    fact: Option<&'a [u8]>,
    /// Position of the samples: behind the header of the data chunk.
    data_at: usize,
}

impl<'a> Chunks<'a> {
    fn find(file: &'a [u8]) -> Option<Self> {
        let mut chunks = Self::default();
        let mut at: usize = 12;
        loop {
            let body_at = at.checked_add(8)?;
            let header = file.get(at..body_at)?;
            let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
            let end = body_at.checked_add(len)?;
            match &header[..4] {
                b"data" => return Some(Self { data_at: body_at, ..chunks }),
                b"fmt " => chunks.format = Some(file.get(body_at..end)?),
                b"fact" if len == 4 => chunks.fact = file.get(body_at..end),
                _ => {}
            }
            at = end.checked_add(len % 2)?;
        }
    }
}

/// The format in the length that symphonia expects of it. Programs write 16, 18 or 40 bytes.
fn plain_format(format: &[u8]) -> Result<Vec<u8>, Error> {
    if !FORMAT_BYTES.contains(&format.len()) {
        return Err(Error::DecodeError("the format chunk is missing or damaged"));
    }
    let mut format = format.to_vec();
    match u16::from_le_bytes([format[0], format[1]]) {
        PCM | FLOAT => format.truncate(*FORMAT_BYTES.start()),
        ALAW | MULAW => {
            format.truncate(*FORMAT_BYTES.start());
            // The extension has no bytes.
            format.extend([0, 0]);
        }
        _ => {}
    }
    Ok(format)
}

/// Format tags of the registry.
const PCM: u16 = 1;
const FLOAT: u16 = 3;
const ALAW: u16 = 6;
const MULAW: u16 = 7;

/// MS ADPCM has the longest format, of 50 bytes.
const FORMAT_BYTES: std::ops::RangeInclusive<usize> = 16..=256;

/// The length that the data chunk claims, or what the file has if it was written as a stream: a program that writes to a
/// pipe does not know the length. ffmpeg writes 0xFFFFFFFF, Macaw and sox something near 0x7FFFFFFF, others 0.
fn data_len(file: &[u8], data_at: usize) -> u32 {
    let claimed = file[data_at - 4..data_at].iter().rev().fold(0, |len, byte| len << 8 | u32::from(*byte));
    let is_unknown = claimed == 0 || claimed >= UNKNOWN_FROM_BYTES;
    if is_unknown { as_u32(file.len() - data_at) } else { claimed }
}

/// Claimed data lengths from here on mean "unknown": just below 2 GB, where sox subtracts the header.
const UNKNOWN_FROM_BYTES: u32 = 0x7fff_0000;

fn as_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
