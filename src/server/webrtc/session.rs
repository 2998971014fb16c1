//! The session's side of a call: an ordinary session at the other end of a stream in memory.

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _, stream::SplitStream};
use tokio::{
    io::DuplexStream,
    sync::mpsc::{self, error::TrySendError},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

/// Messages to the session that wait. A client that sends more at once is cut off.
pub(super) const QUEUED_MESSAGES_MAX: usize = 256;

/// The session of a call.
pub(super) struct Session {
    commands: mpsc::Sender<Message>,
    events: SplitStream<WebSocketStream<DuplexStream>>,
}

impl Session {
    /// Speaks to the session at the other end; `None` is unreachable, because a client without a handshake waits for nothing.
    pub(super) fn new(stream: DuplexStream) -> Option<Self> {
        let socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).now_or_never()?;
        let (commands, mut queued) = mpsc::channel(QUEUED_MESSAGES_MAX);
        let (mut sink, events) = socket.split();
        // The session may be busy; the network must not wait for it.
        tokio::spawn(async move {
            while let Some(message) = queued.recv().await {
                if sink.send(message).await.is_err() {
                    return;
                }
            }
            let _ = sink.close().await;
        });
        Some(Self { commands, events })
    }

    /// Where other connections put their commands.
    pub(super) fn commands(&self) -> mpsc::Sender<Message> {
        self.commands.clone()
    }

    /// Queues a message for the session. Audio that does not fit is lost, as on the network; returns false for text that does not.
    pub(super) fn tell(&self, message: Message) -> bool {
        !matches!(self.commands.try_send(message), Err(TrySendError::Full(Message::Text(_))))
    }

    /// The next message of the session; `None` once it has ended.
    pub(super) async fn next(&mut self) -> Option<Message> {
        self.events.next().await.and_then(Result::ok)
    }
}
