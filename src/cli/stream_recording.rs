//! A recording played to a server as a microphone would, and what the server made of it.
//!
//! Audio goes out by the clock, because a server drops what is too far ahead of it (Macaw field notes §1.7); after
//! the recording comes silence until everything is answered, because only silence ends the last utterance.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use tokio::time::{Instant, interval};

use crate::audio::{SPEECH_RATE_HZ, pcm, wav};

use super::client::{Client, Event, Incoming, Timing, server_error};
use super::error::ClientError;
use super::server_events::ClientSeen;

/// 40 ms, the frame of the Macaw command line; a real server dies of frames below 512 samples (field notes §1.7).
pub(super) const FRAME_SAMPLES: usize = 640;

/// Silence after the recording, at the least: longer than the pause that ends an utterance on any server.
const TRAILING_SAMPLES: usize = SPEECH_RATE_HZ as usize * 3 / 2;

/// Longest recording: it is held in memory, and played in real time.
const LONGEST: Duration = Duration::from_secs(3600);

/// What is sent once the recording is over.
pub(super) const SILENCE: [i16; FRAME_SAMPLES] = [0; FRAME_SAMPLES];

/// What happened, for whoever watches.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// So many samples of the recording are sent.
    Sent(usize),
    /// The server said something.
    Event(&'a Event),
}

/// What became of a recording.
#[derive(Debug, Default)]
pub(super) struct Listened {
    /// The transcripts, without empty ones.
    pub(super) finals: Vec<String>,
    /// How long the last final came after the last audible sample; `None` if it came before.
    pub(super) latency: Option<Duration>,
    /// Errors the server reported, and the last one's words.
    pub(super) errors: usize,
    last_error: Option<ClientError>,
    started: usize,
    ended: usize,
    answered: HashSet<u64>,
    answered_unnumbered: usize,
}

/// A WAV file as the samples a Macaw server wants: int16 mono 16 kHz.
pub(super) fn samples_of(bytes: &[u8], what: &str) -> Result<Vec<i16>, ClientError> {
    let bad = |why: wav::WavError| ClientError::BadAudio { what: what.to_owned(), why };
    let (samples, rate_hz) = wav::read(bytes, LONGEST).map_err(bad)?;
    let samples = wav::resample_all(&samples, rate_hz, SPEECH_RATE_HZ).map_err(|why| bad(why.into()))?;
    Ok(samples.into_iter().map(pcm::to_i16).collect())
}

/// Plays `samples` and waits until every utterance is answered.
pub(super) async fn listen(
    client: &mut Client,
    samples: &[i16],
    mut watch: impl FnMut(Step<'_>) -> io::Result<()>,
) -> Result<Listened, ClientError> {
    let timing = *client.timing();
    let mut heard = Listened::default();
    let mut frames = samples.chunks(FRAME_SAMPLES);
    let mut ticks = interval(timing.frame);
    let mut sent = 0;
    let speech_end = last_audible(samples);
    let mut speech_end_at = None;
    let mut last_event_at = Instant::now();
    // From here on the server owes answers only.
    let mut idle_since = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let now = Instant::now();
                if let Some(since) = idle_since && heard.is_over(now - last_event_at.max(since), &timing)? {
                    return heard.judged();
                }
                client.send_audio(&padded(frames.next().unwrap_or_default())).await?;
                sent += FRAME_SAMPLES;
                if sent >= speech_end {
                    speech_end_at.get_or_insert(now);
                }
                if sent >= samples.len() + TRAILING_SAMPLES {
                    idle_since.get_or_insert(now);
                }
                watch(Step::Sent(sent.min(samples.len()))).map_err(ClientError::stdout)?;
            }
            message = client.next() => match message? {
                Some(Incoming::Event(event)) => {
                    last_event_at = Instant::now();
                    watch(Step::Event(&event)).map_err(ClientError::stdout)?;
                    if heard.take(&event.seen)? {
                        heard.latency = speech_end_at.map(|at| last_event_at - at);
                    }
                }
                // Nothing was asked to be spoken; whatever it is, it is no answer.
                Some(Incoming::Audio(_)) => {}
                None => return Err(ClientError::Lost(client.ending().to_owned())),
            }
        }
    }
}

