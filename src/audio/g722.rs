//! G.722 at 64 kbit/s: wideband audio at 16 kHz, one byte for two samples (ITU-T G.722, 09/2012).
//!
//! The signal is split into two bands, each coded by adaptive differences: six bits for the lower band, two for the
//! upper one. Names of blocks and tables are those of the recommendation.

/// Sample rate, Hz.
pub const RATE_HZ: u32 = 16_000;

const Q6: [i32; 30] = [
    0, 35, 72, 110, 150, 190, 233, 276, 323, 370, 422, 473, 530, 587, 650, 714, 786, 858, 940, 1023, 1121,
    1219, 1339, 1458, 1612, 1765, 1980, 2195, 2557, 2919,
];
const ILN: [u8; 31] = [
    0, 63, 62, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8,
    7, 6, 5, 4,
];
const ILP: [u8; 31] = [
    0, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37,
    36, 35, 34, 33, 32,
];
const WL: [i32; 8] = [-60, -30, 58, 172, 334, 538, 1198, 3042];
const RL42: [usize; 16] = [0, 7, 6, 5, 4, 3, 2, 1, 7, 6, 5, 4, 3, 2, 1, 0];
const ILB: [i32; 32] = [
    2048, 2093, 2139, 2186, 2233, 2282, 2332, 2383, 2435, 2489, 2543, 2599, 2656, 2714, 2774, 2834, 2896,
    2960, 3025, 3091, 3158, 3228, 3298, 3371, 3444, 3520, 3597, 3676, 3756, 3838, 3922, 4008,
];
const QM4: [i32; 16] =
    [0, -20456, -12896, -8968, -6288, -4240, -2584, -1200, 20456, 12896, 8968, 6288, 4240, 2584, 1200, 0];
const QM6: [i32; 64] = [
    -136, -136, -136, -136, -24808, -21904, -19008, -16704, -14984, -13512, -12280, -11192, -10232, -9360,
    -8576, -7856, -7192, -6576, -6000, -5456, -4944, -4464, -4008, -3576, -3168, -2776, -2400, -2032, -1688,
    -1360, -1040, -728, 24808, 21904, 19008, 16704, 14984, 13512, 12280, 11192, 10232, 9360, 8576, 7856,
    7192, 6576, 6000, 5456, 4944, 4464, 4008, 3576, 3168, 2776, 2400, 2032, 1688, 1360, 1040, 728, 432, 136,
    -432, -136,
];
const QM2: [i32; 4] = [-7408, -1616, 7408, 1616];
const WH: [i32; 3] = [0, -214, 798];
const RH2: [usize; 4] = [2, 1, 2, 1];
const QMF: [i32; 12] = [3, -11, 12, 32, -210, 951, 3876, -805, 362, -156, 53, -11];

/// Limits to 16 bits.
fn saturate(value: i32) -> i32 {
    value.clamp(i16::MIN.into(), i16::MAX.into())
}

/// Predictor and step size of one band.
#[derive(Debug, Clone, Default)]
struct Band {
    /// Prediction of the next sample, and its part of the zeros.
    s: i32,
    sz: i32,
    r: [i32; 3],
    p: [i32; 3],
    a: [i32; 3],
    d: [i32; 7],
    b: [i32; 7],
    /// Logarithm of the step size, and the step size.
    nb: i32,
    det: i32,
}

impl Band {
    /// Blocks 3L and 3H: adapts the step size.
    fn scale(&mut self, weight: i32, nb_max: i32, shift: i32) {
        self.nb = (((self.nb * 127) >> 7) + weight).clamp(0, nb_max);
        let mantissa = ILB[(self.nb >> 6) as usize & 31];
        let exponent = shift - (self.nb >> 11);
        self.det = if exponent < 0 { mantissa << -exponent } else { mantissa >> exponent } << 2;
    }

