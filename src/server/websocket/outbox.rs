//! One WebSocket of a session: an outbox, pings, and an end that is waited for.
//!
//! Polled by the session's task; holds no task and no timer of its own but for the farewell.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream as _, StreamExt as _};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    time::Instant,
};
use tokio_tungstenite::tungstenite::{
    Error as WsError, Message as WsMessage,
    protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
};

use super::{Wire, pausable_stream::ReadByClock};
use crate::{
    event::{Message, Why},
    net::Traffic,
};

/// Pause between pings, as uvicorn's (field notes macaw.md §1.1).
const PING_EVERY: Duration = Duration::from_secs(20);
/// Silence, pongs included, after which a peer counts as gone: two pings unanswered.
const DEAD_AFTER: Duration = Duration::from_secs(60);
/// What an idle socket keeps to read into. There are many, and what comes is read ahead in any case.
const READ_BUFFER_BYTES: usize = 1024;
/// A peer that takes not a byte for this long does not read.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// What came out of a socket.
#[derive(Debug)]
pub(crate) enum Came {
    /// A message.
    Message(WsMessage),
    /// The end.
    End(Why),
}

/// A WebSocket, and the traffic of the stream under it: one long message on a slow line is many signs of life.
pub struct Metered<S> {
    pub(crate) stream: Wire<S>,
    pub(crate) traffic: Arc<Traffic>,
}

/// One WebSocket.
pub(crate) struct Socket<S> {
    stream: Wire<S>,
    traffic: Arc<Traffic>,
    /// Bytes the peer had taken when it was last seen to take any.
    taken: u64,
    /// Bytes it had sent when it was last heard.
    heard: u64,
    outbox: VecDeque<WsMessage>,
    outbox_bytes: usize,
    unflushed: bool,
    /// Since when the peer has taken nothing.
    stalled_since: Option<Instant>,
    heard_at: Instant,
    ping_at: Instant,
    /// The peer's close frame, once it came.
    closing: Option<Why>,
    /// Nothing is left of what had come when it was last read.
    drained: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Socket<S> {
    pub(crate) fn new(socket: Metered<S>) -> Self {
        let now = Instant::now();
        let Metered { stream, traffic } = socket;
        Self {
            stream,
            traffic,
            taken: 0,
            heard: 0,
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            unflushed: false,
            stalled_since: None,
            heard_at: now,
            ping_at: now + PING_EVERY,
            closing: None,
            drained: false,
        }
    }

    /// Puts a message into the outbox.
    pub(crate) fn send(&mut self, message: Message) {
        let message = match message {
            Message::Text(text) => WsMessage::text(text),
            Message::Binary(bytes) => WsMessage::Binary(bytes),
            Message::Close(code, reason) => {
                WsMessage::Close(Some(CloseFrame { code: code.into(), reason: reason.into() }))
            }
        };
        self.put(message);
    }

    fn put(&mut self, message: WsMessage) {
        self.outbox_bytes += weight(&message);
        self.outbox.push_back(message);
    }

    /// Forgets the last binary messages in the outbox, up to so many bytes.
    pub(crate) fn drop_audio(&mut self, bytes: u64) {
        let mut left = bytes;
        for at in (0..self.outbox.len()).rev() {
            let len = self.outbox[at].len() as u64;
            if self.outbox[at].is_binary() && len <= left {
                left -= len;
                self.outbox.remove(at);
            }
        }
        self.outbox_bytes = self.outbox.iter().map(weight).sum();
    }

    /// What the peer has not taken yet takes about so much memory, bytes.
    pub(crate) const fn outbox_bytes(&self) -> usize {
        self.outbox_bytes
    }

    /// When [`Socket::tick`] has something to do.
    pub(crate) fn next_tick(&self) -> Instant {
        let stalled = self.stalled_since.map(|since| since + STALLED_AFTER);
        stalled.into_iter().fold(self.ping_at.min(self.heard_at + DEAD_AFTER), Instant::min)
    }

    /// Pings, and notices a peer that is gone or does not read.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<Why> {
        if now >= self.heard_at + DEAD_AFTER {
            return Some(Why::Lost(format!("nothing heard for {} s, pings included", DEAD_AFTER.as_secs())));
        }
        if self.stalled_since.is_some_and(|since| now >= since + STALLED_AFTER) {
            return Some(Why::Lost(format!("it has not read for {} s", STALLED_AFTER.as_secs())));
        }
        if now >= self.ping_at {
            self.ping_at = now + PING_EVERY;
            self.put(WsMessage::Ping(Bytes::new()));
        }
        None
    }

