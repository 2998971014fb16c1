//! One WebSocket of a session with its outbox, pings, timeouts and closing handshake.
//!
//! The session's task polls it. It has no task or timer of its own, except for the closing handshake.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream as _, StreamExt as _};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    task::coop::consume_budget,
    time::Instant,
};
use tokio_tungstenite::tungstenite::{
    Error as WsError, Message as WsMessage,
    protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
};

use super::{WebSocket, outbox::Outbox, pausable_stream::PausableRead, tcp_framing::FramingProblem};
use crate::{
    net::turn::wake_after_others,
    server::memory::{FREE_BYTES, Held},
    vocabulary::{DisconnectReason, Message, SpeechId},
};

/// Interval between pings, as uvicorn's (mappings/notes/macaw.md#connect).
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Silence, pongs included, after which a peer counts as gone: two pings unanswered.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Read buffer of the library per socket. It is small because there are many sockets, and `WebSocket` reads ahead
/// anyway.
const READ_BUFFER_BYTES: usize = 1024;
/// An upstream that takes no byte for this long does not read.
const UPSTREAM_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// A client that takes no byte for this long does not read. A client that plays from a buffer may pause for a minute.
const CLIENT_STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Pings and pongs that one poll reads at most.
const CONTROL_FRAMES_PER_POLL: usize = 64;
/// A message above [`FREE_BYTES`] must bring this much between two pings, bytes: 4 KiB a second.
const PROGRESS_MIN_BYTES: u64 = 80 * 1024;
/// Close reason for a peer whose message makes too little progress.
pub(crate) const TOO_SLOW: &str = "an unfinished message makes too little progress (4 KiB a second)";
/// Close reason for a peer whose messages do not fit.
pub(crate) const OUT_OF_MEMORY: &str = "no memory for messages of this size ([limits] memory_max_bytes)";

/// Close reason for a peer whose message comes in too many short fragments.
const TOO_MANY_FRAGMENTS: &str = "a message of too many short fragments";

/// An event of a socket.
#[derive(Debug)]
pub(crate) enum SocketEvent {
    /// A text or binary message.
    Message(WsMessage),
    /// The end of the connection.
    End(DisconnectReason),
}

