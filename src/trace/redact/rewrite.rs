//! Rewrites a JSON text: masks secrets, replaces long base64 strings, and copies everything else unchanged.

use super::{AudioTreatment, MASK, is_secret_name, wav_head::base64_wav_head};

/// A longer base64 string counts as audio or an image. Ids have up to 64 characters; 10 ms of mu-law have 108.
const BASE64_KEPT_MAX_CHARS: usize = 80;

/// Position in a JSON text. The whole value of a secret name is masked, at any depth.
#[derive(Default)]
struct JsonPosition {
    depth: u32,
    secret_depth: Option<u32>,
    is_after_secret_name: bool,
}

impl JsonPosition {
    const fn is_secret(&self) -> bool {
        self.is_after_secret_name || self.secret_depth.is_some()
    }

    const fn open(&mut self) {
        self.depth += 1;
        if self.is_after_secret_name && self.secret_depth.is_none() {
            self.secret_depth = Some(self.depth);
        }
        self.is_after_secret_name = false;
    }

    fn close(&mut self) {
        if self.secret_depth == Some(self.depth) {
            self.secret_depth = None;
        }
        self.depth = self.depth.saturating_sub(1);
    }
}

pub(super) fn redact_json(text: &str, treatment: AudioTreatment, on_secret: &mut impl FnMut(&str)) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (String::with_capacity(text.len().min(64 * 1024)), 0);
    let mut position = JsonPosition::default();
    while at < bytes.len() {
        let plain =
            bytes[at..].iter().position(|byte| is_structural(*byte, &position)).unwrap_or(bytes.len() - at);
        copy_plain(&mut out, &text[at..at + plain], on_secret);
        at += plain;
        match bytes.get(at) {
            None => break,
            Some(b'"') => at = copy_string(text, at, treatment, &mut position, &mut out, on_secret),
            Some(bracket @ (b'{' | b'[' | b'}' | b']')) => {
                if matches!(bracket, b'{' | b'[') {
                    position.open();
                } else {
                    position.close();
                }
                out.push(char::from(*bracket));
                at += 1;
            }
            Some(_) => {
                out.push('0');
                at += bytes[at..].iter().take_while(|byte| is_number_byte(**byte)).count();
                position.is_after_secret_name = false;
            }
        }
    }
    out
}

fn is_structural(byte: u8, position: &JsonPosition) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']') || (position.is_secret() && is_number_byte(byte))
}

const fn is_number_byte(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.')
}

/// Copies or redacts the string that begins at `at`; returns the index behind it.
fn copy_string(
    text: &str,
    at: usize,
    treatment: AudioTreatment,
    position: &mut JsonPosition,
    out: &mut String,
    on_secret: &mut impl FnMut(&str),
) -> usize {
    let end = string_end(text.as_bytes(), at + 1);
    let (raw, closed) = (&text[at + 1..end], end < text.len());
    let behind = end + usize::from(closed);
    let is_name = text[behind..].trim_start().starts_with(':');
    out.push('"');
    if is_name {
        position.is_after_secret_name = position.secret_depth.is_none() && is_secret_name(&unescape(raw));
        out.push_str(raw);
    } else if position.is_secret() && !raw.is_empty() {
        on_secret(&unescape(raw));
        on_secret(raw);
        out.push_str(MASK);
        position.is_after_secret_name = false;
    } else {
        copy_value(raw, treatment, out, on_secret);
        position.is_after_secret_name = false;
    }
    if closed {
        out.push('"');
    }
    behind
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    // A backslash may be the last byte, so the index may exceed the text.
    at.min(bytes.len())
}

fn unescape(raw: &str) -> String {
    serde_json::from_str(&format!("\"{raw}\"")).unwrap_or_else(|_| raw.to_owned())
}

fn copy_value(raw: &str, treatment: AudioTreatment, out: &mut String, on_secret: &mut impl FnMut(&str)) {
    let (head, body) = split_data_url(raw);
    if body.len() <= BASE64_KEPT_MAX_CHARS || !is_base64(body) {
        return copy_plain(out, raw, on_secret);
    }
    out.push_str(head);
    match treatment {
        AudioTreatment::Keep => out.push_str(body),
        AudioTreatment::Measure => out.push_str(&length_placeholder(body)),
        AudioTreatment::KeepHead => out.push_str(&head_placeholder(body)),
        AudioTreatment::Digest => {
            let length = length_placeholder(body);
            out.push_str(&format!("{} {}]", length.trim_end_matches(']'), fnv1a_digest(body.as_bytes())));
        }
    }
}

/// Splits a data URL into its prefix and its base64; any other text has an empty prefix.
pub(in crate::trace) fn split_data_url(text: &str) -> (&str, &str) {
    let start = text.find(";base64,").filter(|_| text.starts_with("data:")).map_or(0, |at| at + 8);
    text.split_at(start)
}

/// Placeholder of audio, with its length.
pub(in crate::trace) fn length_placeholder(body: &str) -> String {
    let padding = &body[body.trim_end_matches('=').len()..];
    format!("[base64 {}{padding}]", body.len())
}

/// Placeholder of audio that keeps the head of a WAV file: its format and length.
pub(in crate::trace) fn head_placeholder(body: &str) -> String {
    let length = length_placeholder(body);
    match base64_wav_head(body) {
        Some(head) => format!("{} {head}]", length.trim_end_matches(']')),
        None => length,
    }
}

pub(in crate::trace) fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=').as_bytes();
    body.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/-_\\".contains(byte))
}

/// Copies text and masks secrets of the forms `name=value` and `Bearer …`.
fn copy_plain(out: &mut String, text: &str, on_secret: &mut impl FnMut(&str)) {
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
            true => is_secret_name(name) && !value.is_empty(),
            false => name.eq_ignore_ascii_case("bearer") && value.len() > 7,
        };
        if is_secret {
            on_secret(value);
            out.push_str(MASK);
            rest = &behind[value.len()..];
        }
    }
    out.push_str(rest);
}

/// FNV-1a digest, 64 bits: distinguishes contents without storing them.
pub fn fnv1a_digest(bytes: &[u8]) -> String {
    format!("{:016x}", fnv1a(bytes))
}

/// FNV-1a hash, 64 bits.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
