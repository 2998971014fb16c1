//! Fuzz bodies for strangers' input before and beside a session: the messages of one client in a row, forms with uploads, and
//! messages on bare TCP.

use super::{FuzzFrames, LIBRARY, assert_error_encodes, codec};
use voxbridge::{
    server::fuzzing::{form_fields, tcp_messages},
    vocabulary::Frame,
};

/// Messages of one client in a row. The first byte chooses the protocol.
pub fn client_frames(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let clients: Vec<_> = LIBRARY.clients().filter(|client| !client.is_relayed()).collect();
    run_client(&clients[usize::from(*first) % clients.len()].name, "", rest);
}

/// Messages of a client of Pipecat, which are protobuf.
pub fn protobuf(data: &[u8]) {
    run_client("pipecat", "", data);
}

/// Commands of a call's second connection: texts of an OpenAI client whose audio is a call's.
pub fn sideband(data: &[u8]) {
    run_client("openai-realtime", "model=m&transport=webrtc&call_rate_in=24000&call_rate_out=24000", data);
}

/// Decodes messages in a row, all with one codec. Every error must have a message of its own.
fn run_client(name: &str, query: &str, data: &[u8]) {
    let mut codec = codec(&LIBRARY, name);
    let _ = codec.decode_query(query);
    for frame in FuzzFrames(data) {
        if let Err(error) = codec.decode(frame, |_| ()) {
            assert_error_encodes(&mut codec, error);
        }
        codec.take_ignored_fields();
    }
}

/// Reads a form. The first line is the content type. The contents of the fields lie within the body.
pub fn upload_form(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (content_type, body) =
        (String::from_utf8_lossy(&data[..end]), data.get(end + 1..).unwrap_or_default());
    match form_fields(&content_type, body) {
        Ok(fields) => {
            let bytes: usize = fields.iter().map(|(_, contents)| contents.len()).sum();
            assert!(bytes <= body.len() && fields.len() <= 256);
        }
        Err(problem) => assert!(!problem.is_empty() && problem.len() < 500, "{problem}"),
    }
}

/// Messages on bare TCP, which are the same however the stream is cut. The first byte chooses the protocol, the second the length
/// of the pieces.
pub fn tcp_stream(data: &[u8]) {
    let Some(([protocol, piece], rest)) = data.split_first_chunk() else { return };
    let clients: Vec<_> = LIBRARY.clients().filter(|client| client.tcp.is_some()).collect();
    let client = clients[usize::from(*protocol) % clients.len()];
    let whole = tcp_messages(client, rest, rest.len());
    assert_eq!(tcp_messages(client, rest, usize::from(*piece)), whole);
    let mut codec = codec(&LIBRARY, &client.name);
    for message in &whole.0 {
        let frame = match message {
            Ok(text) => Frame::Text(text),
            Err(bytes) => Frame::Binary(bytes),
        };
        if let Err(error) = codec.decode(frame, |_| ()) {
            assert_error_encodes(&mut codec, error);
        }
    }
}
