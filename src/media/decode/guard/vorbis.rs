//! Bounds what the setup header of a Vorbis stream makes its decoder allocate (Vorbis I specification §3.2.1 and §4.2.4).
//!
//! A codebook of a few bytes may announce 131 072 entries of 32 values, and a header may have 256 of them: symphonia
//! unpacks all, 16 MB each. Only codebooks are checked; the rest of the header announces little.

/// Most entries of all codebooks. The decoder's tree takes up to 230 bytes for an entry. libvorbis writes at most 19 413.
const ENTRIES_MAX: u64 = 128 * 1024;
/// Most values of all codebooks, of four bytes each. libvorbis writes at most 85 928.
const VALUES_MAX: u64 = 1024 * 1024;
/// Identification header, which the setup header follows.
const IDENTIFICATION_BYTES: usize = 30;

/// Checks the headers that a track carries: the identification and the setup, as symphonia's containers return them.
pub(in crate::media::decode) fn check_headers(headers: &[u8]) -> Result<(), &'static str> {
    match headers.first() {
        Some(1) => check_setup(headers.get(IDENTIFICATION_BYTES..).unwrap_or_default()),
        _ => Err("the Vorbis identification is missing"),
    }
}

/// Checks a setup header.
pub(in crate::media::decode) fn check_setup(setup: &[u8]) -> Result<(), &'static str> {
    let codebooks = setup.strip_prefix(b"\x05vorbis").ok_or("the Vorbis setup is missing")?;
    check_codebooks(&mut Bits { bytes: codebooks, at: 0 })
        .ok_or("the Vorbis setup is damaged or needs more memory than any encoder's")
}

/// `None` at damage and above the bounds.
fn check_codebooks(bits: &mut Bits<'_>) -> Option<()> {
    let (mut entries_left, mut values_left) = (ENTRIES_MAX, VALUES_MAX);
    for _ in 0..=bits.read(8)? {
        let _sync = bits.read(24).filter(|sync| *sync == 0x56_4342)?;
        let dimensions = bits.read(16)?;
        let entries = bits.read(24)?;
        entries_left = entries_left.checked_sub(entries)?;
        skip_lengths(bits, entries)?;
        let values = skip_lookup(bits, entries, dimensions)?;
        values_left = values_left.checked_sub(values)?;
    }
    Some(())
}

/// Skips the lengths of the code words.
fn skip_lengths(bits: &mut Bits<'_>, entries: u64) -> Option<()> {
    let is_ordered = bits.read(1)? == 1;
    if is_ordered {
        return skip_ordered_lengths(bits, entries);
    }
    let is_sparse = bits.read(1)? == 1;
    if !is_sparse {
        return bits.skip(5 * entries);
    }
    for _ in 0..entries {
        let is_used = bits.read(1)? == 1;
        bits.skip(if is_used { 5 } else { 0 })?;
    }
    Some(())
}

/// Code words sorted by length: the number of each length.
fn skip_ordered_lengths(bits: &mut Bits<'_>, entries: u64) -> Option<()> {
    let (mut length, mut left) = (bits.read(5)? + 1, entries);
    while left > 0 && length <= 32 {
        left = left.checked_sub(bits.read(64 - left.leading_zeros())?)?;
        length += 1;
    }
    (left == 0).then_some(())
}

/// Skips the table of values. Returns how many values the decoder makes of it.
fn skip_lookup(bits: &mut Bits<'_>, entries: u64, dimensions: u64) -> Option<u64> {
    let kind = bits.read(4)?;
    if kind == 0 {
        return Some(0);
    }
    bits.skip(32 + 32)?;
    let value_bits = bits.read(4)? + 1;
    let _is_sequence = bits.read(1)?;
    let stored = match kind {
        1 => lattice_values(entries, dimensions)?,
        2 => entries * dimensions,
        _ => return None,
    };
    bits.skip(stored * value_bits)?;
    Some(entries * dimensions)
}

/// The greatest number whose power of `dimensions` is at most `entries` (§9.2.3).
fn lattice_values(entries: u64, dimensions: u64) -> Option<u64> {
    let dimensions = u32::try_from(dimensions).ok().filter(|dimensions| *dimensions > 0)?;
    let fits = |value: u64| value.checked_pow(dimensions).is_some_and(|power| power <= entries);
    let estimate = (entries as f64).powf(1.0 / f64::from(dimensions)) as u64;
    (estimate.saturating_sub(1)..=estimate + 1).rev().find(|value| fits(*value))
}

/// Reads bits as Vorbis packs them, the lowest first (§2.1.4).
struct Bits<'a> {
    bytes: &'a [u8],
    at: u64,
}

impl Bits<'_> {
    /// Reads up to 32 bits.
    fn read(&mut self, count: u32) -> Option<u64> {
        let first = usize::try_from(self.at / 8).ok()?;
        let shift = self.at % 8;
        self.skip(count.into())?;
        let bytes = self.bytes.get(first..)?.iter().take(5).rev();
        let word = bytes.fold(0, |word, byte| word << 8 | u64::from(*byte));
        Some(word >> shift & ((1 << count) - 1))
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        let end = self.at + count;
        let is_inside = end <= 8 * self.bytes.len() as u64;
        is_inside.then(|| self.at = end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_from_the_lowest() {
        let mut bits = Bits { bytes: &[0b1011_0100, 0xff, 0x01, 0, 0, 0x80], at: 0 };
        assert_eq!((bits.read(3), bits.read(6), bits.read(0)), (Some(0b100), Some(0b11_0110), Some(0)));
        assert_eq!((bits.read(32), bits.read(7), bits.read(1)), (Some(0xff), Some(0x40), None));
    }

    #[test]
    fn lattice_of_values_is_the_integer_root() {
        for (entries, dimensions, expected) in
            [(361, 2, 19), (560, 3, 8), (6561, 8, 3), (1, 1, 1), (131_072, 17, 2)]
        {
            assert_eq!(lattice_values(entries, dimensions), Some(expected));
        }
        assert_eq!(lattice_values(0, 1), Some(0));
        assert_eq!(lattice_values(8, 0), None);
    }
}
