//! A user in a full-duplex conversation: speaks in real time, is silent otherwise, and notes what comes back, and when.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, Interval, interval};

use crate::{
    audio::MODEL_RATE_HZ,
    cli::{
        ClientError,
        client::{Client, ServerMessage, server_error},
        recording::FRAME_SAMPLES,
        server_events::MacawEvent,
        speech_audio::SpeechAudio,
        stream_recording::SILENT_FRAME,
    },
};

/// Audio that a client has in its buffer before it plays. Audio that comes later than this leaves a gap.
const PLAYOUT_BUFFER: Duration = Duration::from_millis(300);

/// Gaps so soon after the user's words are no stalls.
const PAUSE_AFTER_WORDS: Duration = Duration::from_secs(2);
/// Code of the error about an upstream session that ended unasked, `conversation_interrupted` in `mappings/client/macaw.toml`.
const SESSION_LOST: &str = "worker_crash";
/// Interval between looks at something that is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Something that the server did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Seen {
    /// The model begins to speak.
    Begin,
    /// It has ended, or was cut short.
    End { cancelled: bool },
    /// The conversation has moved to another upstream session.
    Rollover { gap_ms: u64 },
}

/// The user and what was noted.
pub(super) struct Talk {
    client: Client,
    ticks: Interval,
    log: Vec<(Instant, Seen)>,
    /// Since when the model speaks.
    speaking_since: Option<Instant>,
    /// When the user spoke last.
    said_at: Option<Instant>,
    /// When the audio of this turn will have been played.
    played_until: Option<Instant>,
    /// Everything that the model said.
    pub(super) speech: SpeechAudio,
    /// Longest time for which playback had nothing to play within a turn.
    pub(super) longest_stall: Duration,
    /// Audio outside of turns, which no client should get.
    pub(super) stale_audio: Duration,
    /// Microphone audio that was dropped.
    pub(super) dropped: Duration,
    /// The last problem that the server reported and that did not end the conversation.
    pub(super) last_problem: Option<String>,
    /// The session waited for a worker.
    pub(super) has_waited: bool,
    /// Upstream sessions that ended unasked. The conversation went on in others.
    pub(super) lost_sessions: usize,
}

impl Talk {
    pub(super) fn new(client: Client) -> Self {
        let ticks = interval(client.timing().frame_interval);
        Self {
            client,
            ticks,
            log: Vec::new(),
            speaking_since: None,
            said_at: None,
            played_until: None,
            speech: SpeechAudio::default(),
            longest_stall: Duration::ZERO,
            stale_audio: Duration::ZERO,
            dropped: Duration::ZERO,
            last_problem: None,
            has_waited: false,
            lost_sessions: 0,
        }
    }

    /// Speaks all samples (16 kHz). Returns the time of the last one.
    pub(super) async fn say(&mut self, samples: &[i16]) -> Result<Instant, ClientError> {
        for frame in samples.chunks(FRAME_SAMPLES) {
            self.said_at = Some(Instant::now());
            self.tick(frame).await?;
        }
        Ok(Instant::now())
    }

    /// Is silent until the server has done this since the given time; `None` if it does not for this long.
    pub(super) async fn wait_for(
        &mut self,
        since: Instant,
        limit: Duration,
        is_awaited: impl Fn(Seen) -> bool,
    ) -> Result<Option<(Instant, Seen)>, ClientError> {
        let end = Instant::now() + limit;
        loop {
            let found = self.log.iter().find(|(at, seen)| *at >= since && is_awaited(*seen));
            if let Some(found) = found {
                return Ok(Some(*found));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            self.tick(&SILENT_FRAME).await?;
        }
    }

    /// Is silent until this is so; false if it is not for this long.
    pub(super) async fn wait_until(
        &mut self,
        limit: Duration,
        is_so: impl Fn() -> bool,
    ) -> Result<bool, ClientError> {
        let end = Instant::now() + limit;
        while !is_so() {
            if Instant::now() >= end {
                return Ok(false);
            }
            self.be_silent(LOOK_INTERVAL).await?;
        }
        Ok(true)
    }

    /// Is silent for this long.
    pub(super) async fn be_silent(&mut self, duration: Duration) -> Result<(), ClientError> {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            self.tick(&SILENT_FRAME).await?;
        }
        Ok(())
    }

    /// True while the model speaks.
    pub(super) const fn is_model_speaking(&self) -> bool {
        self.speaking_since.is_some()
    }

    /// Since when the model speaks; `None` while it is silent.
    pub(super) const fn speaking_since(&self) -> Option<Instant> {
        self.speaking_since
    }

    pub(super) async fn close(self) {
        self.client.close(|_| {}).await;
    }

    /// Sends a frame when it is due, and notes what comes until then.
    async fn tick(&mut self, frame: &[i16]) -> Result<(), ClientError> {
        loop {
            tokio::select! {
                _ = self.ticks.tick() => return self.client.send_audio(frame).await,
                message = self.client.next() => match message? {
                    Some(message) => self.note(message)?,
                    None => return Err(self.client.connection_lost()),
                },
            }
        }
    }

    fn note(&mut self, message: ServerMessage) -> Result<(), ClientError> {
        let now = Instant::now();
        match message {
            ServerMessage::Audio(bytes) => return self.note_audio(now, &bytes),
            ServerMessage::Event(event) => match event.event {
                MacawEvent::SpeakingStarted { .. } => {
                    (self.speaking_since, self.played_until) = (Some(now), None);
                    self.log.push((now, Seen::Begin));
                }
                MacawEvent::SpeakingEnded { cancelled, .. } => {
                    self.speaking_since = None;
                    self.log.push((now, Seen::End { cancelled }));
                }
                MacawEvent::OnHold { .. } => self.has_waited = true,
                MacawEvent::FramesDropped { dropped_ms } => self.dropped += Duration::from_millis(dropped_ms),
                MacawEvent::Error { code, message, recoverable: true } => {
                    self.lost_sessions += usize::from(code == SESSION_LOST);
                    self.last_problem = Some(server_error(&code, &message).to_string());
                }
                MacawEvent::Error { code, message, .. } => return Err(server_error(&code, &message)),
                MacawEvent::SessionClosed { reason } => return Err(ClientError::session_closed(&reason)),
                MacawEvent::Unknown(name) if name == "session.rollover" => {
                    let event: Value = serde_json::from_str(&event.text).unwrap_or_default();
                    let gap_ms = event["gap_ms"].as_u64().unwrap_or_default();
                    self.log.push((now, Seen::Rollover { gap_ms }));
                }
                _ => {}
            },
        }
        Ok(())
    }

    fn note_audio(&mut self, now: Instant, bytes: &[u8]) -> Result<(), ClientError> {
        let duration = Duration::from_secs_f64(bytes.len() as f64 / 2.0 / f64::from(MODEL_RATE_HZ));
        if self.speaking_since.is_none() {
            self.stale_audio += duration;
            return Ok(());
        }
        let played_until = self.played_until.unwrap_or(now + PLAYOUT_BUFFER);
        // The user's words pause playback until it is certain that they are an interruption.
        if self.said_at.is_none_or(|at| now > at + PAUSE_AFTER_WORDS) {
            self.longest_stall = self.longest_stall.max(now.saturating_duration_since(played_until));
        }
        self.played_until = Some(played_until.max(now) + duration);
        self.speech.push(bytes)
    }
}
