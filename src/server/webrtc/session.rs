//! The session's side of a call: an ordinary session, at the other end of a port.

use tokio::sync::mpsc::{self, error::TrySendError};

use crate::{
    server::client_port::{PortInput, PortOutput},
    vocabulary::Message,
};

/// Messages to the session that wait. A client that sends more at once is cut off.
pub(super) const QUEUED_MESSAGES_MAX: usize = 256;

/// Of these, places that audio leaves to text.
const TEXT_PLACES: usize = 64;

/// The session of a call. Dropping it ends the session.
pub(super) struct Session {
    commands: mpsc::Sender<PortInput>,
    outputs: mpsc::Receiver<PortOutput>,
}

impl Session {
    /// Speaks to the session that has these outputs.
    pub(super) const fn new(commands: mpsc::Sender<PortInput>, outputs: mpsc::Receiver<PortOutput>) -> Self {
        Self { commands, outputs }
    }

    /// Queues a message for the session. Audio that does not fit is lost, as on the network; returns false for text that does not.
    pub(super) fn send(&self, message: Message) -> bool {
        let is_text = matches!(message, Message::Text(_));
        if !is_text && self.commands.capacity() <= TEXT_PLACES {
            return true;
        }
        let sent = self.commands.try_send(PortInput::Message(message));
        !is_text || !matches!(sent, Err(TrySendError::Full(_)))
    }

    /// The next output of the session; `None` once it has ended.
    pub(super) async fn next(&mut self) -> Option<PortOutput> {
        self.outputs.recv().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn audio_leaves_room_for_text() {
        let (commands, _queued) = mpsc::channel(QUEUED_MESSAGES_MAX);
        let session = Session::new(commands, mpsc::channel(1).1);
        for _ in 0..500 {
            assert!(session.send(Message::Binary(vec![0; 640].into())));
        }
        let sent = (0..300).take_while(|_| session.send(Message::Text("command".to_owned()))).count();
        assert_eq!(sent, TEXT_PLACES);
    }
}
