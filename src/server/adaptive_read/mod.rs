//!

pub(crate) mod backlog;
pub(crate) mod frame_batcher;
pub(crate) mod scheduler;
pub(crate) mod wake_slots;
