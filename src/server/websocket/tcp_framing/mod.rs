//! Messages on a bare TCP connection, by the rules of a mapping's `[tcp]`. Stands in the place of the WebSocket library.
//!
//! [`json_lines`] and [`records`] know the two formats. The stream fails with `WouldBlock` when it has no bytes, or takes none.

pub(crate) mod fuzzing;
mod json_lines;
mod records;

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    sync::Arc,
};

use bytes::BytesMut;
use tokio_tungstenite::tungstenite::{
    Error as WsError, Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

use self::{json_lines::LineReader, records::RecordReader};
use crate::spelling::client::tcp::{TcpFormat, TcpProtocol};

/// Most bytes of one read. A long message takes several.
const READ_MAX_BYTES: usize = 16 * 1024;
/// Buffers that held more are replaced when they are empty.
const RETAINED_BUFFER_BYTES: usize = 8 * 1024;

/// Result of parsing the bytes read so far.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// One or more messages were added.
    Complete,
    /// A lower bound of the bytes that are missing.
    Missing(usize),
}

/// A mistake in the stream, after which nothing can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FramingProblem {
    /// The bytes are no message; the description.
    #[error("{0}")]
    Invalid(String),
    /// A message of this length is longer than any may be, by the bound.
    #[error("a message of {0} bytes (max {1})")]
    TooLong(u64, usize),
    /// A line is longer than any may be, by the bound.
    #[error("a line of more than {0} bytes")]
    LongLine(usize),
}

impl FramingProblem {
    /// The close code of the problem behind an error, and its description.
    pub(crate) fn find(error: &io::Error) -> Option<(CloseCode, String)> {
        let problem = error.get_ref()?.downcast_ref::<Self>()?;
        let code = match problem {
            Self::Invalid(_) => CloseCode::Protocol,
            Self::TooLong(..) | Self::LongLine(_) => CloseCode::Size,
        };
        Some((code, problem.to_string()))
    }
}

enum Reader {
    Lines(LineReader),
    Records(RecordReader),
}

/// Reads and writes the messages of one connection.
pub(super) struct TcpFraming {
    protocol: Arc<TcpProtocol>,
    reader: Reader,
    /// The longest message, bytes.
    message_max: usize,
    input: BytesMut,
    /// Messages that were read and not returned: a command and its bytes at most.
    ready: VecDeque<Message>,
    output: Vec<u8>,
    /// Bytes of `output` that the stream has taken.
    written: usize,
    /// The next message is written first.
    waits: bool,
    /// The last message was written: the client gets the end of the stream.
    is_closing: bool,
    /// The client has ended the stream.
    has_ended: bool,
}

impl TcpFraming {
    pub(super) fn new(protocol: Arc<TcpProtocol>, message_max: usize) -> Self {
        let reader = match protocol.format {
            TcpFormat::JsonLines(_) => Reader::Lines(LineReader::default()),
            TcpFormat::Records(_) => Reader::Records(RecordReader::default()),
        };
        Self {
            protocol,
            reader,
            message_max,
            input: BytesMut::new(),
            ready: VecDeque::new(),
            output: Vec::new(),
            written: 0,
            waits: false,
            is_closing: false,
            has_ended: false,
        }
    }

    /// Sets the longest message, bytes.
    pub(super) const fn set_message_max(&mut self, bytes: usize) {
        self.message_max = bytes;
    }

    /// Says whether the next message waits for the one after it.
    pub(super) const fn set_waits(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Memory of the message that has not come to its end, bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.input.len()
    }

    /// Forgets what was read.
    pub(super) fn discard_input(&mut self) {
        self.input = BytesMut::new();
        self.ready.clear();
    }

    /// Gives back large buffers that are empty.
    pub(super) fn shrink(&mut self) {
        if self.output.is_empty() && self.output.capacity() > RETAINED_BUFFER_BYTES {
            self.output = Vec::new();
        }
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
    }

    /// The next message. The end of the stream between two messages is a close message without a code.
    pub(super) fn read(&mut self, io: &mut impl Read) -> Result<Message, WsError> {
        loop {
            if self.is_closing {
                return Err(WsError::ConnectionClosed);
            }
            if let Some(message) = self.ready.pop_front() {
                return Ok(message);
            }
            if self.has_ended {
                return Err(WsError::ConnectionClosed);
            }
            let progress = match (&mut self.reader, &self.protocol.format) {
                (Reader::Lines(reader), TcpFormat::JsonLines(rules)) => {
                    reader.take(rules, &mut self.input, self.message_max, &mut self.ready)
                }
                (Reader::Records(reader), TcpFormat::Records(rules)) => {
                    reader.take(rules, &mut self.input, self.message_max, &mut self.ready)
                }
                _ => Err(FramingProblem::Invalid("another format".to_owned())),
            };
            let problem = |problem| WsError::Io(io::Error::new(io::ErrorKind::InvalidData, problem));
            if let Progress::Missing(bytes) = progress.map_err(problem)?
                && self.fill(io, bytes)? == 0
            {
                self.has_ended = true;
                if !self.input.is_empty() {
                    let text = "the connection ended in the middle of a message";
                    return Err(WsError::Io(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
                }
                return Ok(Message::Close(None));
            }
        }
    }

    /// Reads some of the missing bytes, and returns how many.
    fn fill(&mut self, io: &mut impl Read, missing: usize) -> io::Result<usize> {
        let length = self.input.len();
        self.input.resize(length + missing.clamp(1, READ_MAX_BYTES), 0);
        let read = io.read(&mut self.input[length..]);
        self.input.truncate(length + read.as_ref().map_or(0, |read| *read));
        read
    }

    /// Accepts a message, and writes as much as the stream takes.
    pub(super) fn write(&mut self, io: &mut impl Write, message: Message) -> Result<(), WsError> {
        match (&self.protocol.format, &self.reader, message) {
            (TcpFormat::JsonLines(_), _, Message::Text(text)) => {
                json_lines::write_line(&text, &mut self.output);
            }
            (TcpFormat::JsonLines(rules), _, Message::Binary(bytes)) => {
                json_lines::write_audio(rules, &bytes, &mut self.output);
            }
            (TcpFormat::Records(rules), Reader::Records(reader), Message::Binary(bytes)) => {
                reader.write_audio(rules, &bytes, &mut self.output);
            }
            (format, _, Message::Close(frame)) => {
                match (format, frame.filter(has_unreported_reason)) {
                    (TcpFormat::JsonLines(rules), Some(frame)) => {
                        json_lines::write_closed(rules, frame.code.into(), &frame.reason, &mut self.output);
                    }
                    (TcpFormat::JsonLines(_), None) => {}
                    (TcpFormat::Records(rules), _) => records::write_close(rules, &mut self.output),
                }
                self.is_closing = true;
            }
            // Records have no JSON, and there are no pings.
            _ => {}
        }
        if self.waits { Ok(()) } else { self.write_out(io) }
    }

    /// Writes accepted messages.
    pub(super) fn flush(&mut self, io: &mut impl Write) -> Result<(), WsError> {
        self.write_out(io)?;
        Ok(io.flush()?)
    }

    fn write_out(&mut self, io: &mut impl Write) -> Result<(), WsError> {
        while self.written < self.output.len() {
            match io.write(&self.output[self.written..])? {
                0 => return Err(WsError::Io(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }
}

/// True for a close that the client should know the reason of: no message has told it.
fn has_unreported_reason(frame: &CloseFrame) -> bool {
    !matches!(frame.code, CloseCode::Normal | CloseCode::Away) && !frame.reason.is_empty()
}

#[cfg(test)]
mod tests;
