//! Framing of a stream's messages: by the WebSocket library, or by the rules of a protocol on bare TCP.

use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketContext};

use super::tcp_framing::TcpFraming;

/// State of one connection.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all connections are WebSockets, and a box would be one more hop for each message"
)]
pub(super) enum Wire {
    /// A WebSocket.
    WebSocket(WebSocketContext),
    /// A bare TCP connection.
    Tcp(Box<TcpFraming>),
}

impl Wire {
    /// Sets the longest message of the peer, bytes.
    pub(super) fn set_message_max(&mut self, bytes: usize) {
        match self {
            Self::WebSocket(context) => context.set_config(|config| {
                config.max_message_size = Some(bytes);
                config.max_frame_size = Some(bytes);
            }),
            Self::Tcp(framing) => framing.set_message_max(bytes),
        }
    }

    /// Forgets what was read.
    pub(super) fn discard_input(&mut self, role: Role) {
        match self {
            Self::WebSocket(context) => *context = WebSocketContext::new(role, Some(*context.get_config())),
            Self::Tcp(framing) => framing.discard_input(),
        }
    }
}
