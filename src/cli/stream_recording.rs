//! Sends a recording to a server in real time and collects the transcripts.
//!
//! A server drops audio that is too far ahead of real time (Macaw field notes §1.7). Silence follows the recording until
//! every utterance is transcribed, because only silence ends the last utterance.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, interval};

use crate::audio::{SPEECH_RATE_HZ, pcm, wav};

use super::client::{Client, ClientTiming, ReceivedEvent, ServerMessage, server_error};
use super::error::ClientError;
use super::read_input::read_input;
use super::server_events::MacawEvent;

/// Samples of a 40 ms frame, as in the Macaw command line. A real server crashes on frames below 512 samples (field notes
/// §1.7).
pub(super) const FRAME_SAMPLES: usize = 640;

/// Minimum silence after the recording: longer than the pause that ends an utterance on any server.
const TRAILING_SILENCE_SAMPLES: usize = SPEECH_RATE_HZ as usize * 3 / 2;

/// Longest recording; it is kept in memory and sent in real time.
const RECORDING_MAX: Duration = Duration::from_secs(3600);

/// Upper bound of a recording file: an hour of 32-bit mono at 48 kHz.
const INPUT_MAX_BYTES: u64 = 700 << 20;

/// Frame to send after the end of the recording.
pub(super) const SILENT_FRAME: [i16; FRAME_SAMPLES] = [0; FRAME_SAMPLES];

/// Progress of a transcription, for display.
#[derive(Debug)]
pub(super) enum StreamProgress<'a> {
    /// Number of samples sent so far.
    Sent(usize),
    /// The server sent an event.
    Event(&'a ReceivedEvent),
}

/// Result of a transcription.
#[derive(Debug, Default)]
pub(super) struct TranscriptionResult {
    /// Transcripts that are not empty.
    pub(super) finals: Vec<String>,
    /// Time from the last audible sample to the last transcript; `None` if the transcript came first.
    pub(super) final_latency: Option<Duration>,
    /// Number of recoverable errors reported by the server.
    pub(super) error_count: usize,
    last_error: Option<ClientError>,
    utterances_started: usize,
    utterances_ended: usize,
    final_segment_ids: HashSet<u64>,
    unnumbered_finals: usize,
}

/// Reads and decodes a WAV file, or standard input for `-`.
pub(super) async fn read_wav(file: &Path) -> Result<Vec<i16>, ClientError> {
    let (bytes, source_name) = read_input(file, INPUT_MAX_BYTES).await?;
    decode_wav(&bytes, &source_name)
}

/// Decodes a WAV file to the format of a Macaw server: int16 mono 16 kHz.
pub(super) fn decode_wav(bytes: &[u8], source_name: &str) -> Result<Vec<i16>, ClientError> {
    decode_wav_at(bytes, source_name, SPEECH_RATE_HZ)
}

/// Decodes a WAV file to int16 mono at this rate.
pub(super) fn decode_wav_at(
    bytes: &[u8],
    source_name: &str,
    wanted_hz: u32,
) -> Result<Vec<i16>, ClientError> {
    let invalid_audio =
        |reason: wav::WavError| ClientError::InvalidAudio { source_name: source_name.to_owned(), reason };
    let (samples, rate_hz) = wav::read(bytes, RECORDING_MAX).map_err(invalid_audio)?;
    let samples =
        wav::resample_all(&samples, rate_hz, wanted_hz).map_err(|reason| invalid_audio(reason.into()))?;
    Ok(samples.into_iter().map(pcm::to_i16).collect())
}

/// Sends `samples` in real time and waits until every utterance is transcribed.
pub(super) async fn stream_and_transcribe(
    client: &mut Client,
    samples: &[i16],
    mut on_progress: impl FnMut(StreamProgress<'_>) -> io::Result<()>,
) -> Result<TranscriptionResult, ClientError> {
    let timing = *client.timing();
    let mut result = TranscriptionResult::default();
    let mut frames = samples.chunks(FRAME_SAMPLES);
    let mut ticks = interval(timing.frame_interval);
    let mut sent = 0;
    let speech_end = end_of_audible_samples(samples);
    let mut speech_end_at = None;
    let mut last_event_at = Instant::now();
    // Set after the recording and its trailing silence, when only answers of the server are missing.
    let mut idle_since = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let now = Instant::now();
                if let Some(since) = idle_since && result.is_finished(now - last_event_at.max(since), &timing)? {
                    return result.into_result();
                }
                client.send_audio(&pad_frame(frames.next().unwrap_or_default())).await?;
                sent += FRAME_SAMPLES;
                if sent >= speech_end {
                    speech_end_at.get_or_insert(now);
                }
                if sent >= samples.len() + TRAILING_SILENCE_SAMPLES {
                    idle_since.get_or_insert(now);
                }
                on_progress(StreamProgress::Sent(sent.min(samples.len()))).map_err(ClientError::unwritable_stdout)?;
            }
            message = client.next() => match message? {
                Some(ServerMessage::Event(event)) => {
                    last_event_at = Instant::now();
                    on_progress(StreamProgress::Event(&event)).map_err(ClientError::unwritable_stdout)?;
                    if result.handle_event(&event.event)? {
                        result.final_latency = speech_end_at.map(|at| last_event_at - at);
                    }
                }
                // Ignores audio, because the client requested no speech.
                Some(ServerMessage::Audio(_)) => {}
                None => return Err(client.connection_lost()),
            }
        }
    }
}

