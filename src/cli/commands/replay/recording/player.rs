//! Plays the user's audio to a session, as the user was heard: in real time, and with silence until the session is quiet.

use std::time::Duration;

use tokio::{
    sync::oneshot,
    time::{Instant, interval_at},
};

use crate::{
    cli::{
        error::ClientError, local_bridge::LocalBridge, output::print_message, recording::FRAME_SAMPLES,
        stream_recording::SILENT_FRAME,
    },
    server::{RestEvents, RestRequests, RestSession},
    session::measurement::SessionState,
    vocabulary::{ClientEvent, ClientRequest, CloseReason},
};

/// Protocol of the client.
const PROTOCOL: &str = "macaw";
/// Length of a frame.
const FRAME: Duration = Duration::from_millis(40);
/// The session is over when nothing has happened for this long after the recording's end: a conversation answers within six
/// seconds of silence.
const QUIET: Duration = Duration::from_secs(6);
/// Longest time after the recording's end.
const AFTER_MAX: Duration = Duration::from_secs(60);
/// Longest time of the end of the session.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// A session that was held.
pub(super) struct Played {
    pub(super) session_id: String,
    /// Why it ended before the recording did.
    pub(super) end: Result<(), ClientError>,
}

/// Plays these samples (16 kHz) to a new session. A signal ends it early.
pub(super) async fn play(
    bridge: &LocalBridge,
    user: &[i16],
    stopped: oneshot::Receiver<u8>,
) -> Result<Played, ClientError> {
    let RestSession { requests, mut events } = bridge.open_client(PROTOCOL).await?;
    let session_id = wait_until_open(bridge, &mut events).await?;
    let seconds = user.len() as f64 / f64::from(crate::audio::SPEECH_RATE_HZ);
    print_message(format_args!("playing {seconds:.1} s in real time"));
    let speaking = async {
        tokio::select! {
            () = speak(bridge, &requests, user) => Ok(()),
            Ok(signal) = stopped => Err(ClientError::Stopped(signal)),
        }
    };
    let end = tokio::select! {
        end = speaking => end,
        end = read_to_end(&mut events) => end,
    };
    requests.send(ClientRequest::Close(CloseReason::ClientClose)).await;
    // Events that nobody reads would delay the session's end.
    let _ = tokio::time::timeout(CLOSE_MAX, read_to_end(&mut events)).await;
    Ok(Played { session_id, end })
}

/// Waits for the first event. Returns the session's id.
async fn wait_until_open(bridge: &LocalBridge, events: &mut RestEvents) -> Result<String, ClientError> {
    match events.next_event().await.map_err(ClientError::ConnectionLost)? {
        ClientEvent::Error(error) => Err(ClientError::from_model(error)),
        _ => match bridge.registry().all().first() {
            Some(session) => Ok(session.info.id.clone()),
            None => Err(ClientError::ConnectionLost("the session has ended".to_owned())),
        },
    }
}

/// Sends the samples, and then silence until the session is quiet.
async fn speak(bridge: &LocalBridge, requests: &RestRequests, user: &[i16]) {
    // A frame is sent when a microphone would have it.
    let mut ticks = interval_at(Instant::now() + FRAME, FRAME);
    for frame in user.chunks(FRAME_SAMPLES) {
        ticks.tick().await;
        if !requests.send_audio(frame).await {
            return;
        }
    }
    let (ended, mut quiet_since) = (Instant::now(), Instant::now());
    while quiet_since.elapsed() < QUIET && ended.elapsed() < AFTER_MAX {
        ticks.tick().await;
        if !requests.send_audio(&SILENT_FRAME).await {
            return;
        }
        if bridge.registry().all().iter().any(|session| session.state() != SessionState::Idle) {
            quiet_since = Instant::now();
        }
    }
}

/// Takes all events until the session ends, which fails unless the client has asked for it.
async fn read_to_end(events: &mut RestEvents) -> Result<(), ClientError> {
    loop {
        match events.next_event().await.map_err(ClientError::ConnectionLost)? {
            ClientEvent::SessionClosed { reason: CloseReason::ClientClose, .. } => return Ok(()),
            ClientEvent::SessionClosed { reason, .. } => return Err(ClientError::bridge_closed(reason)),
            ClientEvent::Error(error) => print_message(format_args!("the session reports: {error}")),
            _ => {}
        }
    }
}
