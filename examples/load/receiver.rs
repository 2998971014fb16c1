//! Client receiver: verifies every byte of the model's voice, its arrival time, and the relevant messages.
//!
//! Downstream latency starts at the sending of a delta, or when its audio is due, if that is later. It ends at the
//! arrival of the first audio. A bridge sends audio [`Options::lead_us`](crate::options::Options::lead_us) before it is played, so a delta of a turn in progress
//! is due when less than that remains. The first delta of a turn counts separately: bridges may delay it on purpose
//! after an audible gap. Without a gap it counts like the others.

use std::{collections::VecDeque, rc::Rc};

use crate::{
    client::Client,
    openai,
    options::{BridgeKind, ClientKind},
    run_context::RunContext,
    sample_tracker::{SampleCounts, SampleTracker},
    test_audio::{MODEL_SECOND_SAMPLES, MODEL_SECONDS, TestAudio},
    websocket::{self, FrameReader},
};

/// Audio that arrives later than this before its playout may have been late at the bridge, µs.
const JUST_IN_TIME_US: u64 = 5_000;
/// Length of the model's voice in bytes, before it repeats.
const VOICE_LOOP_BYTES: u64 = (2 * MODEL_SECONDS * MODEL_SECOND_SAMPLES) as u64;

/// A delta in transit.
#[derive(Debug)]
struct PendingDelta {
    /// Its first sample.
    first_sample: u64,
    sent_at: u64,
    starts_turn: bool,
    /// Time until its question began to arrive at the upstream, µs.
    question_us: Option<u64>,
}

/// Receiver of one client.
#[derive(Debug, Default)]
pub(crate) struct AudioReceiver {
    tracker: SampleTracker,
    /// Number of samples (through a relay: messages) that the model sent to this client.
    samples_expected: u64,
    pending_deltas: VecDeque<PendingDelta>,
    /// Instant at which the received audio is played out.
    playback_ends_at: u64,
    /// The bridge may delay the start of a turn.
    may_hold_turn_starts: bool,
    /// Of the next delta.
    question_us: Option<u64>,
}

impl AudioReceiver {
    /// Records another second (or message) sent by the model.
    pub(crate) fn expect_delta(&mut self, samples: u64, sent_at: u64, starts_turn: bool) {
        self.pending_deltas.push_back(PendingDelta {
            first_sample: self.samples_expected,
            sent_at,
            starts_turn,
            question_us: self.question_us.take(),
        });
        self.samples_expected += samples;
    }

    /// Records the time until the question of the next delta began to arrive at the upstream.
    pub(crate) const fn expect_answer(&mut self, question_us: Option<u64>) {
        self.question_us = question_us;
    }

    /// Index of the model's next second.
    pub(crate) const fn next_second(&self) -> u64 {
        self.samples_expected / MODEL_SECOND_SAMPLES as u64
    }

    /// Injects a fault: the model skips a second.
    pub(crate) const fn skip_second(&mut self) {
        self.samples_expected += MODEL_SECOND_SAMPLES as u64;
    }

    /// Results for all samples.
    pub(crate) fn counts(&self) -> SampleCounts {
        self.tracker.counts(self.samples_expected, 0)
    }

    /// True if everything sent has arrived.
    pub(crate) const fn is_complete(&self) -> bool {
        self.tracker.next_position >= self.samples_expected
    }

    pub(crate) fn receive_audio(&mut self, context: &RunContext, now: u64, payload: &[u8]) {
        let samples = payload.len() as u64 / 2;
        if !is_expected_audio(&context.sound, self.tracker.next_position, payload) {
            match find_position(&context.sound, self.tracker.next_position, payload) {
                Some(position) => self.tracker.next_position = position,
                None => return self.tracker.receive_unrecognised(samples),
            }
        }
        self.measure_latency(context, now, samples);
        self.tracker.receive(samples);
    }

