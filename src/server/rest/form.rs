//! Forms with uploads, `multipart/form-data` (RFC 7578, RFC 2046 §5.1), in a body that was received.
//!
//! The parser looks at every byte once, as it comes. The text before the first part and the head of each part are bounded, so
//! that a body without the boundary is refused after [`HEAD_MAX_BYTES`].

use std::ops::Range;

use bytes::Bytes;
use memchr::memmem::{Finder, find};

use crate::spelling::client::decode_percent;

/// Longest text before the first part, and longest head of a part, bytes.
const HEAD_MAX_BYTES: usize = 16 * 1024;
/// Longest boundary (RFC 2046 §5.1.1).
const BOUNDARY_MAX_CHARS: usize = 70;
/// Most parts of a form.
const PARTS_MAX: usize = 256;
/// Longest body whose first boundary is checked, bytes: it may follow the longest preamble.
pub(super) const START_BYTES: usize = HEAD_MAX_BYTES + BOUNDARY_MAX_CHARS + 4;

/// One field of a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its name; empty if it has none.
    pub(super) name: String,
    /// Name of its file; `None` for a field that is no file.
    pub(super) file_name: Option<String>,
    pub(super) contents: Bytes,
}

/// The boundary that a content type names.
pub(super) fn boundary_of(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameter(parameters, "boundary")?;
    (1..=BOUNDARY_MAX_CHARS).contains(&boundary.len()).then_some(boundary)
}

/// The first boundary line in the start of a body; the body is no form without one.
///
/// # Errors
/// The fault of the form, in words.
fn find_start(start: &[u8], boundary: &str) -> Result<usize, String> {
    let delimiter = format!("--{boundary}");
    if start.starts_with(delimiter.as_bytes()) {
        return Ok(delimiter.len());
    }
    let line = format!("\r\n{delimiter}");
    let searched = &start[..start.len().min(HEAD_MAX_BYTES + line.len())];
    let found = find(searched, line.as_bytes());
    found.map(|at| at + line.len()).ok_or_else(|| {
        format!("no line with the boundary {boundary:?} in the first {} KiB", HEAD_MAX_BYTES >> 10)
    })
}

/// The parts of a complete form.
///
/// # Errors
/// The fault of the form, in words.
pub(super) fn parts(body: &Bytes, boundary: &str) -> Result<Vec<Part>, String> {
    let mut scan = FormScan::new(boundary);
    scan.advance(body)?;
    scan.finish(body)
}

/// Finds the parts of a form while it is received, so that a malformed form is refused at its first fault.
pub(super) struct FormScan {
    boundary: String,
    /// The line end and the boundary that end a part.
    delimiter: Finder<'static>,
    place: Place,
    /// Heads and contents of the parts so far.
    parts: Vec<(Range<usize>, Range<usize>)>,
}

/// Place in a form, with the position of its first byte.
enum Place {
    /// Before the first boundary.
    Preamble,
    /// After a boundary.
    Head(usize),
    /// After a head: the head, and the position at which the search for the end of the part continues.
    Contents(Range<usize>, usize),
    End,
}

impl FormScan {
    pub(super) fn new(boundary: &str) -> Self {
        let delimiter = Finder::new(format!("\r\n--{boundary}").as_bytes()).into_owned();
        Self { boundary: boundary.to_owned(), delimiter, place: Place::Preamble, parts: Vec::new() }
    }

    /// Parses the part of the form that has been received.
    ///
    /// # Errors
    /// The fault of the form, in words.
    pub(super) fn advance(&mut self, body: &[u8]) -> Result<(), String> {
        while let Some(next) = self.next_place(body)? {
            self.place = next;
        }
        Ok(())
    }

