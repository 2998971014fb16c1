//! Framing without a socket: for the fuzz targets.

use std::{
    io::{self, Read},
    sync::Arc,
};

use bytes::Bytes;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use super::{FramingProblem, TcpFraming};
use crate::spelling::client::tcp::TcpProtocol;

/// Longest message here.
const MESSAGE_MAX_BYTES: usize = 100_000;

/// A stream that returns its bytes in pieces of this length, and then ends.
struct Pieces<'b>(&'b [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (piece, rest) = self.0.split_at(self.0.len().min(self.1).min(into.len()));
        into[..piece.len()].copy_from_slice(piece);
        self.0 = rest;
        Ok(piece.len())
    }
}

/// Every message, and the problem after them; empty at the end of the stream.
pub(crate) fn messages(
    protocol: &Arc<TcpProtocol>,
    bytes: &[u8],
    piece: usize,
) -> (Vec<Result<String, Bytes>>, String) {
    let mut framing = TcpFraming::new(protocol.clone(), MESSAGE_MAX_BYTES);
    let (mut io, mut messages) = (Pieces(bytes, piece.max(1)), Vec::new());
    loop {
        match framing.read(&mut io) {
            Ok(Message::Text(text)) => messages.push(Ok(text.to_string())),
            Ok(Message::Binary(bytes)) => messages.push(Err(bytes)),
            Ok(_) => return (messages, String::new()),
            Err(WsError::Io(error)) => {
                let problem = FramingProblem::find(&error).map(|(_, words)| words);
                return (messages, problem.unwrap_or_else(|| error.to_string()));
            }
            Err(error) => return (messages, error.to_string()),
        }
    }
}
