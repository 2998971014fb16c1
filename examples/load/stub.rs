//! The upstream: as much of MiniCPM-o's Realtime API (current dialect) as sessions under load need, answered at once.
//!
//! Full duplex: every second of audio is recognised (`ear`) and answered by listening, or by a second of speech where the
//! user is silent. Chat: every utterance is answered with the place where it was said. Behind a relay: frames and long
//! messages are counted, and answered alike. Nothing here takes time, so what is measured is the bridge's.

use std::rc::Rc;

use tokio::{
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    task::spawn_local,
};

use crate::{
    append::Append,
    client::Client,
    ear::Ear,
    options::Way,
    relayed::Relayed,
    sound::{SECOND, SPOKEN_SECOND, VARIANTS},
    utterances::HEARD,
    wire::{self, Inbox, TEXT},
    world::World,
};

/// Takes upstream connections until the world ends.
pub(crate) async fn listen(world: Rc<World>, listener: TcpListener) {
    let mut number = 0;
    while let Ok((tcp, _)) = listener.accept().await {
        number += 1;
        spawn_local(serve(Rc::clone(&world), tcp, number));
    }
}

async fn serve(world: Rc<World>, tcp: TcpStream, number: usize) {
    // A connection that breaks is seen by the client, or was to be.
    let _gone = tcp.set_nodelay(true);
    let (read, write) = tcp.into_split();
    let mut inbox = Inbox::new(read, Rc::clone(&world.pool));
    let path = match wire::grant(&mut inbox, &write).await {
        Ok(path) => path,
        Err(words) => return world.tally.borrow_mut().error(&words),
    };
    let relayed = path.rsplit("relayed=").next().filter(|_| world.options.path == Way::Relay);
    if let Some(client) = relayed.and_then(|number| number.parse::<usize>().ok()) {
        return Relayed::new(world, write, client).serve(inbox).await;
    }
    let chats = path.contains("mode=chat");
    let mut session =
        Session { world, write, id: format!("sess_{number}"), chats, client: None, turns: 0, in_turn: false };
    let _gone = session.serve(inbox).await;
}

/// One upstream session.
struct Session {
    world: Rc<World>,
    write: OwnedWriteHalf,
    id: String,
    chats: bool,
    /// Whose it is, as far as can be heard.
    client: Option<Rc<Client>>,
    turns: u64,
    in_turn: bool,
}

