//! The client side's wire: frames of a binary-PCM protocol to and from the neutral vocabulary.
//!
//! One codec serves every such protocol; a mapping file says how each spells things. It knows nothing of sessions.

mod date;
mod decode;
mod encode;
mod picture;
pub mod reference;
pub mod relay;
mod slot_values;

use std::sync::Arc;

pub use self::decode::ConnectQuery;
use crate::mapping::ClientMapping;

/// One connection's codec.
#[derive(Debug)]
pub struct Codec {
    mapping: Arc<ClientMapping>,
    /// Wall clock when the session was opened, seconds since 1970; events tell times on it.
    opened_unix_s: f64,
    /// The same, as people write it.
    opened_at: String,
    /// What every event may tell: the session's id, and the model asked for.
    session_id: String,
    model: String,
    /// Fields without effect, found since the last look.
    ignored: Vec<IgnoredField>,
}

/// A field that was accepted and does nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IgnoredField {
    /// The command, or `connect` for a query parameter.
    pub command: String,
    /// The field.
    pub field: String,
    /// Why it does nothing.
    pub because: String,
}

impl Codec {
    /// A codec for one connection, opened at `opened_unix_s` seconds since 1970.
    #[must_use]
    pub fn new(mapping: Arc<ClientMapping>, opened_unix_s: f64) -> Self {
        Self {
            mapping,
            opened_unix_s,
            opened_at: date::rfc3339(opened_unix_s),
            session_id: String::new(),
            model: String::new(),
            ignored: Vec::new(),
        }
    }

    /// Names the session, for events to come.
    pub fn set_session(&mut self, session_id: &str, model: &str) {
        session_id.clone_into(&mut self.session_id);
        model.clone_into(&mut self.model);
    }

    /// The protocol it speaks.
    #[must_use]
    pub const fn mapping(&self) -> &Arc<ClientMapping> {
        &self.mapping
    }

    /// Fields without effect since the last call.
    pub fn take_ignored_fields(&mut self) -> Vec<IgnoredField> {
        std::mem::take(&mut self.ignored)
    }
}
