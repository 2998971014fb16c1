//! Shared state of a run. All tasks run on one thread, so sharing needs no locks.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use tokio::time::{Duration, Instant};

use crate::{
    client::Client, options::Options, statistics::Tally, test_audio::TestAudio, websocket::BufferPool,
};

/// Time for the last data to arrive after the last frame.
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(2_500);

/// State of one run.
pub(crate) struct RunContext {
    pub(crate) options: Options,
    pub(crate) sound: Rc<TestAudio>,
    pub(crate) started: Instant,
    pub(crate) clients: RefCell<Vec<Rc<Client>>>,
    pub(crate) tally: RefCell<Tally>,
    pub(crate) buffer_pool: BufferPool,
    /// The clients have stopped sending.
    pub(crate) is_stopping: Cell<bool>,
    /// The run ends; a closing connection is no longer an early close.
    pub(crate) is_leaving: Cell<bool>,
    /// Number of upstream sessions created.
    pub(crate) upstream_sessions_created: Cell<usize>,
}

impl RunContext {
    pub(crate) fn new(options: Options, sound: Rc<TestAudio>) -> Self {
        Self {
            options,
            sound,
            started: Instant::now(),
            clients: RefCell::default(),
            tally: RefCell::default(),
            buffer_pool: BufferPool::default(),
            is_stopping: Cell::new(false),
            is_leaving: Cell::new(false),
            upstream_sessions_created: Cell::new(0),
        }
    }

    /// Time since the start, µs.
    pub(crate) fn now_us(&self) -> u64 {
        self.micros_at(Instant::now())
    }

    /// Time from the start to this instant, µs.
    pub(crate) fn micros_at(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.started).as_micros() as u64
    }

    /// Returns the client with this number, if connected.
    pub(crate) fn client(&self, number: usize) -> Option<Rc<Client>> {
        self.clients.borrow().get(number).cloned()
    }

    /// True if every unit is compared completely. At high load most units are only sampled.
    pub(crate) fn needs_full_check(&self, number: u64) -> bool {
        /// Units per second that can be compared without becoming the bottleneck.
        const MANY: usize = 600;
        let share = self.options.sessions.div_ceil(MANY).max(1) as u64;
        number.is_multiple_of(share)
    }
}
