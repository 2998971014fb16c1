//! The server as a process: memory allocator, lifecycle, worker threads, file descriptors, service manager.

pub mod allocator;
pub mod fd_limit;
pub mod lifecycle;
pub mod systemd;
pub mod workers;
