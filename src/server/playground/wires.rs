//! Sends the records of one session to the page that watches it, one text message for each line of a trace.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{Role, WebSocketConfig},
    },
};
use tracing::debug;

use super::watchers::{WatchedSession, WatcherPlace};
use crate::{
    server::session_task::wait_for_drain_order,
    trace::{AudioRetention, TraceWriter},
};

/// A page that takes no message for this long has gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Pages send nothing but a close frame.
const RECEIVE_MAX_BYTES: usize = 1024;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Waits for the page's session, then sends its records until it ends or the page goes. Ends at once when the server drains
/// before a session comes.
pub(in crate::server) async fn run(
    upgraded: OnUpgrade,
    place: WatcherPlace,
    found: oneshot::Receiver<WatchedSession>,
    drain: watch::Receiver<Option<Duration>>,
) {
    let Ok(upgraded) = upgraded.await else { return };
    let limits = WebSocketConfig::default()
        .max_message_size(Some(RECEIVE_MAX_BYTES))
        .max_frame_size(Some(RECEIVE_MAX_BYTES));
    let mut socket = Socket::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(limits)).await;
    let session = tokio::select! {
        session = found => session.ok(),
        () = page_gone(&mut socket) => return,
        _ = wait_for_drain_order(drain) => None,
    };
    if let Some(session) = session
        && send_all(&mut socket, session).await.is_none()
    {
        debug!("the page that watched a session has gone");
        return;
    }
    let _ = timeout(SEND_TIMEOUT, socket.close(None)).await;
    drop(place);
}

/// Sends the header and all records; `None` if the page goes.
async fn send_all(socket: &mut Socket, mut session: WatchedSession) -> Option<()> {
    let mut writer = TraceWriter::new(AudioRetention::All);
    let mut header = session.header;
    header.audio = AudioRetention::All;
    send(socket, writer.format_header(header)).await?;
    loop {
        let records = tokio::select! {
            records = session.lines.next() => records,
            () = page_gone(socket) => return None,
        };
        let Some(records) = records else { return Some(()) };
        for record in records.into_iter().flatten() {
            send(socket, writer.format_record(record)).await?;
        }
    }
}

async fn send(socket: &mut Socket, mut line: String) -> Option<()> {
    line.truncate(line.trim_end().len());
    timeout(SEND_TIMEOUT, socket.send(Message::text(line))).await.ok()?.ok()
}

/// Completes when the page closes its socket.
async fn page_gone(socket: &mut Socket) {
    while let Some(Ok(message)) = socket.next().await {
        if message.is_close() {
            return;
        }
    }
}
