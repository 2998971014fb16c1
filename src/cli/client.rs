//! Macaw client for the command line: one WebSocket connection, one session.
//!
//! The client works with voxbridge and with a real Macaw server, which hangs up without a close frame
//! (mappings/notes/macaw.md#ends). It buffers nothing: it flushes each message it sends and returns each message it
//! receives.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes, error::ProtocolError};

use super::dial::{self, ClientWebSocket, ServerTarget};
use super::error::ClientError;
use super::output::printable;
use super::server_events::MacawEvent;
use crate::audio::pcm::s16le_bytes;

/// Intervals and timeouts of a client. The defaults suit real servers; tests use shorter ones.
#[derive(Debug, Clone, Copy)]
pub struct ClientTiming {
    /// Interval between audio frames of 40 ms.
    pub frame_interval: Duration,
    /// How long the server must be silent before a transcription counts as complete.
    pub quiet_timeout: Duration,
    /// How long the client waits for a transcript that is still missing after its `vad.speech_end`.
    pub late_transcript_timeout: Duration,
    /// How long an utterance may stay open without any event after the end of the recording.
    pub stall_timeout: Duration,
    /// How long a transcript of the user may be the only answer to a question.
    pub transcript_only_timeout: Duration,
    /// How long after a question `talk` waits for its answer without a word to the user, and for a sign that the server hears
    /// it.
    pub unanswered_timeout: Duration,
    /// How long the client waits for the next message of a spoken answer.
    pub answer_timeout: Duration,
    /// Interval between empty frames while the client sends nothing else.
    pub keep_alive_interval: Duration,
    /// How long the client waits for `session.created`.
    pub created_timeout: Duration,
    /// How long the client waits for `session.closed` and the end of the connection.
    pub close_timeout: Duration,
}

impl Default for ClientTiming {
    fn default() -> Self {
        Self {
            frame_interval: Duration::from_millis(40),
            quiet_timeout: Duration::from_secs(1),
            late_transcript_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            // A conversation may transcribe the user too, and begins its answer within six seconds of silence.
            transcript_only_timeout: Duration::from_secs(8),
            // Longer than the first answer of a model that is free.
            unanswered_timeout: Duration::from_secs(15),
            // A busy model server queues requests; voxbridge itself gives up earlier than this.
            answer_timeout: Duration::from_secs(120),
            // The server closes after 60 s without a binary frame, even while it speaks (mappings/notes/macaw.md#ends).
            keep_alive_interval: Duration::from_secs(20),
            created_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
        }
    }
}

/// Server event, parsed and as received.
#[derive(Debug, Clone)]
pub struct ReceivedEvent {
    /// The parsed event.
    pub event: MacawEvent,
    /// The JSON message.
    pub text: Utf8Bytes,
}

/// Message from the server.
#[derive(Debug, Clone)]
pub enum ServerMessage {
    /// Text message.
    Event(ReceivedEvent),
    /// Binary message: speech, int16 little endian.
    Audio(Bytes),
}

/// A server that accepts no data for this long counts as lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the connection may stay open after `session.closed` before the client closes it.
const HANGUP_TIMEOUT: Duration = Duration::from_secs(1);

/// An open session.
pub struct Client {
    socket: ClientWebSocket,
    timing: ClientTiming,
    session_id: String,
    /// Whether the server answers speech; `None` if it does not say.
    answers: Option<bool>,
    /// How the connection ended; `None` while it is open.
    end_reason: Option<String>,
}

impl Client {
    /// Connects and waits for `session.created`.
    ///
    /// # Errors
    /// [`ClientError::InvalidUrl`], [`ClientError::Unreachable`], [`ClientError::HttpRejected`], [`ClientError::SessionNotOpened`], or
    /// [`ClientError::Server`] if the server rejects the session with an error event.
    pub async fn connect(
        target: &ServerTarget,
        timing: ClientTiming,
    ) -> Result<(Self, ReceivedEvent), ClientError> {
        let (socket, answers) = dial::dial(target).await?;
        let (client, created) = Self::await_created(socket, target, timing).await?;
        Ok((Self { answers, ..client }, created))
    }

