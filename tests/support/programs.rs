//! Signals to the programs that tests start.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Sends a signal, named as the program `kill` names it: `-TERM`.
pub fn send_signal(process: u32, signal: &str) {
    let signal: Signal = signal.replace('-', "SIG").parse().unwrap();
    kill(Pid::from_raw(process.try_into().unwrap()), signal).unwrap();
}
