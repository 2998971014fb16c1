//! Echo cancellation: removes from a microphone what the client plays, for devices that do not do so themselves.
//!
//! [`EchoCanceller`] gets the audio that was sent to the client, with the instants at which it is played, and the microphone's
//! audio. [`PlayedAudio`] lines the two up, and AEC3 of WebRTC (in the port `sonora-aec3`) finds the remaining delay, up to
//! about 0.8 s: network, the client's buffer, loudspeaker and room. AEC3 works in blocks of 4 ms.
//!
//! While nothing is played, the microphone's samples pass unchanged, and AEC3 does not run. Where playback begins and ends,
//! AEC3 shifts the microphone by a block.
//!
//! Measured in simulated rooms (`tests/core/conversation/echo.rs`) and compared with `aec3` and `decibri-aec`: `aec3` is
//! equally good and brings a graph runtime, and `decibri-aec` leaves 2 to 4 false barge-ins a minute.

mod aec3;
mod played;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sonora_aec3::common::BLOCK_SIZE;

use super::{SPEECH_RATE_HZ, encoding::Encoding};
use aec3::Aec3;
use played::PlayedAudio;

/// Silence after which nothing that was played can be in the microphone: the longest delay and the room's reverberation.
const ECHO_MAX_BLOCKS: u32 = blocks(1_500);
/// Silence after which playback may begin anew with another delay.
const PAUSE_BLOCKS: u32 = blocks(600);
/// Time after a pause in which the audio of the more careful canceller is taken where it is quieter.
const CAREFUL_BLOCKS: u32 = blocks(2_500);
/// Playback from which AEC3 learns the room, in a session. It lets some echo through meanwhile, so the microphone is muted.
const LEARNING_BLOCKS: u32 = blocks(2_500);

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
    aec3: Option<Box<Aec3>>,
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
            audio.extend_from_slice(rest);
        }
    }

    /// Appends the samples that wait, because no more follow.
    pub fn flush(&mut self, audio: &mut Vec<i16>) {
        audio.append(&mut self.rest);
        self.rest_played.clear();
    }

    /// Number of samples that wait.
    pub const fn pending_samples(&self) -> usize {
        self.rest.len()
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
        let aec3 = self.aec3.get_or_insert_with(Box::default);
        let is_careful = self.stretch_blocks < CAREFUL_BLOCKS;
        let cleaned = aec3.process(heard, played, may_have_moved, is_careful);
        if self.played_blocks < LEARNING_BLOCKS {
            out.extend_from_slice(&[0; BLOCK_SIZE]);
        } else {
            out.extend(cleaned.iter().map(|sample| sample.round() as i16));
        }
    }
}

fn is_silent(samples: &[i16]) -> bool {
    samples.iter().all(|sample| *sample == 0)
}

#[cfg(test)]
mod tests;
