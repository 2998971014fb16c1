//! What everybody in this program shares. There is one thread, so sharing is simple.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use tokio::time::{Duration, Instant};

use crate::{
    client::Client, options::Options, statistics::Tally, test_audio::TestAudio, websocket::BufferPool,
};

/// How long after the last frame everything may take to arrive.
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(2_500);

/// One run.
pub(crate) struct RunContext {
    pub(crate) options: Options,
    pub(crate) sound: Rc<TestAudio>,
    pub(crate) started: Instant,
    pub(crate) clients: RefCell<Vec<Rc<Client>>>,
    pub(crate) tally: RefCell<Tally>,
    pub(crate) buffer_pool: BufferPool,
    /// The clients send no more.
    pub(crate) is_stopping: Cell<bool>,
    /// Everybody leaves: who hangs up now does not do so early.
    pub(crate) is_leaving: Cell<bool>,
    /// Upstream sessions that were created.
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

    /// µs since it began.
    pub(crate) fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// That client, if it is there.
    pub(crate) fn client(&self, number: usize) -> Option<Rc<Client>> {
        self.clients.borrow().get(number).cloned()
    }

    /// Whether every unit is looked at from end to end: where they are too many, most are skimmed.
    pub(crate) fn needs_full_check(&self, number: u64) -> bool {
        /// Units a second that can be looked at without becoming the bottleneck.
        const MANY: usize = 600;
        let share = self.options.sessions.div_ceil(MANY).max(1) as u64;
        number.is_multiple_of(share)
    }
}
