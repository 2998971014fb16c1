//! What a client sent since it was last looked at, read in one go: frames of audio are told as one, for where one ends and the
//! next begins says nothing (design §4.8), and messages are told one by one in their order.

use std::{future::poll_fn, task::Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::Message as WsMessage;

use crate::{
    server::websocket::outbox::{SessionSocket, SocketEvent},
    session::ReadWindow,
};

/// Frames are told as one of at most so many bytes: 250 ms at 48 kHz.
const BATCH_MAX_BYTES: usize = 24 * 1024;
/// Messages in a row for which nothing else is waited for.
const CONSECUTIVE_READS_MAX: u32 = 16;

/// Reads what is there.
#[derive(Debug, Default)]
pub(crate) struct FrameBatcher {
    /// Room for frames told as one; none if each is told by itself.
    batch_max_bytes: usize,
    /// How many frames the last message was.
    frames_in_message: u32,
    /// How many frames the last message was that audio came in.
    last_audio_frames: u32,
    /// What came behind them.
    pending: Option<SocketEvent>,
    consecutive_reads: u32,
}

impl FrameBatcher {
    /// How many frames the message is that is told now, be it read here or not.
    pub(crate) fn record_message(&mut self, is_audio: bool) -> u32 {
        let frames = self.frames_in_message.max(1);
        if is_audio {
            self.last_audio_frames = frames;
        }
        frames
    }

    /// How many frames the last message was that audio came in.
    pub(crate) fn last_audio_frames(&self) -> u32 {
        self.last_audio_frames.max(1)
    }

    /// Tells frames as one from now on, or each by itself.
    pub(crate) fn set_read_window(&mut self, window: Option<ReadWindow>) {
        self.batch_max_bytes = window.map_or(0, |window| window.frame_max_bytes.min(BATCH_MAX_BYTES));
    }

    /// The next of what a client has sent that waits for nothing; none if it is the turn of others.
    pub(crate) async fn read<S>(&mut self, client: Option<&mut SessionSocket<S>>) -> Option<SocketEvent>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.frames_in_message = 1;
        if let Some(event) = self.pending.take() {
            return Some(event);
        }
        if self.consecutive_reads == CONSECUTIVE_READS_MAX {
            self.consecutive_reads = 0;
            return None;
        }
        let client = client?;
        let mut frames = Vec::with_capacity(self.batch_max_bytes);
        let mut count = 0;
        poll_fn(|cx| {
            while let Poll::Ready(event) = client.poll_read(cx) {
                match event {
                    // An empty frame means something where it is allowed.
                    SocketEvent::Message(WsMessage::Binary(frame))
                        if !frame.is_empty() && frames.len() + frame.len() <= self.batch_max_bytes =>
                    {
                        frames.extend_from_slice(&frame);
                        count += 1;
                    }
                    other => {
                        self.pending = Some(other);
                        break;
                    }
                }
            }
            Poll::Ready(())
        })
        .await;
        let has_read = count > 0 || self.pending.is_some();
        self.consecutive_reads = if has_read { self.consecutive_reads + 1 } else { 0 };
        if count == 0 {
            return self.pending.take();
        }
        self.frames_in_message = count;
        Some(SocketEvent::Message(WsMessage::Binary(frames.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::websocket::{
        WebSocket,
        outbox::{MeteredWebSocket, websocket_config},
    };
    use futures_util::SinkExt as _;
    use std::{sync::Arc, time::Duration};
    use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

    #[tokio::test]
    async fn frame_count_of_last_audio_is_kept_until_next_audio() {
        let (near, far) = tokio::io::duplex(4096);
        let stream = WebSocket::new(near, Vec::new(), Role::Server, websocket_config(1 << 20));
        let mut socket = SessionSocket::new(MeteredWebSocket { stream, traffic: Arc::default() });
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let frame = || WsMessage::Binary(vec![1; 100].into());
        for _ in 0..5 {
            client.send(frame()).await.unwrap();
        }
        let max_delay = Duration::from_millis(100);
        let window = ReadWindow {
            received: max_delay,
            last_frame_length: max_delay / 5,
            until_decision: max_delay,
            urgent: true,
            frame_max_bytes: 10_000,
            max_delay,
        };
        let mut batcher = FrameBatcher::default();
        batcher.set_read_window(Some(window));
        let event = batcher.read(Some(&mut socket)).await;
        assert!(
            matches!(event, Some(SocketEvent::Message(WsMessage::Binary(frames))) if frames.len() == 500)
        );
        assert_eq!((batcher.record_message(true), batcher.last_audio_frames()), (5, 5));
        // It is listened to, and something else is told meanwhile.
        batcher.set_read_window(None);
        assert!(batcher.read(Some(&mut socket)).await.is_none());
        assert_eq!((batcher.record_message(false), batcher.last_audio_frames()), (1, 5));
        client.send(frame()).await.unwrap();
        assert!(batcher.read(Some(&mut socket)).await.is_some());
        assert_eq!((batcher.record_message(true), batcher.last_audio_frames()), (1, 1));
    }
}
