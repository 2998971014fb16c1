//! The tag in front of an mp3 file: title and chapters (ID3 2.4, and its "Chapter Frame Addendum").
//!
//! The length of a tag depends on the titles alone, so that it can be written first and its times filled in at the end.

/// A chapter of an audio file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chapter {
    /// Title.
    pub title: String,
    /// Start, ms.
    pub start_ms: u32,
    /// End, ms.
    pub end_ms: u32,
}

/// Stands for unknown positions in bytes; the times count.
const NO_OFFSET: [u8; 8] = [0xff; 8];
/// Text in UTF-8.
const UTF_8: u8 = 3;
/// Flags of a table of contents: it is the top one, and its chapters are in order.
const TOP_AND_ORDERED: u8 = 3;
/// Most chapters of a table of contents, whose number is a byte.
pub const CHAPTERS_MAX: usize = 255;
/// Longest title, bytes.
const TITLE_MAX_BYTES: usize = 250;

/// The tag of a file with these chapters; the first 255 count.
pub fn tag(title: &str, chapters: &[Chapter]) -> Vec<u8> {
    let chapters = &chapters[..chapters.len().min(CHAPTERS_MAX)];
    let id = |number: usize| format!("ch{number}\0");
    let mut contents = [&b"toc\0"[..], &[TOP_AND_ORDERED, chapters.len() as u8]].concat();
    contents.extend((0..chapters.len()).flat_map(|number| id(number).into_bytes()));
    let chapter = |(number, chapter): (usize, &Chapter)| {
        let times = [chapter.start_ms.to_be_bytes(), chapter.end_ms.to_be_bytes()].concat();
        frame(b"CHAP", &[id(number).as_bytes(), &times, &NO_OFFSET, &title_frame(&chapter.title)].concat())
    };
    let frames = [
        title_frame(title),
        frame(b"CTOC", &contents),
        chapters.iter().enumerate().flat_map(chapter).collect(),
    ];
    let frames = frames.concat();
    [&b"ID3\x04\0\0"[..], &syncsafe(frames.len()), &frames].concat()
}

fn title_frame(title: &str) -> Vec<u8> {
    let mut end = title.len().min(TITLE_MAX_BYTES);
    while !title.is_char_boundary(end) {
        end -= 1;
    }
    frame(b"TIT2", &[&[UTF_8], &title.as_bytes()[..end]].concat())
}

fn frame(id: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [&id[..], &syncsafe(body.len()), &[0, 0], body].concat()
}

/// A length in four bytes of seven bits.
fn syncsafe(length: usize) -> [u8; 4] {
    [21, 14, 7, 0].map(|shift| ((length >> shift) & 0x7f) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_has_titles_and_times_and_its_length_does_not_depend_on_times() {
        let chapter = |title: &str, start_ms, end_ms| Chapter { title: title.into(), start_ms, end_ms };
        let of_times = |a: u32, b: u32| tag("Buch", &[chapter("Öl", 0, a), chapter(&"x".repeat(300), a, b)]);
        let written = of_times(1000, 0x0102_0304);
        assert_eq!(written.len(), of_times(0, 0).len());
        assert_eq!(written[..6], *b"ID3\x04\0\0");
        let length = written[6..10].iter().fold(0, |length, byte| (length << 7) | usize::from(*byte));
        assert_eq!(length, written.len() - 10);
        let has = |bytes: &[u8]| written.windows(bytes.len()).any(|window| window == bytes);
        assert!(has(b"TIT2\0\0\0\x05\0\0\x03Buch") && has(b"CTOC\0\0\0\x0e\0\0toc\0\x03\x02ch0\0ch1\0"));
        assert!(has(
            b"ch0\0\0\0\0\0\0\0\x03\xe8\xff\xff\xff\xff\xff\xff\xff\xffTIT2\0\0\0\x04\0\0\x03\xc3\x96l"
        ));
        assert!(has(b"ch1\0\0\0\x03\xe8\x01\x02\x03\x04"));
    }
}
