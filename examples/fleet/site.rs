//! A gateway with its workers, and what happens to it: crashes, silence, slowness.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep, timeout_at},
};
use voxbridge::{
    server::upstream_pool::probe::WorkerReport,
    simulator::{ConnId, Gateway, SimInput, SimMode, SimOutput, SimTiming, SimulatorConfig},
    vocabulary::{DisconnectReason, Mode},
};

/// Time to connect to a gateway.
const CONNECT: Duration = Duration::from_millis(1);
/// The same in a slow zone.
const SLOW_CONNECT: Duration = Duration::from_millis(300);
/// From a worker's assignment to its initialised session.
const INIT: Duration = Duration::from_secs(1);
/// In a slow zone, all that a worker does takes this many times as long.
const SLOWNESS: u32 = 4;
/// Time after which voxbridge ends a connection without a sign of life (`SILENCE_TIMEOUT` of its sockets).
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// State of a gateway's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Up,
    /// Nothing listens: connections are refused.
    Refusing,
    /// Nothing answers, not even the network.
    Silent,
}

/// A gateway with its workers.
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) zone: usize,
    pub(crate) workers: usize,
    state: Mutex<SiteState>,
    /// The next deadline may have changed.
    changed: Notify,
}

struct SiteState {
    gateway: Gateway,
    seed: u64,
    condition: Condition,
    is_slow: bool,
    links: HashMap<ConnId, mpsc::UnboundedSender<LinkEvent>>,
    next_conn: u64,
    wake_at: Option<Instant>,
    connects: u64,
}

/// Event of a connection.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    Text(String),
    End(DisconnectReason),
}

/// A connection to a gateway; dropping it ends it.
pub(crate) struct Link {
    site: Arc<Site>,
    conn: ConnId,
    pub(crate) events: mpsc::UnboundedReceiver<LinkEvent>,
}

impl Link {
    /// Sends a message to the gateway.
    pub(crate) fn send(&self, text: &str) {
        self.site.feed(SimInput::Text(self.conn, text));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.site.state().links.remove(&self.conn);
        self.site.feed(SimInput::Closed(self.conn));
    }
}

fn gateway(workers: usize, seed: u64, is_slow: bool) -> Gateway {
    let timing = timing(is_slow);
    let config = SimulatorConfig { workers, seed, timing, ..SimulatorConfig::default() };
    Gateway::new(config, Instant::now().into_std(), Duration::from_secs(1_795_148_864))
}

fn timing(is_slow: bool) -> SimTiming {
    let usual = SimTiming { init: INIT, ..SimTiming::default() };
    if !is_slow {
        return usual;
    }
    SimTiming {
        init: usual.init * SLOWNESS,
        first_delta: usual.first_delta * SLOWNESS,
        text_delta: usual.text_delta * SLOWNESS,
        close: usual.close * SLOWNESS,
        ..usual
    }
}

impl Site {
    pub(crate) fn start(name: String, zone: usize, workers: usize, seed: u64) -> Arc<Self> {
        let state = SiteState {
            gateway: gateway(workers, seed, false),
            seed,
            condition: Condition::Up,
            is_slow: false,
            links: HashMap::new(),
            next_conn: 0,
            wake_at: None,
            connects: 0,
        };
        let site = Arc::new(Self { name, zone, workers, state: Mutex::new(state), changed: Notify::new() });
        tokio::spawn(Self::run(Arc::clone(&site)));
        site
    }

    fn state(&self) -> MutexGuard<'_, SiteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the gateway's time pass.
    async fn run(self: Arc<Self>) {
        loop {
            let wake_at = self.state().wake_at;
            let is_due = match wake_at {
                Some(at) => timeout_at(at, self.changed.notified()).await.is_err(),
                None => {
                    self.changed.notified().await;
                    false
                }
            };
            if is_due {
                self.feed(SimInput::Timeout);
            }
        }
    }

