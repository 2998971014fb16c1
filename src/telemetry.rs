//! What operators are let see: the log, metrics, one line a session, and whose request it was.
//!
//! - [`log`] is set up once, and its level can be changed while it runs
//! - [`metrics`] are counted, and rendered for whoever asks
//!
//! Never audio, text or credentials.

pub mod log;
pub mod metrics;

pub use self::log::init;
pub(crate) use self::log::observe;
