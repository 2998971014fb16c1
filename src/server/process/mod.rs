//! Process-level services: file descriptors, lifecycle, service manager, session threads.

pub mod fd_limit;
pub mod lifecycle;
pub mod systemd;
pub mod workers;
