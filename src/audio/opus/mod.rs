//! Opus (RFC 6716) of a client: each of its messages holds one packet, without a container.
//!
//! [`PacketDecoder`] decodes what a client sends, [`PacketEncoder`] encodes what it plays. Ogg and WebM belong to
//! `media`.
//!
//! The codec is opus-pure 0.2. Beside ropus 0.12 and opus-rs 0.1 it encodes fastest, keeps to its bit rate (opus-rs exceeds it
//! by up to 70 %), conceals as libopus does (ropus has another concealment) and allocates nothing per decoded packet.

mod decoder;
mod encoder;
#[cfg(test)]
mod tests;

pub use self::{
    decoder::{DECODED_RATE_HZ, PacketDecoder, PacketError, packet_samples},
    encoder::{PacketEncoder, PacketOptions},
};

use super::format::FormatError;

/// Sample rates that Opus has, Hz.
pub const RATES_HZ: [u32; 5] = [8_000, 12_000, 16_000, 24_000, 48_000];

/// The lowest rate of Opus that is not below this one; its highest for a higher one.
pub(super) fn next_rate(rate_hz: u32) -> u32 {
    RATES_HZ.into_iter().find(|known| *known >= rate_hz).unwrap_or(48_000)
}

/// Checks that Opus has this rate.
///
/// # Errors
/// [`FormatError::OpusRate`] for another one.
pub(super) fn check_rate(rate_hz: u32) -> Result<(), FormatError> {
    if RATES_HZ.contains(&rate_hz) { Ok(()) } else { Err(FormatError::OpusRate { actual: rate_hz }) }
}