impl TranscriptionResult {
    /// Handles an event; returns `true` for a transcript that is not empty.
    fn handle_event(&mut self, event: &MacawEvent) -> Result<bool, ClientError> {
        match event {
            MacawEvent::SpeechStarted => self.utterances_started += 1,
            MacawEvent::SpeechEnded => self.utterances_ended += 1,
            MacawEvent::Final { text, segment_id, .. } => {
                match segment_id {
                    Some(id) => _ = self.final_segment_ids.insert(*id),
                    None => self.unnumbered_finals += 1,
                }
                if !text.trim().is_empty() {
                    self.finals.push(text.trim().to_owned());
                    return Ok(true);
                }
            }
            MacawEvent::Error { code, message, recoverable } => {
                let error = server_error(code, message);
                if !recoverable {
                    return Err(error);
                }
                self.error_count += 1;
                self.last_error = Some(error);
            }
            MacawEvent::SessionClosed { reason } => {
                return Err(ClientError::session_closed(reason));
            }
            _ => {}
        }
        Ok(false)
    }

    /// True if no more events are expected after a silence of `quiet`.
    fn is_finished(&self, quiet: Duration, timing: &ClientTiming) -> Result<bool, ClientError> {
        if self.utterances_started > self.utterances_ended {
            return if quiet < timing.stall_timeout {
                Ok(false)
            } else {
                Err(ClientError::Stalled(timing.stall_timeout))
            };
        }
        // A server may send `vad.speech_end` before a slow transcript.
        let answered = self.final_segment_ids.len() + self.unnumbered_finals + self.error_count;
        Ok(quiet
            >= if answered < self.utterances_ended {
                timing.late_transcript_timeout
            } else {
                timing.quiet_timeout
            })
    }

    /// Fails if there are errors and no transcript. The caller reports errors beside transcripts.
    fn into_result(mut self) -> Result<Self, ClientError> {
        match self.last_error.take() {
            Some(error) if self.finals.is_empty() => Err(error),
            error => Ok(Self { last_error: error, ..self }),
        }
    }

    /// Error to report after the transcripts are shown, if the server reported errors.
    pub(super) fn incomplete_error(&self) -> Option<ClientError> {
        let last = self.last_error.as_ref()?.to_string();
        Some(ClientError::IncompleteTranscript { count: self.error_count, last })
    }
}

/// Pads samples to a whole frame.
fn pad_frame(samples: &[i16]) -> [i16; FRAME_SAMPLES] {
    let mut frame = SILENT_FRAME;
    frame[..samples.len()].copy_from_slice(samples);
    frame
}

/// End of the last audible window of 20 ms: less than 40 dB below the loudest window.
pub(super) fn end_of_audible_samples(samples: &[i16]) -> usize {
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
    fn end_of_audible_samples_ignores_quiet_tail() {
        let mut samples = vec![0; 3200];
        samples[640..1280].fill(8000);
        samples[1280..].fill(3);
        assert_eq!(end_of_audible_samples(&samples), 1280);
        assert_eq!(end_of_audible_samples(&[]), 0);
        assert_eq!(end_of_audible_samples(&[0; 1000]), 0);
    }

    #[test]
    fn transcript_after_its_speech_end_is_awaited() {
        let timing = ClientTiming::default();
        let mut result = TranscriptionResult::default();
        assert!(result.is_finished(timing.quiet_timeout, &timing).unwrap(), "without any speech");
        result.handle_event(&MacawEvent::SpeechStarted).unwrap();
        assert!(!result.is_finished(timing.quiet_timeout, &timing).unwrap(), "an utterance is open");
        assert!(result.is_finished(timing.stall_timeout, &timing).is_err());
        result.handle_event(&MacawEvent::SpeechEnded).unwrap();
        assert!(!result.is_finished(timing.quiet_timeout, &timing).unwrap(), "a transcript is missing");
        assert!(result.is_finished(timing.late_transcript_timeout, &timing).unwrap());
        result
            .handle_event(&MacawEvent::Final { text: String::new(), segment_id: Some(0), assistant: false })
            .unwrap();
        assert!(result.is_finished(timing.quiet_timeout, &timing).unwrap());
    }
}
