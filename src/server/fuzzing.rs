//! The path of strangers' bytes before a session, without sockets: for the fuzz targets (`tests/fuzz`) and the tests that run
//! their seeds.

use bytes::Bytes;

use super::{rest::fuzzing, websocket::tcp_framing};
use crate::spelling::ClientMapping;

/// Names and contents of the fields of a form with this content type.
///
/// # Errors
/// The fault of the form, in words.
pub fn form_fields(content_type: &str, body: &[u8]) -> Result<Vec<(String, Bytes)>, String> {
    fuzzing::form_fields(content_type, body)
}

/// Messages of a stream on bare TCP that arrives in pieces of this length: texts, or bytes as errors. Then the reason why the
/// stream cannot be read further, empty if the stream ends between two messages.
pub fn tcp_messages(
    client: &ClientMapping,
    bytes: &[u8],
    piece: usize,
) -> (Vec<Result<String, Bytes>>, String) {
    match &client.tcp {
        Some(protocol) => tcp_framing::fuzzing::messages(protocol, bytes, piece),
        None => (Vec::new(), "no protocol on bare TCP".to_owned()),
    }
}
