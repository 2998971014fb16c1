//! vLLM-Omni's duplex endpoint (`/v1/realtime`): sessions that outlast their transport, and a limit of sessions instead of a
//! queue. Source: the packages vllm-omni 0.30.0 and 0.32.0rc1; the rules of `tests/system/sockets/vllm_omni/rules.rs` run against both.
//!
//! `session` is one session, `opening` the message that opens or resumes one, and `events` its messages. Absent: committed
//! input, conversation items, server VAD, and what depends on them, since the model decides by itself when it speaks.

mod events;
mod opening;
mod session;

pub(super) use self::{
    opening::{FirstMessage, Refusal},
    session::VllmSession,
};

/// Largest message (`MAX_EVENT_BYTES`).
const MAX_EVENT_BYTES: usize = 15 << 20;
