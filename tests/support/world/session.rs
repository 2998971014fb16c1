//! One bridge in virtual time: opens the bridge, and passes inputs to it. Every test that drives a bridge by itself uses this
//! module. Not here: reactions to the outputs, which belong to the test.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use voxbridge::{
    bridge::{Bridge, Input, Output},
    client::Codec,
    error::Error,
    session::{RecordOptions, RelaySetup, SessionSetup},
    spelling::{ClientMapping, Library, UpstreamMapping},
    trace::{AudioRetention, TraceBuffer, TraceHeader, header::SessionParts},
};

/// The instant at which virtual time starts.
pub fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "an Instant has no other source; only differences count")]
    *EPOCH.get_or_init(Instant::now)
}

/// Parts of a session's opening.
pub struct Opening<'l> {
    /// The mappings in use.
    pub library: &'l Library,
    /// The client's protocol; for a relayed session the first of them.
    pub client: &'l str,
    /// The upstream's dialect.
    pub upstream: &'l str,
    /// The session's profile.
    pub profile: &'l str,
    /// The client's query string.
    pub query: &'l str,
    /// Seed of the bridge's ids and jitter.
    pub seed: u64,
    /// Wall-clock time at the opening.
    pub unix: Duration,
    /// The opening in virtual time.
    pub at: Instant,
    /// Records the session, keeping this much audio.
    pub record: Option<AudioRetention>,
}

impl<'l> Opening<'l> {
    /// An opening at the start of virtual time, with seed 1 and without a trace.
    pub fn new(library: &'l Library, client: &'l str, upstream: &'l str, profile: &'l str) -> Self {
        let (query, seed, unix, at, record) = ("", 1, Duration::ZERO, epoch(), None);
        Self { library, client, upstream, profile, query, seed, unix, at, record }
    }

    /// The client's protocol.
    pub fn client(&self) -> Arc<ClientMapping> {
        self.library.client(self.client).expect("the client is in the library")
    }

    /// The upstream's dialect.
    pub fn upstream(&self) -> Arc<UpstreamMapping> {
        self.library.upstream(self.upstream).expect("the upstream is in the library")
    }

    /// Opens a session.
    pub fn open(&self, change: impl FnOnce(&mut SessionSetup)) -> VirtualSession {
        let (client, upstream) = (self.client(), self.upstream());
        let profile = self.library.profile(self.profile).expect("the profile is in the library");
        let mut setup = SessionSetup::new(&client, profile, &upstream.clone().into(), self.seed);
        change(&mut setup);
        let recorder = self.recorder(&client, &upstream, |parts| TraceHeader::new(parts, &setup));
        let mut codec = Codec::new(client, self.unix.as_secs_f64());
        let connect = codec.decode_query(self.query);
        let bridge = Bridge::open(self.at, codec, connect, upstream, setup);
        VirtualSession { recorder, ..VirtualSession::new(bridge, self.at) }
    }

    /// Opens a relayed session for a client of one of these protocols.
    pub fn open_relay(&self, clients: &[&str], session_max_ms: u64) -> VirtualSession {
        let clients = clients.iter().map(|name| self.library.client(name));
        let clients: Vec<_> = clients.map(|client| client.expect("the client is in the library")).collect();
        let upstream = self.upstream();
        let profile = self.library.profile(self.profile).expect("the profile is in the library");
        let (unix_s, seed) = (self.unix.as_secs_f64(), self.seed);
        let setup = RelaySetup { profile, idle_ms: None, session_max_ms, unix_s, seed };
        let header = |parts: SessionParts<'_>| TraceHeader::relayed(parts, &clients[1..], &setup);
        let recorder = self.recorder(&clients[0], &upstream, header);
        let bridge = Bridge::open_relay(self.at, &clients, self.query, upstream, setup);
        VirtualSession { recorder, ..VirtualSession::new(bridge, self.at) }
    }

    /// Opens a connection that the bridge rejects with this error.
    pub fn reject(&self, error: &Error) -> VirtualSession {
        let codec = Codec::new(self.client(), self.unix.as_secs_f64());
        VirtualSession::new(Bridge::reject(self.at, codec, self.upstream(), error), self.at)
    }

    fn recorder(
        &self,
        client: &Arc<ClientMapping>,
        upstream: &Arc<UpstreamMapping>,
        header: impl FnOnce(SessionParts<'_>) -> TraceHeader,
    ) -> Option<TraceBuffer> {
        let (library, query, opened_unix) = (self.library, self.query, self.unix);
        let dialects = &upstream.clone().into();
        let parts = SessionParts { library, client, dialects, query, opened_unix };
        self.record.map(|audio| TraceBuffer::new(self.at, header(parts), audio))
    }
}

/// A bridge and its time.
pub struct VirtualSession {
    /// The bridge.
    pub bridge: Bridge,
    /// The current instant.
    pub now: Instant,
    /// The instant at which the bridge wants to be called; `None` if it waits for an input.
    pub wait: Option<Instant>,
    /// The bridge has finished.
    pub is_finished: bool,
    /// Trace of all inputs and outputs.
    pub recorder: Option<TraceBuffer>,
    outputs: Vec<Output>,
}

impl VirtualSession {
    /// A session whose bridge was opened at this instant. Call [`Self::opened`] next, for its first outputs.
    pub fn new(bridge: Bridge, now: Instant) -> Self {
        let outputs = Vec::with_capacity(OUTPUTS_EXPECTED);
        Self { bridge, now, wait: None, is_finished: false, recorder: None, outputs }
    }

    /// The same session, whose outputs contain its recording.
    #[must_use]
    pub fn recorded(self) -> Self {
        let bridge = self.bridge.record(RecordOptions { audio: true, events: true });
        Self { bridge, ..self }
    }

    /// The outputs of the opening.
    pub fn opened(&mut self) -> Vec<Output> {
        self.step(None, |step| step())
    }

    /// Passes an input to the bridge. Returns its outputs, without [`Output::Wait`] and [`Output::Finished`].
    ///
    /// # Panics
    /// If the outputs do not end.
    pub fn input(&mut self, input: Input<'_>) -> Vec<Output> {
        self.step(Some(input), |step| step())
    }

    /// Like [`Self::input`]; `measure` runs the step of the bridge. Up to 1000 outputs take no new memory in it.
    ///
    /// # Panics
    /// If the outputs do not end.
    pub fn step(&mut self, input: Option<Input<'_>>, measure: impl FnOnce(&mut dyn FnMut())) -> Vec<Output> {
        if let Some((recorder, input)) = self.recorder.as_mut().zip(input.as_ref()) {
            recorder.record_input(self.now, input);
        }
        let (mut input, mut result) = (input, Ok(()));
        measure(&mut || result = self.bridge.step(self.now, input.take(), &mut self.outputs));
        if let Some(recorder) = &mut self.recorder {
            self.outputs.iter().for_each(|output| recorder.record_output(self.now, output));
        }
        assert!(result.is_ok(), "the bridge never waits: {:?}", self.outputs.split_off(OUTPUTS_SHOWN));
        match self.outputs.pop() {
            Some(Output::Wait(until)) => self.wait = until,
            _ => (self.wait, self.is_finished) = (None, true),
        }
        self.outputs.drain(..).collect()
    }
}

/// Outputs of one step for which memory is reserved.
const OUTPUTS_EXPECTED: usize = 1_000;
/// First output of an endless loop that the error shows.
const OUTPUTS_SHOWN: usize = 19_980;
