//! One run: connect, warm up, measure, verify.

use std::rc::Rc;

use tokio::{
    net::TcpListener,
    task::spawn_local,
    time::{Duration, Instant, sleep, sleep_until},
};

use crate::{
    churn,
    client::Client,
    options::{BridgeKind, Options},
    pacer,
    process::{Bridge, Cost},
    relay_upstream,
    run_context::{RunContext, SETTLE_TIME},
    sample_tracker::SampleCounts,
    statistics::Tally,
    test_audio::{SECOND_SAMPLES, TestAudio},
    upstream_stub,
};

/// Number of connects before other tasks get a turn.
const CONNECT_BATCH: usize = 16;
/// Timeout of a session's start.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Results of a run.
pub(crate) struct Outcome {
    pub(crate) options: Options,
    /// Duration of the measurement, s.
    pub(crate) seconds: f64,
    /// Bridge before the first session, with all sessions, and over the measured time.
    pub(crate) at_rest: Cost,
    pub(crate) when_idle: Cost,
    pub(crate) while_measured: Cost,
    pub(crate) generator: Cost,
    pub(crate) cost_is_known: bool,
    pub(crate) tally: Tally,
}

/// Measures this number of sessions.
pub(crate) async fn run(options: Options, sound: Rc<TestAudio>) -> Result<Outcome, String> {
    let listener = TcpListener::bind(&options.upstream_listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", options.upstream_listen))?;
    let local = listener.local_addr().map_err(|error| error.to_string())?;
    let bridge = Bridge::start(&options, &options.server.url(local))?;
    let context = Rc::new(RunContext::new(options, sound));
    let serving = spawn_local(upstream_stub::accept_connections(Rc::clone(&context), listener));
    sleep(Duration::from_millis(200)).await;
    let rest = bridge.measure_cost();
    connect_all(&context, &bridge.address).await?;
    sleep(Duration::from_millis(500)).await;
    let idle = bridge.measure_cost();
    let outcome = measure(&context, &bridge, (rest, idle)).await;
    serving.abort();
    Ok(outcome)
}

/// Connects all clients and waits for all sessions.
async fn connect_all(context: &Rc<RunContext>, address: &str) -> Result<(), String> {
    for number in 0..context.options.sessions {
        let client = Client::connect(context, address, number).await?;
        context.clients.borrow_mut().push(client);
        if number % CONNECT_BATCH == CONNECT_BATCH - 1 {
            sleep(Duration::from_millis(5)).await;
        }
    }
    let dials = context.options.path == BridgeKind::Relay || context.options.is_conversation();
    let wanted = if dials { context.options.sessions } else { 0 };
    let begun = Instant::now();
    while context.upstream_sessions_created.get() < wanted
        || !context.clients.borrow().iter().all(|client| client.is_ready.get())
    {
        if begun.elapsed() > CONNECT_TIMEOUT {
            let ready = context.clients.borrow().iter().filter(|client| client.is_ready.get()).count();
            let created = context.upstream_sessions_created.get();
            return Err(format!(
                "after {} s {ready} of {} clients have a session, and {created} of {wanted} upstream sessions were created",
                CONNECT_TIMEOUT.as_secs(),
                context.options.sessions
            ));
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn measure(context: &Rc<RunContext>, bridge: &Bridge, (at_rest, when_idle): (Cost, Cost)) -> Outcome {
    let begin = Instant::now() + Duration::from_millis(100);
    if !context.options.mostly_idle {
        spawn_local(pacer::run_pacer(Rc::clone(context), begin));
    }
    let churning = churn::start(context, &bridge.address);
    sleep_until(begin + Duration::from_secs_f64(context.options.warmup)).await;
    let (before, own_before, began) = (bridge.measure_cost(), Cost::of_this_process(), Instant::now());
    context.tally.borrow().is_measuring.set(true);
    sleep_until(began + Duration::from_secs_f64(context.options.seconds)).await;
    context.tally.borrow().is_measuring.set(false);
    let (after, own_after, seconds) =
        (bridge.measure_cost(), Cost::of_this_process(), began.elapsed().as_secs_f64());
    churning.abort();
    context.is_stopping.set(true);
    wait_for_audio(context).await;
    collect_counts(context);
    context.is_leaving.set(true);
    disconnect_all(context).await;
    Outcome {
        options: context.options.clone(),
        seconds,
        at_rest,
        when_idle,
        while_measured: after - before,
        generator: own_after - own_before,
        cost_is_known: bridge.has_processes(),
        tally: context.tally.take(),
    }
}

/// Waits until all data in transit has arrived or timed out.
async fn wait_for_audio(context: &RunContext) {
    let until = Instant::now() + SETTLE_TIME;
    // The bridge fills the last unit with silence and sends it when the next frame is missing.
    sleep(Duration::from_millis(if context.options.mostly_idle { 0 } else { 1_500 })).await;
    let complete = || context.clients.borrow().iter().all(|client| client.receiver.borrow().is_complete());
    while Instant::now() < until && !complete() {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Sums up the results of all clients.
fn collect_counts(context: &RunContext) {
    let (mut up, mut down) = (SampleCounts::default(), SampleCounts::default());
    for client in context.clients.borrow().iter() {
        down += client.receiver.borrow().counts();
        up += up_counts(context, client);
    }
    let mut tally = context.tally.borrow_mut();
    tally.up_samples += up;
    tally.down_samples += down;
}

fn up_counts(context: &RunContext, client: &Client) -> SampleCounts {
    if context.options.mostly_idle || context.options.is_assistant() {
        // Questions of an assistant were counted when they arrived.
        SampleCounts::default()
    } else if context.options.path == BridgeKind::Relay {
        relay_upstream::frame_counts(context, client, &client.relay_tracker.borrow())
    } else if context.options.is_conversation() {
        // The last unit may have been incomplete.
        let matcher = client.audio_matcher.borrow();
        let sent = client.samples_sent(context);
        matcher.as_ref().map_or(SampleCounts { sent, lost: sent, ..SampleCounts::default() }, |matcher| {
            matcher.tracker.counts(sent, SECOND_SAMPLES as u64)
        })
    } else {
        client.transcript_check.borrow().counts(context, client)
    }
}

async fn disconnect_all(context: &RunContext) {
    let clients = context.clients.take();
    for client in &clients {
        client.send_close(context);
    }
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until && !clients.iter().all(|client| client.is_closed.get()) {
        sleep(Duration::from_millis(10)).await;
    }
}
