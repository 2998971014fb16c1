//! The label sets of metrics. Closed: texts come from the operator's files, `&'static str` from enums.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;

/// A session's kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfSession {
    /// The client protocol's name.
    pub(crate) protocol: Arc<str>,
    /// The profile's name.
    pub(crate) profile: Arc<str>,
}

/// A lane's kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfLane {
    /// The upstream's name.
    pub(crate) upstream: Arc<str>,
    /// A [`crate::session::Purpose`].
    pub(crate) purpose: &'static str,
}

/// An upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfUpstream {
    /// Its name.
    pub(crate) upstream: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfRefusal {
    pub(super) reason: &'static str,
    pub(super) status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Ended {
    pub(super) reason: &'static str,
    pub(super) side: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Because {
    pub(super) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AskedFor {
    pub(super) asked: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AtStage {
    pub(super) stage: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Told {
    pub(super) kind: &'static str,
    pub(super) origin: &'static str,
}

/// Which way, seen from voxbridge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Way {
    /// `client` or `upstream`.
    pub(super) side: &'static str,
    /// `in` or `out`.
    pub(super) direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Closed {
    /// Whose connection: `client` or `upstream`.
    pub(super) side: &'static str,
    /// Who closed it: `peer` or `bridge`.
    pub(super) by: &'static str,
    /// A code of RFC 6455 §7.4.1, `lost` for none, `other` for any other.
    pub(super) code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Outcome {
    pub(super) result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Certificate {
    pub(super) role: &'static str,
}
