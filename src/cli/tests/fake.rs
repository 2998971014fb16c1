//! Scripted Macaw server.

use std::future::Future;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{net::TcpListener, net::TcpStream, task::JoinHandle};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

/// Server side of one connection.
pub(super) struct FakePeer {
    socket: WebSocketStream<TcpStream>,
    /// Path and query of the upgrade request.
    pub(super) request_uri: String,
    /// Bytes of received microphone audio.
    pub(super) received_bytes: usize,
    /// Number of received empty binary messages.
    pub(super) keep_alives: usize,
}

/// Accepts one connection and runs `script`; returns the URL without a path, and the task with the script's result.
pub(super) async fn serve<F, R>(
    script: impl FnOnce(FakePeer) -> F + Send + 'static,
) -> (String, JoinHandle<R>)
where
    F: Future<Output = R> + Send,
    R: Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut request_uri = String::new();
        #[allow(clippy::result_large_err, reason = "tungstenite's own signature")]
        let record_uri = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            request_uri = request.uri().to_string();
            Ok(response)
        };
        let socket = accept_hdr_async(tcp, record_uri).await.unwrap();
        script(FakePeer { socket, request_uri, received_bytes: 0, keep_alives: 0 }).await
    });
    (url, server)
}

impl FakePeer {
    /// Sends `session.created`.
    pub(super) async fn send_created(&mut self) {
        self.send_event(
            json!({"type": "session.created", "session_id": "sess_1", "model": "m", "config": {}}),
        )
        .await;
    }

    /// Sends an event; ignores a disconnected client.
    pub(super) async fn send_event(&mut self, event: Value) {
        let _ = self.socket.send(Message::text(event.to_string())).await;
    }

    /// Sends speech audio.
    pub(super) async fn send_audio(&mut self, bytes: &[u8]) {
        let _ = self.socket.send(Message::Binary(Bytes::copy_from_slice(bytes))).await;
    }

    /// Receives the next command and counts the audio before it; `None` at the end of the connection.
    pub(super) async fn next_command(&mut self) -> Option<Value> {
        loop {
            match self.socket.next().await?.ok()? {
                Message::Text(text) => return serde_json::from_str(&text).ok(),
                Message::Binary(bytes) => self.count_audio(&bytes),
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }

    /// Waits for this many bytes of audio in total.
    pub(super) async fn wait_for_audio(&mut self, bytes: usize) {
        while self.received_bytes < bytes {
            match self.socket.next().await {
                Some(Ok(Message::Binary(bytes))) => self.count_audio(&bytes),
                Some(Ok(_)) => {}
                _ => return,
            }
        }
    }

    fn count_audio(&mut self, bytes: &[u8]) {
        self.received_bytes += bytes.len();
        self.keep_alives += usize::from(bytes.is_empty());
    }

    /// Waits for `session.close` and closes as voxbridge does; returns `true` if the client sent the command.
    pub(super) async fn close_with_frame(mut self) -> bool {
        let is_polite = self.next_command().await == Some(json!({"type": "session.close"}));
        self.send_event(json!({"type": "session.closed", "reason": "client_request"})).await;
        self.send_close_frame(CloseCode::Normal, "").await;
        while let Some(Ok(_)) = self.socket.next().await {}
        is_polite
    }

    /// Waits for `session.close` and hangs up as the real server does, without a close frame.
    pub(super) async fn close_without_frame(mut self) -> bool {
        let is_polite = self.next_command().await == Some(json!({"type": "session.close"}));
        self.send_event(json!({"type": "session.closed", "reason": "client_request"})).await;
        is_polite
    }

    /// Sends a close frame.
    pub(super) async fn send_close_frame(&mut self, code: CloseCode, reason: &'static str) {
        let _ = self.socket.close(Some(CloseFrame { code, reason: reason.into() })).await;
    }
}
