//! What a client sent since it was last looked at, read in one go: frames of audio are told as one, for where one ends and the
//! next begins says nothing (design §4.8), and messages are told one by one in their order.

use std::{future::poll_fn, task::Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::Message as WsMessage;

use crate::{
    server::websocket::outbox::{Came, Socket},
    session::Lull,
};

/// Frames are told as one of at most so many bytes: 250 ms at 48 kHz.
const TOGETHER_BYTES: usize = 24 * 1024;
/// Messages in a row for which nothing else is waited for.
const ROW_MAX: u32 = 16;

/// Reads what is there.
#[derive(Debug, Default)]
pub(crate) struct Together {
    /// Room for frames told as one; none if each is told by itself.
    most: usize,
    /// How many frames the last message was.
    frames: u32,
    /// How many frames the last message was that audio came in.
    usual: u32,
    /// What came behind them.
    ahead: Option<Came>,
    row: u32,
}

impl Together {
    /// How many frames the message is that is told now, be it read here or not.
    pub(crate) fn told(&mut self, audio: bool) -> u32 {
        let frames = self.frames.max(1);
        if audio {
            self.usual = frames;
        }
        frames
    }

    /// How many frames the last message was that audio came in.
    pub(crate) fn usual(&self) -> u32 {
        self.usual.max(1)
    }

    /// Tells frames as one from now on, or each by itself.
    pub(crate) fn limit(&mut self, lull: Option<Lull>) {
        self.most = lull.map_or(0, |lull| lull.frame_max_bytes.min(TOGETHER_BYTES));
    }

    /// The next of what a client has sent that waits for nothing; none if it is the turn of others.
    pub(crate) async fn read<S>(&mut self, client: Option<&mut Socket<S>>) -> Option<Came>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.frames = 1;
        if let Some(came) = self.ahead.take() {
            return Some(came);
        }
        if self.row == ROW_MAX {
            self.row = 0;
            return None;
        }
        let client = client?;
        let mut frames = Vec::with_capacity(self.most);
        let mut count = 0;
        poll_fn(|cx| {
            while let Poll::Ready(came) = client.poll_read(cx) {
                match came {
                    // An empty frame means something where it is allowed.
                    Came::Message(WsMessage::Binary(frame))
                        if !frame.is_empty() && frames.len() + frame.len() <= self.most =>
                    {
                        frames.extend_from_slice(&frame);
                        count += 1;
                    }
                    other => {
                        self.ahead = Some(other);
                        break;
                    }
                }
            }
            Poll::Ready(())
        })
        .await;
        let some = count > 0 || self.ahead.is_some();
        self.row = if some { self.row + 1 } else { 0 };
        if count == 0 {
            return self.ahead.take();
        }
        self.frames = count;
        Some(Came::Message(WsMessage::Binary(frames.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::websocket::{
        Wire,
        outbox::{Metered, limits},
    };
    use futures_util::SinkExt as _;
    use std::{sync::Arc, time::Duration};
    use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

    #[tokio::test]
    async fn how_many_frames_the_last_audio_was_is_known_until_the_next() {
        let (near, far) = tokio::io::duplex(4096);
        let stream = Wire::new(near, Vec::new(), Role::Server, limits(1 << 20));
        let mut socket = Socket::new(Metered { stream, traffic: Arc::default() });
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let frame = || WsMessage::Binary(vec![1; 100].into());
        for _ in 0..5 {
            client.send(frame()).await.unwrap();
        }
        let within = Duration::from_millis(100);
        let lull = Lull {
            came: within,
            frame: within / 5,
            undecided: within,
            prompt: true,
            frame_max_bytes: 10_000,
            within,
        };
        let mut together = Together::default();
        together.limit(Some(lull));
        let came = together.read(Some(&mut socket)).await;
        assert!(matches!(came, Some(Came::Message(WsMessage::Binary(frames))) if frames.len() == 500));
        assert_eq!((together.told(true), together.usual()), (5, 5));
        // It is listened to, and something else is told meanwhile.
        together.limit(None);
        assert!(together.read(Some(&mut socket)).await.is_none());
        assert_eq!((together.told(false), together.usual()), (1, 5));
        client.send(frame()).await.unwrap();
        assert!(together.read(Some(&mut socket)).await.is_some());
        assert_eq!((together.told(true), together.usual()), (1, 1));
    }
}
