//! `voxbridge doctor`: walks every way the bridge would take, step by step, and says where it ends and why.
//!
//! Towards each upstream: configuration, DNS, TCP, TLS, upgrade, queue, initialisation, one silent second (a tiny question
//! where the dialect has nothing but chat), polite close. Whatever fails after the upgrade, the session is left politely:
//! a bare drop makes the real gateway refuse who comes next (field notes minicpm-o.md §1.2).
//!
//! - [`step`] names the steps and what can come of one, [`symptom`] what was seen where one failed
//! - [`session_check`] is the conversation with an upstream, sans-IO; [`experiments`] what is tried when it fails, to find out why
//! - [`diagnosis`] makes of a symptom what is likely and what to do, [`fingerprint`] recognises who else a server might be
//! - [`report`] is all of it, for people and for programs
//! - `connect_check` and `runner` are the sockets, behind the `io` feature
//!
//! It is not a probe: it takes a worker for as long as a session takes. Not more than one of each upstream at a time.
//!
//! # The report as JSON
//!
//! ```json
//! {"ok": false, "walks": [{
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
//! `step` is one of `configuration`, `dns`, `tcp`, `tls`, `upgrade`, `queue`, `init`, `answer`, `close`, `modes`, and for
//! the client's side `session`; `verdict` is `ok`, `slow`, `failed` or `skipped`; `took_ms` is `null` where a step took no
//! time worth telling; `problem` is there with `slow` and `failed`. `ok` means that no step failed; slow ones may have.

pub mod diagnosis;
pub mod experiments;
pub mod fingerprint;
pub mod report;
pub mod session_check;
pub mod step;
pub mod symptom;

#[cfg(feature = "io")]
pub(crate) mod connect_check;
#[cfg(feature = "io")]
pub(crate) mod runner;

#[cfg(test)]
mod tests;