    /// Writes what can be written; ready when the outbox is empty and flushed, or when the peer is gone.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Why>> {
        let written = self.poll_outbox(cx).map_err(|error| Why::Lost(error.to_string()));
        let taken = self.traffic.written();
        let moved = std::mem::replace(&mut self.taken, taken) != taken;
        match written {
            Poll::Pending if moved || self.stalled_since.is_none() => {
                self.stalled_since = Some(Instant::now());
            }
            Poll::Pending => {}
            Poll::Ready(_) => self.stalled_since = None,
        }
        written
    }

    fn poll_outbox(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WsError>> {
        while !self.outbox.is_empty() {
            ready!(self.stream.poll_ready(cx))?;
            if let Some(message) = self.outbox.pop_front() {
                self.outbox_bytes = self.outbox_bytes.saturating_sub(weight(&message));
                self.unflushed = true;
                self.stalled_since = None;
                self.stream.start_send(cx, message)?;
            }
        }
        if self.unflushed {
            ready!(self.stream.poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// It is not read for now, so its silence says nothing.
    pub(crate) fn unread(&mut self) {
        self.heard_at = Instant::now();
    }

    /// The next thing that comes. After a close frame the end of the transport is waited for.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Came> {
        loop {
            let next = Pin::new(&mut self.stream).poll_next(cx);
            self.drained = next.is_pending();
            // Part of a message is a sign of life as well.
            let heard = self.traffic.read();
            if std::mem::replace(&mut self.heard, heard) != heard || next.is_ready() {
                self.heard_at = Instant::now();
            }
            let next = ready!(next);
            match next {
                Some(Ok(WsMessage::Close(frame))) => {
                    let (code, reason) = frame
                        .map_or((1005, String::new()), |frame| (frame.code.into(), frame.reason.to_string()));
                    self.closing = Some(Why::Closed(code, reason));
                }
                Some(Ok(message @ (WsMessage::Text(_) | WsMessage::Binary(_)))) => {
                    return Poll::Ready(Came::Message(message));
                }
                // Pings are answered by the library; pongs have done their work by being heard.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Came::End(self.broken(&error))),
                None => {
                    let why = self.closing.take().unwrap_or_else(|| Why::Lost("end of stream".to_owned()));
                    return Poll::Ready(Came::End(why));
                }
            }
        }
    }

    /// What an error of the peer's making is answered with (RFC 6455 §7.4.1).
    fn broken(&mut self, error: &WsError) -> Why {
        if let Some(why) = self.closing.take() {
            return why;
        }
        let code = match error {
            WsError::Capacity(_) => Some(CloseCode::Size),
            WsError::Utf8(_) => Some(CloseCode::Invalid),
            WsError::Protocol(problem) if !is_abrupt(problem) => Some(CloseCode::Protocol),
            _ => None,
        };
        if let Some(code) = code {
            let frame = CloseFrame { code, reason: shortened(&error.to_string()).into() };
            self.put(WsMessage::Close(Some(frame)));
        }
        Why::Lost(error.to_string())
    }

    /// Sends what is left, waits for the peer's end within a bound, and is gone. Runs on its own: the session need not
    /// wait, and unread bytes must not turn the close frame into a reset.
    ///
    /// Holds `alive` until then, so that the program does not end before the goodbye is out.
    pub(crate) fn farewell(mut self, within: Duration, alive: mpsc::Sender<()>) {
        tokio::spawn(async move {
            let goodbye = async {
                let written = std::future::poll_fn(|cx| self.poll_write(cx)).await;
                if written.is_ok() {
                    while let Some(Ok(_)) = self.stream.next().await {}
                    // Our end comes first: RFC 6455 §7.1.1 has clients wait for it.
                    if self.stream.get_mut().shutdown().await.is_ok() {
                        // All is said; what follows is only to be gentle.
                        drop(alive);
                        let mut rest = [0; 4096];
                        while matches!(self.stream.get_mut().read(&mut rest).await, Ok(1..)) {}
                    }
                }
            };
            // Past the bound the peer has had its chance.
            let _ = tokio::time::timeout(within, goodbye).await;
        });
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + ReadByClock> Socket<S> {
    /// Whether nothing is left of what had come when it was last read.
    pub(crate) const fn is_drained(&self) -> bool {
        self.drained
    }

    /// From now on it is read by the clock, or by events again.
    pub(crate) fn read_by_clock(&mut self, by_clock: bool) {
        let stream = self.stream.get_mut();
        match by_clock {
            true if !stream.is_by_clock() => stream.by_clock(),
            false if stream.is_by_clock() => {
                stream.by_events();
                // Something may have come in between.
                self.drained = false;
            }
            _ => {}
        }
    }

    /// Whether it is read by the clock.
    pub(crate) fn is_by_clock(&self) -> bool {
        self.stream.get_ref().is_by_clock()
    }

    /// It is read once more.
    pub(crate) fn look(&mut self) {
        self.stream.get_mut().look();
        self.drained = false;
    }
}

/// The library's settings: its defaults bound neither what waits to be written nor, far enough, what is read (field notes
/// libraries.md). Every message is written at once; the outbox is ours.
pub(crate) fn limits(message_max_bytes: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(message_max_bytes)
        .max_message_size(Some(message_max_bytes))
        .max_frame_size(Some(message_max_bytes))
}

/// What a message in the outbox takes of memory: a short one is mostly overhead.
fn weight(message: &WsMessage) -> usize {
    message.len() + 256
}

fn is_abrupt(problem: &tokio_tungstenite::tungstenite::error::ProtocolError) -> bool {
    use tokio_tungstenite::tungstenite::error::ProtocolError;
    matches!(problem, ProtocolError::ResetWithoutClosingHandshake)
}

/// RFC 6455 §5.5: at most 123 bytes of reason.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(123)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Counted;
    use tokio::io::DuplexStream;
    use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

    #[tokio::test]
    async fn audio_that_has_not_left_can_be_forgotten_and_the_rest_not() {
        let (near, far) = tokio::io::duplex(1024);
        let near = Wire::new(near, Vec::new(), Role::Server, limits(1 << 20));
        let mut socket = Socket::new(Metered { stream: near, traffic: Arc::default() });
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        socket.send(Message::Text("start".into()));
        for _ in 0..10 {
            socket.send(Message::Binary(Bytes::from_static(&[1; 5000])));
        }
        let stuck = std::future::poll_fn(|cx| Poll::Ready(socket.poll_write(cx).is_pending())).await;
        assert!(stuck && socket.outbox_bytes() > 30_000, "the client does not read");
        socket.drop_audio(50_000);
        assert_eq!(socket.outbox_bytes(), 0);
        socket.send(Message::Text("end".into()));
        let reading = async {
            let mut seen = Vec::new();
            while seen.last() != Some(&WsMessage::text("end")) {
                seen.push(client.next().await.unwrap().unwrap());
            }
            seen
        };
        let (written, seen) = tokio::join!(std::future::poll_fn(|cx| socket.poll_write(cx)), reading);
        written.unwrap();
        assert_eq!(seen[0], WsMessage::text("start"));
        let audio = seen.iter().filter(|message| message.is_binary()).count();
        assert_eq!((audio, seen.len()), (1, 3), "what had left arrives whole");
    }

    /// Empty frames of a client, masked with zeros.
    const PONG: [u8; 6] = [0x8a, 0x80, 0, 0, 0, 0];
    const TEXT: [u8; 6] = [0x81, 0x80, 0, 0, 0, 0];

    /// A server's socket on a counted line, and the client's bare end of it.
    fn line() -> (Socket<Counted<DuplexStream>>, DuplexStream) {
        let (near, far) = tokio::io::duplex(1024);
        let (near, traffic) = Counted::new(near);
        let stream = Wire::new(near, Vec::new(), Role::Server, limits(1 << 20));
        (Socket::new(Metered { stream, traffic }), far)
    }

    /// Drives a socket as the session does until a message comes, or the end.
    async fn drive(socket: &mut Socket<Counted<DuplexStream>>) -> Came {
        loop {
            let mut tick = Box::pin(tokio::time::sleep_until(socket.next_tick()));
            let came = std::future::poll_fn(|cx| {
                if let Poll::Ready(Err(why)) = socket.poll_write(cx) {
                    return Poll::Ready(Some(Came::End(why)));
                }
                match socket.poll_read(cx) {
                    Poll::Ready(came) => Poll::Ready(Some(came)),
                    Poll::Pending => tick.as_mut().poll(cx).map(|()| None),
                }
            });
            if let Some(came) = came.await {
                return came;
            }
            if let Some(why) = socket.tick(Instant::now()) {
                return Came::End(why);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_message_is_no_stall_on_a_slow_line() {
        let (mut socket, mut far) = line();
        socket.send(Message::Binary(vec![1; 200 * 1024].into()));
        let client = async {
            let mut some = [0; 1024];
            for second in 0..200 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                far.read_exact(&mut some).await.unwrap();
                if second % 20 == 0 {
                    far.write_all(&PONG).await.unwrap();
                }
            }
            far.write_all(&TEXT).await.unwrap();
        };
        let (came, ()) = tokio::join!(drive(&mut socket), client);
        assert!(matches!(came, Came::Message(WsMessage::Text(_))), "{came:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_message_is_no_silence_on_a_slow_line() {
        let (mut socket, mut far) = line();
        let client = async {
            far.write_all(&[0x82, 0xff, 0, 0, 0, 0, 0, 3, 0x20, 0, 0, 0, 0, 0]).await.unwrap();
            for _ in 0..200 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                far.write_all(&[0; 1024]).await.unwrap();
            }
        };
        let (came, ()) = tokio::join!(drive(&mut socket), client);
        let Came::Message(WsMessage::Binary(bytes)) = came else { panic!("{came:?}") };
        assert_eq!(bytes.len(), 200 * 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_or_says_nothing_is_given_up() {
        for (bytes, patience, words) in
            [(200 * 1024, STALLED_AFTER, "has not read for 30 s"), (0, DEAD_AFTER, "nothing heard for 60 s")]
        {
            let (mut socket, _far) = line();
            socket.send(Message::Binary(vec![1; bytes].into()));
            let start = Instant::now();
            let came = drive(&mut socket).await;
            assert!(matches!(&came, Came::End(Why::Lost(why)) if why.contains(words)), "{came:?}");
            let late = start.elapsed().saturating_sub(patience);
            assert!(start.elapsed() >= patience && late < Duration::from_millis(10), "{late:?}");
        }
    }
}