    /// Connects, as a dialler would.
    pub(crate) async fn connect(self: Arc<Self>, mode: Mode) -> Result<Link, DisconnectReason> {
        let is_slow = self.state().is_slow;
        sleep(if is_slow { SLOW_CONNECT } else { CONNECT }).await;
        self.check().await.map_err(DisconnectReason::Unreachable)?;
        let (sender, events) = mpsc::unbounded_channel();
        let conn = {
            let mut state = self.state();
            let conn = ConnId(state.next_conn);
            state.next_conn += 1;
            state.connects += 1;
            state.links.insert(conn, sender);
            conn
        };
        let mode = if mode == Mode::Chat { SimMode::Chat } else { SimMode::Audio };
        self.feed(SimInput::Connected(conn, mode));
        Ok(Link { site: self, conn, events })
    }

    /// Succeeds if the gateway can be reached, and waits for ever if nothing answers.
    pub(crate) async fn check(&self) -> Result<(), String> {
        let condition = self.state().condition;
        match condition {
            Condition::Up => Ok(()),
            Condition::Refusing => Err("connection refused".to_owned()),
            Condition::Silent => std::future::pending().await,
        }
    }

    /// Gives the gateway an input, unless it is down, and delivers what it sends.
    fn feed(&self, input: SimInput<'_>) {
        let mut state = self.state();
        if state.condition != Condition::Up {
            return;
        }
        let now = Instant::now().into_std();
        state.gateway.handle_input(now, input);
        loop {
            let (conn, event) = match state.gateway.poll_output(now) {
                SimOutput::Text(conn, text) => (conn, LinkEvent::Text(text)),
                SimOutput::Close(conn, code, reason) => {
                    (conn, LinkEvent::End(DisconnectReason::Closed(code, reason)))
                }
                SimOutput::Abort(conn) => (conn, LinkEvent::End(lost())),
                SimOutput::Wait(at) => {
                    state.wake_at = at.map(Instant::from_std);
                    break;
                }
                _ => continue,
            };
            let is_end = matches!(event, LinkEvent::End(_));
            if let Some(link) = state.links.get(&conn) {
                // A client that has left reads nothing.
                let _ = link.send(event);
            }
            if is_end {
                state.links.remove(&conn);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Takes the gateway down. Its sessions are lost.
    pub(crate) fn fail(self: &Arc<Self>, condition: Condition) {
        let mut state = self.state();
        let links: Vec<_> = state.links.drain().map(|(_, link)| link).collect();
        state.condition = condition;
        state.wake_at = None;
        drop(state);
        let end_all = move || {
            for link in links {
                let _ = link.send(LinkEvent::End(lost()));
            }
        };
        if condition == Condition::Silent {
            tokio::spawn(async move {
                sleep(SILENCE_TIMEOUT).await;
                end_all();
            });
        } else {
            end_all();
        }
        self.changed.notify_one();
    }

    /// Brings the gateway back, with all workers idle.
    pub(crate) fn restore(&self) {
        let mut state = self.state();
        if state.condition == Condition::Up {
            return;
        }
        state.seed += 1;
        state.gateway = gateway(self.workers, state.seed, state.is_slow);
        state.condition = Condition::Up;
    }

    /// Makes the gateway slow, or ends that. Running sessions stay.
    pub(crate) fn set_slow(&self, is_slow: bool) {
        let mut state = self.state();
        state.is_slow = is_slow;
        state.gateway.set_timing(timing(is_slow));
    }

    /// Sessions and queued clients; `None` if the gateway is down.
    pub(crate) fn clients(&self) -> Option<usize> {
        let state = self.state();
        (state.condition == Condition::Up).then(|| state.gateway.connection_count())
    }

    /// Worker counts of its status page.
    pub(crate) fn worker_report(&self) -> WorkerReport {
        let (total, idle, queued) = self.state().gateway.worker_counts();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        WorkerReport { total: number(total), idle: number(idle), queued: number(queued) }
    }

    /// Workers that stay busy for ever.
    pub(crate) fn lost_workers(&self) -> usize {
        self.state().gateway.lost_worker_count()
    }

    /// Connections since the start.
    pub(crate) fn connects(&self) -> u64 {
        self.state().connects
    }
}

fn lost() -> DisconnectReason {
    DisconnectReason::Lost("connection reset".to_owned())
}
