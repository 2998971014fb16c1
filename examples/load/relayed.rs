//! The stub's end of a relay: the same frames and messages as with a bridge, through something that only copies them.

use std::rc::Rc;

use tokio::net::tcp::OwnedWriteHalf;

use crate::{
    client::Client,
    sound::{SECOND, VARIANTS},
    track::{Counts, Track},
    wire::{self, BINARY, Inbox, TEXT},
    world::World,
};

/// Frames away from the expected one that are looked at.
const FAR: u64 = 100;

/// One relayed session.
pub(crate) struct Relayed {
    world: Rc<World>,
    write: OwnedWriteHalf,
    number: usize,
    said: u64,
}

impl Relayed {
    pub(crate) const fn new(world: Rc<World>, write: OwnedWriteHalf, number: usize) -> Self {
        Self { world, write, number, said: 0 }
    }

    pub(crate) async fn serve(mut self, mut inbox: Inbox) {
        self.world.created.set(self.world.created.get() + 1);
        while let Some(frame) = inbox.frame().await {
            let now = self.world.now();
            let Some(client) = self.world.client(self.number) else { continue };
            let payload = inbox.payload(&frame);
            let done = match frame.opcode {
                BINARY => {
                    self.frame(&client, payload, now);
                    Ok(())
                }
                TEXT => self.message(&client, now).await,
                wire::CLOSE => wire::send(&self.write, &[&wire::SERVER_CLOSE]).await,
                _ => Ok(()),
            };
            if done.is_err() {
                return;
            }
        }
    }

    fn frame(&self, client: &Client, payload: &[u8], now: u64) {
        let samples = payload.len() as u64 / 2;
        let mut track = client.relayed.borrow_mut();
        let is_at = |place: u64| self.world.sound.frame(client.begins, place) == payload;
        let here = track.next;
        let near = (1..FAR).flat_map(|far| [Some(here + far * samples), here.checked_sub(far * samples)]);
        match std::iter::once(Some(here)).chain(near).flatten().find(|place| is_at(*place)) {
            Some(place) => {
                track.next = place;
                track.take(samples);
            }
            None => track.take_unknown(samples),
        }
        let place = track.next * SECOND as u64 / u64::from(self.world.options.rate);
        let mut tally = self.world.tally.borrow_mut();
        if let (true, Some(sent_at)) = (tally.measuring.get(), client.sent_at(&self.world, place)) {
            tally.up.add(now.saturating_sub(sent_at));
        }
    }

    /// A second of audio in the bridge's words, answered where the model would speak.
    async fn message(&mut self, client: &Client, now: u64) -> std::io::Result<()> {
        {
            let mut tally = self.world.tally.borrow_mut();
            tally.units += 1;
            if tally.measuring.get() {
                tally.up_beyond.add(now.saturating_sub(client.message_at.get()));
            }
        }
        if self.world.stopping.get() || !self.world.sound.answers(client.place(&self.world)) {
            return Ok(());
        }
        let begin = format!(
            r#"{{"type":"response.output.delta","kind":"audio","session_id":"s","input_id":"{}","audio":""#,
            self.said
        );
        let sound = Rc::clone(&self.world.sound);
        let audio = sound.spoken_base64[self.said as usize % VARIANTS].as_bytes();
        self.said += 1;
        let end = r#"","metrics":{"kv_cache_length":500},"server_send_ts":1700000000.5}"#;
        let head = wire::head(TEXT, begin.len() + audio.len() + end.len(), false);
        client.heard.borrow_mut().say(1, self.world.now(), false);
        wire::send(&self.write, &[&head, begin.as_bytes(), audio, end.as_bytes()]).await
    }
}

/// What became of a client's frames, in samples at its own rate.
pub(crate) fn counts(world: &World, client: &Client, track: &Track) -> Counts {
    track.counts(client.frames() * world.options.frame_samples() as u64, 0)
}
