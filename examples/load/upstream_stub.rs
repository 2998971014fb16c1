//! Upstream stub: the part of a MiniCPM-o server that sessions under load need, answered at once, in the dialect that
//! `server_dialect` knows.
//!
//! Full duplex: every second of audio is identified (`audio_matcher`) and answered by `listen`, or by a second of
//! speech where the user is silent. Chat: every utterance is answered with its loop position. Behind a relay: frames
//! and long messages are counted and answered likewise. Nothing here takes time, so the measured time is the bridge's.

use std::rc::Rc;

use voxbridge::spelling::upstream::SampleEncoding;

use tokio::{
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    task::spawn_local,
};

use crate::{
    append::Append,
    audio_matcher::AudioMatcher,
    chat_turn,
    client::Client,
    openai,
    options::BridgeKind,
    relay_upstream::RelayConnection,
    run_context::RunContext,
    server_dialect::{Received, ServerDialect, SpokenSecond},
    test_audio::{MODEL_SECOND_SAMPLES, MODEL_SECONDS, SECOND_SAMPLES},
    transcript_check::TRANSCRIPT_PREFIX,
    websocket::{self, FrameReader, TEXT},
};

/// Accepts upstream connections until the run ends.
pub(crate) async fn accept_connections(context: Rc<RunContext>, listener: TcpListener) {
    let mut number = 0;
    while let Ok((tcp, _)) = listener.accept().await {
        number += 1;
        spawn_local(serve_connection(Rc::clone(&context), tcp, number));
    }
}

async fn serve_connection(context: Rc<RunContext>, tcp: TcpStream, number: usize) {
    // A broken connection is noticed by its client or was intended.
    let _gone = tcp.set_nodelay(true);
    let (read, write) = tcp.into_split();
    let mut inbox = FrameReader::new(read, Rc::clone(&context.buffer_pool));
    let path = match websocket::accept_upgrade(&mut inbox, &write).await {
        Ok(path) => path,
        // The bridge tries at its start whether its upstream listens.
        Err(error) if error == websocket::UNUSED => return,
        Err(error) => return context.tally.borrow_mut().record_error(&error),
    };
    let relayed = path.rsplit("relayed=").next().filter(|_| context.options.path == BridgeKind::Relay);
    if let Some(client) = relayed.and_then(|number| number.parse::<usize>().ok()) {
        return RelayConnection::new(context, write, client).serve(inbox).await;
    }
    let is_chat = path.contains("mode=chat") || context.options.profile != "conversation";
    let id = format!("sess_{number}");
    let mut session = UpstreamSession {
        dialect: ServerDialect::new(context.options.server, id.clone(), is_chat),
        context,
        write,
        id,
        is_chat,
        client: None,
        is_in_turn: false,
        message_began_us: 0,
    };
    let _gone = session.serve(inbox).await;
}

/// One upstream session.
struct UpstreamSession {
    context: Rc<RunContext>,
    write: OwnedWriteHalf,
    dialect: ServerDialect,
    id: String,
    is_chat: bool,
    /// The client of the session, as identified by its audio.
    client: Option<Rc<Client>>,
    is_in_turn: bool,
    /// When the first bytes of the current message came, µs.
    message_began_us: u64,
}

