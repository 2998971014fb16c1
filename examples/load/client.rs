//! One simulated client: sends audio on schedule and receives the answers.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use tokio::{
    net::{TcpStream, tcp::OwnedWriteHalf},
    task::spawn_local,
};

use crate::{
    audio_matcher::AudioMatcher,
    fault_schedule::FaultSchedule,
    openai,
    options::{BridgeKind, ClientKind},
    receiver::AudioReceiver,
    run_context::RunContext,
    sample_tracker::SampleTracker,
    test_audio::{LOOP_SAMPLES, SECOND_SAMPLES, TestAudio},
    transcript_check::TranscriptCheck,
    websocket::{self, FrameReader},
};

/// Number of frames whose sending times are kept.
const SEND_TIMES_KEPT: usize = 512;

/// The client of one session.
pub(crate) struct Client {
    /// Start of its audio in the loop.
    pub(crate) loop_offset: usize,
    write: OwnedWriteHalf,
    /// Bytes not yet accepted by the socket.
    pending: RefCell<Vec<u8>>,
    send_times: RefCell<Vec<u64>>,
    /// Sending times of the long messages through a relay.
    pub(crate) relay_message_sent_at: Cell<u64>,
    fault_schedule: RefCell<FaultSchedule>,
    /// The session is confirmed.
    pub(crate) is_ready: Cell<bool>,
    pub(crate) is_closed: Cell<bool>,
    pub(crate) receiver: RefCell<AudioReceiver>,
    pub(crate) transcript_check: RefCell<TranscriptCheck>,
    /// Result of the conversation's audio at the upstream.
    pub(crate) audio_matcher: RefCell<Option<AudioMatcher>>,
    /// Result of the relayed audio.
    pub(crate) relay_tracker: RefCell<SampleTracker>,
}

impl Client {
    /// Connects and starts to receive.
    pub(crate) async fn connect(
        context: &Rc<RunContext>,
        address: &str,
        number: usize,
    ) -> Result<Rc<Self>, String> {
        let (host, path) = connect_target(context, address, number);
        let tcp =
            TcpStream::connect(host).await.map_err(|error| format!("cannot connect to {host}: {error}"))?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let (read, write) = tcp.into_split();
        let mut inbox = FrameReader::new(read, Rc::clone(&context.buffer_pool));
        websocket::request_upgrade(&mut inbox, &write, host, &path).await?;
        let client = Rc::new(Self {
            loop_offset: TestAudio::loop_offset(number),
            write,
            pending: RefCell::default(),
            send_times: RefCell::new(vec![0; SEND_TIMES_KEPT]),
            relay_message_sent_at: Cell::new(0),
            fault_schedule: RefCell::new(FaultSchedule::new(if number == 0 {
                context.options.spoil
            } else {
                0
            })),
            // A relay sends no confirmation.
            is_ready: Cell::new(context.options.path == BridgeKind::Relay),
            is_closed: Cell::new(false),
            receiver: RefCell::default(),
            transcript_check: RefCell::default(),
            audio_matcher: RefCell::default(),
            relay_tracker: RefCell::default(),
        });
        spawn_local(crate::receiver::run_receiver(Rc::clone(context), Rc::clone(&client), inbox));
        if let Some(message) = context.options.first_message(number) {
            client.send_text(context, &message);
        }
        Ok(client)
    }

    /// Number of frames sent or dropped on purpose.
    pub(crate) fn frames_sent(&self) -> u64 {
        self.fault_schedule.borrow().frames_sent()
    }

    /// True if faults are injected into its session.
    pub(crate) fn has_injected_faults(&self) -> bool {
        self.fault_schedule.borrow().has_faults()
    }

    /// Number of 16 kHz samples sent or dropped on purpose.
    pub(crate) fn samples_sent(&self, context: &RunContext) -> u64 {
        let samples = self.frames_sent() * context.options.frame_samples() as u64;
        samples * SECOND_SAMPLES as u64 / u64::from(context.options.rate)
    }

    /// Current position in the loop, at 16 kHz.
    pub(crate) fn loop_position(&self, context: &RunContext) -> u64 {
        (self.loop_offset + LOOP_SAMPLES) as u64 + self.samples_sent(context)
    }

