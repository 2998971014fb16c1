//! Bounds the frames that an ALAC decoder allocates for.

use crate::media::decode::fields::be32;

/// Longest frame, samples. Apple's encoder writes 4096.
const FRAME_MAX_SAMPLES: u32 = 1 << 16;

/// Checks the decoder's configuration, of 24 or 48 bytes.
pub(in crate::media::decode) fn check_config(config: &[u8]) -> Result<(), &'static str> {
    match be32(config, 0) {
        Some(1..=FRAME_MAX_SAMPLES) => Ok(()),
        _ => Err("the ALAC configuration is damaged"),
    }
}