impl UpstreamSession {
    async fn serve(&mut self, mut inbox: FrameReader) -> std::io::Result<()> {
        let greeting = self.dialect.greeting();
        self.send_texts(greeting).await?;
        while let Some(frame) = inbox.next_frame().await {
            let now = self.context.now_us();
            self.message_began_us = self.context.micros_at(inbox.began_at());
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

    async fn send_text(&self, text: &str) -> std::io::Result<()> {
        websocket::write_all(&self.write, &[&websocket::text_frame(text, false)]).await
    }

    async fn send_texts(&self, texts: impl IntoIterator<Item = String>) -> std::io::Result<()> {
        for text in texts {
            self.send_text(&text).await?;
        }
        Ok(())
    }

    async fn handle_message(&mut self, payload: &[u8], now: u64) -> std::io::Result<()> {
        match self.dialect.read(payload) {
            Received::Append(append) => self.handle_append(payload, append, now).await,
            Received::Opening => {
                self.context.upstream_sessions_created.set(self.context.upstream_sessions_created.get() + 1);
                let opened = self.dialect.opened();
                self.send_texts(opened).await
            }
            Received::Closing => {
                let closed = self.dialect.closed();
                self.send_text(&closed).await?;
                websocket::write_all(&self.write, &[&websocket::SERVER_CLOSE]).await
            }
            Received::Cancellation => {
                let answer = self.dialect.not_cancelled();
                self.send_texts(answer).await
            }
            Received::Other => Ok(()),
        }
    }

    async fn handle_append(
        &mut self,
        payload: &[u8],
        append: Option<Append<'_>>,
        now: u64,
    ) -> std::io::Result<()> {
        if self.is_chat && self.context.options.is_assistant() {
            return self.answer(payload, now).await;
        }
        let Some(append) = append else {
            self.context.tally.borrow_mut().record_error("an append without audio");
            return Ok(());
        };
        if self.is_chat {
            return self.transcribe(&append).await;
        }
        let accepted = self.dialect.accepted(payload);
        self.send_texts(accepted).await?;
        self.match_unit(&append, now);
        if !self.context.is_stopping.get() && self.is_answered_after(0) {
            return self.send_speech(append.input_id).await;
        }
        self.is_in_turn = false;
        let listen = self.dialect.listen(append.input_id);
        self.send_texts(listen).await
    }

    /// True if the model speaks after the unit that ends this many samples later.
    fn is_answered_after(&self, later: u64) -> bool {
        let Some(client) = &self.client else { return false };
        let matcher = client.audio_matcher.borrow();
        matcher.as_ref().is_some_and(|matcher| {
            matcher.silence_samples == 0 && self.context.sound.is_answered_at(matcher.loop_position() + later)
        })
    }

    /// Identifies a unit, and measures its latency.
    fn match_unit(&mut self, append: &Append<'_>, now: u64) {
        let context = Rc::clone(&self.context);
        let number = context.tally.borrow().units;
        context.tally.borrow_mut().units += 1;
        if self.client.is_none() {
            self.identify_client(&append.samples());
        }
        let Some(client) = &self.client else {
            context.tally.borrow_mut().unidentified_units += u64::from(!context.is_stopping.get());
            return;
        };
        let mut matcher = client.audio_matcher.borrow_mut();
        let Some(matcher) = matcher.as_mut() else { return };
        let (skimmed, blocks) = (!context.needs_full_check(number), append.spot_check_blocks(number));
        let blocks: Vec<(usize, &[f32])> = blocks.iter().map(|(at, block)| (*at, block.as_slice())).collect();
        if skimmed && append.is_unit() && matcher.spot_check(&context.sound, &blocks, SECOND_SAMPLES) {
            context.tally.borrow_mut().units_spot_checked += 1;
        } else {
            let before = matcher.silence_samples;
            matcher.match_all(&context.sound, &append.samples());
            if !context.is_stopping.get() {
                context.tally.borrow_mut().silence_samples += matcher.silence_samples - before;
            }
        }
        if matcher.silence_samples == 0 {
            record_up_latency(&context, client, matcher.tracker.next_position, now);
        }
    }

    /// Identifies the client of the session.
    fn identify_client(&mut self, samples: &[f32]) {
        let clients = self.context.clients.borrow().len();
        let Some((number, matcher)) = AudioMatcher::identify_client(
            &self.context.sound,
            samples,
            clients,
            self.context.options.lead_in_samples(),
        ) else {
            return;
        };
        self.client = self.context.client(number);
        if let Some(client) = &self.client {
            *client.audio_matcher.borrow_mut() = Some(matcher);
        }
    }

    /// Sends a second of speech: text, audio, and in full duplex the end of the turn if no speech follows.
    async fn send_speech(&mut self, input_id: &str) -> std::io::Result<()> {
        let Some(client) = self.client.clone() else { return Ok(()) };
        let starts_turn = !std::mem::replace(&mut self.is_in_turn, true);
        if client.has_injected_faults() && !starts_turn && client.receiver.borrow().next_second() == 1 {
            client.receiver.borrow_mut().skip_second();
        }
        let second = client.receiver.borrow().next_second();
        self.is_in_turn = self.is_chat || self.is_answered_after(SECOND_SAMPLES as u64);
        let places = (starts_turn, !self.is_in_turn);
        let SpokenSecond { before, around: (begin, end), after } =
            self.dialect.speak(&format!("word {second} "), input_id, places);
        let before: Vec<u8> = before.iter().flat_map(|text| websocket::text_frame(text, false)).collect();
        let after: Vec<u8> = after.iter().flat_map(|text| websocket::text_frame(text, false)).collect();
        let sound = Rc::clone(&self.context.sound);
        let voice = match self.dialect.encoding() {
            SampleEncoding::S16le => &sound.model_voice_base64_s16,
            _ => &sound.model_voice_base64,
        };
        let audio = voice[second as usize % MODEL_SECONDS].as_bytes();
        let head = websocket::frame_header(TEXT, begin.len() + audio.len() + end.len(), false);
        client.receiver.borrow_mut().expect_delta(
            MODEL_SECOND_SAMPLES as u64,
            self.context.now_us(),
            starts_turn,
        );
        websocket::write_all(&self.write, &[&before, &head, begin.as_bytes(), audio, end.as_bytes(), &after])
            .await
    }

    /// Answers a question of an assistant with two seconds of speech.
    async fn answer(&mut self, question: &[u8], now: u64) -> std::io::Result<()> {
        let context = Rc::clone(&self.context);
        self.client = openai::client_number(question).and_then(|number| context.client(number));
        let utterance = chat_turn::last_utterance(question);
        let Some((client, utterance)) = self.client.clone().zip(utterance) else {
            context.tally.borrow_mut().unidentified_units += 1;
            return Ok(());
        };
        context.tally.borrow_mut().utterances += 1;
        match chat_turn::check_utterance(&context, &client, &utterance) {
            Some(position) => {
                record_up_latency(&context, &client, position, now);
                let sent_at = client.frame_sent_at(&context, position + look_ahead(&context));
                let question_us = sent_at.map(|sent_at| self.message_began_us.saturating_sub(sent_at));
                client.receiver.borrow_mut().expect_answer(question_us);
            }
            None => context.tally.borrow_mut().unidentified_units += 1,
        }
        if context.is_stopping.get() {
            return Ok(());
        }
        self.send_speech("").await?;
        self.send_speech("").await?;
        self.is_in_turn = false;
        let id = &self.id;
        self.send_text(&format!(
            r#"{{"type":"response.done","session_id":"{id}","response_id":"resp_{id}","text":"","reason":"turn_end"}}"#
        ))
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

    /// Finds the loop position of an utterance and checks that nothing is missing.
    fn locate_utterance(&self, samples: &[f32]) -> String {
        let mut tally = self.context.tally.borrow_mut();
        tally.utterances += 1;
        let Some((position, mut matcher)) = AudioMatcher::locate_in_loop(&self.context.sound, samples) else {
            tally.unidentified_units += 1;
            return "something else".to_owned();
        };
        matcher.match_all(&self.context.sound, samples);
        tally.up_samples += matcher.tracker.counts(samples.len() as u64, SECOND_SAMPLES as u64);
        format!("{TRANSCRIPT_PREFIX}{position} for {}", samples.len())
    }
}

/// Look-ahead of the bridge's resampler: half of a 20 ms filter, samples at 16 kHz. voxbridge has none.
fn look_ahead(context: &RunContext) -> u64 {
    const AHEAD: u64 = SECOND_SAMPLES as u64 / 100;
    let options = &context.options;
    if options.url.is_none() || options.rate as usize == SECOND_SAMPLES { 0 } else { AHEAD }
}

/// Latency of a unit that ends at this position of its client's audio.
fn record_up_latency(context: &RunContext, client: &Client, position: u64, now: u64) {
    let ahead = look_ahead(context);
    let mut tally = context.tally.borrow_mut();
    if !tally.is_measuring.get() {
        return;
    }
    if let Some(sent_at) = client.frame_sent_at(context, position) {
        tally.up_latency.add(now.saturating_sub(sent_at));
    }
    if let Some(sent_at) = client.frame_sent_at(context, position + ahead) {
        tally.up_excess_latency.add(now.saturating_sub(sent_at));
    }
}

/// Number of a long message through a relay.
pub(crate) fn relay_message_number(payload: &[u8]) -> Option<u64> {
    let head = std::str::from_utf8(payload.get(..120)?).ok()?;
    let (_, rest) = head.split_once("\"input_id\":\"")?;
    rest.split('"').next()?.parse().ok()
}
