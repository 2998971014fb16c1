//! The session's side of a call: an ordinary session at the other end of a stream in memory.

use std::time::Duration;

use futures_util::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use tokio::{
    io::DuplexStream,
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

/// Messages to the session that wait. A client that sends more at once is cut off.
pub(super) const QUEUED_MESSAGES_MAX: usize = 256;

/// Of these, places that audio leaves to text.
const TEXT_PLACES: usize = 64;
/// Time for a session that is busy to hear of the call's end.
const CLOSE_MAX: Duration = Duration::from_secs(1);

type Socket = WebSocketStream<DuplexStream>;

/// The session of a call. Dropping it ends the session.
pub(super) struct Session {
    commands: mpsc::Sender<Message>,
    events: SplitStream<Socket>,
    _lives: oneshot::Sender<()>,
}

impl Session {
    /// Speaks to the session at the other end; `None` is unreachable, because a client without a handshake waits for nothing.
    /// `queued` are the commands that were given before.
    pub(super) fn new(
        stream: DuplexStream,
        (commands, queued): (mpsc::Sender<Message>, mpsc::Receiver<Message>),
    ) -> Option<Self> {
        let socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).now_or_never()?;
        let (lives, over) = oneshot::channel();
        let (sink, events) = socket.split();
        // The session may be busy; the network must not wait for it.
        tokio::spawn(pass_on(queued, sink, over));
        Some(Self { commands, events, _lives: lives })
    }

    /// Queues a message for the session. Audio that does not fit is lost, as on the network; returns false for text that does not.
    pub(super) fn tell(&self, message: Message) -> bool {
        if !message.is_text() && self.commands.capacity() <= TEXT_PLACES {
            return true;
        }
        !matches!(self.commands.try_send(message), Err(TrySendError::Full(Message::Text(_))))
    }

    /// The next message of the session; `None` once it has ended.
    pub(super) async fn next(&mut self) -> Option<Message> {
        self.events.next().await.and_then(Result::ok)
    }
}

/// Passes on messages until the call is over, even if the session does not read or another connection still has commands.
async fn pass_on(
    mut queued: mpsc::Receiver<Message>,
    mut sink: SplitSink<Socket, Message>,
    over: oneshot::Receiver<()>,
) {
    let passing = async {
        while let Some(message) = queued.recv().await {
            if sink.send(message).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = passing => {}
        _ = over => {}
    }
    let _ = timeout(CLOSE_MAX, sink.close()).await;
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt as _, time::Instant};

    use super::*;

    #[tokio::test]
    async fn audio_leaves_room_for_text() {
        let (near, _far) = tokio::io::duplex(8);
        let session = Session::new(near, mpsc::channel(QUEUED_MESSAGES_MAX)).unwrap();
        for _ in 0..500 {
            assert!(session.tell(Message::binary(vec![0; 640])));
            tokio::task::yield_now().await;
        }
        let told = (0..300).take_while(|_| session.tell(Message::text("command"))).count();
        assert_eq!(told, TEXT_PLACES);
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_the_call_reaches_a_session_that_does_not_read() {
        let (near, mut far) = tokio::io::duplex(8);
        let session = Session::new(near, mpsc::channel(QUEUED_MESSAGES_MAX)).unwrap();
        let of_another_connection = session.commands.clone();
        while of_another_connection.try_send(Message::text("command")).is_ok() {
            tokio::task::yield_now().await;
        }
        let start = Instant::now();
        drop(session);
        of_another_connection.closed().await;
        timeout(2 * CLOSE_MAX, far.read_to_end(&mut Vec::new())).await.expect("the stream ends").unwrap();
        assert!(start.elapsed() <= 2 * CLOSE_MAX, "{:?}", start.elapsed());
    }
}
