//! Ogg: one audio stream at a time, and streams one after another (RFC 3533, RFC 7845, Vorbis I specification §A.2).
//!
//! Positions of pages tell gaps and the padding at the end. Recorders write all kinds of numbers there, so a position counts only
//! if the ones before agreed with the length of the packets.

mod page;
mod position;
mod stream;

use std::collections::VecDeque;

use bytes::Bytes;
use symphonia::core::errors::Error;

use self::page::{Page, Pages};
use self::stream::{OggStream, Progress};
use crate::media::decode::packet::{Demuxer, Event, Stream};

/// Most streams one after another, as a radio recording has for each song. Each starts a decoder.
const STREAMS_MAX: usize = 256;

/// The pages of a file.
#[derive(Default)]
pub(in crate::media::decode) struct Ogg {
    pages: Pages,
    stream: Option<OggStream>,
    is_last_page_first: bool,
    /// The packets of the last page.
    events: VecDeque<Event>,
    page_count: usize,
    streams: usize,
    is_ended: bool,
    /// Name of a stream whose codec is unknown.
    unsupported: Option<&'static str>,
}

impl Ogg {
    pub(in crate::media::decode) fn new(file: Bytes) -> Self {
        Self { pages: Pages::new(file), ..Self::default() }
    }

    fn take(&mut self, page: &Page) -> Result<(), Error> {
        self.page_count += 1;
        if page.is_first() && !self.is_last_page_first {
            self.stream = None;
        }
        self.is_last_page_first = page.is_first();
        if page.is_first() {
            return self.start_stream(page);
        }
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.serial == page.serial) else {
            return Ok(());
        };
        let has_gap = std::mem::take(&mut self.pages.has_gap);
        if let Progress::Stream(mut format) = stream.take(page, has_gap, &mut self.events)? {
            format.duration = stream.duration(&self.pages.file);
            self.events.push_front(Event::Stream(*format));
        }
        Ok(())
    }

    /// Chooses the first stream whose codec is known.
    fn start_stream(&mut self, page: &Page) -> Result<(), Error> {
        let identification = page.packets().next().filter(|(_, is_complete)| *is_complete);
        let Some((identification, _)) = identification.filter(|_| self.stream.is_none()) else {
            return Ok(());
        };
        self.unsupported = self.unsupported.or_else(|| stream::unsupported_name(&identification));
        self.stream = OggStream::new(page.serial, identification);
        self.streams += usize::from(self.stream.is_some());
        match self.streams > STREAMS_MAX {
            true => Err(Error::LimitError("more streams in a row than 256")),
            false => Ok(()),
        }
    }

    /// The state at the end of the file.
    fn finish(&mut self) -> Result<Option<Event>, Error> {
        self.is_ended = true;
        if self.page_count == 0 {
            return Err(Error::DecodeError("no page is complete"));
        }
        if let Some(name) = self.unsupported.filter(|_| self.streams == 0) {
            return Ok(Some(Event::Stream(Stream::unsupported(name))));
        }
        let is_cut_off = self.pages.has_gap || self.stream.as_ref().is_some_and(OggStream::is_in_packet);
        Ok(is_cut_off.then_some(Event::Damage("the last page is cut off")))
    }
}

impl Demuxer for Ogg {
    fn next(&mut self) -> Result<Option<Event>, Error> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        if self.is_ended {
            return Ok(None);
        }
        let Some(page) = self.pages.next()? else { return self.finish() };
        self.take(&page)?;
        Ok(Some(self.events.pop_front().unwrap_or(Event::Other)))
    }
}