    /// Sends the next frame.
    pub(crate) fn send_next_frame(
        self: &Rc<Self>,
        context: &RunContext,
        (head, tail): (&[u8], &[u8]),
        now: u64,
    ) {
        let (sent, number) = self.fault_schedule.borrow_mut().schedule_frame();
        self.send_times.borrow_mut()[sent as usize % SEND_TIMES_KEPT] = now;
        if let Some(number) = number {
            let samples = number * context.options.frame_samples() as u64;
            let body = match context.options.client {
                ClientKind::Macaw => context.sound.frame(self.loop_offset, samples),
                ClientKind::OpenaiRealtime => context.sound.frame_base64(self.loop_offset, samples),
            };
            self.send(context, &[head, body, tail]);
        }
    }

    /// Sending time of the frame with the sample before this position (at 16 kHz, from the client's start).
    pub(crate) fn frame_sent_at(&self, context: &RunContext, position: u64) -> Option<u64> {
        let samples = (position * u64::from(context.options.rate)).div_ceil(SECOND_SAMPLES as u64);
        let frame = samples.checked_sub(1)? / context.options.frame_samples() as u64;
        let frames = self.frames_sent();
        let is_remembered = frame < frames && frames - frame < SEND_TIMES_KEPT as u64;
        is_remembered.then(|| self.send_times.borrow()[frame as usize % SEND_TIMES_KEPT])
    }

    /// Sends what one write accepts, and the rest as soon as there is room.
    pub(crate) fn send(self: &Rc<Self>, context: &RunContext, parts: &[&[u8]]) {
        let mut pending = self.pending.borrow_mut();
        let slices: Vec<_> = parts.iter().map(|part| std::io::IoSlice::new(part)).collect();
        let written =
            if pending.is_empty() { self.write.try_write_vectored(&slices).unwrap_or(0) } else { 0 };
        if written == parts.iter().map(|part| part.len()).sum::<usize>() {
            return;
        }
        context.tally.borrow_mut().blocked_frames += 1;
        let is_flushing = !pending.is_empty();
        pending.extend(parts.iter().copied().flatten().skip(written));
        if !is_flushing {
            spawn_local(Rc::clone(self).flush());
        }
    }

    async fn flush(self: Rc<Self>) {
        loop {
            let chunk = self.pending.borrow().clone();
            if websocket::write_all(&self.write, &[&chunk]).await.is_err() {
                self.is_closed.set(true);
                return;
            }
            let mut pending = self.pending.borrow_mut();
            pending.drain(..chunk.len());
            if pending.is_empty() {
                return;
            }
        }
    }

    /// Answers a ping.
    pub(crate) fn send_pong(self: &Rc<Self>, context: &RunContext, payload: &[u8]) {
        self.send(context, &[&websocket::frame_header(websocket::PONG, payload.len(), true), payload]);
    }

    /// Sends a text message.
    pub(crate) fn send_text(self: &Rc<Self>, context: &RunContext, text: &str) {
        self.send(context, &[&websocket::text_frame(text, true)]);
    }

    /// Closes the session.
    pub(crate) fn send_close(self: &Rc<Self>, context: &RunContext) {
        if !self.is_closed.get() {
            self.send(context, &[&websocket::CLIENT_CLOSE]);
        }
    }
}

/// Extracts HOST:PORT from `[ws://]HOST:PORT[/PATH]`.
fn host_of(address: &str) -> &str {
    let rest = address.trim_start_matches("ws://");
    rest.split('/').next().unwrap_or(rest)
}

/// Address and request target of a client's connection.
pub(crate) fn connect_target<'a>(context: &RunContext, address: &'a str, number: usize) -> (&'a str, String) {
    let host = host_of(address);
    let path = address.trim_start_matches("ws://").strip_prefix(host).filter(|path| !path.is_empty());
    let (own_path, query) = match (context.options.path, context.options.client) {
        (BridgeKind::Relay, _) => ("/v1/realtime", format!("relayed={number}")),
        (BridgeKind::Bridge, ClientKind::Macaw) => {
            ("/v1/realtime", format!("model=load&input_sample_rate={}", context.options.rate))
        }
        (BridgeKind::Bridge, ClientKind::OpenaiRealtime) => (openai::PATH, "model=load".to_owned()),
    };
    let path = path.unwrap_or(own_path);
    let separator = if path.contains('?') { '&' } else { '?' };
    (host, format!("{path}{separator}{query}"))
}
