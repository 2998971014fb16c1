//! A client from its first attempt until it has what it wanted, over as many sessions as that takes.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep},
};
use voxbridge::{bridge::Input, session::Observation, vocabulary::Message};

use crate::{
    fleet::{DRAIN, Fleet},
    script::{Progress, Script},
    session::{Session, SessionEvent, Woken},
};

/// How a session ended for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The client has what it wanted.
    Complete,
    /// The replica stops.
    Drained,
    /// voxbridge gave up.
    Failed,
}

/// Runs a client.
pub(crate) async fn run(fleet: Arc<Fleet>) {
    let (seed, phase) = (fleet.random(|rng| rng.u64(..)), fleet.tally().phase());
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut script = Script::new(&fleet.options, Instant::now(), rng.fork());
    {
        let mut tally = fleet.tally();
        tally.begun += 1;
        tally.of(phase).clients += 1;
    }
    loop {
        let (sender, ended) = oneshot::channel();
        tokio::spawn(run_session(Arc::clone(&fleet), script, sender));
        let Ok((ending, next)) = ended.await else { return };
        script = next;
        let phase = fleet.tally().phase();
        match ending {
            Ending::Complete => return fleet.tally().complete += 1,
            Ending::Drained => fleet.tally().of(phase).reconnects += 1,
            Ending::Failed => fleet.tally().of(phase).errors += 1,
        }
        script.interrupt();
        sleep(Duration::from_secs_f64(1.0 + 2.0 * rng.f64())).await;
    }
}

/// Runs one session to the end of its last lane. Its client is free as soon as the session has ended for it.
async fn run_session(fleet: Arc<Fleet>, mut script: Script, ended: oneshot::Sender<(Ending, Script)>) {
    let replica = fleet.pick_replica();
    let drain_order = Box::pin(wait_for_drain(replica.drain.subscribe()));
    let mut session = Session::new(script.open(&fleet.protocols), replica.pool.clone(), drain_order);
    let (mut events, mut is_draining) = (Vec::new(), false);
    let mut ending = None;
    script.begin(&mut session);
    let is_over = loop {
        let Some(due) = session.drain(&mut events) else { break true };
        for event in events.drain(..) {
            match event {
                SessionEvent::ToClient(Message::Text(text)) => note(&fleet, script.hear(&text)),
                SessionEvent::ToClient(Message::Close(..)) => ending = Some(ending_of(&script, is_draining)),
                SessionEvent::ToClient(Message::Binary(_)) => {}
                SessionEvent::Observed(Observation::LaneRetry { .. }) => {
                    let mut tally = fleet.tally();
                    let phase = tally.phase();
                    tally.of(phase).retries += 1;
                }
                SessionEvent::Observed(_) => {}
                SessionEvent::LaneLost => script.interrupt(),
            }
        }
        if script.is_answered() {
            ending = Some(Ending::Complete);
        }
        if ending.is_some() {
            break false;
        }
        match session.wait(due, script.due, &mut events).await {
            Woken::Input => {}
            Woken::Draining => is_draining = true,
            Woken::ClientTimer => script.act(&mut session),
        }
    };
    let ending = ending.unwrap_or_else(|| ending_of(&script, is_draining));
    let _ = ended.send((ending, script));
    if is_over {
        return;
    }
    // Its lanes close politely, or stay in their queues until they have a worker. A replica that stops cuts them off.
    session.feed(Input::ClientClosed);
    let mut cut_off_at = is_draining.then(|| Instant::now() + DRAIN);
    while let Some(due) = session.drain(&mut events) {
        events.clear();
        match session.wait(due, cut_off_at, &mut events).await {
            Woken::Input => {}
            Woken::Draining => cut_off_at = Some(Instant::now() + DRAIN),
            Woken::ClientTimer => return,
        }
    }
}

fn ending_of(script: &Script, is_draining: bool) -> Ending {
    match (script.is_complete, is_draining) {
        (true, _) => Ending::Complete,
        (false, true) => Ending::Drained,
        (false, false) => Ending::Failed,
    }
}

/// Counts what a client has learnt.
fn note(fleet: &Fleet, progress: Progress) {
    let mut tally = fleet.tally();
    let phase = tally.phase();
    match progress {
        Progress::None => {}
        Progress::Served(waited, kind) => tally.served(Instant::now(), waited, kind),
        Progress::Failed => tally.of(phase).errors += 1,
    }
}

/// Completes with the time to finish when the replica stops.
async fn wait_for_drain(mut drain: watch::Receiver<Option<Duration>>) -> Duration {
    let within = drain.wait_for(Option::is_some).await.ok().and_then(|within| *within);
    match within {
        Some(within) => within,
        None => std::future::pending().await,
    }
}
