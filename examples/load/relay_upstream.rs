//! Upstream stub behind a relay: the same frames and messages as with a bridge, copied unchanged.

use std::rc::Rc;

use tokio::net::tcp::OwnedWriteHalf;

use crate::{
    client::Client,
    run_context::RunContext,
    sample_tracker::{SampleCounts, SampleTracker},
    test_audio::{MODEL_SECONDS, SECOND_SAMPLES},
    websocket::{self, BINARY, FrameReader, TEXT},
};

/// Search range for a frame, in frames.
const SEARCH_FRAMES: u64 = 100;

/// One relayed session.
pub(crate) struct RelayConnection {
    context: Rc<RunContext>,
    write: OwnedWriteHalf,
    client_number: usize,
    messages_sent: u64,
}

impl RelayConnection {
    pub(crate) const fn new(context: Rc<RunContext>, write: OwnedWriteHalf, client_number: usize) -> Self {
        Self { context, write, client_number, messages_sent: 0 }
    }

    pub(crate) async fn serve(mut self, mut inbox: FrameReader) {
        self.context.upstream_sessions_created.set(self.context.upstream_sessions_created.get() + 1);
        while let Some(frame) = inbox.next_frame().await {
            let now = self.context.now_us();
            let Some(client) = self.context.client(self.client_number) else { continue };
            let payload = inbox.payload(&frame);
            let result = match frame.opcode {
                BINARY => {
                    self.handle_frame(&client, payload, now);
                    Ok(())
                }
                TEXT => self.handle_message(&client, now).await,
                websocket::CLOSE => websocket::write_all(&self.write, &[&websocket::SERVER_CLOSE]).await,
                _ => Ok(()),
            };
            if result.is_err() {
                return;
            }
        }
    }

    fn handle_frame(&self, client: &Client, payload: &[u8], now: u64) {
        let samples = payload.len() as u64 / 2;
        let mut tracker = client.relay_tracker.borrow_mut();
        let is_at = |position: u64| self.context.sound.frame(client.loop_offset, position) == payload;
        let here = tracker.next_position;
        let near =
            (1..SEARCH_FRAMES).flat_map(|far| [Some(here + far * samples), here.checked_sub(far * samples)]);
        match std::iter::once(Some(here)).chain(near).flatten().find(|position| is_at(*position)) {
            Some(position) => {
                tracker.next_position = position;
                tracker.receive(samples);
            }
            None => tracker.receive_unrecognised(samples),
        }
        let position = tracker.next_position * SECOND_SAMPLES as u64 / u64::from(self.context.options.rate);
        let mut tally = self.context.tally.borrow_mut();
        if let (true, Some(sent_at)) =
            (tally.is_measuring.get(), client.frame_sent_at(&self.context, position))
        {
            tally.up_latency.add(now.saturating_sub(sent_at));
        }
    }

    /// Answers a second of audio when the model would speak.
    async fn handle_message(&mut self, client: &Client, now: u64) -> std::io::Result<()> {
        {
            let mut tally = self.context.tally.borrow_mut();
            tally.units += 1;
            if tally.is_measuring.get() {
                tally.up_excess_latency.add(now.saturating_sub(client.relay_message_sent_at.get()));
            }
        }
        if self.context.is_stopping.get()
            || !self.context.sound.is_answered_at(client.loop_position(&self.context))
        {
            return Ok(());
        }
        let begin = format!(
            r#"{{"type":"response.output.delta","kind":"audio","session_id":"s","input_id":"{}","audio":""#,
            self.messages_sent
        );
        let sound = Rc::clone(&self.context.sound);
        let audio = sound.model_voice_base64[self.messages_sent as usize % MODEL_SECONDS].as_bytes();
        self.messages_sent += 1;
        let end = r#"","metrics":{"kv_cache_length":500},"server_send_ts":1700000000.5}"#;
        let head = websocket::frame_header(TEXT, begin.len() + audio.len() + end.len(), false);
        client.receiver.borrow_mut().expect_delta(1, self.context.now_us(), false);
        websocket::write_all(&self.write, &[&head, begin.as_bytes(), audio, end.as_bytes()]).await
    }
}

/// Results for a client's frames, in samples at its own rate.
pub(crate) fn frame_counts(context: &RunContext, client: &Client, tracker: &SampleTracker) -> SampleCounts {
    tracker.counts(client.frames_sent() * context.options.frame_samples() as u64, 0)
}
