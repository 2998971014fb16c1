//! Section `capacity`: more and more sessions at a time, until one waits in the queue or the option's limit is reached.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::bench::{Bench, within};
use crate::{
    cli::ClientError,
    server::{RestEvent, RestSession},
    verify::figure::{Expectation, Figure},
};

const TEXT: &str = "This sentence is spoken by several sessions at the same time.";
/// Time limit of one session, with all others before it in the queue.
const SESSION_MAX: Duration = Duration::from_secs(180);
/// Longer than a worker needs to clean up.
const WORKER_PAUSE: Duration = Duration::from_secs(2);
const SESSIONS_MIN: Expectation = Expectation::AtLeast(1.0);
const SERVED_MIN: Expectation = Expectation::AtLeast(1.0);
const FIRST_AUDIO_MAX: Expectation = Expectation::AtMost(4.0);

/// How one session fared.
struct Served {
    has_queued: bool,
    first_audio: Duration,
}

pub(super) async fn run(bench: &mut Bench<'_>) {
    let (mut free, mut first_audio, mut limit) = (0, Duration::ZERO, None);
    for sessions in 1..=bench.plan.sessions_max {
        let mut all = speak_at_once(bench, sessions).await;
        if all.iter().flatten().any(|one| one.has_queued) {
            // A worker may still have been busy with the session before.
            sleep(WORKER_PAUSE).await;
            all = speak_at_once(bench, sessions).await;
        }
        let served: Vec<&Served> = all.iter().flatten().collect();
        if let Some(error) = all.iter().find_map(|one| one.as_ref().err()) {
            let share = served.len() as f64 / sessions as f64;
            let note = format!("{} of {sessions} sessions at a time: {error}", served.len());
            bench
                .ledger
                .add([Figure::measured("capacity.served", share, "share", SERVED_MIN).with_note(&note)]);
            limit = Some(format!("{sessions} at a time failed"));
            break;
        }
        if served.iter().any(|one| one.has_queued) {
            limit = Some(format!("{sessions} at a time wait in the queue"));
            break;
        }
        free = sessions;
        first_audio = served.iter().map(|one| one.first_audio).max().unwrap_or_default();
    }
    let note = limit.unwrap_or_else(|| {
        format!("no session waited in the queue; at most {} were tried", bench.plan.sessions_max)
    });
    let mut figures =
        vec![Figure::measured("capacity.sessions", free as f64, "", SESSIONS_MIN).with_note(&note)];
    if free > 0 {
        let note = format!("the last of {free} sessions at a time");
        let seconds = first_audio.as_secs_f64();
        figures
            .push(Figure::measured("capacity.first_audio", seconds, "s", FIRST_AUDIO_MAX).with_note(&note));
    }
    bench.ledger.add(figures);
}

async fn speak_at_once(bench: &Bench<'_>, sessions: usize) -> Vec<Result<Served, ClientError>> {
    join_all((0..sessions).map(|_| within(SESSION_MAX, speak(bench)))).await
}

/// Speaks a text in a session of its own.
async fn speak(bench: &Bench<'_>) -> Result<Served, ClientError> {
    let RestSession { mut commands, mut events } = bench.bridge.open().await?;
    let started = Instant::now();
    commands.send(&json!({"type": "speak", "text": TEXT})).await;
    let (mut has_queued, mut first_audio) = (false, None);
    loop {
        let message = events.next_message().await.and_then(RestEvent::read);
        match message.map_err(ClientError::ConnectionLost)? {
            RestEvent::Queued { .. } => has_queued = true,
            RestEvent::Audio(_) => _ = first_audio.get_or_insert_with(|| started.elapsed()),
            RestEvent::SpeakingEnd { .. } => {
                let first_audio = first_audio.ok_or(ClientError::NoAudio)?;
                return Ok(Served { has_queued, first_audio });
            }
            // The session goes on by itself.
            RestEvent::Error { code, .. } if code == "queue_stuck" => has_queued = true,
            RestEvent::Error { code, message, .. } => return Err(ClientError::from_model(&code, message)),
            RestEvent::Closed { reason } => return Err(ClientError::session_closed(&reason)),
            _ => {}
        }
    }
}