    /// Waits for `session.created` on an open connection.
    ///
    /// # Errors
    /// [`ClientError::SessionNotOpened`], [`ClientError::Server`] or [`ClientError::ConnectionLost`].
    pub(super) async fn await_created(
        socket: ClientWebSocket,
        target: &ServerTarget,
        timing: ClientTiming,
    ) -> Result<(Self, ReceivedEvent), ClientError> {
        let mut client = Self { socket, timing, session_id: String::new(), answers: None, end_reason: None };
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
            None => Err(not_opened(client.end_description())),
        }
    }

    /// The session id assigned by the server.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// True if the server has said that it only transcribes.
    pub const fn only_transcribes(&self) -> bool {
        matches!(self.answers, Some(false))
    }

    /// The intervals and timeouts of this client.
    pub const fn timing(&self) -> &ClientTiming {
        &self.timing
    }

    /// Receives the next message; `None` after the end of the connection. Cancel-safe.
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
                // The library answers pings.
                Some(Ok(_)) => {}
                None => self.end_reason = Some("the server hung up".to_owned()),
                Some(Err(reason)) if is_disconnect(&reason) => {
                    self.end_reason = Some("the server hung up".to_owned());
                }
                Some(Err(reason)) => return Err(ClientError::ConnectionLost(reason.to_string())),
            }
        }
        Ok(None)
    }

    /// Describes how the connection ended.
    fn end_description(&self) -> String {
        self.end_reason.as_deref().unwrap_or("it is still open").trim_end().to_owned()
    }

    /// Error for a connection that ended before the command was done.
    pub(super) fn connection_lost(&self) -> ClientError {
        ClientError::ConnectionLost(self.end_description())
    }

    /// Sends microphone audio, int16 mono 16 kHz. A real server needs at least 512 samples a frame
    /// (mappings/notes/macaw.md#audio-in).
    ///
    /// # Errors
    /// [`ClientError::ConnectionLost`] if the connection is over or the server accepts no data.
    pub async fn send_audio(&mut self, samples: &[i16]) -> Result<(), ClientError> {
        self.send(Message::Binary(s16le_bytes(samples).into())).await
    }

    /// Sends an empty binary message, which keeps the session alive (mappings/notes/macaw.md#ends).
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

    /// Closes the session cleanly: sends `session.close`, then waits for `session.closed` and the end of the connection,
    /// all within [`ClientTiming::close_timeout`]. `on_event` receives the remaining events. Returns `true` if the server
    /// acknowledged the close.
    pub async fn close(mut self, mut on_event: impl FnMut(&ReceivedEvent)) -> bool {
        let mut deadline = Instant::now() + self.timing.close_timeout;
        let mut is_acknowledged = false;
        if self.send_command(&json!({"type": "session.close"})).await.is_ok() {
            while let Ok(Ok(Some(message))) = timeout_at(deadline, self.next()).await {
                let ServerMessage::Event(event) = message else { continue };
                on_event(&event);
                if matches!(event.event, MacawEvent::SessionClosed { .. }) {
                    is_acknowledged = true;
                    // The real server hangs up at once, without a close frame.
                    deadline = deadline.min(Instant::now() + HANGUP_TIMEOUT);
                }
            }
        }
        self.hang_up().await;
        is_acknowledged
    }

    /// Sends a close frame, or flushes the answer to the server's close frame.
    pub async fn hang_up(mut self) {
        let _ = timeout(HANGUP_TIMEOUT, self.socket.close(None)).await;
    }

    async fn send(&mut self, message: Message) -> Result<(), ClientError> {
        match timeout(SEND_TIMEOUT, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            // The unread error or close frame of the server says more than "broken pipe".
            Ok(Err(reason)) => Err(ClientError::ConnectionLost(
                self.read_final_error().await.unwrap_or_else(|| reason.to_string()),
            )),
            Err(_) => Err(ClientError::ConnectionLost(format!(
                "the server accepted no data for {} s",
                SEND_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Reads the last error or close frame of the server.
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

/// Converts an `error` event to an error.
pub(super) fn server_error(code: &str, message: &str) -> ClientError {
    let code = if code.is_empty() { "an error" } else { code };
    ClientError::Server { code: printable(code), message: printable(message) }
}

/// Beginning of a message, for an error text.
fn excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    printable(&text.chars().take(MAX_CHARS).collect::<String>())
}

/// True if the error only means that the peer hung up. uvicorn ends the TCP connection without a close frame.
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
