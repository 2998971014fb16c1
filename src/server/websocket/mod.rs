//! A WebSocket on a byte stream, polled by the session's task.
//!
//! The library parses and formats messages. This wrapper feeds it bytes and bounds its buffers: the library keeps
//! buffers as long as the longest message ever seen, which in a conversation is 100 KB each way. Between two messages
//! those buffers are empty, so this wrapper replaces them with small ones. They stay small because sockets read into
//! a buffer that they hold only until the library has taken what was read.
//!
//! A protocol on bare TCP has [`tcp_framing`] in place of the library ([`wire`]); everything else is the same for both.

mod frame_boundary;
pub(crate) mod http_head;
pub(crate) mod outbox;
pub(crate) mod pausable_stream;
pub(crate) mod session_socket;
pub(crate) mod stream;
pub(crate) mod tcp_framing;
mod wire;

use std::{
    cell::Cell,
    future::poll_fn,
    io::{self, Read, Write},
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::{
    Error as WsError, Message,
    protocol::{
        CloseFrame, Role, WebSocketConfig, WebSocketContext,
        frame::{
            Frame,
            coding::{Data, OpCode},
        },
    },
};

use self::{
    frame_boundary::{BAD_GATEWAY, FrameBoundary, HEADER_MAX_BYTES},
    tcp_framing::TcpFraming,
    wire::Wire,
};
use super::memory::{Held, MemoryShare};
use crate::{
    net::{Traffic, turn::wake_after_others},
    spelling::client::tcp::TcpProtocol,
};

/// Size of one read: covers everything a client sends between two scheduled reads. For bulk data, reads of 16 KiB cost
/// least (mappings/notes/libraries.md#websocket).
const READ_BUFFER_BYTES: usize = 24 * 1024;
/// Most bytes that one poll reads, before other sessions get their turn: more than one second of a model's speech, so that an
/// ordinary message takes one poll.
const POLL_MAX_BYTES: usize = 160 * 1024;
/// Extra weight of each read of the library: a peer may send records and frames of a few bytes that mean nothing.
const READ_WEIGHT: usize = 64;
/// Buffers that held longer payloads are replaced.
const RETAINED_BUFFER_BYTES: usize = 8 * 1024;
/// Room for answers to pings that the peer does not read, beside the one message that is being written, bytes.
const PONG_ROOM_BYTES: usize = 4 * 1024;
/// Longer messages are sent in fragments, bytes: the library would mask them, and move what is not written, in one go. Ordinary
/// messages have up to 3 MB, and not every server takes fragments.
const WHOLE_MAX_BYTES: usize = 4 * 1024 * 1024;
const FRAGMENT_BYTES: usize = 128 * 1024;
/// Messages that follow each other are written together up to this memory. An answer's announcement and its first audio fit.
const JOINED_WRITE_BYTES: usize = 16 * 1024;

thread_local! {
    /// A read buffer that no socket of the thread holds; empty if there is none.
    static SPARE_READ_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes that were read and not yet given to the library. While there are any, they stay in the buffer of the read.
#[derive(Default)]
struct ReadAhead {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// The longest messages that a peer may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageMax {
    /// Any message, bytes. A longer one ends the connection with close code 1009.
    pub(crate) bytes: usize,
    /// A binary message, bytes. A longer one is received as zeros of that length, which are not held in memory while it comes.
    pub(crate) binary_bytes: usize,
}

/// A WebSocket after its handshake, or a bare TCP connection.
pub struct WebSocket<S> {
    /// The underlying stream.
    pub(crate) io: S,
    /// Bytes of the stream: while those of a long message flow, the peer is alive.
    pub(crate) traffic: Arc<Traffic>,
    /// Bytes were read or written since these flags were taken.
    has_read: bool,
    has_written: bool,
    wire: Wire,
    /// The peer answers pings.
    pub(super) has_pings: bool,
    /// JSON for the peer is in binary messages, as on Google's servers.
    pub(crate) sends_binary_json: bool,
    role: Role,
    /// Bytes read beyond the handshake, before they are looked at.
    early_bytes: Vec<u8>,
    read_ahead: ReadAhead,
    /// Bytes read since the last poll that found no more, or that was ended by [`POLL_MAX_BYTES`].
    bytes_in_poll: usize,
    /// The last read was ended by [`POLL_MAX_BYTES`].
    was_cut_short: bool,
    /// Position of the given bytes within the peer's frames.
    frame_boundary: FrameBoundary,
    /// The longest message written since the buffers were replaced, bytes.
    longest_sent: usize,
    /// Length of the messages that are written together.
    joined_len: usize,
    /// The part of a long message that the library does not have yet.
    unsent: Bytes,
    /// Its share of the memory for messages in transit.
    pub(crate) memory: MemoryShare,
    /// All written bytes have left.
    is_flushed: bool,
    /// A close frame was sent or received.
    is_closing: bool,
    has_ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// A WebSocket on `io`; `early_bytes` are those read beyond the handshake. It counts its bytes from now on.
    pub(super) fn new(io: S, early_bytes: Vec<u8>, role: Role, config: WebSocketConfig) -> Self {
        let config = config.max_write_buffer_size(PONG_ROOM_BYTES);
        let frame_boundary = FrameBoundary::new(config.max_message_size.unwrap_or(usize::MAX));
        let wire = Wire::WebSocket(WebSocketContext::new(role, Some(config)));
        Self::with_wire(io, early_bytes, role, wire, frame_boundary)
    }

    /// A bare TCP connection of a client whose messages are framed by these rules. They may have this length, bytes.
    pub(super) fn bare(io: S, protocol: Arc<TcpProtocol>, message_max: usize) -> Self {
        let wire = Wire::Tcp(Box::new(TcpFraming::new(protocol, message_max)));
        Self::with_wire(io, Vec::new(), Role::Server, wire, FrameBoundary::without_frames())
    }

    fn with_wire(io: S, early_bytes: Vec<u8>, role: Role, wire: Wire, frame_boundary: FrameBoundary) -> Self {
        Self {
            io,
            traffic: Arc::default(),
            has_read: false,
            has_written: false,
            has_pings: matches!(wire, Wire::WebSocket(_)),
            sends_binary_json: false,
            wire,
            role,
            early_bytes,
            read_ahead: ReadAhead::default(),
            bytes_in_poll: 0,
            was_cut_short: false,
            frame_boundary,
            longest_sent: 0,
            joined_len: 0,
            unsent: Bytes::new(),
            memory: MemoryShare::default(),
            is_flushed: true,
            is_closing: false,
            has_ended: false,
        }
    }

    /// Sets the longest messages that the peer may send.
    pub(super) fn set_message_max(&mut self, MessageMax { bytes, binary_bytes }: MessageMax) {
        self.frame_boundary.set_max(bytes, binary_bytes);
        self.wire.set_message_max(bytes);
    }

    /// The peer's close code, if the library could not read it.
    pub(super) fn unknown_close_code(&self) -> Option<u16> {
        self.frame_boundary.is_bad_gateway.then_some(BAD_GATEWAY)
    }

    /// Memory of the message that the peer has not sent to its end, bytes.
    pub(super) fn unfinished_bytes(&self) -> usize {
        if self.frame_boundary.is_at_boundary() { 0 } else { self.frame_boundary.held_bytes() }
    }

    /// Reads nothing more, and gives back the memory of what was read. Only a close frame can be sent afterwards.
    pub(super) fn stop_reading(&mut self) {
        self.has_ended = true;
        self.read_ahead = ReadAhead::default();
        if self.is_flushed && !self.is_closing {
            self.wire.discard_input(self.role);
            self.frame_boundary.restart();
        }
        // Giving memory back always succeeds.
        let _ = self.memory.hold(Held::Incoming, 0);
    }

    /// Ready when a message can be sent.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WsError>> {
        if self.is_flushed { Poll::Ready(Ok(())) } else { self.poll_flush(cx) }
    }

    /// Accepts a message and writes as much of it as the stream takes. A message that `waits` is written with the next one.
    ///
    /// # Errors
    /// Fails with the library's error.
    pub(super) fn start_send(
        &mut self,
        cx: &mut Context<'_>,
        message: Message,
        waits: bool,
    ) -> Result<(), WsError> {
        let message = self.first_part(message);
        let written = self.write(cx, message, waits);
        self.is_flushed = written.is_ready() && self.unsent.is_empty();
        if self.is_flushed && !waits {
            self.leave_room_for_pongs();
        }
        match written {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(()),
        }
    }

    /// Hands a message to the library, which keeps the bytes that the stream does not take.
    fn write(&mut self, cx: &mut Context<'_>, message: Message, waits: bool) -> Poll<Result<(), WsError>> {
        self.joined_len += message.len() + HEADER_MAX_BYTES;
        // Everything that was accepted has room whatever its length. Incoming messages have a bound of their own.
        let room = PONG_ROOM_BYTES + self.joined_len;
        match &mut self.wire {
            Wire::WebSocket(context) => context.set_config(|config| {
                config.write_buffer_size = if waits { self.joined_len } else { 0 };
                config.max_write_buffer_size = room;
            }),
            Wire::Tcp(framing) => framing.set_waits(waits),
        }
        self.longest_sent = self.longest_sent.max(self.joined_len);
        if !waits {
            self.joined_len = 0;
        }
        self.is_closing |= message.is_close();
        self.with_wire_io(cx, |wire, io| match wire {
            Wire::WebSocket(context) => context.write(io, message),
            Wire::Tcp(framing) => framing.write(io, message),
        })
    }

    /// Takes back the room of messages that are written. Answers to pings would fill it while the peer does not read, and the next
    /// message would have too little.
    fn leave_room_for_pongs(&mut self) {
        if let Wire::WebSocket(context) = &mut self.wire {
            context.set_config(|config| {
                config.write_buffer_size = 0;
                config.max_write_buffer_size = PONG_ROOM_BYTES;
            });
        }
    }

    /// The message, or its first fragment if it is long.
    fn first_part(&mut self, message: Message) -> Message {
        let data = match &message {
            Message::Text(_) => Data::Text,
            Message::Binary(_) => Data::Binary,
            _ => return message,
        };
        if message.len() <= WHOLE_MAX_BYTES || matches!(self.wire, Wire::Tcp(_)) {
            return message;
        }
        self.unsent = message.into_data();
        self.next_fragment(data)
    }

    fn next_fragment(&mut self, data: Data) -> Message {
        let part = self.unsent.split_to(self.unsent.len().min(FRAGMENT_BYTES));
        Message::Frame(Frame::message(part, OpCode::Data(data), self.unsent.is_empty()))
    }

    /// Writes accepted messages; ready when all are written.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WsError>> {
        let mut fragment_bytes = 0;
        loop {
            let flushed = ready!(self.with_wire_io(cx, |wire, io| match wire {
                Wire::WebSocket(context) => context.flush(io),
                Wire::Tcp(framing) => framing.flush(io),
            }));
            if flushed.is_err() || self.unsent.is_empty() {
                self.is_flushed = true;
                self.leave_room_for_pongs();
                return Poll::Ready(match flushed {
                    // The closing handshake is complete.
                    Err(WsError::ConnectionClosed) => Ok(()),
                    flushed => flushed,
                });
            }
            if fragment_bytes >= WHOLE_MAX_BYTES / 4 {
                wake_after_others(cx);
                return Poll::Pending;
            }
            let fragment = self.next_fragment(Data::Continue);
            fragment_bytes += fragment.len();
            if let Poll::Ready(written) = self.write(cx, fragment, false) {
                written?;
            }
        }
    }

    /// Sends a close frame.
    ///
    /// # Errors
    /// Fails with the library's error.
    pub(super) async fn close(&mut self, frame: CloseFrame) -> Result<(), WsError> {
        poll_fn(|cx| self.poll_ready(cx)).await?;
        let mut message = Some(Message::Close(Some(frame)));
        poll_fn(|cx| {
            Poll::Ready(message.take().map_or(Ok(()), |message| self.start_send(cx, message, false)))
        })
        .await?;
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    fn with_wire_io<T>(
        &mut self,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut Wire, &mut PolledIo<'_, '_, S>) -> Result<T, WsError>,
    ) -> Poll<Result<T, WsError>> {
        let Self {
            io,
            traffic,
            has_read,
            has_written,
            wire,
            early_bytes,
            read_ahead,
            bytes_in_poll,
            was_cut_short,
            frame_boundary,
            memory,
            ..
        } = self;
        let mut polled_io = PolledIo {
            io,
            traffic,
            has_read,
            has_written,
            early_bytes,
            read_ahead,
            bytes_in_poll,
            was_cut_short,
            frame_boundary,
            memory,
            cx,
        };
        match act(wire, &mut polled_io) {
            Err(WsError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            result => Poll::Ready(result),
        }
    }

    /// Replaces large buffers while they are empty: no frame is half read and everything is written. During the
    /// closing handshake the library has state beyond its buffers, so they stay.
    fn shrink_buffers(&mut self, cx: &mut Context<'_>) {
        let is_large =
            self.longest_sent.max(self.frame_boundary.longest_payload as usize) > RETAINED_BUFFER_BYTES;
        if is_large
            && self.is_flushed
            && !self.is_closing
            && self.frame_boundary.is_at_boundary()
            && matches!(self.poll_flush(cx), Poll::Ready(Ok(())))
        {
            match &mut self.wire {
                Wire::WebSocket(context) => {
                    *context = WebSocketContext::new(self.role, Some(*context.get_config()));
                }
                Wire::Tcp(framing) => framing.shrink(),
            }
            self.frame_boundary.forget_buffers();
            self.longest_sent = 0;
            // Giving memory back always succeeds.
            let _ = self.memory.hold(Held::Incoming, 0);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for WebSocket<S> {
    type Item = Result<Message, WsError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let read = self.with_wire_io(cx, |wire, io| match wire {
            Wire::WebSocket(context) => context.read(io),
            Wire::Tcp(framing) => framing.read(io),
        });
        match read {
            Poll::Pending => {
                if let Wire::Tcp(framing) = &self.wire {
                    let held_bytes = framing.held_bytes();
                    self.frame_boundary.note_held(held_bytes);
                }
                self.shrink_buffers(cx);
                Poll::Pending
            }
            Poll::Ready(Ok(message)) => {
                self.is_closing |= message.is_close();
                Poll::Ready(Some(Ok(self.frame_boundary.restore_refused(message))))
            }
            Poll::Ready(Err(error)) => {
                self.has_ended = true;
                let is_closed = matches!(error, WsError::ConnectionClosed | WsError::AlreadyClosed);
                Poll::Ready((!is_closed).then_some(Err(error)))
            }
        }
    }
}

/// The stream as the library expects it: blocking becomes an error.
struct PolledIo<'a, 'w, S> {
    io: &'a mut S,
    traffic: &'a Traffic,
    has_read: &'a mut bool,
    has_written: &'a mut bool,
    early_bytes: &'a mut Vec<u8>,
    read_ahead: &'a mut ReadAhead,
    bytes_in_poll: &'a mut usize,
    was_cut_short: &'a mut bool,
    frame_boundary: &'a mut FrameBoundary,
    memory: &'a mut MemoryShare,
    cx: &'a mut Context<'w>,
}

fn pending_to_would_block<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl<S: AsyncRead + Unpin> PolledIo<'_, '_, S> {
    /// Reads ahead what came with the handshake, then the stream, and returns how much. Fails if the server has no memory for the rest of a long message, and
    /// if a message comes in too many fragments or is too long.
    fn fill(&mut self) -> io::Result<usize> {
        if !self.memory.hold(Held::Incoming, self.frame_boundary.held_bytes()) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if let Some(violation) = self.frame_boundary.violation() {
            return Err(violation.into());
        }
        *self.was_cut_short = *self.bytes_in_poll >= POLL_MAX_BYTES;
        if *self.was_cut_short {
            *self.bytes_in_poll = 0;
            wake_after_others(self.cx);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut buffer = SPARE_READ_BUFFER.take();
        buffer.resize(HEADER_MAX_BYTES + READ_BUFFER_BYTES, 0);
        let mut read = ReadBuf::new(&mut buffer[HEADER_MAX_BYTES..]);
        let polled = if self.early_bytes.is_empty() {
            let polled = Pin::new(&mut *self.io).poll_read(self.cx, &mut read);
            self.traffic.read.fetch_add(read.filled().len() as u64, Relaxed);
            *self.has_read |= !read.filled().is_empty();
            polled
        } else {
            let length = self.early_bytes.len().min(READ_BUFFER_BYTES);
            read.put_slice(&self.early_bytes[..length]);
            self.early_bytes.drain(..length);
            Poll::Ready(Ok(()))
        };
        let length = read.filled().len();
        *self.bytes_in_poll =
            if matches!(polled, Poll::Ready(Ok(()))) { *self.bytes_in_poll + length } else { 0 };
        let given = self.frame_boundary.advance(&mut buffer, HEADER_MAX_BYTES..HEADER_MAX_BYTES + length);
        if given.is_empty() {
            SPARE_READ_BUFFER.set(buffer);
        } else {
            *self.read_ahead = ReadAhead { buffer, start: given.start, end: given.end };
        }
        match polled {
            Poll::Ready(read) => read.map(|()| length),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl<S: AsyncRead + Unpin> Read for PolledIo<'_, '_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Nothing is left of what was read if it was skipped, or is part of a header.
        while self.read_ahead.buffer.is_empty() {
            if self.fill()? == 0 {
                return Ok(0);
            }
        }
        *self.bytes_in_poll += READ_WEIGHT;
        let ahead = &mut *self.read_ahead;
        let count = into.len().min(ahead.end - ahead.start);
        into[..count].copy_from_slice(&ahead.buffer[ahead.start..ahead.start + count]);
        ahead.start += count;
        if ahead.start == ahead.end {
            SPARE_READ_BUFFER.set(std::mem::take(ahead).buffer);
        }
        Ok(count)
    }
}

impl<S: AsyncWrite + Unpin> Write for PolledIo<'_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = pending_to_would_block(Pin::new(&mut *self.io).poll_write(self.cx, bytes))?;
        self.traffic.written.fetch_add(written as u64, Relaxed);
        *self.has_written |= written > 0;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        pending_to_would_block(Pin::new(&mut *self.io).poll_flush(self.cx))
    }
}

#[cfg(test)]
mod tests;