impl Listened {
    /// Takes in an event; `true` for a transcript with words.
    fn take(&mut self, seen: &ClientSeen) -> Result<bool, ClientError> {
        match seen {
            ClientSeen::SpeechStarted => self.started += 1,
            ClientSeen::SpeechEnded => self.ended += 1,
            ClientSeen::Final { text, segment_id, .. } => {
                match segment_id {
                    Some(id) => _ = self.answered.insert(*id),
                    None => self.answered_unnumbered += 1,
                }
                if !text.trim().is_empty() {
                    self.finals.push(text.trim().to_owned());
                    return Ok(true);
                }
            }
            ClientSeen::Error { code, message, recoverable } => {
                let error = server_error(code, message);
                if !recoverable {
                    return Err(error);
                }
                self.errors += 1;
                self.last_error = Some(error);
            }
            ClientSeen::SessionClosed { reason } => {
                return Err(ClientError::Lost(format!("the server closed the session: {reason}")));
            }
            _ => {}
        }
        Ok(false)
    }

    /// Nothing more is to be expected after `quiet` without an event.
    fn is_over(&self, quiet: Duration, timing: &Timing) -> Result<bool, ClientError> {
        if self.started > self.ended {
            return if quiet < timing.stall { Ok(false) } else { Err(ClientError::Stalled(timing.stall)) };
        }
        // `vad.speech_end` does not wait for ever for its transcript: a late one may still come.
        let answered = self.answered.len() + self.answered_unnumbered + self.errors;
        Ok(quiet >= if answered < self.ended { timing.late } else { timing.quiet })
    }

    /// Errors and no transcript are a failure; errors beside transcripts are for the caller to mention.
    fn judged(mut self) -> Result<Self, ClientError> {
        match self.last_error.take() {
            Some(error) if self.finals.is_empty() => Err(error),
            error => Ok(Self { last_error: error, ..self }),
        }
    }

    /// The failure to report after the transcripts were shown, if there were errors.
    pub(super) fn incomplete(&self) -> Option<ClientError> {
        let last = self.last_error.as_ref()?.to_string();
        Some(ClientError::Incomplete { count: self.errors, last })
    }
}

/// A whole frame, whatever is left of the recording.
fn padded(samples: &[i16]) -> [i16; FRAME_SAMPLES] {
    let mut frame = SILENCE;
    frame[..samples.len()].copy_from_slice(samples);
    frame
}

/// Where the last sample is that can be heard beside the loudest: 40 dB below it, for 20 ms.
pub(super) fn last_audible(samples: &[i16]) -> usize {
    const WINDOW: usize = SPEECH_RATE_HZ as usize / 50;
    let energy = |window: &[i16]| window.iter().map(|s| i64::from(*s).pow(2)).sum::<i64>() / WINDOW as i64;
    let loudest = samples.chunks(WINDOW).map(energy).max().unwrap_or(0);
    let last = samples.chunks(WINDOW).rposition(|window| energy(window) > loudest / 10_000);
    last.map_or(0, |index| ((index + 1) * WINDOW).min(samples.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_audible_sample_is_found() {
        let mut samples = vec![0; 3200];
        samples[640..1280].fill(8000);
        samples[1280..].fill(3);
        assert_eq!(last_audible(&samples), 1280);
        assert_eq!(last_audible(&[]), 0);
        assert_eq!(last_audible(&[0; 1000]), 0);
    }

    #[test]
    fn a_transcript_after_its_speech_end_is_waited_for() {
        let timing = Timing::default();
        let mut heard = Listened::default();
        assert!(heard.is_over(timing.quiet, &timing).unwrap(), "nothing was ever said");
        heard.take(&ClientSeen::SpeechStarted).unwrap();
        assert!(!heard.is_over(timing.quiet, &timing).unwrap(), "an utterance is open");
        assert!(heard.is_over(timing.stall, &timing).is_err());
        heard.take(&ClientSeen::SpeechEnded).unwrap();
        assert!(!heard.is_over(timing.quiet, &timing).unwrap(), "its words are missing");
        assert!(heard.is_over(timing.late, &timing).unwrap());
        heard
            .take(&ClientSeen::Final { text: String::new(), segment_id: Some(0), assistant: false })
            .unwrap();
        assert!(heard.is_over(timing.quiet, &timing).unwrap());
    }
}
