//! Event streams (WHATWG HTML, server-sent events): the data of each event, from pieces that are cut anywhere.
//!
//! Names and ids of events, comments and reconnection times are skipped: the APIs of models put all they say into the data.

use bytes::{Buf as _, BytesMut};

/// Reader of one event stream.
#[derive(Debug, Default)]
pub struct EventStream {
    /// Bytes of the line that is not complete.
    line: BytesMut,
    /// Bytes of `line` that contain no line end.
    searched: usize,
    /// Data of the event so far; `None` before its first line.
    data: Option<String>,
    /// The last line ended with CR, so that a LF now belongs to it.
    skips_line_feed: bool,
    has_begun: bool,
}

impl EventStream {
    /// Bytes that the reader holds.
    pub fn held_bytes(&self) -> usize {
        self.line.len() + self.data.as_ref().map_or(0, String::len)
    }

    /// Takes a piece of the stream. Then [`EventStream::pop`] gives the events.
    pub fn push(&mut self, bytes: &[u8]) {
        self.line.extend_from_slice(bytes);
    }

    /// Data of the next complete event.
    pub fn pop(&mut self) -> Option<String> {
        loop {
            if self.skips_line_feed && !self.line.is_empty() {
                self.skips_line_feed = false;
                if self.line[0] == b'\n' {
                    self.line.advance(1);
                }
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', &self.line[self.searched..]) else {
                self.searched = self.line.len();
                return None;
            };
            let line = self.line.split_to(self.searched + end);
            self.searched = 0;
            self.skips_line_feed = self.line[0] == b'\r';
            self.line.advance(1);
            if let Some(data) = self.take_line(&line) {
                return Some(data);
            }
        }
    }

    /// The event that the end of the stream completes. Servers may leave out the last empty line.
    pub fn finish(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        self.searched = 0;
        self.take_line(&line).or_else(|| self.data.take())
    }

    /// Takes a line without its end. Returns the data of the event that it completes.
    fn take_line(&mut self, line: &[u8]) -> Option<String> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let line = if is_first { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if line.is_empty() {
            return self.data.take();
        }
        let rest = line.strip_prefix(b"data")?;
        let value = if rest.is_empty() { rest } else { rest.strip_prefix(b":")? };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &mut self.data {
            Some(data) => data.push('\n'),
            None => self.data = Some(String::with_capacity(value.len())),
        }
        if let Some(data) = &mut self.data {
            data.push_str(&String::from_utf8_lossy(value));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Events of a stream that comes in these pieces.
    fn events<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<String> {
        let mut stream = EventStream::default();
        let mut events = Vec::new();
        for piece in pieces {
            stream.push(piece);
            events.extend(std::iter::from_fn(|| stream.pop()));
        }
        events.extend(stream.finish());
        assert_eq!(stream.held_bytes(), 0);
        events
    }

    const STREAM: &str = "\u{feff}: comment\r\nevent: x\r\ndata: {\"a\":1}\r\n\r\ndata:two\rdata: lines\r\rid: 7\n\n\
                          data\n\ndata:  spaced ü\n\ndatabase: no\nretry: 5\n\n: end\ndata: [DONE]";

    #[test]
    fn every_line_end_comment_and_field_is_read() {
        assert_eq!(events([STREAM.as_bytes()]), ["{\"a\":1}", "two\nlines", "", " spaced ü", "[DONE]"]);
    }

    #[test]
    fn stream_split_at_any_byte_has_the_same_events() {
        let whole = events([STREAM.as_bytes()]);
        for at in 0..=STREAM.len() {
            let (start, end) = STREAM.as_bytes().split_at(at);
            assert_eq!(events([start, end]), whole, "split at {at}");
        }
        assert_eq!(events(STREAM.as_bytes().chunks(1)), whole);
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_the_events(
            parts in prop::collection::vec(
                prop::sample::select(vec!["data: a", "data:b", "data", ": c", "event: d", "\n", "\r", "\r\n", "é", "\n\n"]),
                0..40,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let stream = parts.concat();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([stream.len()]) {
                pieces.push(&stream.as_bytes()[from..cut]);
                from = cut;
            }
            prop_assert_eq!(events(pieces), events([stream.as_bytes()]));
        }
    }
}
