//! Pacer: one task sends every client's frame when it is due.
//!
//! Client start times are spread over a second, so neither frames nor units are in phase. Frames due within the same
//! timer millisecond are sent together.

use std::rc::Rc;

use tokio::{
    task::yield_now,
    time::{Duration, Instant, sleep_until},
};

use crate::{
    client::Client,
    openai,
    options::{BridgeKind, ClientKind},
    run_context::RunContext,
    websocket::{self, BINARY, TEXT},
};

/// Number of frames sent before other tasks get a turn.
const FRAMES_PER_YIELD: u32 = 32;
/// Size of a second of audio from a bridge: float32 at 16 kHz as base64, plus JSON.
const MESSAGE_BYTES: usize = 85_336;

/// Sending schedule of a client.
struct SendSlot {
    phase: Duration,
    first_tick: u32,
    client: Rc<Client>,
}

/// Sends frames from `begin` until the run ends.
pub(crate) async fn run_pacer(context: Rc<RunContext>, begin: Instant) {
    let frame = Duration::from_millis(context.options.frame_ms.into());
    let (head, tail) = frame_envelope(&context);
    let message = relay_message(&context);
    let slots = send_slots(&context, frame);
    let mut frames_since_yield = 0u32;
    for tick in 0.. {
        for slot in slots.iter().filter(|slot| slot.first_tick <= tick && !slot.client.is_closed.get()) {
            let due = begin + frame * tick + slot.phase;
            if due > Instant::now() {
                frames_since_yield = 0;
                sleep_until(due).await;
            }
            frames_since_yield += 1;
            if frames_since_yield.is_multiple_of(FRAMES_PER_YIELD) {
                yield_now().await;
            }
            if context.is_stopping.get() {
                return;
            }
            send_due_frame(&context, slot, due, (&head, tail), &message, tick - slot.first_tick);
        }
        if slots.iter().all(|slot| slot.client.is_closed.get() || slot.first_tick > tick) {
            sleep_until(begin + frame * (tick + 1)).await;
        }
    }
}

fn send_slots(context: &RunContext, frame: Duration) -> Vec<SendSlot> {
    /// Multiples of the golden ratio's fraction spread any number of clients evenly.
    const GOLDEN_RATIO_FRACTION: f64 = 0.618_033_988_749_895;
    let clients = context.clients.borrow();
    let slot = |(number, client): (usize, &Rc<Client>)| {
        let start = Duration::from_secs_f64((number as f64 * GOLDEN_RATIO_FRACTION).fract());
        let first_tick = (start.as_nanos() / frame.as_nanos()) as u32;
        SendSlot { phase: start - frame * first_tick, first_tick, client: Rc::clone(client) }
    };
    let mut slots: Vec<SendSlot> = clients.iter().enumerate().map(slot).collect();
    slots.sort_by_key(|slot| slot.phase);
    slots
}

fn send_due_frame(
    context: &RunContext,
    slot: &SendSlot,
    due: Instant,
    envelope: (&[u8], &[u8]),
    message: &[u8],
    frame: u32,
) {
    let now = Instant::now();
    let late = now - due;
    {
        let mut tally = context.tally.borrow_mut();
        if tally.is_measuring.get() {
            tally.send_lateness.add(late.as_micros() as u64);
            tally.frames += 1;
            tally.late_frames += u64::from(2 * late.as_millis() > u128::from(context.options.frame_ms));
        }
    }
    let micros = (now - context.started).as_micros() as u64;
    slot.client.send_next_frame(context, envelope, micros);
    if !message.is_empty() && ((frame + 1) * context.options.frame_ms).is_multiple_of(1000) {
        slot.client.relay_message_sent_at.set(context.now_us());
        slot.client.send(context, &[message]);
    }
}

/// Bytes before and after the audio of each frame.
fn frame_envelope(context: &RunContext) -> (Vec<u8>, &'static [u8]) {
    let audio_bytes = 2 * context.options.frame_samples();
    match context.options.client {
        ClientKind::Macaw => (websocket::frame_header(BINARY, audio_bytes, true), b""),
        ClientKind::OpenaiRealtime => {
            let (start, end) = (openai::APPEND_START.as_bytes(), openai::APPEND_END.as_bytes());
            let length = start.len() + audio_bytes / 3 * 4 + end.len();
            ([&websocket::frame_header(TEXT, length, true), start].concat(), end)
        }
    }
}

/// Prebuilt message that a relay carries besides the frames.
fn relay_message(context: &RunContext) -> Vec<u8> {
    if context.options.path != BridgeKind::Relay || !context.options.has_relay_messages() {
        return Vec::new();
    }
    let audio = "A".repeat(MESSAGE_BYTES);
    let text = format!(r#"{{"type":"input.append","input":{{"audio":"{audio}","force_listen":false}}}}"#);
    let mut frame = websocket::frame_header(TEXT, text.len(), true);
    frame.extend(text.bytes());
    frame
}
