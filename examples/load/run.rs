//! One run: everybody connects, everybody sends, somebody looks at the clock.

use std::rc::Rc;

use tokio::{
    net::TcpListener,
    task::spawn_local,
    time::{Duration, Instant, sleep, sleep_until},
};

use crate::{
    churn,
    client::Client,
    figures::Tally,
    options::{Options, Way},
    process::{Bridge, Cost},
    pulse, relayed,
    sound::{SECOND, Sound},
    stub,
    track::Counts,
    world::{SETTLING, World},
};

/// How many connect at a time before the others get a turn.
const TOGETHER: usize = 16;
/// How long a session may take until it is there.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came of a run.
pub(crate) struct Outcome {
    pub(crate) options: Options,
    /// Length of the measurement, s.
    pub(crate) seconds: f64,
    /// The bridge before anybody came, with everybody there, and what the measured time took.
    pub(crate) rest: Cost,
    pub(crate) idle: Cost,
    pub(crate) active: Cost,
    pub(crate) own: Cost,
    pub(crate) cost_is_known: bool,
    pub(crate) tally: Tally,
}

/// Measures so many sessions.
pub(crate) async fn run(options: Options, sound: Rc<Sound>) -> Result<Outcome, String> {
    let listener = TcpListener::bind(&options.upstream_listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", options.upstream_listen))?;
    let local = listener.local_addr().map_err(|error| error.to_string())?;
    let bridge = Bridge::start(&options, &format!("ws://{local}/v1/realtime"))?;
    let world = Rc::new(World::new(options, sound));
    let serving = spawn_local(stub::listen(Rc::clone(&world), listener));
    sleep(Duration::from_millis(200)).await;
    let rest = bridge.cost();
    connect(&world, &bridge.address).await?;
    sleep(Duration::from_millis(500)).await;
    let idle = bridge.cost();
    let outcome = measure(&world, &bridge, (rest, idle)).await;
    serving.abort();
    Ok(outcome)
}

/// Everybody connects, and waits until all sessions are there.
async fn connect(world: &Rc<World>, address: &str) -> Result<(), String> {
    for number in 0..world.options.sessions {
        let client = Client::connect(world, address, number).await?;
        if world.options.mostly_idle && world.options.path == Way::Macaw {
            client.say(world, r#"{"type":"session.configure","enable_partial_transcripts":true}"#);
        }
        world.clients.borrow_mut().push(client);
        if number % TOGETHER == TOGETHER - 1 {
            sleep(Duration::from_millis(5)).await;
        }
    }
    let dials = world.options.path == Way::Relay || world.options.converses();
    let wanted = if dials { world.options.sessions } else { 0 };
    let begun = Instant::now();
    while world.created.get() < wanted || !world.clients.borrow().iter().all(|client| client.ready.get()) {
        if begun.elapsed() > PATIENCE {
            let ready = world.clients.borrow().iter().filter(|client| client.ready.get()).count();
            let created = world.created.get();
            return Err(format!(
                "after {} s {ready} of {} clients have a session, and {created} of {wanted} upstream sessions were created",
                PATIENCE.as_secs(),
                world.options.sessions
            ));
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn measure(world: &Rc<World>, bridge: &Bridge, (rest, idle): (Cost, Cost)) -> Outcome {
    let begin = Instant::now() + Duration::from_millis(100);
    if !world.options.mostly_idle {
        spawn_local(pulse::beat(Rc::clone(world), begin));
    }
    let churning = churn::begin(world, &bridge.address);
    sleep_until(begin + Duration::from_secs_f64(world.options.warmup)).await;
    let (before, own_before, began) = (bridge.cost(), Cost::own(), Instant::now());
    world.tally.borrow().measuring.set(true);
    sleep_until(began + Duration::from_secs_f64(world.options.seconds)).await;
    world.tally.borrow().measuring.set(false);
    let (after, own_after, seconds) = (bridge.cost(), Cost::own(), began.elapsed().as_secs_f64());
    churning.abort();
    world.stopping.set(true);
    settle(world).await;
    count(world);
    world.leaving.set(true);
    leave(world).await;
    Outcome {
        options: world.options.clone(),
        seconds,
        rest,
        idle,
        active: after - before,
        own: own_after - own_before,
        cost_is_known: bridge.is_known(),
        tally: world.tally.take(),
    }
}

/// Waits until all that is under way has come, or should have.
async fn settle(world: &World) {
    let until = Instant::now() + SETTLING;
    // The last unit is filled with silence and sent once the bridge misses the next frame.
    sleep(Duration::from_millis(if world.options.mostly_idle { 0 } else { 1_500 })).await;
    let complete = || world.clients.borrow().iter().all(|client| client.heard.borrow().is_complete());
    while Instant::now() < until && !complete() {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Adds up what became of everybody's samples.
fn count(world: &World) {
    let (mut up, mut down) = (Counts::default(), Counts::default());
    for client in world.clients.borrow().iter() {
        down += client.heard.borrow().counts();
        up += up_counts(world, client);
    }
    let mut tally = world.tally.borrow_mut();
    tally.up_samples += up;
    tally.down_samples += down;
}

fn up_counts(world: &World, client: &Client) -> Counts {
    if world.options.mostly_idle {
        Counts::default()
    } else if world.options.path == Way::Relay {
        relayed::counts(world, client, &client.relayed.borrow())
    } else if world.options.converses() {
        // The last unit may not have been full yet.
        let ear = client.ear.borrow();
        let sent = client.sent(world);
        ear.as_ref().map_or(Counts { sent, lost: sent, ..Counts::default() }, |ear| {
            ear.track.counts(sent, SECOND as u64)
        })
    } else {
        client.utterances.borrow().counts(world, client)
    }
}

async fn leave(world: &World) {
    let clients = world.clients.take();
    for client in &clients {
        client.leave(world);
    }
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until && !clients.iter().all(|client| client.gone.get()) {
        sleep(Duration::from_millis(10)).await;
    }
}
