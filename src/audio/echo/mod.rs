//! Echo cancellation: removes from a microphone what the client plays, for devices that do not do so themselves.
//!
//! [`EchoCanceller`] gets the audio that was sent to the client, with the instants at which it is played, and the microphone's
//! audio. [`PlayedAudio`] lines the two up, and AEC3 of WebRTC (in the port `sonora-aec3`) finds the remaining delay, up to
//! about 0.8 s: network, the client's buffer, loudspeaker and room. AEC3 works in blocks of 4 ms.
//!
//! While nothing is played, the microphone's samples pass unchanged, and AEC3 does not run. Where playback begins and ends,
//! AEC3 shifts the microphone by a block.
//!
//! AEC3 damages the user's voice until it knows the room, and whenever it trusts its filter less. So [`NearEnd`] decides whether
//! the user speaks: the user's voice is louder than any echo and unlike the playback. While the user speaks, the output of the
//! linear filter alone passes. The decision takes some time. During playback, audio is held for that long, so that the beginning
//! of the user's first word passes, too. The held audio follows the decision at once, so a barge-in is not delayed.
//!
//! Measured in simulated rooms (`tests/core/conversation/echo.rs`) and compared with `aec3` and `decibri-aec`: `aec3` is
//! equally good and brings a graph runtime, and `decibri-aec` leaves 2 to 4 false barge-ins a minute.

mod aec3;
mod likeness;
mod near_end;
mod played;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sonora_aec3::common::BLOCK_SIZE;

use super::{SPEECH_RATE_HZ, encoding::Encoding};
use aec3::{Aec3, Cleaned};
use near_end::NearEnd;
use played::PlayedAudio;

/// Silence after which nothing that was played can be in the microphone: the longest delay and the room's reverberation.
const ECHO_MAX_BLOCKS: u32 = blocks(1_500);
/// Silence after which playback may begin anew with another delay.
const PAUSE_BLOCKS: u32 = blocks(600);
/// Time after a pause during which the quieter of the two cancellers' outputs is used.
const CAREFUL_BLOCKS: u32 = blocks(2_500);
/// Playback that AEC3 needs in a session to learn the room. Some echo passes AEC3 until then, so only the user's voice is let
/// through.
const LEARNING_BLOCKS: u32 = blocks(2_500);
/// Audio that waits for the decision that the user speaks.
const HELD_BLOCKS: usize = blocks(256) as usize;

const fn blocks(ms: u32) -> u32 {
    ms * SPEECH_RATE_HZ / 1000 / BLOCK_SIZE as u32
}

/// Audio that was sent to the client, or the end of all playback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Playback {
    /// The client plays this audio after what it plays already, or at once.
    Sent {
        /// When it was sent.
        at: Instant,
        /// Encoding of the samples; not Opus.
        encoding: Encoding,
        /// Sample rate, Hz.
        rate_hz: u32,
        /// Mono samples.
        samples: Bytes,
    },
    /// The client drops what it has not played at this instant.
    Cut(Instant),
}

/// Echo canceller of one client. AEC3 is made when something is played for the first time.
#[derive(Debug, Default)]
pub struct EchoCanceller {
    played: PlayedAudio,
    aec3: Option<Box<(Aec3, NearEnd)>>,
    /// Newest audio, held until [`NearEnd`] has decided whether the user speaks.
    held: VecDeque<Cleaned>,
    /// The user's voice passes.
    is_near: bool,
    /// Microphone audio, less than a block, and what was played with it.
    rest: Vec<i16>,
    rest_played: Vec<i16>,
    /// Blocks since something was played.
    quiet_blocks: u32,
    /// Blocks since playback began or went on after a pause.
    stretch_blocks: u32,
    /// Blocks in which something was played, up to [`LEARNING_BLOCKS`].
    played_blocks: u32,
}

impl EchoCanceller {
    /// Begins a frame of the microphone, which arrives now. Takes what was sent to the client since the last one.
    pub fn begin_frame(&mut self, now: Instant, playback: impl IntoIterator<Item = Playback>) {
        for playback in playback {
            match playback {
                Playback::Sent { at, encoding, rate_hz, samples } => {
                    self.played.push(at, encoding, rate_hz, &samples);
                }
                Playback::Cut(at) => self.played.cut(at),
            }
        }
        self.played.begin_frame(now);
    }

