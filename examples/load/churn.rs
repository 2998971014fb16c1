//! Sessions that come and go: so many a second, each there for a moment.

use std::rc::Rc;

use tokio::{
    net::TcpStream,
    task::{JoinHandle, spawn_local},
    time::{Duration, Instant, sleep, sleep_until, timeout},
};

use crate::{
    client::target,
    wire::{self, Inbox},
    world::World,
};

/// How long each stays after its first message.
const STAY: Duration = Duration::from_millis(100);
/// How long its first message may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens and closes sessions until it is aborted.
pub(crate) fn begin(world: &Rc<World>, address: &str) -> JoinHandle<()> {
    let (world, address) = (Rc::clone(world), address.to_owned());
    spawn_local(async move {
        let Some(a_second) = world.options.churn.filter(|a_second| *a_second > 0.0) else { return };
        let began = Instant::now();
        for number in 1u32.. {
            spawn_local(visit(Rc::clone(&world), address.clone()));
            sleep_until(began + Duration::from_secs_f64(f64::from(number) / a_second)).await;
        }
    })
}

async fn visit(world: Rc<World>, address: String) {
    let begun = Instant::now();
    match timeout(PATIENCE, come_and_go(&world, &address, begun)).await {
        Ok(Ok(())) => {}
        Ok(Err(words)) => failed(&world, &words),
        Err(_) => failed(&world, "a session did not open in time"),
    }
}

fn failed(world: &World, words: &str) {
    let mut tally = world.tally.borrow_mut();
    if !world.leaving.get() {
        tally.failed_opens += 1;
        tally.error(words);
    }
}

async fn come_and_go(world: &Rc<World>, address: &str, begun: Instant) -> Result<(), String> {
    // No standing client has so high a number.
    let (host, path) = target(world, address, usize::MAX);
    let tcp = TcpStream::connect(host).await.map_err(|error| error.to_string())?;
    let (read, write) = tcp.into_split();
    let mut inbox = Inbox::new(read, Rc::clone(&world.pool));
    wire::ask(&mut inbox, &write, host, &path).await?;
    inbox.frame().await.ok_or("a session ended before its first message")?;
    if world.tally.borrow().measuring.get() {
        world.tally.borrow_mut().opened.add(begun.elapsed().as_micros() as u64);
    }
    sleep(STAY).await;
    wire::send(&write, &[&wire::CLIENT_CLOSE]).await.map_err(|error| error.to_string())?;
    while inbox.frame().await.is_some() {}
    Ok(())
}
