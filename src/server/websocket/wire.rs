//! What tells the messages of a stream apart: the WebSocket library.

use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketContext};

/// State of one connection.
pub(super) enum Wire {
    /// A WebSocket.
    WebSocket(WebSocketContext),
}

impl Wire {
    /// Sets the longest message of the peer, bytes.
    pub(super) fn set_message_max(&mut self, bytes: usize) {
        match self {
            Self::WebSocket(context) => context.set_config(|config| {
                config.max_message_size = Some(bytes);
                config.max_frame_size = Some(bytes);
            }),
        }
    }

    /// Forgets what was read.
    pub(super) fn discard_input(&mut self, role: Role) {
        match self {
            Self::WebSocket(context) => *context = WebSocketContext::new(role, Some(*context.get_config())),
        }
    }
}
