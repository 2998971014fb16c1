//! Relayed clients of the model's own protocol in virtual time: one bridge, one gateway, no socket and no
//! sleep.

mod client_errors;
mod commands;
mod legacy_client;
mod legacy_upstream;
mod open_failures;
mod passthrough;
mod pending_answers;
mod properties;
mod support;
mod two_bridges;
mod upstream_replacement;

use support::{
    any_script, append_message, base64_of, chat_message, config, connect_current, cpp_config, init_message,
    legacy_append_message, ms, newest_lane, open_session, opened_with, question_seconds, received_texts,
    sent_texts, text_and_audio, unique_second,
};

use super::*;
