//! Drives a session check on a WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use super::{
    connect_check::{OutcomeLog, wait_for_stop},
    session_check::{CheckAction, SessionCheck},
    step::StepLimits,
};
use crate::{
    net::Transport,
    server::queue_keeper::QueueWaits,
    vocabulary::{DisconnectReason, Frame},
};

/// Drives a session check on a socket until it is finished. `leaving` counts it while it waits only to leave a queue.
pub(super) async fn run_session(
    session: &mut SessionCheck,
    socket: &mut WebSocketStream<Box<dyn Transport>>,
    limits: &StepLimits,
    stop: &mut watch::Receiver<bool>,
    leaving: &QueueWaits,
    log: &mut OutcomeLog,
) {
    let (mut close_reason, mut has_sent_close, mut is_stopping) = (None, false, false);
    let mut wait = None;
    loop {
        while let Some(outcome) = session.next_outcome() {
            log.push(outcome);
        }
        let action = session.poll_action();
        match session.is_leaving_queue() {
            true => _ = wait.get_or_insert_with(|| leaving.enter()),
            false => wait = None,
        }
        let until = match action {
            CheckAction::Finished => return,
            CheckAction::Send(text) => {
                // The next read reports a send error.
                if timeout(limits.step_timeout, socket.send(Message::text(text))).await.is_err() {
                    session.handle_disconnect(
                        now(),
                        DisconnectReason::Lost("the server accepts no data".to_owned()),
                    );
                }
                continue;
            }
            CheckAction::CloseAndWait(until) if !std::mem::replace(&mut has_sent_close, true) => {
                let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
                let _ = timeout(limits.close_timeout, socket.close(Some(frame))).await;
                until
            }
            CheckAction::Wait(until) | CheckAction::CloseAndWait(until) => until,
        };
        tokio::select! {
            next = socket.next() => match next {
                Some(Ok(Message::Text(text))) => session.handle_frame(now(), Frame::Text(&text)),
                Some(Ok(Message::Binary(bytes))) => session.handle_frame(now(), Frame::Binary(&bytes)),
                Some(Ok(Message::Close(frame))) => {
                    close_reason = Some(frame.map_or(DisconnectReason::Closed(1005, String::new()), |frame| {
                        DisconnectReason::Closed(frame.code.into(), frame.reason.to_string())
                    }));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => session.handle_disconnect(now(), close_reason.take().unwrap_or_else(|| DisconnectReason::Lost(error.to_string()))),
                None => session.handle_disconnect(now(), close_reason.take().unwrap_or_else(|| DisconnectReason::Lost("the server hung up".to_owned()))),
            },
            () = sleep_until(until.into()) => session.handle_timeout(now()),
            () = wait_for_stop(stop), if !is_stopping => {
                is_stopping = true;
                session.stop(now(), "interrupted");
            }
        }
    }
}

pub(super) fn now() -> std::time::Instant {
    Instant::now().into_std()
}
