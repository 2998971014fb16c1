//! Label sets of the metrics. Values are bounded: `Arc<str>` comes from the operator's files, `&'static str` from
//! enums.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;

/// Defines label sets.
macro_rules! labels {
    ($($(#[$attribute:meta])* $Labels:ident { $($label:ident: $Value:ty),+ })+) => {$(
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub(crate) struct $Labels {
            $(pub(crate) $label: $Value,)+
        }
    )+};
}

labels! {
    /// Client protocol and profile of a session.
    SessionLabels { protocol: Arc<str>, profile: Arc<str> }
    /// Upstream of a lane, and the name of its [`crate::vocabulary::LanePurpose`].
    LaneLabels { upstream: Arc<str>, purpose: &'static str }
    /// Fate of a packet of a call: used, or the reason why it was dropped.
    FateLabel { fate: &'static str }
    UpstreamLabels { upstream: Arc<str> }
    /// A call on a tool server.
    ToolCallLabels { server: Arc<str>, result: &'static str }
    ToolServerLabel { server: Arc<str> }
    RejectionLabels { reason: &'static str, status: &'static str }
    SessionEndLabels { reason: &'static str, origin: &'static str }
    ReasonLabel { reason: &'static str }
    TriggerLabel { trigger: &'static str }
    StageLabel { stage: &'static str }
    ErrorLabels { kind: &'static str, origin: &'static str }
    /// Traffic, seen from voxbridge: `client` or `upstream`, and `in` or `out`.
    TrafficLabels { side: &'static str, direction: &'static str }
    /// Side of the connection (`client` or `upstream`), closing party (`peer` or `bridge`), and close code of RFC 6455 §7.4.1:
    /// `lost` for none, `other` for one that is not listed.
    CloseLabels { side: &'static str, closed_by: &'static str, code: &'static str }
    ResultLabel { result: &'static str }
    CertificateLabel { listener: &'static str }
}
