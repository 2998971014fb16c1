//! A client's stream before its upgrade: gives hyper one request at a time, and watches the client meanwhile.
//!
//! hyper notices that a client has gone only while it holds no unread bytes, so the bytes of a next request would hide it, and
//! the work for the request would go on. Here they wait until the request is answered, within [`NEXT_REQUEST_MAX_BYTES`]. The
//! stream also finds lines that end without CR, which hyper accepts and proxies may read differently. It times out when a head is
//! not complete in time, and when no further request follows an answer.

mod framing;
#[cfg(test)]
mod tests;

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

pub(in crate::server) use self::framing::BodyFraming;
use self::framing::HeadScan;
use crate::server::websocket::stream::ClientStream;

/// Read size, bytes.
const READ_BYTES: usize = 4096;
/// Most bytes after a request that is being answered. No known client sends its next request so early.
const NEXT_REQUEST_MAX_BYTES: usize = 16 * 1024;

/// How long a connection stays open after an answer: longer than proxies keep theirs, usually 60 s, so that they close first and
/// send no request into a closing connection.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(75);

/// Longest times between the bytes of a connection's requests.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct RequestTimeouts {
    /// For a head.
    pub(in crate::server) head: Duration,
    /// Between an answer and the next head.
    pub(in crate::server) between: Duration,
}

impl RequestTimeouts {
    /// With this time for a handshake: [`KEEP_ALIVE_TIMEOUT`], but less where handshakes must be faster than usual by far.
    pub(in crate::server) fn new(handshake: Duration) -> Self {
        Self { head: handshake, between: KEEP_ALIVE_TIMEOUT.min(handshake * 75) }
    }
}

/// A client's stream before its upgrade.
pub(crate) struct RequestStream<S = ClientStream> {
    io: S,
    gate: Gate,
    /// Bytes that hyper has not got yet.
    waiting: Vec<u8>,
    timeouts: RequestTimeouts,
    /// The awaited bytes, and the timer for them.
    timer: Option<(Awaited, Pin<Box<Sleep>>)>,
}

/// Bytes that the stream waits for between requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    FirstRequest,
    NextRequest,
    RestOfHead,
}

/// Says which part of a request the stream is at. Clones share it.
#[derive(Clone, Default)]
pub(in crate::server) struct Gate(Arc<Mutex<GateState>>);

#[derive(Default)]
struct GateState {
    part: Part,
    has_bare_lf: bool,
    is_answered: bool,
    /// A request has come before.
    is_in_use: bool,
    reader: Option<Waker>,
}

/// Part of a request.
enum Part {
    Head(HeadScan),
    /// The head is complete; the server has not looked at it yet.
    HeadRead,
    Body(BodyFraming),
    /// The request is complete and is being answered.
    Answering,
    /// Another protocol follows.
    Upgraded,
}

impl Default for Part {
    fn default() -> Self {
        Self::Head(HeadScan::default())
    }
}

/// A request is being answered. Dropping it lets the next one in.
pub(in crate::server) struct Answering(Gate);

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_answered = true;
        if matches!(state.part, Part::Answering) {
            state.part = Part::default();
        }
        state.wake_reader();
    }
}

impl Gate {
    /// Begins to answer the request whose head was read. The body follows.
    pub(in crate::server) fn answer(&self, body: BodyFraming) -> Answering {
        let mut state = self.lock();
        state.part = Part::Body(body);
        (state.is_answered, state.is_in_use) = (false, true);
        state.end_complete_body();
        state.wake_reader();
        Answering(self.clone())
    }

    /// The answer switches to another protocol: nothing is held back any more.
    pub(in crate::server) fn upgrade(&self) {
        let mut state = self.lock();
        state.part = Part::Upgraded;
        state.wake_reader();
    }

    /// True if a line of the last head ended without CR.
    pub(in crate::server) fn has_bare_lf(&self) -> bool {
        self.lock().has_bare_lf
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        // A panic cannot leave the state inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GateState {
    /// How many of the next bytes hyper may read.
    fn admit(&mut self, bytes: &[u8]) -> usize {
        match &mut self.part {
            Part::Head(scan) => {
                let length = scan.advance(bytes);
                self.has_bare_lf = scan.has_bare_lf();
                if scan.is_complete() {
                    self.part = Part::HeadRead;
                }
                length
            }
            Part::Body(framing) => {
                let length = framing.advance(bytes);
                self.end_complete_body();
                length
            }
            Part::HeadRead | Part::Answering => 0,
            Part::Upgraded => bytes.len(),
        }
    }

    /// The bytes that the stream waits for; `None` inside a request.
    fn awaited(&self) -> Option<Awaited> {
        match &self.part {
            Part::Head(scan) if scan.has_begun() => Some(Awaited::RestOfHead),
            Part::Head(_) if self.is_in_use => Some(Awaited::NextRequest),
            Part::Head(_) => Some(Awaited::FirstRequest),
            _ => None,
        }
    }

    fn end_complete_body(&mut self) {
        if matches!(&self.part, Part::Body(framing) if framing.is_complete()) {
            self.part = if self.is_answered { Part::default() } else { Part::Answering };
        }
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> RequestStream<S> {
    /// A stream whose gate says which part of a request it is at.
    pub(in crate::server) const fn new(io: S, gate: Gate, timeouts: RequestTimeouts) -> Self {
        Self { io, gate, waiting: Vec::new(), timeouts, timer: None }
    }

    /// The stream, and the bytes that hyper has not got.
    pub(in crate::server) fn into_parts(self) -> (S, Vec<u8>) {
        (self.io, self.waiting)
    }

    /// Times out if what is waited for does not come.
    fn poll_timeout(&mut self, cx: &mut Context<'_>, awaited: Option<Awaited>) -> io::Result<()> {
        if self.timer.as_ref().map(|(awaited, _)| *awaited) != awaited {
            let RequestTimeouts { head, between } = self.timeouts;
            let limit = |awaited| if awaited == Awaited::NextRequest { between } else { head };
            self.timer = awaited.map(|awaited| (awaited, Box::pin(sleep(limit(awaited)))));
        }
        match self.timer.as_mut().map(|(_, timer)| timer.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Err(io::ErrorKind::TimedOut.into()),
            Some(Poll::Pending) | None => Ok(()),
        }
    }

    /// Reads more; 0 is the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut buffer = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut buffer);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
        self.waiting.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for RequestStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let gate = this.gate.clone();
            let mut state = gate.lock();
            match state.part {
                Part::Head(_) | Part::Body(_) | Part::Upgraded if !this.waiting.is_empty() => {
                    let most = this.waiting.len().min(buf.remaining());
                    let length = state.admit(&this.waiting[..most]);
                    buf.put_slice(&this.waiting[..length]);
                    this.waiting.drain(..length);
                    return Poll::Ready(Ok(()));
                }
                Part::Head(_) | Part::Body(_) | Part::Upgraded => {}
                Part::HeadRead => {
                    state.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Part::Answering if this.waiting.len() > NEXT_REQUEST_MAX_BYTES => {
                    return Poll::Ready(Err(io::Error::other(
                        "the client sent requests without waiting for answers",
                    )));
                }
                Part::Answering => state.reader = Some(cx.waker().clone()),
            }
            let awaited = state.awaited();
            drop(state);
            let more = this.poll_more(cx);
            if more.is_pending() {
                this.poll_timeout(cx, awaited)?;
            }
            if ready!(more)? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for RequestStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
