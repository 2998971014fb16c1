//! Cuts long strings out of a JSON text before it is parsed.
//!
//! Base64 audio is most of a message and needs no parser: the end of such a string is found by vector instructions.
//! serde_json takes 18 instructions for each 8 bytes of a string.

use fearless_simd::{Level, Simd, dispatch};

/// A message without the contents of its long strings, which are most of its bytes and need no parsing.
pub struct LongStrings {
    /// The message; a long string is empty here.
    pub rest: String,
    /// Where the long strings were, as offsets in `rest`, and their lengths.
    cuts: Vec<(usize, usize)>,
}

impl LongStrings {
    /// Shorter strings are parsed faster than they are cut out.
    const MIN_BYTES: usize = 1024;

    /// Cuts the long strings out of a JSON text; `None` if there are none. Strings with escapes or control characters stay,
    /// because they need the parser.
    pub fn cut(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() < Self::MIN_BYTES {
            return None;
        }
        let (mut cut, mut copied, mut at) = (Self { rest: String::new(), cuts: Vec::new() }, 0, 0);
        while let Some(open) = memchr::memchr(b'"', &bytes[at..]).map(|found| at + found) {
            let (close, has_escapes) = string_end(bytes, open + 1)?;
            let string = &bytes[open + 1..close];
            if string.len() >= Self::MIN_BYTES && !has_escapes && !has_control_characters(string) {
                cut.rest.push_str(&text[copied..=open]);
                cut.cuts.push((cut.rest.len(), string.len()));
                copied = close;
            }
            at = close + 1;
        }
        cut.rest.push_str(&text[copied..]);
        Some(cut).filter(|cut| !cut.cuts.is_empty())
    }

    /// The part of `text` that a part of `rest` was, with the strings that were cut out of it.
    pub fn original<'a>(&self, part: &str, text: &'a str) -> &'a str {
        let from = part.as_ptr() as usize - self.rest.as_ptr() as usize;
        let to = from + part.len();
        let cut_before = |within: &dyn Fn(usize) -> bool| -> usize {
            self.cuts.iter().filter(|(at, _)| within(*at)).map(|(_, length)| length).sum()
        };
        // An empty string at a cut is the string that was cut.
        &text[from + cut_before(&|at| at < from)..to + cut_before(&|at| at <= to)]
    }
}

/// True if JSON forbids a byte of the string. Searches for the least byte, in a loop that the compiler turns into vector
/// instructions; a search that ends early is four times slower.
fn has_control_characters(string: &[u8]) -> bool {
    dispatch!(Level::new(), simd => least_byte(simd, string)) < 0x20
}

#[inline(always)]
fn least_byte<S: Simd>(_: S, string: &[u8]) -> u8 {
    string.iter().fold(u8::MAX, |least, byte| least.min(*byte))
}

/// The end of the string that begins at `from`, and whether it has escapes; `None` if it never ends.
fn string_end(bytes: &[u8], from: usize) -> Option<(usize, bool)> {
    let (mut at, mut has_escapes) = (from, false);
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some((at, has_escapes));
        }
        has_escapes = true;
        at += 2;
    }
}
