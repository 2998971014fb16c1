//! Bits and checksums of FLAC.

/// Writes bits, the most significant first.
#[derive(Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet, at the low end.
    open: u64,
    open_bits: u32,
}

impl BitWriter {
    /// Writes the lowest `count` bits, at most 48.
    pub(super) fn write(&mut self, value: u64, count: u32) {
        self.open = self.open << count | (value & ((1 << count) - 1));
        self.open_bits += count;
        while self.open_bits >= 8 {
            self.open_bits -= 8;
            self.bytes.push((self.open >> self.open_bits) as u8);
        }
    }

    pub(super) fn write_signed(&mut self, sample: i16) {
        self.write(u64::from(sample.cast_unsigned()), 16);
    }

    /// Writes a Rice code: the quotient in zeros, a one, and the rest in `parameter` bits.
    pub(super) fn write_rice(&mut self, code: u32, parameter: u32) {
        let mut zeros = code >> parameter;
        while zeros >= 32 {
            self.write(0, 32);
            zeros -= 32;
        }
        self.write(1, zeros + 1);
        self.write(u64::from(code), parameter);
    }

    /// The complete bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Fills the last byte with zeros.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.open_bits > 0 {
            self.write(0, 8 - self.open_bits);
        }
        self.bytes
    }
}

/// Checksum of frame headers: x^8 + x^2 + x + 1 (RFC 9639 §9.1.8).
pub(super) fn crc8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ byte, |crc, _| if crc & 0x80 == 0 { crc << 1 } else { crc << 1 ^ 0x07 })
    })
}

/// Checksum of frames: x^16 + x^15 + x^2 + 1 (RFC 9639 §9.3).
pub(super) fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x8005 }
            },
        )
    })
}
