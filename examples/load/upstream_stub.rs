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
    audio_matcher::AudioMatcher,
    client::Client,
    options::BridgeKind,
    relay_upstream::RelayConnection,
    run_context::RunContext,
    test_audio::{MODEL_SECOND_SAMPLES, MODEL_SECONDS, SECOND_SAMPLES},
    transcript_check::TRANSCRIPT_PREFIX,
    websocket::{self, FrameReader, TEXT},
};

/// Takes upstream connections until the world ends.
pub(crate) async fn accept_connections(world: Rc<RunContext>, listener: TcpListener) {
    let mut number = 0;
    while let Ok((tcp, _)) = listener.accept().await {
        number += 1;
        spawn_local(serve_connection(Rc::clone(&world), tcp, number));
    }
}

async fn serve_connection(world: Rc<RunContext>, tcp: TcpStream, number: usize) {
    // A connection that breaks is seen by the client, or was to be.
    let _gone = tcp.set_nodelay(true);
    let (read, write) = tcp.into_split();
    let mut inbox = FrameReader::new(read, Rc::clone(&world.buffer_pool));
    let path = match websocket::accept_upgrade(&mut inbox, &write).await {
        Ok(path) => path,
        Err(words) => return world.tally.borrow_mut().record_error(&words),
    };
    let relayed = path.rsplit("relayed=").next().filter(|_| world.options.path == BridgeKind::Relay);
    if let Some(client) = relayed.and_then(|number| number.parse::<usize>().ok()) {
        return RelayConnection::new(world, write, client).serve(inbox).await;
    }
    let is_chat = path.contains("mode=chat");
    let mut session = UpstreamSession {
        world,
        write,
        id: format!("sess_{number}"),
        is_chat,
        client: None,
        turn_count: 0,
        is_in_turn: false,
    };
    let _gone = session.serve(inbox).await;
}

/// One upstream session.
struct UpstreamSession {
    world: Rc<RunContext>,
    write: OwnedWriteHalf,
    id: String,
    is_chat: bool,
    /// Whose it is, as far as can be heard.
    client: Option<Rc<Client>>,
    turn_count: u64,
    is_in_turn: bool,
}

