//! Event streams (WHATWG HTML, server-sent events): the data of each event, from pieces that are cut anywhere.
//!
//! Names and ids of events, comments and reconnection times are skipped: the APIs of models put all they say into the data.

use bytes::{Buf as _, BytesMut};

/// Name of the field with the data.
const FIELD_DATA: &[u8] = b"data";

/// Reader of one event stream.
#[derive(Debug, Default)]
pub struct EventStream {
    /// Bytes of the line that is not complete.
    line: BytesMut,
    /// Bytes of `line` that contain no line end.
    searched: usize,
    /// The last line ended with CR, so that a LF now belongs to it.
    skips_line_feed: bool,
    event: UnfinishedEvent,
}

/// The event whose lines come now.
#[derive(Debug, Default)]
struct UnfinishedEvent {
    /// Its data so far; `None` before the first line of data.
    data: Option<String>,
    /// Bytes since the last event, but for the first line of data.
    idle_bytes: usize,
    has_begun: bool,
}

impl EventStream {
    /// Bytes that the reader holds.
    pub fn held_bytes(&self) -> usize {
        self.line.len() + self.event.data.as_ref().map_or(0, String::len)
    }

    /// Bytes since the last event that are not part of one: comments, other fields, and all lines of data after the first. Model
    /// servers send only one line of data.
    pub fn idle_bytes(&self) -> usize {
        let is_data = self.event.data.is_none() && self.line.starts_with(FIELD_DATA);
        self.event.idle_bytes + if is_data { 0 } else { self.line.len() }
    }

    /// Takes a piece of the stream. Then [`EventStream::pop`] gives the events.
    pub fn push(&mut self, bytes: &[u8]) {
        self.line.extend_from_slice(bytes);
    }

    /// Data of the next complete event.
    pub fn pop(&mut self) -> Option<String> {
        let mut start = 0;
        let data = loop {
            let rest = &self.line[start..];
            if self.skips_line_feed && !rest.is_empty() {
                self.skips_line_feed = false;
                start += usize::from(rest[0] == b'\n');
            }
            let rest = &self.line[start..];
            let Some(found) = memchr::memchr2(b'\n', b'\r', &rest[self.searched..]) else {
                self.searched = rest.len();
                break None;
            };
            let end = self.searched + found;
            self.searched = 0;
            self.skips_line_feed = rest[end] == b'\r';
            start += end + 1;
            if let Some(data) = self.event.take_line(&rest[..end]) {
                break Some(data);
            }
        };
        self.line.advance(start);
        data
    }

    /// The event that the end of the stream completes. Servers may leave out the last empty line.
    pub fn finish(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        self.searched = 0;
        self.event.take_line(&line).or_else(|| self.event.data.take())
    }
}

impl UnfinishedEvent {
    /// Takes a line without its end. Returns the data of the event that it completes.
    fn take_line(&mut self, line: &[u8]) -> Option<String> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let line = if is_first { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if line.is_empty() {
            self.idle_bytes = if self.data.is_some() { 0 } else { self.idle_bytes + 1 };
            return self.data.take();
        }
        let value = data_of(line);
        if value.is_none() || self.data.is_some() {
            self.idle_bytes += line.len() + 1;
        }
        let value = value?;
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

/// The value of a line of data.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(FIELD_DATA)?;
    let value = if rest.is_empty() { rest } else { rest.strip_prefix(b":")? };
    Some(value.strip_prefix(b" ").unwrap_or(value))
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

    /// The count of bytes without an event after this stream.
    fn idle_bytes(stream: &str) -> usize {
        let mut reader = EventStream::default();
        reader.push(stream.as_bytes());
        while reader.pop().is_some() {}
        reader.idle_bytes()
    }

    #[test]
    fn bytes_that_bring_no_event_are_counted() {
        for (unit, bytes) in [(":\n", 2), ("\n", 1), ("id: 7\r\n", 6), ("dat", 3), ("data: x\n", 8)] {
            let idle = idle_bytes(&unit.repeat(1000));
            assert!(idle > 998 * bytes && idle <= 1000 * bytes, "{unit:?}: {idle}");
        }
        let long = format!("data: {}", "x".repeat(100_000));
        assert_eq!(idle_bytes(&long), 0, "the length of an event has a bound of its own");
        assert_eq!(idle_bytes(&format!(": ping\n{long}\n\n: ping\n")), 7, "an event ends the count");
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