    /// Measures the arrival of each delta's first audio.
    fn measure_latency(&mut self, context: &RunContext, now: u64, samples: u64) {
        let length = samples * 1_000_000 / MODEL_SECOND_SAMPLES as u64;
        let end = self.tracker.next_position + samples;
        let lead_us = context.options.lead_us();
        while self.pending_deltas.front().is_some_and(|delta| delta.first_sample < end) {
            let Some(delta) = self.pending_deltas.pop_front() else { return };
            let waited = now.saturating_sub(delta.sent_at);
            let due = self.playback_ends_at.saturating_sub(lead_us.saturating_sub(length)).max(delta.sent_at);
            let mut tally = context.tally.borrow_mut();
            if tally.is_measuring.get() && delta.starts_turn {
                tally.turn_start_latency.add(waited);
            }
            if let (true, Some(question_us)) = (tally.is_measuring.get(), delta.question_us) {
                tally.answer_latency.add(question_us + waited);
            }
            if tally.is_measuring.get() && !(delta.starts_turn && self.may_hold_turn_starts) {
                // An early delta is not paced.
                let early = due.saturating_sub(now);
                let latency = if early > JUST_IN_TIME_US { waited } else { now.saturating_sub(due) };
                tally.down_latency.add(latency);
            }
            self.may_hold_turn_starts |= !delta.starts_turn && self.playback_ends_at < now + JUST_IN_TIME_US;
        }
        self.playback_ends_at = self.playback_ends_at.max(now) + length;
    }

    /// The rest of the turn was discarded.
    pub(crate) fn cancel_pending(&mut self) {
        self.pending_deltas.clear();
        self.playback_ends_at = 0;
        self.tracker.skip_to(self.samples_expected);
    }

    /// Records a long message received through a relay.
    fn receive_relay_message(&mut self, context: &RunContext, now: u64, number: u64) {
        self.tracker.next_position = number;
        self.tracker.receive(1);
        if let Some(delta) = self.pending_deltas.pop_front() {
            let mut tally = context.tally.borrow_mut();
            if tally.is_measuring.get() {
                tally.down_latency.add(now.saturating_sub(delta.sent_at));
            }
        }
    }
}

fn is_expected_audio(sound: &TestAudio, position: u64, payload: &[u8]) -> bool {
    let at = (2 * position % VOICE_LOOP_BYTES) as usize;
    let first = payload.len().min(sound.model_voice.len() - at);
    let (head, tail) = payload.split_at(first);
    sound.model_voice[at..at + first] == *head && sound.model_voice.get(..tail.len()) == Some(tail)
}

/// Finds these samples in the model's voice, at the position nearest to the expected one.
fn find_position(sound: &TestAudio, expected: u64, payload: &[u8]) -> Option<u64> {
    let head = payload.get(..16.min(payload.len()))?;
    let at = sound
        .model_voice
        .chunks(2)
        .enumerate()
        .position(|(at, _)| sound.model_voice[2 * at..].starts_with(head))? as u64;
    let round = VOICE_LOOP_BYTES / 2;
    let ahead = (at + round - expected % round) % round;
    let position =
        if ahead <= round / 2 { expected + ahead } else { (expected + ahead).checked_sub(round)? };
    is_expected_audio(sound, position, payload).then_some(position)
}

/// Reads everything that a client receives.
pub(crate) async fn run_receiver(context: Rc<RunContext>, client: Rc<Client>, mut inbox: FrameReader) {
    while let Some(frame) = inbox.next_frame().await {
        let now = context.now_us();
        let payload = inbox.payload(&frame);
        match frame.opcode {
            websocket::BINARY => client.receiver.borrow_mut().receive_audio(&context, now, payload),
            websocket::TEXT if context.options.path == BridgeKind::Relay => {
                let number = crate::upstream_stub::relay_message_number(payload).unwrap_or(u64::MAX / 2);
                client.receiver.borrow_mut().receive_relay_message(&context, now, number);
            }
            websocket::TEXT if context.options.client == ClientKind::OpenaiRealtime => {
                openai::handle_event(&context, &client, payload, now);
            }
            websocket::TEXT => handle_text(&context, &client, &String::from_utf8_lossy(payload)),
            websocket::PING => client.send_pong(&context, payload),
            _ => {}
        }
    }
    client.is_closed.set(true);
    if !context.is_leaving.get() {
        context.tally.borrow_mut().closed_early += 1;
    }
}

fn handle_text(context: &RunContext, client: &Client, text: &str) {
    client.is_ready.set(true);
    let contains = |key: &str| text.contains(key);
    if contains("\"tts.speaking_end\"") && (contains("\"cancelled\":true") || contains("\"cancelled\": true"))
    {
        context.tally.borrow_mut().interrupted_turns += 1;
        client.receiver.borrow_mut().cancel_pending();
    } else if contains("\"transcript.final\"") {
        context.tally.borrow_mut().transcripts += 1;
        client.transcript_check.borrow_mut().add_transcript(client.loop_position(context), text);
    } else if contains("\"error\"")
        || contains("\"session.frames_dropped\"")
        || contains("\"session.rate_limit\"")
    {
        context.tally.borrow_mut().record_error(text);
    }
}
