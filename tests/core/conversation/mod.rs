//! Conversations in virtual time: one bridge, one full-duplex gateway, no socket and no sleep.

mod barge_in;
mod barge_in_faults;
mod barge_in_sounds;
mod dead_upstream;
mod detection;
mod echo;
mod half_hour;
mod input_rates;
mod legacy;
mod measurements;
mod microphone;
mod model_quirks;
mod operator_orders;
mod properties;
mod reconnect;
mod refused_audio;
mod rollover;
mod server_kind;
mod session_end;
mod sglang_omni;
mod short_units;
mod silence;
mod standby;
mod support;
mod tts;
mod user_transcripts;

use barge_in_faults::{assert_complete_turn, close_and_check, rollover_reasons};
use detection::Detection;
use microphone::{Microphone, SpokenText, ask, spoken_texts, turns_heard, voices};
use server_kind::ServerKind;
use voxbridge::{
    audio::input_converter::InputConverter,
    simulator::read_watermark,
    vocabulary::RolloverReason::{ContextFull, UpstreamLost},
};

use super::*;