    /// Block 4: adapts the predictor to a quantised difference.
    fn predict(&mut self, d: i32) {
        self.d[0] = d;
        self.r[0] = saturate(self.s + d);
        self.p[0] = saturate(self.sz + d);
        let same_sign = |one: i32, other: i32| one >> 15 == other >> 15;
        // UPPOL2
        let first = saturate(self.a[1] << 2);
        let first = if same_sign(self.p[0], self.p[1]) { -first } else { first }.min(32_767);
        let second = if same_sign(self.p[0], self.p[2]) { 128 } else { -128 };
        let a2 = (second + (first >> 7) + ((self.a[2] * 32_512) >> 15)).clamp(-12_288, 12_288);
        // UPPOL1
        let step = if same_sign(self.p[0], self.p[1]) { 192 } else { -192 };
        let bound = saturate(15_360 - a2);
        let a1 = saturate(step + ((self.a[1] * 32_640) >> 15)).clamp(-bound, bound);
        // UPZERO
        let step = if d == 0 { 0 } else { 128 };
        for (b, past) in self.b.iter_mut().zip(self.d).skip(1) {
            let step = if same_sign(past, d) { step } else { -step };
            *b = saturate(step + ((*b * 32_640) >> 15));
        }
        // DELAYA
        self.d.copy_within(0..6, 1);
        self.r.copy_within(0..2, 1);
        self.p.copy_within(0..2, 1);
        (self.a[1], self.a[2]) = (a1, a2);
        // FILTEP, FILTEZ, PREDIC
        let pole = |a: i32, r: i32| (a * saturate(r + r)) >> 15;
        let sp = saturate(pole(a1, self.r[1]) + pole(a2, self.r[2]));
        let zeros = self.b.iter().zip(self.d).skip(1).map(|(b, d)| (b * saturate(d + d)) >> 15);
        self.sz = saturate(zeros.sum());
        self.s = saturate(sp + self.sz);
    }

    /// Takes the four significant bits of a code of the lower band.
    fn take_lower(&mut self, code: u8) {
        let ril = usize::from(code >> 2);
        let difference = (self.det * QM4[ril]) >> 15;
        self.scale(WL[RL42[ril]], 18_432, 8);
        self.predict(difference);
    }

    /// Takes a code of the upper band. Returns the quantised difference.
    fn take_upper(&mut self, code: u8) -> i32 {
        let code = usize::from(code);
        let difference = (self.det * QM2[code]) >> 15;
        self.scale(WH[RH2[code]], 22_528, 10);
        self.predict(difference);
        difference
    }
}

/// Both bands, and the samples in the filter that splits or joins them.
#[derive(Debug, Clone)]
struct Bands {
    lower: Band,
    upper: Band,
    x: [i32; 24],
}

impl Default for Bands {
    fn default() -> Self {
        Self {
            lower: Band { det: 32, ..Band::default() },
            upper: Band { det: 8, ..Band::default() },
            x: [0; 24],
        }
    }
}

impl Bands {
    /// Adds two samples to the filter. Returns its two sums.
    fn filter(&mut self, pair: [i32; 2]) -> (i32, i32) {
        self.x.copy_within(2.., 0);
        self.x[22..].copy_from_slice(&pair);
        let (even, odd) = (self.x.iter().step_by(2), self.x.iter().skip(1).step_by(2));
        let sum = |even: i32, (x, q): (&i32, &i32)| even + x * q;
        (even.zip(&QMF).fold(0, sum), odd.zip(QMF.iter().rev()).fold(0, sum))
    }
}

/// Encoder of one stream.
#[derive(Debug, Clone, Default)]
pub struct G722Encoder(Bands);

impl G722Encoder {
    /// Encodes an even number of samples; an odd one at the end is left out.
    pub fn encode(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        out.extend(samples.as_chunks::<2>().0.iter().map(|pair| self.encode_pair(*pair)));
    }

