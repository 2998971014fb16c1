//! One client: what it sends, when, and what it hears.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use tokio::{
    net::{TcpStream, tcp::OwnedWriteHalf},
    task::spawn_local,
};

use crate::{
    ear::Ear,
    heard::Heard,
    options::Way,
    sound::{LOOP, SECOND, Sound},
    spoil::Spoil,
    track::Track,
    utterances::Utterances,
    wire::{self, Inbox},
    world::World,
};

/// Frames whose sending times are remembered.
const REMEMBERED: usize = 512;

/// One session's client.
pub(crate) struct Client {
    /// Where in the loop its audio begins.
    pub(crate) begins: usize,
    write: OwnedWriteHalf,
    /// What the socket did not take.
    pending: RefCell<Vec<u8>>,
    sent_at: RefCell<Vec<u64>>,
    /// When the long messages through a relay were sent.
    pub(crate) message_at: Cell<u64>,
    spoil: RefCell<Spoil>,
    /// It knows that its session is there.
    pub(crate) ready: Cell<bool>,
    pub(crate) gone: Cell<bool>,
    pub(crate) heard: RefCell<Heard>,
    pub(crate) utterances: RefCell<Utterances>,
    /// What of its audio came upstream in a conversation.
    pub(crate) ear: RefCell<Option<Ear>>,
    /// What of it came through a relay.
    pub(crate) relayed: RefCell<Track>,
}

impl Client {
    /// Connects and listens from then on.
    pub(crate) async fn connect(world: &Rc<World>, address: &str, number: usize) -> Result<Rc<Self>, String> {
        let (host, path) = target(world, address, number);
        let tcp =
            TcpStream::connect(host).await.map_err(|error| format!("cannot connect to {host}: {error}"))?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let (read, write) = tcp.into_split();
        let mut inbox = Inbox::new(read, Rc::clone(&world.pool));
        wire::ask(&mut inbox, &write, host, &path).await?;
        let client = Rc::new(Self {
            begins: Sound::begins(number),
            write,
            pending: RefCell::default(),
            sent_at: RefCell::new(vec![0; REMEMBERED]),
            message_at: Cell::new(0),
            spoil: RefCell::new(Spoil::new(if number == 0 { world.options.spoil } else { 0 })),
            // A relay says nothing.
            ready: Cell::new(world.options.path == Way::Relay),
            gone: Cell::new(false),
            heard: RefCell::default(),
            utterances: RefCell::default(),
            ear: RefCell::default(),
            relayed: RefCell::default(),
        });
        spawn_local(crate::heard::listen(Rc::clone(world), Rc::clone(&client), inbox));
        Ok(client)
    }

    /// Frames of the loop it has sent, or meant to.
    pub(crate) fn frames(&self) -> u64 {
        self.spoil.borrow().frames()
    }

    /// Whether mishaps are made in its session.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.spoil.borrow().is_wanted()
    }

    /// Samples it has sent, or meant to, at 16 kHz.
    pub(crate) fn sent(&self, world: &World) -> u64 {
        let samples = self.frames() * world.options.frame_samples() as u64;
        samples * SECOND as u64 / u64::from(world.options.rate)
    }

    /// Where in the loop it is, at 16 kHz.
    pub(crate) fn place(&self, world: &World) -> u64 {
        (self.begins + LOOP) as u64 + self.sent(world)
    }

    /// Sends the next frame.
    pub(crate) fn frame(self: &Rc<Self>, world: &World, head: &[u8], now: u64) {
        let (sent, number) = self.spoil.borrow_mut().next();
        self.sent_at.borrow_mut()[sent as usize % REMEMBERED] = now;
        if let Some(number) = number {
            let samples = number * world.options.frame_samples() as u64;
            self.send(world, head, world.sound.frame(self.begins, samples));
        }
    }

    /// When the frame with the sample before this place (at 16 kHz, from its beginning) was sent.
    pub(crate) fn sent_at(&self, world: &World, place: u64) -> Option<u64> {
        let samples = (place * u64::from(world.options.rate)).div_ceil(SECOND as u64);
        let frame = samples.checked_sub(1)? / world.options.frame_samples() as u64;
        let frames = self.frames();
        let known = frame < frames && frames - frame < REMEMBERED as u64;
        known.then(|| self.sent_at.borrow()[frame as usize % REMEMBERED])
    }

    /// Sends what one write takes, and the rest as soon as there is room.
    pub(crate) fn send(self: &Rc<Self>, world: &World, head: &[u8], body: &[u8]) {
        let mut pending = self.pending.borrow_mut();
        let slices = [std::io::IoSlice::new(head), std::io::IoSlice::new(body)];
        let written =
            if pending.is_empty() { self.write.try_write_vectored(&slices).unwrap_or(0) } else { 0 };
        if written == head.len() + body.len() {
            return;
        }
        world.tally.borrow_mut().blocked_frames += 1;
        let waits = !pending.is_empty();
        pending.extend(head.iter().chain(body).skip(written));
        if !waits {
            spawn_local(Rc::clone(self).flush());
        }
    }

    async fn flush(self: Rc<Self>) {
        loop {
            let there = self.pending.borrow().clone();
            if wire::send(&self.write, &[&there]).await.is_err() {
                self.gone.set(true);
                return;
            }
            let mut pending = self.pending.borrow_mut();
            pending.drain(..there.len());
            if pending.is_empty() {
                return;
            }
        }
    }

    /// Answers a ping.
    pub(crate) fn pong(self: &Rc<Self>, world: &World, payload: &[u8]) {
        self.send(world, &wire::head(wire::PONG, payload.len(), true), payload);
    }

    /// Says something.
    pub(crate) fn say(self: &Rc<Self>, world: &World, words: &str) {
        self.send(world, &wire::head(wire::TEXT, words.len(), true), words.as_bytes());
    }

    /// Leaves.
    pub(crate) fn leave(self: &Rc<Self>, world: &World) {
        if !self.gone.get() {
            self.send(world, &wire::CLIENT_CLOSE, &[]);
        }
    }
}

/// HOST:PORT of `[ws://]HOST:PORT[/PATH]`.
fn host(address: &str) -> &str {
    let rest = address.trim_start_matches("ws://");
    rest.split('/').next().unwrap_or(rest)
}

/// Where to connect, and what to ask for there.
pub(crate) fn target<'a>(world: &World, address: &'a str, number: usize) -> (&'a str, String) {
    let host = host(address);
    let path = address.trim_start_matches("ws://").strip_prefix(host).filter(|path| !path.is_empty());
    let path = path.unwrap_or("/v1/realtime");
    let query = match world.options.path {
        Way::Relay => format!("relayed={number}"),
        Way::Macaw => format!("model=load&input_sample_rate={}", world.options.rate),
    };
    let mark = if path.contains('?') { '&' } else { '?' };
    (host, format!("{path}{mark}{query}"))
}