/// One WebSocket of a session.
pub(crate) struct SessionSocket<S> {
    pub(crate) stream: WebSocket<S>,
    pub(crate) outbox: Outbox,
    /// Others need the memory of what waits for the peer.
    is_memory_released: bool,
    /// When the peer stopped taking bytes.
    stalled_since: Option<Instant>,
    last_heard: Instant,
    next_ping: Instant,
    /// Value of the traffic counter at the last ping; `None` if the peer was not read since.
    bytes_at_ping: Option<u64>,
    /// The message that the peer is sending made too little progress between two pings.
    pub(crate) is_too_slow: bool,
    /// The peer's close frame.
    close_reason: Option<DisconnectReason>,
    /// Why nothing more can be written. Earlier messages of the upstream are still read: it may be a close frame with the reason.
    write_error: Option<DisconnectReason>,
    /// The last read found no further message.
    pub(crate) fully_read: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> SessionSocket<S> {
    pub(crate) fn new(stream: WebSocket<S>) -> Self {
        let now = Instant::now();
        Self {
            stream,
            outbox: Outbox::default(),
            is_memory_released: false,
            stalled_since: None,
            last_heard: now,
            next_ping: now + PING_INTERVAL,
            bytes_at_ping: None,
            is_too_slow: false,
            close_reason: None,
            write_error: None,
            fully_read: false,
        }
    }

    /// The WebSocket, for another session. Messages that it has not taken are discarded.
    pub(crate) fn into_websocket(self) -> WebSocket<S> {
        self.stream
    }

    /// Puts a message into the outbox.
    pub(crate) fn send(&mut self, message: Message) {
        self.send_tagged(message, None);
    }

    /// Puts a message into the outbox that [`SessionSocket::drop_turn`] may discard.
    pub(crate) fn send_tagged(&mut self, message: Message, turn: Option<SpeechId>) {
        let message = match message {
            Message::Text(text) if self.stream.sends_binary_json => WsMessage::binary(text),
            Message::Text(text) => WsMessage::text(text),
            Message::Binary(bytes) => WsMessage::Binary(bytes),
            Message::Close(code, reason) => {
                WsMessage::Close(Some(CloseFrame { code: code.into(), reason: reason.into() }))
            }
        };
        self.outbox.push(message, turn);
    }

    /// Discards the unsent messages of a text or turn.
    pub(crate) fn drop_turn(&mut self, turn: SpeechId) {
        self.outbox.drop_turn(turn);
    }

    /// When to call [`SessionSocket::handle_timer`].
    pub(crate) fn timer_deadline(&self) -> Instant {
        let stall_deadline = self.stalled_since.map(|since| since + self.stall_timeout());
        self.silence_deadline().into_iter().chain(stall_deadline).fold(self.next_ping, Instant::min)
    }

    /// Longest time in which the peer may take no byte.
    fn stall_timeout(&self) -> Duration {
        if self.stream.role == Role::Server { CLIENT_STALL_TIMEOUT } else { UPSTREAM_STALL_TIMEOUT }
    }

    /// Instant at which a silent peer counts as gone; `None` for a peer that answers no pings, and for a client that has not
    /// read its pings yet because they wait behind other messages.
    fn silence_deadline(&self) -> Option<Instant> {
        let has_unread_pings = self.stalled_since.is_some() && self.stream.role == Role::Server;
        Some(self.last_heard + SILENCE_TIMEOUT).filter(|_| self.stream.has_pings && !has_unread_pings)
    }

    /// Sends a due ping. Returns why the peer is lost if it is silent or does not read.
    pub(crate) fn handle_timer(&mut self, now: Instant) -> Option<DisconnectReason> {
        if self.silence_deadline().is_some_and(|at| now >= at) {
            return Some(DisconnectReason::Lost(format!(
                "nothing heard for {} s, pings included",
                SILENCE_TIMEOUT.as_secs()
            )));
        }
        let stall_timeout = self.stall_timeout();
        if self.stalled_since.is_some_and(|since| now >= since + stall_timeout) {
            return Some(DisconnectReason::Lost(format!(
                "the peer has not read for {} s",
                stall_timeout.as_secs()
            )));
        }
        if now >= self.next_ping {
            self.next_ping = now + PING_INTERVAL;
            self.check_progress();
            if self.stream.has_pings {
                self.outbox.push(WsMessage::Ping(Bytes::new()), None);
            }
        }
        None
    }

    /// Writes as much as the stream takes; ready when the outbox is empty and flushed, or when the peer is gone.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DisconnectReason>> {
        if self.outbox.is_flushed || self.write_error.is_some() {
            self.stalled_since = None;
            return Poll::Ready(Ok(()));
        }
        let queued = self.outbox.messages.len();
        let written = self.outbox.poll_flush(&mut self.stream, cx);
        let has_progress =
            std::mem::take(&mut self.stream.has_written) || self.outbox.messages.len() < queued;
        if has_progress && self.stalled_since.is_some() {
            // The peer reads what was sent before its pings.
            self.last_heard = Instant::now();
        }
        let waiting_bytes = if written.is_pending() { self.outbox.bytes() } else { 0 };
        if !self.stream.memory.hold(Held::Outgoing, waiting_bytes) {
            self.release_memory();
            return Poll::Ready(Err(DisconnectReason::Lost(OUT_OF_MEMORY.to_owned())));
        }
        match written {
            Poll::Pending if has_progress || self.stalled_since.is_none() => {
                self.stalled_since = Some(Instant::now());
            }
            Poll::Pending => {}
            Poll::Ready(_) => self.stalled_since = None,
        }
        match written {
            Poll::Ready(Err(error)) if self.stream.role == Role::Client => {
                self.outbox.clear();
                self.write_error = Some(DisconnectReason::Lost(error.to_string()));
                Poll::Ready(Ok(()))
            }
            written => written.map_err(|error| DisconnectReason::Lost(error.to_string())),
        }
    }