    fn encode_pair(&mut self, pair: [i16; 2]) -> u8 {
        let (odd, even) = self.0.filter(pair.map(i32::from));
        let (low, high) = ((even + odd) >> 14, (even - odd) >> 14);
        let Bands { lower, upper, .. } = &mut self.0;
        // QUANTL
        let el = saturate(low - lower.s);
        let magnitude = if el < 0 { -(el + 1) } else { el };
        let level = (1..30).find(|at| magnitude < (Q6[*at] * lower.det) >> 12).unwrap_or(30);
        let low_code = if el < 0 { ILN[level] } else { ILP[level] };
        lower.take_lower(low_code);
        // QUANTH
        let eh = saturate(high - upper.s);
        let magnitude = if eh < 0 { -(eh + 1) } else { eh };
        let is_large = magnitude >= (564 * upper.det) >> 12;
        let high_code = match (eh < 0, is_large) {
            (true, false) => 1,
            (true, true) => 0,
            (false, false) => 3,
            (false, true) => 2,
        };
        upper.take_upper(high_code);
        high_code << 6 | low_code
    }
}

/// Decoder of one stream.
#[derive(Debug, Clone, Default)]
pub struct G722Decoder(Bands);

impl G722Decoder {
    /// Decodes bytes, each to two samples.
    pub fn decode(&mut self, bytes: &[u8], out: &mut Vec<i16>) {
        out.extend(bytes.iter().flat_map(|byte| self.decode_byte(*byte)));
    }

    fn decode_byte(&mut self, byte: u8) -> [i16; 2] {
        let Bands { lower, upper, .. } = &mut self.0;
        let low_code = byte & 0x3f;
        // INVQBL, RECONS and LIMIT of the lower band, then of the upper one.
        let low = lower.s + ((lower.det * QM6[usize::from(low_code)]) >> 15);
        let low = low.clamp(-16_384, 16_383);
        lower.take_lower(low_code);
        let prediction = upper.s;
        let high = (prediction + upper.take_upper(byte >> 6)).clamp(-16_384, 16_383);
        let (second, first) = self.0.filter([low + high, low - high]);
        [first, second].map(|sum| saturate(sum >> 11) as i16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two seconds of a tone that rises in pitch and loudness, with noise.
    fn signal() -> Vec<i16> {
        let (mut seed, mut phase) = (12_345_u64, 0_i64);
        let sample = |at: i64| {
            seed = (seed * 1_103_515_245 + 12_345) & 0x7fff_ffff;
            phase = (phase + 40 + at / 16) % 65_536;
            let tone = ((phase - 32_768).abs() - 16_384) * (at % 8000);
            (tone.div_euclid(8000) + ((seed >> 15) % 2001) as i64 - 1000) as i16
        };
        (0..32_000).map(sample).collect()
    }

    /// CRC-32 as in zlib.
    fn checksum(bytes: impl IntoIterator<Item = u8>) -> u32 {
        let step = |crc: u32, _| if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0xedb8_8320 };
        !bytes.into_iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(byte), step))
    }

    #[test]
    fn codes_and_samples_are_those_of_libavcodec() {
        // PyAV 18.1, encoder `g722` with trellis=0, and decoder `g722`.
        let (mut codes, mut samples) = (Vec::new(), Vec::new());
        G722Encoder::default().encode(&signal(), &mut codes);
        assert_eq!((codes.len(), checksum(codes.iter().copied())), (16_000, 3_341_672_072));
        G722Decoder::default().decode(&codes, &mut samples);
        let bytes = samples.iter().flat_map(|sample| sample.to_le_bytes());
        assert_eq!((samples.len(), checksum(bytes)), (32_000, 670_939_661));
    }

    #[test]
    fn any_codes_decode() {
        let codes: Vec<u8> = (0..60_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for codes in [codes, vec![0; 9000], vec![0x3f; 9000], vec![0xff; 9000], vec![0x84; 9000]] {
            let mut samples = Vec::new();
            G722Decoder::default().decode(&codes, &mut samples);
            let mut again = Vec::new();
            G722Encoder::default().encode(&samples, &mut again);
            assert_eq!(again.len(), codes.len());
        }
    }
}
