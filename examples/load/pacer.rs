//! The clients' clock: one task that sends every client's frame when it is due.
//!
//! Clients begin at instants spread over a second, so neither their frames nor their units are in phase. Frames that are
//! due within the timer's millisecond are sent together.

use std::rc::Rc;

use tokio::{
    task::yield_now,
    time::{Duration, Instant, sleep_until},
};

use crate::{
    client::Client,
    options::BridgeKind,
    run_context::RunContext,
    websocket::{self, BINARY, TEXT},
};

/// Frames sent in one go before somebody else gets a turn.
const FRAMES_PER_YIELD: u32 = 32;
/// What a bridge sends for a second: float32 at 16 kHz as base64, and the JSON around it.
const MESSAGE_BYTES: usize = 85_336;

/// When a client sends.
struct SendSlot {
    phase: Duration,
    first_tick: u32,
    client: Rc<Client>,
}

/// Sends frames from `begin` on until the world stops.
pub(crate) async fn run_pacer(world: Rc<RunContext>, begin: Instant) {
    let frame = Duration::from_millis(world.options.frame_ms.into());
    let head = websocket::frame_header(BINARY, 2 * world.options.frame_samples(), true);
    let message = relay_message(&world);
    let turns = send_slots(&world, frame);
    let mut in_a_row = 0u32;
    for tick in 0.. {
        for turn in turns.iter().filter(|turn| turn.first_tick <= tick && !turn.client.is_closed.get()) {
            let due = begin + frame * tick + turn.phase;
            if due > Instant::now() {
                in_a_row = 0;
                sleep_until(due).await;
            }
            in_a_row += 1;
            if in_a_row.is_multiple_of(FRAMES_PER_YIELD) {
                yield_now().await;
            }
            if world.is_stopping.get() {
                return;
            }
            send_due_frame(&world, turn, due, &head, &message, tick - turn.first_tick);
        }
        if turns.iter().all(|turn| turn.client.is_closed.get() || turn.first_tick > tick) {
            sleep_until(begin + frame * (tick + 1)).await;
        }
    }
}

fn send_slots(world: &RunContext, frame: Duration) -> Vec<SendSlot> {
    /// The golden ratio's part after the point spreads any number of clients evenly.
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let clients = world.clients.borrow();
    let turn = |(number, client): (usize, &Rc<Client>)| {
        let start = Duration::from_secs_f64((number as f64 * GOLDEN).fract());
        let first_tick = (start.as_nanos() / frame.as_nanos()) as u32;
        SendSlot { phase: start - frame * first_tick, first_tick, client: Rc::clone(client) }
    };
    let mut turns: Vec<SendSlot> = clients.iter().enumerate().map(turn).collect();
    turns.sort_by_key(|turn| turn.phase);
    turns
}

fn send_due_frame(
    world: &RunContext,
    turn: &SendSlot,
    due: Instant,
    head: &[u8],
    message: &[u8],
    frame: u32,
) {
    let now = Instant::now();
    let late = now - due;
    {
        let mut tally = world.tally.borrow_mut();
        if tally.is_measuring.get() {
            tally.send_lateness.add(late.as_micros() as u64);
            tally.frames += 1;
            tally.late_frames += u64::from(2 * late.as_millis() > u128::from(world.options.frame_ms));
        }
    }
    let micros = (now - world.started).as_micros() as u64;
    turn.client.send_next_frame(world, head, micros);
    if !message.is_empty() && ((frame + 1) * world.options.frame_ms).is_multiple_of(1000) {
        turn.client.relay_message_sent_at.set(world.now_us());
        turn.client.send(world, message, &[]);
    }
}

/// What goes through a relay besides the frames, ready to be sent.
fn relay_message(world: &RunContext) -> Vec<u8> {
    if world.options.path != BridgeKind::Relay || !world.options.has_relay_messages() {
        return Vec::new();
    }
    let audio = "A".repeat(MESSAGE_BYTES);
    let words = format!(r#"{{"type":"input.append","input":{{"audio":"{audio}","force_listen":false}}}}"#);
    let mut frame = websocket::frame_header(TEXT, words.len(), true);
    frame.extend(words.bytes());
    frame
}