impl Session {
    async fn serve(&mut self, mut inbox: Inbox) -> std::io::Result<()> {
        self.say(r#"{"type":"session.queue_done"}"#).await?;
        while let Some(frame) = inbox.frame().await {
            let now = self.world.now();
            let payload = inbox.payload(&frame);
            match frame.opcode {
                TEXT => self.message(payload, now).await?,
                wire::PING => {
                    let head = wire::head(wire::PONG, payload.len(), false);
                    wire::send(&self.write, &[&head, payload]).await?;
                }
                wire::CLOSE => return wire::send(&self.write, &[&wire::SERVER_CLOSE]).await,
                _ => {}
            }
        }
        Ok(())
    }

    async fn say(&self, words: &str) -> std::io::Result<()> {
        wire::send(&self.write, &[&wire::text(words, false)]).await
    }

    async fn message(&mut self, payload: &[u8], now: u64) -> std::io::Result<()> {
        let id = &self.id;
        if crate::append::says(payload, "input.append") {
            return self.append(payload, now).await;
        }
        if crate::append::says(payload, "session.init") {
            self.world.created.set(self.world.created.get() + 1);
            let mode = if self.chats { "turn_based" } else { "full_duplex" };
            return self
                .say(&format!(
                    r#"{{"type":"session.created","session_id":"{id}","mode":"{mode}","metrics":{{"backend":"pytorch","kv_cache_length":300}},"server_send_ts":1700000000.5}}"#
                ))
                .await;
        }
        if crate::append::says(payload, "session.close") {
            self.say(&format!(
                r#"{{"type":"session.closed","session_id":"{id}","reason":"client_closed","server_send_ts":1700000000.5}}"#
            ))
            .await?;
            return wire::send(&self.write, &[&wire::SERVER_CLOSE]).await;
        }
        Ok(())
    }

    async fn append(&mut self, payload: &[u8], now: u64) -> std::io::Result<()> {
        let Some(append) = Append::read(payload) else {
            self.world.tally.borrow_mut().error("an input.append without audio");
            return Ok(());
        };
        if self.chats {
            return self.transcribe(&append).await;
        }
        self.hear(&append, now);
        let answers = !self.world.stopping.get() && self.speaks(0);
        if answers { self.speak(append.input_id).await } else { self.hearken(append.input_id).await }
    }

    /// Whether it speaks after the unit that comes so many samples later.
    fn speaks(&self, later: u64) -> bool {
        let Some(client) = &self.client else { return false };
        let ear = client.ear.borrow();
        ear.as_ref().is_some_and(|ear| ear.filled == 0 && self.world.sound.answers(ear.place() + later))
    }

    /// Recognises a unit, and measures how long it took to come.
    fn hear(&mut self, append: &Append<'_>, now: u64) {
        let world = Rc::clone(&self.world);
        let number = world.tally.borrow().units;
        world.tally.borrow_mut().units += 1;
        if self.client.is_none() {
            self.meet(&append.samples());
        }
        let Some(client) = &self.client else {
            world.tally.borrow_mut().strange += u64::from(!world.stopping.get());
            return;
        };
        let mut ear = client.ear.borrow_mut();
        let Some(ear) = ear.as_mut() else { return };
        let (skimmed, blocks) = (!world.thorough(number), append.blocks(number));
        let blocks: Vec<(usize, &[f32])> = blocks.iter().map(|(at, block)| (*at, block.as_slice())).collect();
        if skimmed && append.is_unit() && ear.skim(&world.sound, &blocks, SECOND) {
            world.tally.borrow_mut().units_skimmed += 1;
        } else {
            let before = ear.filled;
            ear.hear(&world.sound, &append.samples());
            if !world.stopping.get() {
                world.tally.borrow_mut().filled += ear.filled - before;
            }
        }
        if ear.filled == 0 {
            time(&world, client, ear.track.next, now);
        }
    }

    /// Finds out whose session this is.
    fn meet(&mut self, samples: &[f32]) {
        let clients = self.world.clients.borrow().len();
        let Some((number, ear)) =
            Ear::of_clients(&self.world.sound, samples, clients, self.world.options.lag)
        else {
            return;
        };
        self.client = self.world.client(number);
        if let Some(client) = &self.client {
            *client.ear.borrow_mut() = Some(ear);
        }
    }

    async fn hearken(&mut self, input_id: &str) -> std::io::Result<()> {
        self.in_turn = false;
        let id = &self.id;
        self.say(&format!(
            r#"{{"type":"response.output.delta","kind":"listen","session_id":"{id}","input_id":"{input_id}","metrics":{{"backend":"pytorch","kv_cache_length":400}},"server_send_ts":1700000000.5}}"#
        ))
        .await
    }

    /// A second of speech: its words, its sound, and the end of the turn if nothing follows.
    async fn speak(&mut self, input_id: &str) -> std::io::Result<()> {
        let Some(client) = self.client.clone() else { return Ok(()) };
        let first = !std::mem::replace(&mut self.in_turn, true);
        self.turns += u64::from(first);
        if client.is_spoiled() && !first && client.heard.borrow().next_second() == 1 {
            client.heard.borrow_mut().skip_second();
        }
        let second = client.heard.borrow().next_second();
        let marks = format!(
            r#""session_id":"{}","response_id":"resp_{}_{}","input_id":"{input_id}""#,
            self.id, self.id, self.turns
        );
        let metrics =
            r#""metrics":{"backend":"pytorch","kv_cache_length":500},"server_send_ts":1700000000.5}"#;
        let words = format!(
            r#"{{"type":"response.output.delta","kind":"text",{marks},"text":"word {second} ",{metrics}"#
        );
        let words = wire::text(&words, false);
        let begin = format!(r#"{{"type":"response.output.delta","kind":"audio",{marks},"audio":""#);
        let end = format!(r#"",{metrics}"#);
        let sound = Rc::clone(&self.world.sound);
        let audio = sound.spoken_base64[second as usize % VARIANTS].as_bytes();
        let head = wire::head(TEXT, begin.len() + audio.len() + end.len(), false);
        let mut over = Vec::new();
        if !self.speaks(SECOND as u64) {
            self.in_turn = false;
            let words = format!(r#"{{"type":"response.output.delta","kind":"listen",{marks},{metrics}"#);
            over = wire::text(&words, false);
        }
        client.heard.borrow_mut().say(SPOKEN_SECOND as u64, self.world.now(), first);
        wire::send(&self.write, &[&words, &head, begin.as_bytes(), audio, end.as_bytes(), &over]).await
    }

    async fn transcribe(&self, append: &Append<'_>) -> std::io::Result<()> {
        let samples = append.samples();
        let text = self.understand(&samples);
        let (id, metrics) = (
            &self.id,
            r#""metrics":{"backend":"pytorch","kv_cache_length":300},"server_send_ts":1700000000.5}"#,
        );
        self.say(&format!(
            r#"{{"type":"response.output.delta","kind":"text","session_id":"{id}","response_id":"resp_{id}","text":"{text}",{metrics}"#
        ))
        .await?;
        self.say(&format!(
            r#"{{"type":"response.done","session_id":"{id}","response_id":"resp_{id}","text":"{text}","reason":"turn_end",{metrics}"#
        ))
        .await
    }

    /// Where in the loop it was said, and that nothing in it is missing.
    fn understand(&self, samples: &[f32]) -> String {
        let mut tally = self.world.tally.borrow_mut();
        tally.utterances += 1;
        let Some((place, mut ear)) = Ear::of_loop(&self.world.sound, samples) else {
            tally.strange += 1;
            return "something else".to_owned();
        };
        ear.hear(&self.world.sound, samples);
        tally.up_samples += ear.track.counts(samples.len() as u64, SECOND as u64);
        format!("{HEARD}{place} for {}", samples.len())
    }
}

/// How long a unit that ends at this place of its client's audio took to come.
fn time(world: &World, client: &Client, place: u64, now: u64) {
    /// What a resampler needs of the future: half of a filter of 20 ms, samples at 16 kHz.
    const AHEAD: u64 = SECOND as u64 / 100;
    let ahead = if world.options.rate as usize == SECOND { 0 } else { AHEAD };
    let mut tally = world.tally.borrow_mut();
    if !tally.measuring.get() {
        return;
    }
    if let Some(sent_at) = client.sent_at(world, place) {
        tally.up.add(now.saturating_sub(sent_at));
    }
    if let Some(sent_at) = client.sent_at(world, place + ahead) {
        tally.up_beyond.add(now.saturating_sub(sent_at));
    }
}

/// The number of a long message through a relay.
pub(crate) fn number(payload: &[u8]) -> Option<u64> {
    let head = std::str::from_utf8(payload.get(..120)?).ok()?;
    let (_, rest) = head.split_once("\"input_id\":\"")?;
    rest.split('"').next()?.parse().ok()
}
