//! Signs that only a WebSocket shows: a refused handshake, or the answer to a message that opens no session.
//!
//! A gateway of the older dialect takes any mode and begins a session, and names another reason for its end. It is asked only
//! while a worker is idle, and the session is closed politely: both real gateways lose a worker for ever when a queued client leaves.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error as WsError, Message},
};

use crate::{
    net::Transport,
    server::upstream_pool::{dial::Dialer, http_page::HttpPage, probe::WorkerReport},
    spelling::{Library, UpstreamMapping, upstream::SocketSign},
    upstream::Dialect,
    vocabulary::{Frame, LaneEvent, LaneRequest, Mode},
};

/// Time for a handshake, and for the answer to a message.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Time for closing a session that the trial has opened.
const LEAVE_MAX: Duration = Duration::from_secs(30);

/// A WebSocket without a client, opened for the trial.
type Socket = WebSocketStream<Box<dyn Transport>>;

/// Name of the dialect that a WebSocket shows; `None` if it shows none, or cannot be tried now. `page` is that of the sign.
pub(super) async fn shown_dialect(
    dialer: &Dialer,
    sign: &SocketSign,
    own: &UpstreamMapping,
    library: &Library,
    page: &HttpPage,
) -> Option<String> {
    let own_name = || Some(own.name.clone());
    match sign {
        SocketSign::Refusal { mode, status, accepted_by, closed_as } => {
            let other = library.upstream(accepted_by).ok().filter(|_| has_idle_worker(page))?;
            match timeout(ANSWER_MAX, dialer.try_socket(Ok(mode))).await.ok()? {
                Ok(socket) => {
                    let leaving = tokio::spawn(timeout(LEAVE_MAX, leave(socket, Dialect::new(other))));
                    // A session that takes longer is left in the background.
                    let left = timeout(ANSWER_MAX, leaving).await;
                    let reason = left.ok().and_then(|left| left.ok()?.ok()?);
                    if reason.is_some_and(|reason| reason == *closed_as) {
                        Some(accepted_by.clone())
                    } else {
                        own_name()
                    }
                }
                Err(WsError::Http(answer)) if answer.status().as_u16() == *status => own_name(),
                Err(_) => None,
            }
        }
        SocketSign::Answer { send, contains, close } => {
            let answer = timeout(ANSWER_MAX, first_answer(dialer, send, close.as_deref())).await.ok()??;
            own_name().filter(|_| answer.contains(contains))
        }
    }
}

/// True if a session that begins now does not wait in the queue.
fn has_idle_worker(page: &HttpPage) -> bool {
    let report: Result<WorkerReport, _> = serde_json::from_str(page.body());
    report.is_ok_and(|report| report.idle > 0 && report.queued == 0)
}

/// Closes the session as soon as it has its worker, and waits for its end. Returns the server's reason.
async fn leave(mut socket: Socket, dialect: Dialect) -> Option<String> {
    let mut reason = None;
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let mut is_granted = false;
        dialect.decode(Frame::Text(&text), |event, _| match event {
            LaneEvent::Granted => is_granted = true,
            LaneEvent::Closed(end) => reason = Some(end.detail),
            _ => {}
        });
        if is_granted {
            let close = dialect.encode(&LaneRequest::Close, Mode::Audio);
            let _ = socket.send(Message::text(close)).await;
        }
    }
    reason
}

/// The server's answer to a message. `close` ends the session that it opens.
async fn first_answer(dialer: &Dialer, message: &str, close: Option<&str>) -> Option<String> {
    let mut socket = dialer.try_socket(Err(Mode::Audio)).await.ok()?;
    socket.send(Message::text(message)).await.ok()?;
    let answer = loop {
        if let Message::Text(text) = socket.next().await?.ok()? {
            break text.to_string();
        }
    };
    if let Some(close) = close {
        socket.send(Message::text(close)).await.ok()?;
        // The server has read it when it ends the connection.
        tokio::spawn(timeout(LEAVE_MAX, async move { while let Some(Ok(_)) = socket.next().await {} }));
    }
    Some(answer)
}