    /// The place after this one; `None` if more bytes are needed.
    fn next_place(&mut self, body: &[u8]) -> Result<Option<Place>, String> {
        match &mut self.place {
            Place::Preamble => match find_start(body, &self.boundary) {
                Err(_) if body.len() < START_BYTES => Ok(None),
                found => found.map(|at| Some(Place::Head(at))),
            },
            Place::Head(at) if body[*at..].starts_with(b"--") => Ok(Some(Place::End)),
            Place::Head(at) if body[*at..] == *b"-" => Ok(None),
            Place::Head(_) if self.parts.len() == PARTS_MAX => Err(format!("more than {PARTS_MAX} fields")),
            Place::Head(at) => {
                let head = head_range(body, *at)?;
                Ok(head.map(|head| Place::Contents(head.clone(), head.end)))
            }
            Place::Contents(head, searched) => {
                let Some(found) = self.delimiter.find(&body[*searched..]) else {
                    let whole = body.len().saturating_sub(self.delimiter.needle().len() - 1);
                    *searched = whole.max(*searched);
                    return Ok(None);
                };
                let (start, end) = (head.end + 2, *searched + found);
                let head = head.clone();
                // A part without contents may end with the line that ends its head.
                self.parts.push((head, start.min(end)..end));
                Ok(Some(Place::Head(end + self.delimiter.needle().len())))
            }
            Place::End => Ok(None),
        }
    }

    /// The parts of the complete form.
    ///
    /// # Errors
    /// The fault of the form, in words.
    pub(super) fn finish(self, body: &Bytes) -> Result<Vec<Part>, String> {
        match self.place {
            Place::Preamble => return find_start(body, &self.boundary).map(|_| Vec::new()),
            Place::Head(_) | Place::Contents(..) => {
                return Err("the last part has no end: the form was cut off".to_owned());
            }
            Place::End => {}
        }
        let part = |(head, contents): (Range<usize>, Range<usize>)| {
            let head = &body[head];
            let name = disposition(head, "name").unwrap_or_default();
            let file_name = extended_name(head).or_else(|| disposition(head, "filename"));
            Part { name, file_name, contents: body.slice(contents) }
        };
        Ok(self.parts.into_iter().map(part).collect())
    }
}

/// Range of the head of the part whose boundary ends at `at`; `None` if it is not complete. The head's last line end follows
/// the range.
fn head_range(body: &[u8], at: usize) -> Result<Option<Range<usize>>, String> {
    let rest = &body[at..];
    let padding = rest.iter().take_while(|byte| [b' ', b'\t'].contains(byte)).count();
    let begun = &rest[padding..rest.len().min(padding + 2)];
    if padding > HEAD_MAX_BYTES || !b"\r\n".starts_with(begun) {
        return Err("a boundary is not followed by a line end".to_owned());
    }
    let start = at + padding;
    let searched = &body[start..body.len().min(start + HEAD_MAX_BYTES + 4)];
    match find(searched, b"\r\n\r\n") {
        Some(length) => Ok(Some(start..start + length + 2)),
        None if searched.len() < HEAD_MAX_BYTES + 4 => Ok(None),
        None => Err(format!("the head of a part is longer than {} KiB", HEAD_MAX_BYTES >> 10)),
    }
}

/// A parameter of the content disposition in the head of a part.
fn disposition(head: &[u8], name: &str) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let disposition = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    parameter(disposition?.split_once(';')?.1, name)
}

/// The name of a file with its character set and language, as in `utf-8''caf%C3%A9.wav` (RFC 8187 §3.2).
fn extended_name(head: &[u8]) -> Option<String> {
    disposition(head, "filename*").map(|value| match value.splitn(3, '\'').nth(2) {
        Some(name) => decode_percent(name),
        None => value,
    })
}

/// The value of a parameter, quoted or not (RFC 9110 §5.6.6).
fn parameter(parameters: &str, name: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (key, value) = rest.split_once('=')?;
        let (value, after) = split_value(value.trim_start());
        if key.trim_matches([' ', '\t', ';']).eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = after;
    }
}

