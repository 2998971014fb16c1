//! Minimal WebSocket (RFC 6455) for measurements: sending a frame is one write of prepared bytes; receiving parses a
//! header and copies nothing.
//!
//! It is not a WebSocket library: it supports no fragments and no extensions, trusts its peer, and masks with zeros.

use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, IoSlice},
    ops::Range,
    pin::Pin,
    rc::Rc,
};

use tokio::{
    io::{AsyncRead as _, ReadBuf},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    time::Instant,
};

pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// Close frames with code 1000.
pub(crate) const CLIENT_CLOSE: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 3, 0xe8];
pub(crate) const SERVER_CLOSE: [u8; 4] = [0x88, 2, 3, 0xe8];

const BUFFER_BYTES: usize = 256 * 1024;

/// A connection that asks for no WebSocket: it ended before its first byte, or was a request for a page.
pub(crate) const UNUSED: &str = "the connection ended without a handshake";

/// Read buffers, shared by all connections. A connection holds one only while it receives a message.
pub(crate) type BufferPool = Rc<RefCell<Vec<Vec<u8>>>>;

/// Received data of a connection.
pub(crate) struct FrameReader {
    read: OwnedReadHalf,
    pool: BufferPool,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// When the first bytes in the buffer came.
    began_at: Instant,
}

/// A complete frame.
pub(crate) struct Frame {
    pub(crate) opcode: u8,
    key: [u8; 4],
    range: Range<usize>,
}

impl FrameReader {
    pub(crate) fn new(read: OwnedReadHalf, pool: BufferPool) -> Self {
        Self { read, pool, buffer: Vec::new(), start: 0, end: 0, began_at: Instant::now() }
    }

    /// Waits for more data; returns false at the end of the stream.
    async fn read_more(&mut self) -> bool {
        self.compact();
        let Self { read, pool, buffer, end, .. } = self;
        let read = poll_fn(|cx| {
            if buffer.is_empty() {
                *buffer = pool.borrow_mut().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES]);
            }
            let mut into = ReadBuf::new(&mut buffer[*end..]);
            let polled = Pin::new(&mut *read).poll_read(cx, &mut into);
            let count = into.filled().len();
            if polled.is_pending() && *end == 0 {
                pool.borrow_mut().push(std::mem::take(buffer));
            }
            polled.map(|done| done.map(|()| count))
        });
        let count = read.await.unwrap_or(0);
        if self.end == 0 {
            self.began_at = Instant::now();
        }
        self.end += count;
        count > 0
    }

    fn compact(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() && self.end > 0 {
            self.buffer.resize(2 * self.end, 0);
        }
    }

    /// Returns the next frame once it is complete; `None` at the end of the stream.
    pub(crate) async fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.parse_frame() {
                return Some(frame);
            }
            if !self.read_more().await {
                return None;
            }
        }
    }

    fn parse_frame(&mut self) -> Option<Frame> {
        let bytes = &self.buffer[self.start..self.end];
        let (first, second) = (*bytes.first()?, *bytes.get(1)?);
        assert!(first & 0x80 != 0, "fragmented messages are not supported by this generator");
        let (length, mut head) = match second & 0x7f {
            126 => (usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)), 4),
            127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize, 10),
            short => (usize::from(short), 2),
        };
        let mut key = [0; 4];
        if second & 0x80 != 0 {
            key.copy_from_slice(bytes.get(head..head + 4)?);
            head += 4;
        }
        if bytes.len() < head + length {
            return None;
        }
        let range = self.start + head..self.start + head + length;
        self.start = range.end;
        Some(Frame { opcode: first & 0x0f, key, range })
    }

    /// When the first bytes of the newest frame came, unless others were read with them.
    pub(crate) const fn began_at(&self) -> Instant {
        self.began_at
    }

    /// Payload of the frame, unmasked.
    pub(crate) fn payload(&mut self, frame: &Frame) -> &mut [u8] {
        let payload = &mut self.buffer[frame.range.clone()];
        unmask(payload, frame.key);
        payload
    }

    /// Reads the head of an HTTP message; later bytes stay buffered.
    pub(crate) async fn read_http_head(&mut self) -> Result<String, String> {
        loop {
            let received = &self.buffer[self.start..self.end];
            if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&received[..end]).into_owned();
                self.start += end + 4;
                return Ok(head);
            }
            if !self.read_more().await {
                let is_unused = self.start == self.end;
                return Err(
                    if is_unused { UNUSED } else { "the connection ended during the handshake" }.to_owned()
                );
            }
        }
    }
}

impl Drop for FrameReader {
    fn drop(&mut self) {
        if !self.buffer.is_empty() {
            self.pool.borrow_mut().push(std::mem::take(&mut self.buffer));
        }
    }
}

fn unmask(payload: &mut [u8], key: [u8; 4]) {
    if key == [0; 4] {
        return;
    }
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = payload.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    rest.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
}

/// Builds the head of a frame. A client's frame is masked with zeros.
pub(crate) fn frame_header(opcode: u8, length: usize, client: bool) -> Vec<u8> {
    let mask = if client { 0x80 } else { 0 };
    let mut head = vec![0x80 | opcode];
    match length {
        0..126 => head.push(mask | length as u8),
        126..65_536 => {
            head.push(mask | 126);
            head.extend((length as u16).to_be_bytes());
        }
        _ => {
            head.push(mask | 127);
            head.extend((length as u64).to_be_bytes());
        }
    }
    if client {
        head.extend([0; 4]);
    }
    head
}

/// Builds a whole text frame.
pub(crate) fn text_frame(text: &str, client: bool) -> Vec<u8> {
    let mut frame = frame_header(TEXT, text.len(), client);
    frame.extend(text.as_bytes());
    frame
}

/// Performs the client's handshake.
pub(crate) async fn request_upgrade(
    inbox: &mut FrameReader,
    write: &OwnedWriteHalf,
    host: &str,
    path: &str,
) -> Result<(), String> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    write_all(write, &[request.as_bytes()]).await.map_err(|error| error.to_string())?;
    let answer = inbox.read_http_head().await?;
    let line = answer.lines().next().unwrap_or_default();
    if line.contains(" 101") { Ok(()) } else { Err(format!("the handshake was rejected: {line:?}")) }
}

/// Performs the server's handshake; returns the requested path.
pub(crate) async fn accept_upgrade(
    inbox: &mut FrameReader,
    write: &OwnedWriteHalf,
) -> Result<String, String> {
    let request = inbox.read_http_head().await?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key").then(|| value.trim().to_owned())
    };
    let Some(key) = request.lines().find_map(header) else {
        // The bridge asks whether its upstream has a status page.
        let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        write_all(write, &[answer]).await.map_err(|error| error.to_string())?;
        return Err(UNUSED.to_owned());
    };
    let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    write_all(write, &[answer.as_bytes()]).await.map_err(|error| error.to_string())?;
    Ok(request.split_whitespace().nth(1).unwrap_or_default().to_owned())
}

/// Writes all parts in one call.
pub(crate) async fn write_all(write: &OwnedWriteHalf, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        match write.try_write_vectored(rest) {
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => write.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
