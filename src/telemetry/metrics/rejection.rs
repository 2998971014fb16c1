//! Reasons for rejecting connections, as reported in metrics.

/// Reason for rejecting a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// No protocol is served at this path.
    NotFound,
    /// The dialect does not have the requested mode.
    NoSuchMode,
    /// No route matches the client's protocol.
    NoRoute,
    /// The request method was not GET.
    MethodNotAllowed,
    /// The request was no WebSocket upgrade.
    NoUpgrade,
    /// The WebSocket handshake was malformed.
    BadHandshake,
    /// voxbridge is shutting down.
    Stopping,
    /// The server's session limit is reached.
    TooManySessions,
    /// The API key is missing or unknown.
    Unauthorized,
    /// The API key or certificate does not permit this request.
    Forbidden,
    /// A browser's `Origin` is not allowed.
    Origin,
    /// The session limit of the API key is reached.
    KeyLimit,
    /// The session limit of the address is reached.
    AddressLimit,
    /// Too many requests in too short a time.
    RateLimit,
    /// The TLS handshake failed.
    Tls,
    /// The request took too long to arrive.
    Timeout,
    /// The oldest handshake was dropped, because there were too many.
    HandshakeOverflow,
    /// After the upgrade, reported in the client's protocol: the model is missing or matches no route.
    UnknownModel,
    /// After the upgrade: a query parameter has an unsupported value.
    BadRequest,
}

impl RejectReason {
    /// All reasons.
    pub const ALL: [Self; 19] = [
        Self::NotFound,
        Self::NoSuchMode,
        Self::NoRoute,
        Self::MethodNotAllowed,
        Self::NoUpgrade,
        Self::BadHandshake,
        Self::Stopping,
        Self::TooManySessions,
        Self::Unauthorized,
        Self::Forbidden,
        Self::Origin,
        Self::KeyLimit,
        Self::AddressLimit,
        Self::RateLimit,
        Self::Tls,
        Self::Timeout,
        Self::HandshakeOverflow,
        Self::UnknownModel,
        Self::BadRequest,
    ];

    /// Name in the metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::NoSuchMode => "no_such_mode",
            Self::NoRoute => "no_route",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::NoUpgrade => "no_upgrade",
            Self::BadHandshake => "bad_handshake",
            Self::Stopping => "stopping",
            Self::TooManySessions => "too_many_sessions",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Origin => "origin",
            Self::KeyLimit => "key_limit",
            Self::AddressLimit => "address_limit",
            Self::RateLimit => "rate_limit",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::HandshakeOverflow => "handshake_overflow",
            Self::UnknownModel => "unknown_model",
            Self::BadRequest => "bad_request",
        }
    }

    /// HTTP status of the rejection; `none` without a request or after the upgrade. A dialect may use another
    /// status for a missing mode, which this does not show.
    #[must_use]
    pub const fn status(self) -> &'static str {
        match self {
            Self::BadHandshake => "400",
            Self::Unauthorized => "401",
            Self::NoSuchMode | Self::NoRoute | Self::Forbidden | Self::Origin => "403",
            Self::NotFound => "404",
            Self::MethodNotAllowed => "405",
            Self::NoUpgrade => "426",
            Self::KeyLimit | Self::AddressLimit | Self::RateLimit => "429",
            Self::Stopping | Self::TooManySessions => "503",
            Self::Tls | Self::Timeout | Self::HandshakeOverflow | Self::UnknownModel | Self::BadRequest => {
                "none"
            }
        }
    }
}
