//! `voxbridge doctor`: tests the path to each upstream step by step and diagnoses failures.
//!
//! To change here: a new observation is a [`symptom`], and its remedy stands in [`diagnosis`]. Not here: the messages
//! of an upstream, which its mapping file has.
//!
//! The steps of an upstream are configuration, DNS, TCP, TLS, upgrade, queue, initialisation, one silent second (or a short
//! question in mode chat) and close. After the upgrade, every session is closed cleanly, even if a step fails: a dropped
//! connection makes the real gateway reject the next client (mappings/notes/minicpm-o.md#queue).
//!
//! - [`step`]: steps, their outcomes and time limits; [`symptom`]: observations at a failed or slow step
//! - [`session_check`]: one session with an upstream, sans-IO; [`experiments`]: variations that reveal the cause of a failure
//! - [`diagnosis`]: likely cause and remedy of a symptom; [`fingerprint`]: recognises other kinds of server
//! - [`report`]: report as text and as JSON
//! - `check_target`, `connect_check`, `runner` and `session_driver`: socket code, behind the `io` feature
//!
//! The doctor is not a periodic probe, because each session occupies a worker. It opens one session per upstream at a time.
//!
//! # The report as JSON
//!
//! ```json
//! {"ok": false, "checks": [{
//!     "name": "gpu:8006", "url": "ws://gpu:8006/v1/realtime?mode=audio", "dialect": "minicpm-o", "ok": false,
//!     "steps": [
//!         {"step": "tcp", "verdict": "ok", "took_ms": 0.4, "note": "10.0.0.5:8006"},
//!         {"step": "queue", "verdict": "failed", "took_ms": 30000.0, "note": "position 1 of 1",
//!          "problem": {"seen": "…", "cause": "…", "advice": "…"}},
//!         {"step": "init", "verdict": "skipped", "took_ms": null, "note": "queue failed"}
//!     ]
//! }]}
//! ```
//!
//! - `step` is one of `configuration`, `dns`, `tcp`, `tls`, `upgrade`, `queue`, `init`, `answer`, `close`, `modes`, and on
//!   the client path `session`.
//! - `verdict` is `ok`, `slow`, `failed` or `skipped`.
//! - `took_ms` is `null` if the duration of the step is meaningless.
//! - `problem` is present with `slow` and `failed`.
//! - `ok` means that no step failed; slow steps do not count as failed.

pub mod diagnosis;
pub mod experiments;
pub mod fingerprint;
pub mod report;
pub mod session_check;
pub mod step;
pub mod symptom;

#[cfg(feature = "io")]
pub(crate) mod check_target;
#[cfg(feature = "io")]
pub(crate) mod connect_check;
#[cfg(feature = "io")]
mod http_check;
#[cfg(feature = "io")]
pub(crate) mod runner;
#[cfg(feature = "io")]
mod session_driver;

#[cfg(test)]
mod tests;
