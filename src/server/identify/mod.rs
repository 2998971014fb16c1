//! Which protocol is this client? [`Identified`] is the answer, with its reason. Each step narrows it:
//!
//! 1. [`place`]: the path and the query of the request, or the listener
//! 2. [`signs`]: headers, the model's name, and a key that was not asked for
//! 3. the permissions of the client's key ([`Identified::keep_permitted`])
//! 4. [`first_message`]
//!
//! [`query`] completes the query by what the protocol has in the path, in headers and in client secrets. A relay tells its clients
//! apart later (`crate::bridge`).

pub(super) mod first_message;
pub(super) mod place;
pub(super) mod query;
pub(super) mod signs;

use std::sync::Arc;

use super::{access::ClientLimits, websocket::MessageMax};
use crate::{named_enum::named_enum, spelling::ClientMapping};

named_enum! {
    /// The sign that decided on the protocol, for the log and `/sessions`.
    pub(super) enum DetectedBy {
        /// A route names the protocol.
        Route = "route",
        /// Only one protocol is served at the path.
        Path = "path",
        /// Only one protocol is served at the listener.
        Listener = "listener",
        /// Only one protocol knows the query.
        Query = "query",
        /// A header of the request.
        Header = "header",
        /// The permissions of the key.
        Key = "key",
        /// The model's name.
        Model = "model",
        /// The first message.
        FirstMessage = "first_message",
        /// A key although none is asked for.
        UnaskedKey = "unasked_key",
        /// Nothing: it is the protocol for clients without a sign.
        Default = "default",
    }
}

/// The protocols that a client may speak, and why they are these.
#[derive(Debug, Clone)]
pub(super) struct Identified {
    /// The likeliest first. There is always one.
    candidates: Vec<Arc<ClientMapping>>,
    by: DetectedBy,
}

impl Identified {
    /// A client that speaks this protocol.
    pub(super) fn certain(client: Arc<ClientMapping>, by: DetectedBy) -> Self {
        Self { candidates: vec![client], by }
    }

    /// A client that speaks one of these protocols, the likeliest first; `None` without any.
    pub(super) fn among(candidates: Vec<Arc<ClientMapping>>, by: DetectedBy) -> Option<Self> {
        (!candidates.is_empty()).then_some(Self { candidates, by })
    }

    /// The protocols that the client may speak, the likeliest first.
    pub(super) fn candidates(&self) -> &[Arc<ClientMapping>] {
        &self.candidates
    }

    /// The protocol that the client speaks most likely.
    pub(super) fn likeliest(&self) -> &Arc<ClientMapping> {
        &self.candidates[0]
    }

    /// The sign that decided.
    pub(super) const fn by(&self) -> DetectedBy {
        self.by
    }

    /// True if the client may speak several protocols.
    pub(super) const fn is_open(&self) -> bool {
        self.candidates.len() > 1
    }

    fn has_relayed(&self) -> bool {
        self.candidates.iter().any(|client| client.is_relayed())
    }

    /// Keeps the protocols that the client's key may use; returns false, and keeps all, if that is none.
    pub(super) fn keep_permitted(&mut self, is_permitted: impl FnMut(&Arc<ClientMapping>) -> bool) -> bool {
        let was_open = self.is_open();
        let permitted = self.keep(is_permitted);
        if permitted && was_open && !self.is_open() {
            self.by = DetectedBy::Key;
        }
        permitted
    }

    /// Keeps what matches, if anything does.
    fn keep(&mut self, matches: impl FnMut(&Arc<ClientMapping>) -> bool) -> bool {
        let matching: Vec<bool> = self.candidates.iter().map(matches).collect();
        let found = matching.contains(&true);
        if found {
            let mut matching = matching.into_iter();
            self.candidates.retain(|_| matching.next().unwrap_or_default());
        }
        found
    }

    /// The longest messages that the client may send. Before its protocol is known, these are the limits of the likeliest one and
    /// of those that are relayed.
    pub(super) fn message_max(&self, limits: ClientLimits) -> MessageMax {
        let likeliest = self.candidates.iter().find(|client| !client.is_relayed());
        let possible = || self.candidates.iter().filter(|client| client.is_relayed()).chain(likeliest);
        let bytes = possible().map(|client| client.audio_in.message_max_bytes).max();
        let binary_bytes = possible().map(|client| client.binary_max_bytes()).max();
        MessageMax {
            bytes: bytes.into_iter().chain(limits.message_max_bytes).min().unwrap_or_default(),
            binary_bytes: binary_bytes.unwrap_or_default(),
        }
    }
}
