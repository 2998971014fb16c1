//!

pub mod fd_limit;
pub mod lifecycle;
pub mod systemd;
pub mod workers;