/// A value, and what follows it.
fn split_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim_end().to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            letter => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
        let parts = parts(&Bytes::copy_from_slice(body), "b")?;
        Ok(parts.into_iter().map(|part| (part.name, part.contents.to_vec())).collect())
    }

    #[test]
    fn parts_are_read_in_order() {
        let body = b"preamble\r\n--b  \r\nContent-Disposition: form-data; name=\"file\"; filename=\"a;b\\\".mp3\"\r\n\
            Content-Type: audio/mpeg\r\n\r\n\r\nraw --b\r\n-\r\n--b\r\ncontent-disposition:form-data;filename=x; name=model\r\n\r\n\
            m\r\n--b\r\n\r\n\r\n--b\r\nX: y\r\n\r\nz\r\n--b--\r\nepilogue";
        let expected = [("file", "\r\nraw --b\r\n-"), ("model", "m"), ("", ""), ("", "z")]
            .map(|(name, contents)| (name.to_owned(), contents.as_bytes().to_vec()));
        assert_eq!(read(body), Ok(expected.to_vec()));
        assert_eq!(read(b"--b--"), Ok(Vec::new()));
        let files =
            parts(&Bytes::from_static(body), "b").unwrap().into_iter().map(|part| part.file_name.is_some());
        assert_eq!(files.collect::<Vec<_>>(), [true, true, false, false]);
    }

    #[test]
    fn file_names_are_decoded() {
        for (parameters, name) in [
            ("filename=\"é.wav\"", "é.wav"),
            ("filename*=utf-8''caf%C3%A9%20x.wav", "café x.wav"),
            ("filename=\"cafe.wav\"; filename*=UTF-8'en'caf%C3%A9.wav", "café.wav"),
            ("filename*=plain.wav", "plain.wav"),
        ] {
            let body =
                format!("--b\r\nContent-Disposition: form-data; name=x; {parameters}\r\n\r\n\r\n--b--");
            let parts = parts(&Bytes::from(body), "b").unwrap();
            assert_eq!(parts[0].file_name.as_deref(), Some(name), "{parameters}");
        }
    }

    #[test]
    fn broken_forms_are_errors() {
        let long_head = [b"--b\r\nX: ".as_slice(), &[b'x'; HEAD_MAX_BYTES], b"\r\n\r\n\r\n--b--"].concat();
        let many = [b"--b\r\n\r\n\r\n".repeat(PARTS_MAX + 1), b"--b--".to_vec()].concat();
        for (body, words) in [
            (b"".as_slice(), "boundary"),
            (&[b'x'; 100_000], "boundary"),
            (b"--b", "cut off"),
            (b"--b x", "line end"),
            (b"--b\r\nX: y\r\n\r\nz", "cut off"),
            (b"--b\r\nX: y", "cut off"),
            (b"--bc\r\n\r\n\r\n--b--", "line end"),
            (&long_head, "longer than 16 KiB"),
            (&many, "256 fields"),
        ] {
            let problem = read(body).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
    }

    #[test]
    fn fault_is_found_where_it_is() {
        let part = "\r\n--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n";
        let long_head = [&part[..part.len() - 4], "X: ", &"x".repeat(HEAD_MAX_BYTES)].concat();
        for (fault, words) in [(long_head.as_str(), "longer than 16 KiB"), ("\r\n--b x", "line end")] {
            let before = format!("{}{}{part}", &part[2..], "x".repeat(100_000));
            let form = format!("{before}{fault}{}", "x".repeat(1000));
            let mut scan = FormScan::new("b");
            let found = (0..form.len())
                .step_by(7)
                .find_map(|at| Some((at, scan.advance(&form.as_bytes()[..at]).err()?)));
            let (at, problem) = found.unwrap();
            assert!(problem.contains(words) && at <= before.len() + fault.len() + 16, "{problem} at {at}");
        }
    }

    proptest::proptest! {
        #![proptest_config(crate::property_config::property_config(256))]

        #[test]
        fn form_in_pieces_has_the_same_parts(
            pieces in proptest::collection::vec(
                proptest::sample::select(vec!["\r\n--b", "\r\n", "--", "x", ": ", "\r\n\r\n", "Content-Disposition: form-data; name=y"]),
                0..30,
            ),
            step in 1_usize..9,
        ) {
            let body = Bytes::from(format!("--b\r\n{}", pieces.concat()));
            let mut scan = FormScan::new("b");
            let advanced = (0..=body.len()).step_by(step).try_for_each(|at| scan.advance(&body[..at]));
            let in_pieces = advanced.and_then(|()| scan.advance(&body)).and_then(|()| scan.finish(&body));
            proptest::prop_assert_eq!(in_pieces, parts(&body, "b"));
        }
    }

    #[test]
    fn boundary_is_a_parameter_of_the_content_type() {
        let of = |content_type| boundary_of(content_type);
        assert_eq!(of("multipart/form-data; boundary=a").as_deref(), Some("a"));
        assert_eq!(of("Multipart/Form-Data;charset=x; Boundary=\"a b;c\"; x=y").as_deref(), Some("a b;c"));
        let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
        for wrong in [
            "",
            "multipart/form-data",
            "multipart/mixed; boundary=a",
            "multipart/form-data; boundary=",
            &long,
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
