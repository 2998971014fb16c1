//! A small Macaw client: one WebSocket connection, one session.
//!
//! It works against voxbridge and against a real Macaw server, which ends without a close frame (Macaw field notes
//! §1.6). Nothing is buffered here: what is sent is flushed, what comes is handed on.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes, error::ProtocolError};

use super::dial::{self, ClientWebSocket};
use super::error::ClientError;
use super::server_events::MacawEvent;
use crate::secret::Secret;

/// Whom to call, and what to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTarget {
    /// `ws://` or `wss://`; without a path, `/v1/realtime` is meant.
    pub url: String,
    /// The model; one that the URL names already stays if this is `None`.
    pub model: Option<String>,
    /// Language of the speech, ISO 639-1.
    pub language: Option<String>,
    /// The key to show, where one is wanted.
    pub key: Option<Secret>,
}

/// How long things take. The defaults are for real servers; tests are quicker.
#[derive(Debug, Clone, Copy)]
pub struct ClientTiming {
    /// From one 40 ms frame of audio to the next.
    pub frame_interval: Duration,
    /// Silence from the server that ends a transcription in which everything is answered.
    pub quiet_timeout: Duration,
    /// How long a transcript that did not come before its `vad.speech_end` is waited for.
    pub late_transcript_timeout: Duration,
    /// How long an utterance may stay open after the recording's end without any event.
    pub stall_timeout: Duration,
    /// How long the first audio of a text, or the next, may take.
    pub answer_timeout: Duration,
    /// From one empty frame to the next while nothing else is sent.
    pub keep_alive_interval: Duration,
    /// How long `session.created` may take.
    pub created_timeout: Duration,
    /// How long `session.closed` and the transport's end may take.
    pub close_timeout: Duration,
}

impl Default for ClientTiming {
    fn default() -> Self {
        Self {
            frame_interval: Duration::from_millis(40),
            quiet_timeout: Duration::from_secs(1),
            late_transcript_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            // A busy model queues; voxbridge itself gives up before this.
            answer_timeout: Duration::from_secs(120),
            // The server closes after 60 s without a binary frame, also while it speaks (field notes §1.6).
            keep_alive_interval: Duration::from_secs(20),
            created_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
        }
    }
}

/// One event, and how the server wrote it.
#[derive(Debug, Clone)]
pub struct ReceivedEvent {
    /// What it says.
    pub event: MacawEvent,
    /// The message.
    pub text: Utf8Bytes,
}

/// One message of the server.
#[derive(Debug, Clone)]
pub enum ServerMessage {
    /// A text message.
    Event(ReceivedEvent),
    /// A binary message: speech, int16 little endian.
    Audio(Bytes),
}

/// A server that takes nothing for this long is not there any more.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the transport may outlive `session.closed` before this side ends it.
const HANGUP_TIMEOUT: Duration = Duration::from_secs(1);

/// An open session.
pub struct Client {
    socket: ClientWebSocket,
    timing: ClientTiming,
    session_id: String,
    /// The server's close frame, or what became of the connection, once it is over.
    end_reason: Option<String>,
}

impl Client {
    /// Connects, and waits for `session.created`.
    ///
    /// # Errors
    /// [`ClientError::InvalidUrl`], [`ClientError::Unreachable`], [`ClientError::HttpRejected`], [`ClientError::SessionNotOpened`], or
    /// [`ClientError::Server`] if the server says why it wants no session.
    pub async fn connect(
        target: &ServerTarget,
        timing: ClientTiming,
    ) -> Result<(Self, ReceivedEvent), ClientError> {
        Self::await_created(dial::dial(target).await?, target, timing).await
    }

    /// Waits for `session.created` on a connection that is open.
    ///
    /// # Errors
    /// As [`Self::connect`], without what keeps a connection from being opened.
    pub(super) async fn await_created(
        socket: ClientWebSocket,
        target: &ServerTarget,
        timing: ClientTiming,
    ) -> Result<(Self, ReceivedEvent), ClientError> {
        let mut client = Self { socket, timing, session_id: String::new(), end_reason: None };
        let not_opened = |reason: String| ClientError::SessionNotOpened { url: target.url.clone(), reason };
        let first = timeout(timing.created_timeout, client.next())
            .await
            .map_err(|_| not_opened(format!("no session.created within {:.0?}", timing.created_timeout)))?;
        match first? {
            Some(ServerMessage::Event(event)) => match &event.event {
                MacawEvent::SessionCreated { session_id } => {
                    client.session_id.clone_from(session_id);
                    Ok((client, event))
                }
                MacawEvent::Error { code, message, .. } => Err(server_error(code, message)),
                _ => Err(not_opened(format!("expected session.created, got {}", excerpt(&event.text)))),
            },
            Some(ServerMessage::Audio(_)) => {
                Err(not_opened("expected session.created, got audio".to_owned()))
            }
            None => Err(not_opened(client.end_description().to_owned())),
        }
    }

    /// The server's name for the session.
    #[must_use]
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// The durations it was connected with.
    #[must_use]
    pub const fn timing(&self) -> &ClientTiming {
        &self.timing
    }

