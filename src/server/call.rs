//! Calls by WebRTC, as the rest of the server knows them.

use std::net::{IpAddr, SocketAddr};

use super::channel_rules::ChannelRules;

/// Where calls by WebRTC are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebRtcAddresses {
    /// Address and port of the UDP socket.
    pub listen: SocketAddr,
    /// The address that clients send to, and its port if that is another one.
    pub advertise: (IpAddr, Option<u16>),
}

/// Protocol of a call's data channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallProtocol {
    /// OpenAI's Realtime events.
    OpenAi,
    /// RTVI, with the signalling of Pipecat's SmallWebRTC.
    Pipecat,
}

/// The data channel of a call.
#[derive(Debug)]
#[cfg_attr(not(feature = "webrtc"), expect(dead_code, reason = "there are no calls"))]
pub(crate) struct CallChannel {
    pub(super) protocol: CallProtocol,
    /// Events that it may carry.
    pub(super) rules: ChannelRules,
}

impl CallProtocol {
    /// A channel that may carry all events.
    pub(super) const fn channel(self) -> CallChannel {
        CallChannel { protocol: self, rules: ChannelRules::ALL }
    }
}

/// Sample rates of a call's audio, from and to the client, Hz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallRates {
    pub(super) in_hz: u32,
    pub(super) out_hz: u32,
}
