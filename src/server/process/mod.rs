//! The server as a process: lifecycle, worker threads, file descriptors, service manager.

pub mod certificate_watch;
pub mod fd_limit;
pub mod lifecycle;
pub mod systemd;
pub mod workers;