    /// Checks the progress of a long message since the last ping.
    fn check_progress(&mut self) {
        let bytes_read = self.stream.traffic.bytes_read();
        let before = self.bytes_at_ping.replace(bytes_read);
        self.is_too_slow = self.stream.unfinished_bytes() > FREE_BYTES
            && before.is_some_and(|before| bytes_read - before < PROGRESS_MIN_BYTES);
    }

    /// Under back-pressure the socket is not read, so silence does not count.
    pub(crate) fn reset_silence_timer(&mut self) {
        self.last_heard = Instant::now();
        self.bytes_at_ping = None;
    }

    /// Reads nothing more and discards what waits for the peer, so that only a close frame is left to send.
    pub(crate) fn release_memory(&mut self) {
        self.outbox.clear();
        self.is_memory_released = true;
        self.stream.stop_reading();
    }

    /// The next message, or the end of the connection. After a close frame this waits for the end of the transport.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<SocketEvent> {
        for _ in 0..CONTROL_FRAMES_PER_POLL {
            let next = Pin::new(&mut self.stream).poll_next(cx);
            self.fully_read = next.is_pending() && !self.stream.was_cut_short;
            // Part of a message is a sign of life as well.
            if std::mem::take(&mut self.stream.has_read) || next.is_ready() {
                self.last_heard = Instant::now();
            }
            let next = match (next, &self.write_error) {
                (Poll::Pending, Some(lost)) => {
                    let reason = self.close_reason.take().unwrap_or_else(|| lost.clone());
                    return Poll::Ready(SocketEvent::End(reason));
                }
                (next, _) => ready!(next),
            };
            match next {
                Some(Ok(WsMessage::Close(frame))) => {
                    let (code, reason) = frame
                        .map_or((1005, String::new()), |frame| (frame.code.into(), frame.reason.to_string()));
                    let code = self.stream.unknown_close_code().unwrap_or(code);
                    self.close_reason = Some(DisconnectReason::Closed(code, reason));
                }
                Some(Ok(message @ (WsMessage::Text(_) | WsMessage::Binary(_)))) => {
                    return Poll::Ready(SocketEvent::Message(message));
                }
                // The library answers pings. Pongs only count as a sign of life.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(SocketEvent::End(self.answer_protocol_error(&error))),
                None => {
                    let reason = self
                        .close_reason
                        .take()
                        .unwrap_or_else(|| DisconnectReason::Lost("end of stream".to_owned()));
                    return Poll::Ready(SocketEvent::End(reason));
                }
            }
        }
        // Others get their turn before the rest of a flood of pings.
        wake_after_others(cx);
        Poll::Pending
    }

    /// Answers a protocol error of the peer with the matching close frame (RFC 6455 §7.4.1).
    fn answer_protocol_error(&mut self, error: &WsError) -> DisconnectReason {
        if let Some(reason) = self.close_reason.take() {
            return reason;
        }
        let io_error = if let WsError::Io(error) = error { Some(error.kind()) } else { None };
        let framing_problem = if let WsError::Io(error) = error { FramingProblem::find(error) } else { None };
        if let Some((code, detail)) = framing_problem {
            let frame = CloseFrame { code, reason: truncate_reason(&detail).into() };
            self.outbox.push(WsMessage::Close(Some(frame)), None);
            return DisconnectReason::Lost(detail);
        }
        let detail = match io_error {
            Some(io::ErrorKind::OutOfMemory) => OUT_OF_MEMORY.to_owned(),
            Some(io::ErrorKind::QuotaExceeded) => TOO_MANY_FRAGMENTS.to_owned(),
            Some(io::ErrorKind::FileTooLarge) => "message too long".to_owned(),
            _ => error.to_string(),
        };
        let code = match error {
            _ if io_error == Some(io::ErrorKind::OutOfMemory) => Some(CloseCode::Again),
            _ if io_error == Some(io::ErrorKind::QuotaExceeded) => Some(CloseCode::Policy),
            _ if io_error == Some(io::ErrorKind::FileTooLarge) => Some(CloseCode::Size),
            WsError::Capacity(_) => Some(CloseCode::Size),
            WsError::Utf8(_) => Some(CloseCode::Invalid),
            WsError::Protocol(problem) if !is_abrupt_reset(problem) => Some(CloseCode::Protocol),
            _ => None,
        };
        if io_error == Some(io::ErrorKind::OutOfMemory) {
            self.release_memory();
        }
        if let Some(code) = code {
            let frame = CloseFrame { code, reason: truncate_reason(&detail).into() };
            self.outbox.push(WsMessage::Close(Some(frame)), None);
        }
        DisconnectReason::Lost(detail)
    }

    /// Sends the rest of the outbox and waits for the peer to close, at most for `timeout`, in a task of its own. The
    /// session need not wait, and unread bytes must not turn the close frame into a reset.
    ///
    /// Holds `drain_guard` until then, so that the program does not end before the close frame is sent.
    pub(crate) fn close_in_background(mut self, timeout: Duration, drain_guard: mpsc::Sender<()>) {
        // A long message that is half written cannot be taken back; the memory is needed before its peer would read it.
        if self.is_memory_released && self.outbox.bytes() > FREE_BYTES {
            return;
        }
        tokio::spawn(async move {
            let closing_handshake = async {
                let written = std::future::poll_fn(|cx| self.poll_write(cx)).await;
                if written.is_ok() {
                    while let Some(Ok(_)) = self.stream.next().await {
                        consume_budget().await;
                    }
                    // RFC 6455 §7.1.1: the server closes the TCP connection first.
                    if self.stream.io.shutdown().await.is_ok() {
                        // The close frame is out; reading the rest only avoids a reset.
                        drop(drain_guard);
                        let mut rest = [0; 4096];
                        while matches!(self.stream.io.read(&mut rest).await, Ok(1..)) {}
                    }
                }
            };
            // A peer that exceeds the timeout is dropped.
            let _ = tokio::time::timeout(timeout, closing_handshake).await;
        });
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + PausableRead> SessionSocket<S> {
    /// Pauses or resumes reading on events.
    pub(crate) fn set_read_paused(&mut self, paused: bool) {
        let Some(tcp) = self.stream.io.tcp_mut() else { return };
        match paused {
            true if !tcp.is_paused() => tcp.pause(),
            false if tcp.is_paused() => {
                tcp.resume();
                // Data may have come since the last read.
                self.fully_read = false;
            }
            _ => {}
        }
    }

    /// True if reading finds nothing until a read is allowed, or events resume.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.fully_read && self.stream.io.is_read_paused()
    }

    /// Allows one read of a paused stream, until nothing is left.
    pub(crate) fn allow_read(&mut self) {
        if let Some(tcp) = self.stream.io.tcp_mut() {
            tcp.is_exhausted = false;
        }
        self.fully_read = false;
    }
}

/// The library's settings. Its defaults bound neither what waits to be written nor, far enough, what is read
/// (mappings/notes/libraries.md#websocket). The sender decides about each message whether it waits for the next.
pub(crate) fn websocket_config(message_max_bytes: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(message_max_bytes)
        .max_message_size(Some(message_max_bytes))
        .max_frame_size(Some(message_max_bytes))
}

fn is_abrupt_reset(problem: &tokio_tungstenite::tungstenite::error::ProtocolError) -> bool {
    use tokio_tungstenite::tungstenite::error::ProtocolError;
    matches!(problem, ProtocolError::ResetWithoutClosingHandshake)
}

/// RFC 6455 §5.5: a close reason has at most 123 bytes.
fn truncate_reason(text: &str) -> &str {
    &text[..text.floor_char_boundary(123)]
}

#[cfg(test)]
mod tests;
