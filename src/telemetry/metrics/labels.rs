//! The label sets of metrics. Closed: texts come from the operator's files, `&'static str` from enums.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;

/// A session's kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SessionLabels {
    /// The client protocol's name.
    pub(crate) protocol: Arc<str>,
    /// The profile's name.
    pub(crate) profile: Arc<str>,
}

/// A lane's kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LaneLabels {
    /// The upstream's name.
    pub(crate) upstream: Arc<str>,
    /// A [`crate::session::LanePurpose`].
    pub(crate) purpose: &'static str,
}

/// An upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UpstreamLabels {
    /// Its name.
    pub(crate) upstream: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RejectionLabels {
    pub(super) reason: &'static str,
    pub(super) status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct SessionEndLabels {
    pub(super) reason: &'static str,
    pub(super) origin: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReasonLabel {
    pub(super) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TriggerLabel {
    pub(super) trigger: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StageLabel {
    pub(super) stage: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ErrorLabels {
    pub(super) kind: &'static str,
    pub(super) origin: &'static str,
}

/// Which way, seen from voxbridge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TrafficLabels {
    /// `client` or `upstream`.
    pub(super) side: &'static str,
    /// `in` or `out`.
    pub(super) direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CloseLabels {
    /// Whose connection: `client` or `upstream`.
    pub(super) side: &'static str,
    /// Who closed it: `peer` or `bridge`.
    pub(super) closed_by: &'static str,
    /// A code of RFC 6455 §7.4.1, `lost` for none, `other` for any other.
    pub(super) code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ResultLabel {
    pub(super) result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CertificateLabel {
    pub(super) listener: &'static str,
}
