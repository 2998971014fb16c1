//! A JSON text written again letter by letter: secrets are masked, long runs of base64 measured, all else stays.

use super::{MASK, Sound, names_secret};
use crate::trace::record::digest;

/// A string of base64 longer than this is taken for audio or a picture.
const LONGEST_KEPT: usize = 256;

/// Where a walk over JSON stands: what follows a secret's name is masked, however deep it is.
#[derive(Default)]
struct Place {
    depth: u32,
    secret_at: Option<u32>,
    named: bool,
}

impl Place {
    const fn is_secret(&self) -> bool {
        self.named || self.secret_at.is_some()
    }

    const fn open(&mut self) {
        self.depth += 1;
        if self.named && self.secret_at.is_none() {
            self.secret_at = Some(self.depth);
        }
        self.named = false;
    }

    fn close(&mut self) {
        if self.secret_at == Some(self.depth) {
            self.secret_at = None;
        }
        self.depth = self.depth.saturating_sub(1);
    }
}

pub(super) fn rewrite(text: &str, sound: Sound, secret: &mut impl FnMut(&str)) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (String::with_capacity(text.len().min(64 * 1024)), 0);
    let mut place = Place::default();
    while at < bytes.len() {
        let plain = bytes[at..].iter().position(|byte| is_mark(*byte, &place)).unwrap_or(bytes.len() - at);
        push_plain(&mut out, &text[at..at + plain], secret);
        at += plain;
        match bytes.get(at) {
            None => break,
            Some(b'"') => at = string(text, at, sound, &mut place, &mut out, secret),
            Some(b'{' | b'[') => place.open(),
            Some(b'}' | b']') => place.close(),
            Some(_) => {
                out.push('0');
                at += bytes[at..].iter().take_while(|byte| is_number(**byte)).count();
                place.named = false;
            }
        }
        if let Some(mark @ (b'{' | b'[' | b'}' | b']')) = bytes.get(at) {
            out.push(char::from(*mark));
            at += 1;
        }
    }
    out
}

fn is_mark(byte: u8, place: &Place) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']') || (place.is_secret() && is_number(byte))
}

const fn is_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.')
}

/// Takes the string that begins at `at`; the place behind it.
fn string(
    text: &str,
    at: usize,
    sound: Sound,
    place: &mut Place,
    out: &mut String,
    secret: &mut impl FnMut(&str),
) -> usize {
    let end = end_of_string(text.as_bytes(), at + 1);
    let (raw, closed) = (&text[at + 1..end], end < text.len());
    let behind = end + usize::from(closed);
    let is_name = text[behind..].trim_start().starts_with(':');
    out.push('"');
    if is_name {
        place.named = place.secret_at.is_none() && names_secret(&unescaped(raw));
        out.push_str(raw);
    } else if place.is_secret() && !raw.is_empty() {
        secret(&unescaped(raw));
        secret(raw);
        out.push_str(MASK);
        place.named = false;
    } else {
        value(raw, sound, out, secret);
        place.named = false;
    }
    if closed {
        out.push('"');
    }
    behind
}

fn end_of_string(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    // A backslash may be the last byte there is, or stand before half a letter.
    at.min(bytes.len())
}

fn unescaped(raw: &str) -> String {
    serde_json::from_str(&format!("\"{raw}\"")).unwrap_or_else(|_| raw.to_owned())
}

fn value(raw: &str, sound: Sound, out: &mut String, secret: &mut impl FnMut(&str)) {
    let data = raw.find(";base64,").filter(|_| raw.starts_with("data:")).map_or(0, |at| at + 8);
    let (head, body) = raw.split_at(data);
    if body.len() <= LONGEST_KEPT || !is_base64(body) {
        return push_plain(out, raw, secret);
    }
    out.push_str(head);
    match sound {
        Sound::Kept => out.push_str(body),
        Sound::Measured => out.push_str(&measured(body)),
        Sound::Digested => {
            let length = measured(body);
            out.push_str(&format!("{} {}]", length.trim_end_matches(']'), digest(body.as_bytes())));
        }
    }
}

/// What stands for so much audio.
pub(in crate::trace) fn measured(body: &str) -> String {
    let padding = &body[body.trim_end_matches('=').len()..];
    format!("[base64 {}{padding}]", body.len())
}

pub(in crate::trace) fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=').as_bytes();
    body.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/-_\\".contains(byte))
}

/// Text outside of JSON's own structure: `name=value` and `Bearer …` may still hold a secret.
fn push_plain(out: &mut String, text: &str, secret: &mut impl FnMut(&str)) {
    let mut rest = text;
    while let Some(at) = rest.find(['=', ' ']) {
        let (before, behind) = rest.split_at(at + 1);
        let name_from =
            before[..at].rfind(|letter: char| !letter.is_alphanumeric() && !"_-".contains(letter));
        let name = &before
            [name_from.map_or(0, |from| from + before[from..].chars().next().map_or(1, char::len_utf8))..at];
        let until = behind.find(|letter: char| letter.is_whitespace() || "&#;,\"'\\".contains(letter));
        let value = &behind[..until.unwrap_or(behind.len())];
        out.push_str(before);
        rest = behind;
        let is_secret = match before.ends_with('=') {
            true => names_secret(name) && !value.is_empty(),
            false => name.eq_ignore_ascii_case("bearer") && value.len() > 7,
        };
        if is_secret {
            secret(value);
            out.push_str(MASK);
            rest = &behind[value.len()..];
        }
    }
    out.push_str(rest);
}
