//! What operators are let see: the log, metrics, one line a session, and whose request it was.
//!
//! - [`log`] is set up once, and its level can be changed while it runs
//! - [`metrics`] are counted, and rendered for whoever asks
//! - [`access_log`] is one line a session; [`context`] whose request it was, and whose the upstream's is
//!
//! Never audio, text or credentials.

#[cfg(feature = "io")]
pub mod access_log;
pub mod context;
#[cfg(feature = "io")]
pub mod log;
#[cfg(feature = "io")]
pub mod metrics;

#[cfg(feature = "io")]
pub use self::log::init;
#[cfg(feature = "io")]
pub(crate) use self::log::log_observation;
