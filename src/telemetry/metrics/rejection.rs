//! Why a connection is refused, as metrics tell it.

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// Nothing is served at this path.
    NotFound,
    /// The dialect has no such mode.
    NoSuchMode,
    /// No route leads clients of this protocol anywhere.
    NoRoute,
    /// It was no GET.
    MethodNotAllowed,
    /// It was no WebSocket upgrade.
    NoUpgrade,
    /// The WebSocket handshake was wrong.
    BadHandshake,
    /// voxbridge stops.
    Stopping,
    /// There are as many sessions as there may be.
    TooManySessions,
    /// No key was shown, or one that is not known.
    Unauthorized,
    /// The key, or the certificate, is not for this.
    Forbidden,
    /// A browser's page from elsewhere.
    Origin,
    /// The key has as many sessions as it may.
    KeyLimit,
    /// The address has as many sessions as it may.
    AddressLimit,
    /// Too many attempts in too little time.
    RateLimit,
    /// TLS failed before there was a request.
    Tls,
    /// It took too long to say what it wants.
    Timeout,
    /// It was the oldest of too many connections without a session.
    HandshakeOverflow,
    /// After the upgrade, in the protocol's own words: no model was named, or one that no route leads to.
    UnknownModel,
    /// After the upgrade: what the client asked for in the query cannot be.
    BadRequest,
}

impl RejectReason {
    /// Every reason.
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

    /// As metrics name it.
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

    /// The HTTP status it is refused with; `none` where there was no request or it was upgraded first. A dialect may
    /// have another status for a mode it has not, which is not told apart here.
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