    /// Skips a frame of the microphone that is dropped or muted.
    pub fn skip(&mut self, length: Duration) {
        self.played.skip(length);
    }

    /// Removes the echo from the samples at 16 kHz from `start` on. The last of them, less than a block, wait for the next call.
    pub fn cancel(&mut self, audio: &mut Vec<i16>, start: usize) {
        let mut played = std::mem::take(&mut self.rest_played);
        self.played.take(audio.len() - start, &mut played);
        if !self.is_active() && is_silent(&played) {
            played.clear();
            self.rest_played = played;
            return;
        }
        let mut heard = std::mem::take(&mut self.rest);
        heard.extend(audio.drain(start..));
        let (blocks, rest) = heard.as_chunks();
        for (heard, played) in blocks.iter().zip(played.as_chunks().0) {
            self.cancel_block(heard, played, audio);
        }
        if self.is_active() {
            self.rest.extend_from_slice(rest);
            self.rest_played.extend_from_slice(&played[played.len() - rest.len()..]);
        } else {
            self.release(0, audio);
            audio.extend_from_slice(rest);
        }
    }

    /// Appends the samples that wait, because no more follow.
    pub fn flush(&mut self, audio: &mut Vec<i16>) {
        self.release(0, audio);
        audio.append(&mut self.rest);
        self.rest_played.clear();
    }

    /// Number of samples that wait.
    pub fn pending_samples(&self) -> usize {
        self.rest.len() + self.held.len() * BLOCK_SIZE
    }

    /// True while an echo may be in the microphone.
    const fn is_active(&self) -> bool {
        self.aec3.is_some() && self.quiet_blocks < ECHO_MAX_BLOCKS
    }

    fn cancel_block(&mut self, heard: &[i16; BLOCK_SIZE], played: &[i16; BLOCK_SIZE], out: &mut Vec<i16>) {
        let mut may_have_moved = false;
        self.stretch_blocks = self.stretch_blocks.saturating_add(1);
        if is_silent(played) {
            self.quiet_blocks = self.quiet_blocks.saturating_add(1);
        } else {
            may_have_moved = std::mem::take(&mut self.quiet_blocks) >= PAUSE_BLOCKS;
            if may_have_moved {
                self.stretch_blocks = 0;
            }
            self.played_blocks = (self.played_blocks + 1).min(LEARNING_BLOCKS);
        }
        let (aec3, near_end) = &mut **self.aec3.get_or_insert_with(Box::default);
        let is_careful = self.stretch_blocks < CAREFUL_BLOCKS;
        let mut cleaned = aec3.process(heard, played, may_have_moved, is_careful);
        if self.played_blocks < LEARNING_BLOCKS {
            cleaned.without_echo = [0; BLOCK_SIZE];
        }
        self.held.push_back(cleaned);
        let is_near = near_end.push(heard, played);
        if is_near != self.is_near {
            self.change(is_near);
        }
        self.release(if is_near { 0 } else { HELD_BLOCKS }, out);
    }

    /// Starts or stops passing the user's voice, which fades in or out in the oldest held block.
    fn change(&mut self, is_near: bool) {
        self.is_near = is_near;
        if let Some(Cleaned { without_echo, voice }) = self.held.front_mut() {
            let (to, from) = if is_near { (voice, &*without_echo) } else { (without_echo, &*voice) };
            for (at, (to, from)) in to.iter_mut().zip(from).enumerate() {
                let share = at as f32 / BLOCK_SIZE as f32;
                *to = (f32::from(*from) + share * (f32::from(*to) - f32::from(*from))) as i16;
            }
        }
    }

    /// Releases all held blocks except the newest.
    fn release(&mut self, kept: usize, out: &mut Vec<i16>) {
        let count = self.held.len().saturating_sub(kept);
        for Cleaned { without_echo, voice } in self.held.drain(..count) {
            out.extend(if self.is_near { voice } else { without_echo });
        }
    }
}

fn is_silent(samples: &[i16]) -> bool {
    samples.iter().all(|sample| *sample == 0)
}

#[cfg(test)]
mod tests;
