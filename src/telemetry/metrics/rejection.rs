//! Reasons for rejecting connections, as reported in metrics.

use crate::named_enum::named_enum;

named_enum! {
    /// Reason for rejecting a connection.
    pub enum RejectReason {
        /// No protocol is served at this path.
        NotFound = "not_found",
        /// The dialect does not have the requested mode.
        NoSuchMode = "no_such_mode",
        /// No route matches the client's protocol.
        NoRoute = "no_route",
        /// The request method was not GET.
        MethodNotAllowed = "method_not_allowed",
        /// The request was no WebSocket upgrade.
        NoUpgrade = "no_upgrade",
        /// The WebSocket handshake, or a request for a client secret, was malformed.
        BadHandshake = "bad_handshake",
        /// The body of a REST request was wrong, or its session failed before the answer.
        BadBody = "bad_body",
        /// voxbridge is shutting down.
        Stopping = "stopping",
        /// The server's session limit is reached.
        TooManySessions = "too_many_sessions",
        /// Messages in transit fill the memory.
        OutOfMemory = "out_of_memory",
        /// The API key is missing or unknown.
        Unauthorized = "unauthorized",
        /// The API key or certificate does not permit this request.
        Forbidden = "forbidden",
        /// A browser's `Origin` is not allowed.
        Origin = "origin",
        /// The session limit of the API key is reached.
        KeyLimit = "key_limit",
        /// The session limit of the address is reached.
        AddressLimit = "address_limit",
        /// Too many requests in too short a time.
        RateLimit = "rate_limit",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The request took too long to arrive.
        Timeout = "timeout",
        /// The oldest handshake was dropped, because there were too many.
        HandshakeOverflow = "handshake_overflow",
        /// After the upgrade, reported in the client's protocol: the model is missing or matches no route.
        UnknownModel = "unknown_model",
        /// After the upgrade: a query parameter has an unsupported value.
        BadRequest = "bad_request",
    }
}

impl RejectReason {
    /// HTTP status of the rejection; `none` without a request or after the upgrade. A dialect may use another
    /// status for a missing mode, and a request without an upgrade and without a required model gets 422; this does not
    /// show either.
    pub const fn status(self) -> &'static str {
        match self {
            Self::BadHandshake | Self::BadBody => "400",
            Self::Unauthorized => "401",
            Self::NoSuchMode | Self::NoRoute | Self::Forbidden | Self::Origin => "403",
            Self::NotFound => "404",
            Self::MethodNotAllowed => "405",
            Self::NoUpgrade => "426",
            Self::KeyLimit | Self::AddressLimit | Self::RateLimit => "429",
            Self::Stopping | Self::TooManySessions | Self::OutOfMemory => "503",
            Self::Tls | Self::Timeout | Self::HandshakeOverflow | Self::UnknownModel | Self::BadRequest => {
                "none"
            }
        }
    }
}
