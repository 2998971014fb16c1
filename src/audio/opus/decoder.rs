//! Decoder of packets, and the check that they are packets.

use opus_pure::{MAX_PACKET_SAMPLES, OpusDecoder};

/// Rate of decoded audio, Hz. A decoder gives any packet at any rate, but opus-pure 0.2 agrees with libopus only at this one:
/// at lower rates it spoils the first 0.2 s after each switch between the modes for speech and for music.
pub const DECODED_RATE_HZ: u32 = 48_000;

/// Longest frame in a packet, bytes (RFC 6716 §3.2).
const FRAME_MAX_BYTES: usize = 1275;

/// Concealed audio is a multiple of this: 2.5 ms, the shortest frame.
const CONCEALED_STEP_SAMPLES: usize = DECODED_RATE_HZ as usize / 400;

/// Bytes that are not an Opus packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are not an Opus packet: {problem}")]
pub struct PacketError {
    bytes: usize,
    problem: &'static str,
}

/// Checks the structure of a packet (RFC 6716 §3.4) and returns its length, samples at [`DECODED_RATE_HZ`]: at most 120 ms.
///
/// # Errors
/// The fault of the packet.
pub fn packet_samples(packet: &[u8]) -> Result<usize, PacketError> {
    let error = |problem| PacketError { bytes: packet.len(), problem };
    let samples = opus_pure::packet::samples_48k(packet)
        .map_err(|_| error("it has no frames, or more than 120 ms of them"))?;
    match have_frames_room(packet) {
        Some(true) => Ok(samples),
        _ => Err(error("its length does not fit its frames")),
    }
}

/// True if the packet's frames fill it exactly, and none is too long; `None` if it ends before they are described.
fn have_frames_room(packet: &[u8]) -> Option<bool> {
    let (toc, rest) = packet.split_first()?;
    match toc & 3 {
        0 => Some(rest.len() <= FRAME_MAX_BYTES),
        1 => Some(fit_evenly(rest.len(), 2)),
        2 => {
            let (first, rest) = split_length(rest)?;
            Some(rest.len().checked_sub(first)? <= FRAME_MAX_BYTES)
        }
        _ => have_many_frames_room(rest),
    }
}

/// The same for a packet of any number of frames, after its first byte.
fn have_many_frames_room(bytes: &[u8]) -> Option<bool> {
    let (head, mut rest) = bytes.split_first()?;
    let (frames, has_padding, has_lengths) = (usize::from(head & 0x3f), head & 0x40 != 0, head & 0x80 != 0);
    let mut padding = 0;
    let mut is_padding_open = has_padding;
    while is_padding_open {
        let (length, tail) = rest.split_first()?;
        rest = tail;
        padding += usize::from(*length).min(254);
        is_padding_open = *length == 255;
    }
    let mut described = 0;
    for _ in 1..frames {
        if has_lengths {
            let (length, tail) = split_length(rest)?;
            rest = tail;
            described += length;
        }
    }
    let left = rest.len().checked_sub(padding + described)?;
    Some(if has_lengths { left <= FRAME_MAX_BYTES } else { fit_evenly(left, frames) })
}

const fn fit_evenly(bytes: usize, frames: usize) -> bool {
    bytes.is_multiple_of(frames) && bytes / frames <= FRAME_MAX_BYTES
}

/// Splits the length of a frame off (RFC 6716 §3.2.1).
fn split_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [short @ ..=251, rest @ ..] => Some((usize::from(*short), rest)),
        [low, high, rest @ ..] => Some((usize::from(*low) + 4 * usize::from(*high), rest)),
        _ => None,
    }
}

/// Decoder of one client's packets to mono float32 at [`DECODED_RATE_HZ`]. Allocates its state with the first packet.
#[derive(Debug, Default)]
pub struct PacketDecoder {
    decoder: Option<Box<OpusDecoder>>,
    /// Packets were skipped: the next one does not continue what was decoded.
    is_interrupted: bool,
    /// Samples that were lost since the last packet.
    lost_samples: usize,
}

impl PacketDecoder {
    /// Replaces `audio` by the packet's, after the audio lost before it: that comes out of the packet's in-band FEC as far
    /// as it has one, and is concealed otherwise. A packet that [`packet_samples`] rejects gives none.
    pub fn decode(&mut self, packet: &[u8], audio: &mut Vec<f32>) {
        audio.clear();
        let Ok(samples) = packet_samples(packet) else { return };
        let Some(decoder) = self.decoder.as_mut().filter(|_| !self.is_interrupted) else {
            return self.begin(packet, audio);
        };
        let lost = std::mem::take(&mut self.lost_samples);
        let lost = lost - lost % CONCEALED_STEP_SAMPLES;
        audio.resize(lost + samples, 0.0);
        let (concealed, decoded) = audio.split_at_mut(lost);
        // Audio that cannot be concealed stays silent.
        if !concealed.is_empty() && decoder.decode_fec(packet, lost, concealed).is_err() {
            concealed.fill(0.0);
        }
        if decoder.decode(packet, samples, decoded).is_err() {
            decoded.fill(0.0);
        }
    }

    /// Decodes a packet that continues nothing.
    fn begin(&mut self, packet: &[u8], audio: &mut Vec<f32>) {
        (self.is_interrupted, self.lost_samples) = (false, 0);
        match &mut self.decoder {
            Some(decoder) => drop(decoder.reset_state()),
            None => self.decoder = OpusDecoder::new(DECODED_RATE_HZ as i32, 1).ok().map(Box::new),
        }
        // The decoder has this rate, and a reset never fails.
        debug_assert!(self.decoder.is_some(), "a decoder was made");
        if self.decoder.is_some() {
            self.decode(packet, audio);
        }
    }

    /// Notes that this many samples at [`DECODED_RATE_HZ`] were lost before the next packet. No more than the longest packet,
    /// 120 ms, is made up for.
    pub fn note_lost(&mut self, samples: usize) {
        self.lost_samples = self.lost_samples.saturating_add(samples).min(MAX_PACKET_SAMPLES);
    }

    /// Notes that the client sent packets which are not decoded.
    pub const fn skip(&mut self) {
        self.is_interrupted = true;
    }
}
