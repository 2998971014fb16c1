//! Headers of frames in a row, each of which states the length of its frame: MPEG audio and ADTS.

/// The fields of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The bits that all frames of a stream share.
    pub key: u32,
    /// Length of the frame with its header.
    pub len: usize,
    /// Samples of one channel.
    pub samples: u32,
    /// Sample rate.
    pub rate_hz: u32,
    /// Channels, or the number of a configuration of them.
    pub channels: u8,
}

/// Reads the header at the start of these bytes.
pub type ParseHeader = fn(&[u8]) -> Option<Header>;

/// True if these bytes begin with a header of the same stream.
pub fn is_same_stream(bytes: &[u8], header: &Header, parse: ParseHeader) -> bool {
    parse(bytes).is_some_and(|next| next.key == header.key)
}

/// Layer of MPEG audio by the bits of a header.
pub const fn mpeg_layer(header: u32) -> u32 {
    4 - (header >> 17 & 3)
}

/// Bit rates in kbit/s, by their number in the header: of MPEG-1 layers I to III, of MPEG-2 layer I, and of its others.
const BIT_RATES: [[u16; 15]; 5] = [
    [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
    [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
    [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];
const MPEG_RATES_HZ: [u32; 3] = [44_100, 48_000, 32_000];

/// Bits of a header of MPEG audio with version, layer and sample rate.
const MPEG_KEY_BITS: u32 = 0xfffe_0c00;

/// Parses a header of MPEG audio (ISO 11172-3 §2.4.2.3, 13818-3 §2.4.2.3); `None` for a free bit rate, which states no length.
pub fn mpeg_header(bytes: &[u8]) -> Option<Header> {
    let header =
        bytes.first_chunk().map(|first| u32::from_be_bytes(*first)).filter(|header| header >> 21 == 0x7ff)?;
    // 0 is version 2.5, 2 is version 2, 3 is version 1.
    let (version, layer) = (header >> 19 & 3, mpeg_layer(header));
    let rate_divisor = [4, 0, 2, 1][version as usize];
    if rate_divisor == 0 || layer == 4 || header & 3 == 2 {
        return None;
    }
    let rate_hz = MPEG_RATES_HZ.get((header >> 10 & 3) as usize)? / rate_divisor;
    let is_version_1 = version == 3;
    let table = if is_version_1 { layer - 1 } else { 2 + layer.min(2) };
    let bit_rate = 1000 * u32::from(*BIT_RATES[table as usize].get((header >> 12 & 15) as usize)?);
    let padding = header >> 9 & 1;
    let (samples, len) = match layer {
        1 => (384, (12 * bit_rate / rate_hz + padding) * 4),
        3 if !is_version_1 => (576, 72 * bit_rate / rate_hz + padding),
        _ => (1152, 144 * bit_rate / rate_hz + padding),
    };
    let channels = if header >> 6 & 3 == 3 { 1 } else { 2 };
    (bit_rate > 0).then_some(Header {
        key: header & MPEG_KEY_BITS,
        len: len as usize,
        samples,
        rate_hz,
        channels,
    })
}

/// Sample rates of AAC by their number.
pub const AAC_RATES_HZ: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8000, 7350];

/// Bits of a header of ADTS with version, layer, profile, sample rate and channels.
const ADTS_KEY_BITS: u32 = 0xfff6_fdc0;

/// Parses a header of ADTS (ISO 13818-7 §6.2).
pub fn adts_header(bytes: &[u8]) -> Option<Header> {
    let header = bytes.first_chunk::<7>()?.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let header = Some(header).filter(|header| header >> 44 == 0xfff && header >> 41 & 3 == 0)?;
    let first = (header >> 24) as u32;
    let rate_hz = *AAC_RATES_HZ.get((first >> 10 & 15) as usize)?;
    let len = (header >> 13 & 0x1fff) as usize;
    let blocks = (header & 3) as u32 + 1;
    let channels = (first >> 6 & 7) as u8;
    (len > 7).then_some(Header { key: first & ADTS_KEY_BITS, len, samples: 1024 * blocks, rate_hz, channels })
}
