//! A WebSocket on a byte stream, polled by the one task of a session.
//!
//! What a message is, is the library's business. Here is what it reads from and writes to, and what becomes of its buffers:
//! it keeps them as large as the longest message ever was, which in a conversation is a tenth of a megabyte each way, for
//! as long as the session lasts. Between two messages there is nothing in them, so then they are made anew, small. They
//! stay small because what has come is read into a buffer that all sockets of a thread share.

mod frame_boundary;
pub(crate) mod http_head;
pub(crate) mod outbox;
pub(crate) mod pausable_stream;
pub(crate) mod stream;

use std::{
    cell::Cell,
    future::poll_fn,
    io::{self, Read, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::{
    Error as WsError, Message,
    protocol::{CloseFrame, Role, WebSocketConfig, WebSocketContext},
};

use self::frame_boundary::Frames;

/// Most that is read at once: all that a client sent since it was last looked at, and 16 KiB cost least where there is more
/// (field notes libraries.md).
const ROOM_BYTES: usize = 24 * 1024;
/// Longer payloads leave buffers behind that are not kept.
const KEPT_BYTES: usize = 8 * 1024;

thread_local! {
    /// What is read goes here first; empty until something was.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A WebSocket after its handshake.
pub(super) struct Wire<S> {
    io: S,
    context: WebSocketContext,
    role: Role,
    /// What was read and not given to the library yet.
    ahead: Bytes,
    /// How far what was given to it goes.
    frames: Frames,
    /// The longest message written since its buffers were new, bytes.
    longest: usize,
    /// The last message left at once.
    ready: bool,
    /// A close frame came or went.
    closing: bool,
    ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// A WebSocket on a stream of which so much was `read` beyond the handshake.
    pub(super) fn new(io: S, read: Vec<u8>, role: Role, config: WebSocketConfig) -> Self {
        Self {
            io,
            context: WebSocketContext::new(role, Some(config)),
            role,
            ahead: read.into(),
            frames: Frames::default(),
            longest: 0,
            ready: true,
            closing: false,
            ended: false,
        }
    }

    /// The stream under it.
    pub(super) const fn get_ref(&self) -> &S {
        &self.io
    }

    /// The same, to be changed.
    pub(super) const fn get_mut(&mut self) -> &mut S {
        &mut self.io
    }

    /// Ready when a message can be given to it.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WsError>> {
        if self.ready { Poll::Ready(Ok(())) } else { self.poll_flush(cx) }
    }

    /// Takes a message, and writes of it what can be written.
    ///
    /// # Errors
    /// The library's.
    pub(super) fn start_send(&mut self, cx: &mut Context<'_>, message: Message) -> Result<(), WsError> {
        self.longest = self.longest.max(message.len());
        self.closing |= message.is_close();
        let written = self.with(cx, |context, io| context.write(io, message));
        self.ready = written.is_ready();
        match written {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(()),
        }
    }

    /// Writes what it has taken; ready when all of it is written.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WsError>> {
        let flushed = ready!(self.with(cx, |context, io| context.flush(io)));
        self.ready = true;
        Poll::Ready(match flushed {
            // The goodbyes were said.
            Err(WsError::ConnectionClosed) => Ok(()),
            flushed => flushed,
        })
    }

    /// Says goodbye.
    ///
    /// # Errors
    /// The library's.
    pub(super) async fn close(&mut self, frame: CloseFrame) -> Result<(), WsError> {
        poll_fn(|cx| self.poll_ready(cx)).await?;
        let mut message = Some(Message::Close(Some(frame)));
        poll_fn(|cx| Poll::Ready(message.take().map_or(Ok(()), |message| self.start_send(cx, message))))
            .await?;
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    fn with<T>(
        &mut self,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut WebSocketContext, &mut Polled<'_, '_, S>) -> Result<T, WsError>,
    ) -> Poll<Result<T, WsError>> {
        let Self { io, context, ahead, frames, .. } = self;
        match act(context, &mut Polled { io, ahead, frames, cx }) {
            Err(WsError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            done => Poll::Ready(done),
        }
    }

    /// Makes the library's buffers anew if they are large and there is nothing in them: all it was given it has told, no
    /// frame is half read, and all is written. Once there is talk of closing it has more to remember than that.
    fn renew(&mut self, cx: &mut Context<'_>) {
        let large = self.longest.max(self.frames.longest()) > KEPT_BYTES;
        if large
            && self.ready
            && !self.closing
            && self.frames.is_between()
            && matches!(self.poll_flush(cx), Poll::Ready(Ok(())))
        {
            self.context = WebSocketContext::new(self.role, Some(*self.context.get_config()));
            self.frames = Frames::default();
            self.longest = 0;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for Wire<S> {
    type Item = Result<Message, WsError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match self.with(cx, |context, io| context.read(io)) {
            Poll::Pending => {
                self.renew(cx);
                Poll::Pending
            }
            Poll::Ready(Ok(message)) => {
                self.closing |= message.is_close();
                Poll::Ready(Some(Ok(message)))
            }
            Poll::Ready(Err(error)) => {
                self.ended = true;
                let over = matches!(error, WsError::ConnectionClosed | WsError::AlreadyClosed);
                Poll::Ready((!over).then_some(Err(error)))
            }
        }
    }
}

/// The stream as the library wants it: what would have to be waited for is an error.
struct Polled<'a, 'w, S> {
    io: &'a mut S,
    ahead: &'a mut Bytes,
    frames: &'a mut Frames,
    cx: &'a mut Context<'w>,
}

fn at_once<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl<S: AsyncRead + Unpin> Polled<'_, '_, S> {
    /// Reads; what does not fit waits in `ahead`.
    fn fetch(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut room = ROOM.take();
        room.resize(ROOM_BYTES, 0);
        let mut read = ReadBuf::new(&mut room);
        let polled = at_once(Pin::new(&mut *self.io).poll_read(self.cx, &mut read));
        let (now, later) = read.filled().split_at(read.filled().len().min(into.len()));
        into[..now.len()].copy_from_slice(now);
        *self.ahead = Bytes::copy_from_slice(later);
        let count = now.len();
        ROOM.set(room);
        polled.map(|()| count)
    }
}

impl<S: AsyncRead + Unpin> Read for Polled<'_, '_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = if self.ahead.is_empty() {
            self.fetch(into)?
        } else {
            let count = self.ahead.len().min(into.len());
            self.ahead.copy_to_slice(&mut into[..count]);
            if self.ahead.is_empty() {
                // Else its memory would be kept.
                *self.ahead = Bytes::new();
            }
            count
        };
        self.frames.pass(&into[..count]);
        Ok(count)
    }
}

impl<S: AsyncWrite + Unpin> Write for Polled<'_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        at_once(Pin::new(&mut *self.io).poll_write(self.cx, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        at_once(Pin::new(&mut *self.io).poll_flush(self.cx))
    }
}

#[cfg(test)]
mod tests;
