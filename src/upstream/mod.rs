//! Upstream codecs: messages of one dialect to and from the neutral vocabulary.
//!
//! Every lane has a [codec](lane::LaneCodec) of its own, from its dial to its end. A codec may keep state: it may turn one
//! command into several messages and one message into several events, grant a lane that has no queue, and say why a
//! lane ended without a word. Differences in spelling are in the mapping file; a dialect that behaves otherwise
//! implements [`behaviour::LaneBehaviour`], and the session does not change.
//!
//! To change here: what a server needs beyond its mapping file. Not here: retries, queues and closing, which are the
//! session's.
//!
//! - [`Dialect`] is what all lanes share: the mapping file, and how single messages are written ([`encode`]) and read ([`decode`])
//! - [`lane`] is one lane's codec; the bridge keeps one for each lane
//! - [`http`] is a lane without a WebSocket: each request is an HTTP request; [`sse`] reads event streams
//! - [`openai_realtime`], [`sglang_omni`] and [`vllm_omni`] are what these servers do beyond their mapping files
//! - [`chat`] encodes conversations in turns; [`relay`] serves clients of the model's own protocol
//! - [`input_rate`] and [`output_rate`] convert audio of servers with rates of their own; [`played_answer`] tells how much of an
//!   answer was heard

mod behaviour;
mod chat;
mod decode;
mod encode;
mod http;
mod input_rate;
pub mod lane;
mod openai_realtime;
mod output_rate;
mod played_answer;
pub mod relay;
mod sglang_omni;
pub mod sse;
mod vllm_omni;

use std::sync::Arc;

use crate::{spelling::UpstreamMapping, vocabulary::Mode};

/// Messages of a dialect, without the state of a lane.
#[derive(Debug, Clone)]
pub struct Dialect {
    mapping: Arc<UpstreamMapping>,
    /// Mode of the lane, if there is one.
    mode: Option<Mode>,
}

impl Dialect {
    /// The dialect of a mapping file.
    pub const fn new(mapping: Arc<UpstreamMapping>) -> Self {
        Self { mapping, mode: None }
    }

    /// The dialect on a lane of this mode.
    const fn in_mode(mapping: Arc<UpstreamMapping>, mode: Mode) -> Self {
        Self { mapping, mode: Some(mode) }
    }

    /// Mapping that defines the dialect.
    pub const fn mapping(&self) -> &Arc<UpstreamMapping> {
        &self.mapping
    }
}

#[cfg(test)]
mod tests;
