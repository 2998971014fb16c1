//! Short sessions, opened at a fixed rate.

use std::rc::Rc;

use tokio::{
    net::TcpStream,
    task::{JoinHandle, spawn_local},
    time::{Duration, Instant, sleep, sleep_until, timeout},
};

use crate::{
    client::connect_target,
    run_context::RunContext,
    websocket::{self, FrameReader},
};

/// Duration of a session after its first message.
const SESSION_DURATION: Duration = Duration::from_millis(100);
/// Timeout of the first message.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens and closes sessions until it is aborted.
pub(crate) fn start(context: &Rc<RunContext>, address: &str) -> JoinHandle<()> {
    let (context, address) = (Rc::clone(context), address.to_owned());
    spawn_local(async move {
        let Some(a_second) = context.options.churn.filter(|a_second| *a_second > 0.0) else { return };
        let began = Instant::now();
        for number in 1u32.. {
            spawn_local(run_session(Rc::clone(&context), address.clone()));
            sleep_until(began + Duration::from_secs_f64(f64::from(number) / a_second)).await;
        }
    })
}

async fn run_session(context: Rc<RunContext>, address: String) {
    let begun = Instant::now();
    match timeout(OPEN_TIMEOUT, open_and_close(&context, &address, begun)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => count_failed_open(&context, &error),
        Err(_) => count_failed_open(&context, "a session did not open in time"),
    }
}

fn count_failed_open(context: &RunContext, error: &str) {
    let mut tally = context.tally.borrow_mut();
    if !context.is_leaving.get() {
        tally.failed_opens += 1;
        tally.record_error(error);
    }
}

async fn open_and_close(context: &Rc<RunContext>, address: &str, begun: Instant) -> Result<(), String> {
    // Above the numbers of all standing clients.
    let (host, path) = connect_target(context, address, usize::MAX);
    let tcp = TcpStream::connect(host).await.map_err(|error| error.to_string())?;
    let (read, write) = tcp.into_split();
    let mut inbox = FrameReader::new(read, Rc::clone(&context.buffer_pool));
    websocket::request_upgrade(&mut inbox, &write, host, &path).await?;
    inbox.next_frame().await.ok_or("a session ended before its first message")?;
    if context.tally.borrow().is_measuring.get() {
        context.tally.borrow_mut().open_latency.add(begun.elapsed().as_micros() as u64);
    }
    sleep(SESSION_DURATION).await;
    websocket::write_all(&write, &[&websocket::CLIENT_CLOSE]).await.map_err(|error| error.to_string())?;
    while inbox.next_frame().await.is_some() {}
    Ok(())
}