    /// The next message; `None` when the connection is over. Cancel-safe.
    ///
    /// # Errors
    /// [`ClientError::ConnectionLost`] if the connection breaks or the server violates the protocol.
    pub async fn next(&mut self) -> Result<Option<ServerMessage>, ClientError> {
        while self.end_reason.is_none() {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    return Ok(Some(ServerMessage::Event(ReceivedEvent {
                        event: MacawEvent::parse(&text),
                        text,
                    })));
                }
                Some(Ok(Message::Binary(audio))) => return Ok(Some(ServerMessage::Audio(audio))),
                Some(Ok(Message::Close(frame))) => {
                    self.end_reason = Some(match frame {
                        Some(frame) => format!("the server closed it with {} {}", frame.code, frame.reason),
                        None => "the server closed it".to_owned(),
                    });
                }
                // Pings are answered by the library.
                Some(Ok(_)) => {}
                None => self.end_reason = Some("the server hung up".to_owned()),
                Some(Err(reason)) if is_disconnect(&reason) => {
                    self.end_reason = Some("the server hung up".to_owned())
                }
                Some(Err(reason)) => return Err(ClientError::ConnectionLost(reason.to_string())),
            }
        }
        Ok(None)
    }

    /// How the connection ended, in words.
    #[must_use]
    pub fn end_description(&self) -> &str {
        self.end_reason.as_deref().unwrap_or("it is still open").trim_end()
    }

    /// Sends microphone audio, int16 mono 16 kHz; the real server wants at least 512 samples (field notes §1.7).
    ///
    /// # Errors
    /// [`ClientError::ConnectionLost`] if the connection is over, or the server does not take it.
    pub async fn send_audio(&mut self, samples: &[i16]) -> Result<(), ClientError> {
        let bytes: Bytes = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        self.send(Message::Binary(bytes)).await
    }

    /// Shows that somebody is there, without a sound: an empty binary message (field notes §1.6).
    ///
    /// # Errors
    /// As [`Self::send_audio`].
    pub async fn send_keep_alive(&mut self) -> Result<(), ClientError> {
        self.send(Message::Binary(Bytes::new())).await
    }

    /// Sends a command.
    ///
    /// # Errors
    /// As [`Self::send_audio`].
    pub async fn send_command(&mut self, command: &Value) -> Result<(), ClientError> {
        self.send(Message::text(command.to_string())).await
    }

    /// Ends the session politely: `session.close`, `session.closed`, the transport's end, all within
    /// [`ClientTiming::close_timeout`]. `on_event` sees the events that still come. `true` if the server said goodbye.
    pub async fn close(mut self, mut on_event: impl FnMut(&ReceivedEvent)) -> bool {
        let mut deadline = Instant::now() + self.timing.close_timeout;
        let mut is_acknowledged = false;
        if self.send_command(&json!({"type": "session.close"})).await.is_ok() {
            while let Ok(Ok(Some(message))) = timeout_at(deadline, self.next()).await {
                let ServerMessage::Event(event) = message else { continue };
                on_event(&event);
                if matches!(event.event, MacawEvent::SessionClosed { .. }) {
                    is_acknowledged = true;
                    // The real server sends no close frame; it hangs up at once.
                    deadline = deadline.min(Instant::now() + HANGUP_TIMEOUT);
                }
            }
        }
        // Sends a close frame, or flushes the answer to the server's.
        let _ = timeout(HANGUP_TIMEOUT, self.socket.close(None)).await;
        is_acknowledged
    }

    async fn send(&mut self, message: Message) -> Result<(), ClientError> {
        match timeout(SEND_TIMEOUT, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            // Why the server went is still to be read and says more than "broken pipe".
            Ok(Err(reason)) => Err(ClientError::ConnectionLost(
                self.read_final_error().await.unwrap_or_else(|| reason.to_string()),
            )),
            Err(_) => {
                Err(ClientError::ConnectionLost(format!("the server took nothing for {SEND_TIMEOUT:?}")))
            }
        }
    }

    /// The error or close frame that the server left behind.
    async fn read_final_error(&mut self) -> Option<String> {
        while let Ok(Ok(Some(message))) = timeout(HANGUP_TIMEOUT, self.next()).await {
            if let ServerMessage::Event(ReceivedEvent {
                event: MacawEvent::Error { code, message, .. },
                ..
            }) = message
            {
                return Some(server_error(&code, &message).to_string());
            }
        }
        self.end_reason.clone()
    }
}

/// The error that an `error` event makes.
pub(super) fn server_error(code: &str, message: &str) -> ClientError {
    let code = if code.is_empty() { "an error" } else { code };
    ClientError::Server { code: printable(code), message: printable(message) }
}

/// A server's words on one line, without anything that steers a terminal.
pub(super) fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Enough of a message to recognise it.
fn excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    printable(&text.chars().take(MAX_CHARS).collect::<String>())
}

/// The other side is gone; how does not matter (uvicorn ends with TCP alone).
fn is_disconnect(reason: &tungstenite::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match reason {
        tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => true,
        tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => true,
        tungstenite::Error::Io(reason) => {
            matches!(reason.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
        }
        _ => false,
    }
}
