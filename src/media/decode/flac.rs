//! Native FLAC files without their metadata (RFC 9639 §8).

use bytes::Bytes;
use symphonia::core::errors::Error;

/// Keeps the stream information and the audio. Tags, pictures and tables are never read: symphonia takes 26 times the
/// size of short tags.
pub(super) fn without_metadata(file: &Bytes) -> Result<Vec<Bytes>, Error> {
    let mut head = b"fLaC".to_vec();
    let mut at = head.len();
    loop {
        let header = file.get(at..at + 4).ok_or(CUT_OFF)?;
        let [kind, len @ ..] = [header[0], header[1], header[2], header[3]];
        let end = at + 4 + len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        let block = file.get(at..end).ok_or(CUT_OFF)?;
        if kind & 0x7f == STREAM_INFO && head.len() == 4 && block.len() == STREAM_INFO_BYTES {
            head.push(LAST_BLOCK | STREAM_INFO);
            head.extend_from_slice(&block[1..]);
        }
        at = end;
        if kind & LAST_BLOCK != 0 {
            return Ok(vec![head.into(), file.slice(at..)]);
        }
    }
}

const CUT_OFF: Error = Error::DecodeError("the headers are cut off");
const LAST_BLOCK: u8 = 0x80;
const STREAM_INFO: u8 = 0;
/// With the header of its block.
const STREAM_INFO_BYTES: usize = 4 + 34;