impl UpstreamSession {
    async fn serve(&mut self, mut inbox: FrameReader) -> std::io::Result<()> {
        self.send_text(r#"{"type":"session.queue_done"}"#).await?;
        while let Some(frame) = inbox.next_frame().await {
            let now = self.world.now_us();
            let payload = inbox.payload(&frame);
            match frame.opcode {
                TEXT => self.handle_message(payload, now).await?,
                websocket::PING => {
                    let head = websocket::frame_header(websocket::PONG, payload.len(), false);
                    websocket::write_all(&self.write, &[&head, payload]).await?;
                }
                websocket::CLOSE => {
                    return websocket::write_all(&self.write, &[&websocket::SERVER_CLOSE]).await;
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn send_text(&self, words: &str) -> std::io::Result<()> {
        websocket::write_all(&self.write, &[&websocket::text_frame(words, false)]).await
    }

    async fn handle_message(&mut self, payload: &[u8], now: u64) -> std::io::Result<()> {
        let id = &self.id;
        if crate::append::has_type(payload, "input.append") {
            return self.handle_append(payload, now).await;
        }
        if crate::append::has_type(payload, "session.init") {
            self.world.upstream_sessions_created.set(self.world.upstream_sessions_created.get() + 1);
            let mode = if self.is_chat { "turn_based" } else { "full_duplex" };
            return self
                .send_text(&format!(
                    r#"{{"type":"session.created","session_id":"{id}","mode":"{mode}","metrics":{{"backend":"pytorch","kv_cache_length":300}},"server_send_ts":1700000000.5}}"#
                ))
                .await;
        }
        if crate::append::has_type(payload, "session.close") {
            self.send_text(&format!(
                r#"{{"type":"session.closed","session_id":"{id}","reason":"client_closed","server_send_ts":1700000000.5}}"#
            ))
            .await?;
            return websocket::write_all(&self.write, &[&websocket::SERVER_CLOSE]).await;
        }
        Ok(())
    }

    async fn handle_append(&mut self, payload: &[u8], now: u64) -> std::io::Result<()> {
        let Some(append) = Append::parse(payload) else {
            self.world.tally.borrow_mut().record_error("an input.append without audio");
            return Ok(());
        };
        if self.is_chat {
            return self.transcribe(&append).await;
        }
        self.match_unit(&append, now);
        let answers = !self.world.is_stopping.get() && self.is_answered_after(0);
        if answers {
            self.send_speech(append.input_id).await
        } else {
            self.send_listen(append.input_id).await
        }
    }

    /// Whether it speaks after the unit that comes so many samples later.
    fn is_answered_after(&self, later: u64) -> bool {
        let Some(client) = &self.client else { return false };
        let ear = client.audio_matcher.borrow();
        ear.as_ref().is_some_and(|ear| {
            ear.silence_samples == 0 && self.world.sound.is_answered_at(ear.loop_position() + later)
        })
    }

    /// Recognises a unit, and measures how long it took to come.
    fn match_unit(&mut self, append: &Append<'_>, now: u64) {
        let world = Rc::clone(&self.world);
        let number = world.tally.borrow().units;
        world.tally.borrow_mut().units += 1;
        if self.client.is_none() {
            self.identify_client(&append.samples());
        }
        let Some(client) = &self.client else {
            world.tally.borrow_mut().unidentified_units += u64::from(!world.is_stopping.get());
            return;
        };
        let mut ear = client.audio_matcher.borrow_mut();
        let Some(ear) = ear.as_mut() else { return };
        let (skimmed, blocks) = (!world.needs_full_check(number), append.spot_check_blocks(number));
        let blocks: Vec<(usize, &[f32])> = blocks.iter().map(|(at, block)| (*at, block.as_slice())).collect();
        if skimmed && append.is_unit() && ear.spot_check(&world.sound, &blocks, SECOND_SAMPLES) {
            world.tally.borrow_mut().units_spot_checked += 1;
        } else {
            let before = ear.silence_samples;
            ear.match_all(&world.sound, &append.samples());
            if !world.is_stopping.get() {
                world.tally.borrow_mut().silence_samples += ear.silence_samples - before;
            }
        }
        if ear.silence_samples == 0 {
            record_up_latency(&world, client, ear.tracker.next_position, now);
        }
    }

    /// Finds out whose session this is.
    fn identify_client(&mut self, samples: &[f32]) {
        let clients = self.world.clients.borrow().len();
        let Some((number, ear)) =
            AudioMatcher::identify_client(&self.world.sound, samples, clients, self.world.options.lag)
        else {
            return;
        };
        self.client = self.world.client(number);
        if let Some(client) = &self.client {
            *client.audio_matcher.borrow_mut() = Some(ear);
        }
    }

    async fn send_listen(&mut self, input_id: &str) -> std::io::Result<()> {
        self.is_in_turn = false;
        let id = &self.id;
        self.send_text(&format!(
            r#"{{"type":"response.output.delta","kind":"listen","session_id":"{id}","input_id":"{input_id}","metrics":{{"backend":"pytorch","kv_cache_length":400}},"server_send_ts":1700000000.5}}"#
        ))
        .await
    }

    /// A second of speech: its words, its sound, and the end of the turn if nothing follows.
    async fn send_speech(&mut self, input_id: &str) -> std::io::Result<()> {
        let Some(client) = self.client.clone() else { return Ok(()) };
        let first = !std::mem::replace(&mut self.is_in_turn, true);
        self.turn_count += u64::from(first);
        if client.has_injected_faults() && !first && client.receiver.borrow().next_second() == 1 {
            client.receiver.borrow_mut().skip_second();
        }
        let second = client.receiver.borrow().next_second();
        let marks = format!(
            r#""session_id":"{}","response_id":"resp_{}_{}","input_id":"{input_id}""#,
            self.id, self.id, self.turn_count
        );
        let metrics =
            r#""metrics":{"backend":"pytorch","kv_cache_length":500},"server_send_ts":1700000000.5}"#;
        let words = format!(
            r#"{{"type":"response.output.delta","kind":"text",{marks},"text":"word {second} ",{metrics}"#
        );
        let words = websocket::text_frame(&words, false);
        let begin = format!(r#"{{"type":"response.output.delta","kind":"audio",{marks},"audio":""#);
        let end = format!(r#"",{metrics}"#);
        let sound = Rc::clone(&self.world.sound);
        let audio = sound.model_voice_base64[second as usize % MODEL_SECONDS].as_bytes();
        let head = websocket::frame_header(TEXT, begin.len() + audio.len() + end.len(), false);
        let mut over = Vec::new();
        if !self.is_answered_after(SECOND_SAMPLES as u64) {
            self.is_in_turn = false;
            let words = format!(r#"{{"type":"response.output.delta","kind":"listen",{marks},{metrics}"#);
            over = websocket::text_frame(&words, false);
        }
        client.receiver.borrow_mut().expect_delta(MODEL_SECOND_SAMPLES as u64, self.world.now_us(), first);
        websocket::write_all(&self.write, &[&words, &head, begin.as_bytes(), audio, end.as_bytes(), &over])
            .await
    }

    async fn transcribe(&self, append: &Append<'_>) -> std::io::Result<()> {
        let samples = append.samples();
        let text = self.locate_utterance(&samples);
        let (id, metrics) = (
            &self.id,
            r#""metrics":{"backend":"pytorch","kv_cache_length":300},"server_send_ts":1700000000.5}"#,
        );
        self.send_text(&format!(
            r#"{{"type":"response.output.delta","kind":"text","session_id":"{id}","response_id":"resp_{id}","text":"{text}",{metrics}"#
        ))
        .await?;
        self.send_text(&format!(
            r#"{{"type":"response.done","session_id":"{id}","response_id":"resp_{id}","text":"{text}","reason":"turn_end",{metrics}"#
        ))
        .await
    }

    /// Where in the loop it was said, and that nothing in it is missing.
    fn locate_utterance(&self, samples: &[f32]) -> String {
        let mut tally = self.world.tally.borrow_mut();
        tally.utterances += 1;
        let Some((place, mut ear)) = AudioMatcher::locate_in_loop(&self.world.sound, samples) else {
            tally.unidentified_units += 1;
            return "something else".to_owned();
        };
        ear.match_all(&self.world.sound, samples);
        tally.up_samples += ear.tracker.counts(samples.len() as u64, SECOND_SAMPLES as u64);
        format!("{TRANSCRIPT_PREFIX}{place} for {}", samples.len())
    }
}

/// How long a unit that ends at this place of its client's audio took to come.
fn record_up_latency(world: &RunContext, client: &Client, place: u64, now: u64) {
    /// What a resampler needs of the future: half of a filter of 20 ms, samples at 16 kHz.
    const AHEAD: u64 = SECOND_SAMPLES as u64 / 100;
    let ahead = if world.options.rate as usize == SECOND_SAMPLES { 0 } else { AHEAD };
    let mut tally = world.tally.borrow_mut();
    if !tally.is_measuring.get() {
        return;
    }
    if let Some(sent_at) = client.frame_sent_at(world, place) {
        tally.up_latency.add(now.saturating_sub(sent_at));
    }
    if let Some(sent_at) = client.frame_sent_at(world, place + ahead) {
        tally.up_excess_latency.add(now.saturating_sub(sent_at));
    }
}

/// The number of a long message through a relay.
pub(crate) fn relay_message_number(payload: &[u8]) -> Option<u64> {
    let head = std::str::from_utf8(payload.get(..120)?).ok()?;
    let (_, rest) = head.split_once("\"input_id\":\"")?;
    rest.split('"').next()?.parse().ok()
}
