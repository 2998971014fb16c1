//! Lengths of Vorbis packets (Vorbis I specification §4.2.4 and §4.3.1).

/// The two block sizes, and which of them each mode has.
pub(in crate::media::decode) struct BlockSizes {
    /// Short and long.
    sizes: [u32; 2],
    mode_bits: u32,
    is_long: Vec<bool>,
    /// Size of the block before.
    last: Option<u32>,
}

impl BlockSizes {
    /// Reads the modes from the end of the setup header, because all before them would have to be parsed otherwise.
    pub(in crate::media::decode) fn parse(identification: &[u8], setup: &[u8]) -> Option<Self> {
        let exponents = *identification.get(28)?;
        let sizes = [1 << (exponents & 15), 1 << (exponents >> 4)];
        let mut bits = BackwardBits { bytes: setup, left: setup.len() * 8 };
        // The framing bit is the last that is set.
        while bits.read(1)? == 0 {}
        let (mut modes, mut found) = (Vec::new(), None);
        // A mode has a size bit, two types that are 0, and the number of a mapping below 64.
        while modes.len() < 64 {
            let (mapping, types) = (bits.read(8)?, bits.read(32)?);
            if mapping >= 64 || types != 0 {
                break;
            }
            modes.push(bits.read(1)? == 1);
            let mut count = bits;
            if count.read(6)? as usize + 1 == modes.len() {
                found = Some(modes.len());
            }
        }
        modes.truncate(found?);
        modes.reverse();
        let mode_bits = usize::BITS - (modes.len() - 1).leading_zeros();
        Some(Self { sizes, mode_bits, is_long: modes, last: None })
    }

    /// Samples that a packet adds. The first of a stream has none.
    pub(in crate::media::decode) fn samples(&mut self, packet: &[u8]) -> u64 {
        let mode = packet.first().map_or(0, |first| u32::from(first >> 1) & ((1 << self.mode_bits) - 1));
        let is_long = self.is_long.get(mode as usize).copied().unwrap_or(false);
        let size = self.sizes[usize::from(is_long)];
        let last = self.last.replace(size);
        last.map_or(0, |last| u64::from(last / 4 + size / 4))
    }
}

/// Reads bits from the end.
#[derive(Clone, Copy)]
struct BackwardBits<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl BackwardBits<'_> {
    fn read(&mut self, count: usize) -> Option<u32> {
        let start = self.left.checked_sub(count)?;
        let bit = |at: usize| u32::from(self.bytes[at / 8] >> (at % 8) & 1);
        let number = (start..self.left).rev().fold(0, |number, at| number << 1 | bit(at));
        self.left = start;
        Some(number)
    }
}
