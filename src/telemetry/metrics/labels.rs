//! Label sets of the metrics. Values are bounded: `Arc<str>` comes from the operator's files, `&'static str` from
//! enums.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;

/// Labels of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SessionLabels {
    /// Name of the client protocol.
    pub(crate) protocol: Arc<str>,
    /// Name of the profile.
    pub(crate) profile: Arc<str>,
}

/// Labels of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LaneLabels {
    /// Name of the upstream.
    pub(crate) upstream: Arc<str>,
    /// Name of a [`crate::vocabulary::LanePurpose`].
    pub(crate) purpose: &'static str,
}

/// Label of a packet of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FateLabel {
    pub(super) fate: &'static str,
}

/// Labels of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UpstreamLabels {
    /// Name of the upstream.
    pub(crate) upstream: Arc<str>,
}

/// Labels of a call on a tool server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ToolCallLabels {
    /// Name of the server.
    pub(super) server: Arc<str>,
    pub(super) result: &'static str,
}

/// Label of a tool server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ToolServerLabel {
    /// Name of the server.
    pub(super) server: Arc<str>,
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

/// Side and direction of traffic, seen from voxbridge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TrafficLabels {
    /// `client` or `upstream`.
    pub(super) side: &'static str,
    /// `in` or `out`.
    pub(super) direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CloseLabels {
    /// Side of the connection: `client` or `upstream`.
    pub(super) side: &'static str,
    /// Closing party: `peer` or `bridge`.
    pub(super) closed_by: &'static str,
    /// Close code of RFC 6455 §7.4.1, `lost` for none, `other` for any other code.
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
