//! Another bridge between the bridge of a test and the gateway: each connection is a session of OpenAI's Realtime API, in the
//! profile `assistant`. Nothing takes time between this bridge and the gateway. Its client, the other bridge, reads at once.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Instant,
};

use voxbridge::{
    bridge::{Input, Output},
    simulator::{ConnId, SimInput, SimMode, SimOutput},
    spelling::Library,
    vocabulary::{DisconnectReason, Frame, Lane, Message, Mode, PauseId},
};

use super::{
    config::UNIX,
    gateway::VirtualGateway,
    session::{Opening, VirtualSession},
};

/// Bits of a lane's number in the number of its connection to the gateway. The session's number is above them.
const LANE_BITS: u32 = 16;

/// A session of the bridge.
struct HopSession {
    session: VirtualSession,
    lanes: BTreeSet<Lane>,
    is_client_open: bool,
}

/// Something that waits for its turn at one instant.
enum Pending {
    Output(ConnId, Output),
    FromGateway(SimOutput),
    WorkerFound(ConnId, PauseId),
}

/// The bridge.
pub(super) struct SecondBridge {
    library: Library,
    sessions: BTreeMap<ConnId, HopSession>,
    pending: VecDeque<Pending>,
}

impl SecondBridge {
    pub(super) fn new() -> Self {
        let library = Library::embedded().unwrap();
        Self { library, sessions: BTreeMap::new(), pending: VecDeque::new() }
    }

    /// Number of sessions that do more than wait in the gateway's queue.
    pub(super) fn session_count(&self) -> usize {
        let waits = |hop: &HopSession| hop.session.bridge.report(hop.session.now).only_waits_in_queue;
        self.sessions.values().filter(|hop| !waits(hop)).count()
    }

    /// Number of connections to the gateway that its sessions have.
    pub(super) fn lane_count(&self) -> usize {
        self.sessions.values().map(|hop| hop.lanes.len()).sum()
    }

    /// When an input is due.
    pub(super) fn wait(&self) -> Option<Instant> {
        self.sessions.values().filter_map(|hop| hop.session.wait).min()
    }

    /// Passes on an input of a server, and returns what it sends to the other bridge.
    pub(super) fn input(
        &mut self,
        gateway: &mut VirtualGateway,
        now: Instant,
        input: SimInput<'_>,
    ) -> Vec<SimOutput> {
        match input {
            SimInput::Connected(conn, mode) if is_own(conn) => self.open(conn, mode, now),
            SimInput::Text(conn, text) if is_own(conn) => {
                self.step(conn, now, Input::Client(Frame::Text(text)));
            }
            SimInput::Binary(conn) if is_own(conn) => {
                self.step(conn, now, Input::Client(Frame::Binary(&[])));
            }
            SimInput::Closed(conn) if is_own(conn) => {
                if let Some(hop) = self.sessions.get_mut(&conn) {
                    hop.is_client_open = false;
                }
                self.step(conn, now, Input::ClientClosed);
            }
            SimInput::Timeout => self.handle_timeout(gateway, now),
            order => self.pass_to_gateway(gateway, now, order),
        }
        let mut sent = Vec::new();
        while let Some(pending) = self.pending.pop_front() {
            match pending {
                Pending::Output(conn, output) => {
                    sent.extend(self.handle_output(gateway, now, conn, output));
                }
                Pending::FromGateway(output) => sent.extend(self.handle_gateway_output(now, output)),
                Pending::WorkerFound(conn, pause) => self.step(conn, now, Input::WorkerFound(pause)),
            }
        }
        sent.extend(self.remove_finished().into_iter().map(SimOutput::Abort));
        sent
    }

    fn open(&mut self, conn: ConnId, mode: SimMode, now: Instant) {
        let query =
            if mode == SimMode::Transcription { "intent=transcription" } else { "model=gpt-realtime" };
        let opening = Opening::new(&self.library, "openai-realtime", "minicpm-o", "assistant");
        let mut session = Opening { query, unix: UNIX, seed: conn.0, at: now, ..opening }
            .open(|setup| setup.asks_soon = true);
        let outputs = session.opened();
        self.sessions.insert(conn, HopSession { session, lanes: BTreeSet::new(), is_client_open: true });
        self.pending.extend(outputs.into_iter().map(|output| Pending::Output(conn, output)));
    }

    /// Passes an input to a session that has not ended.
    fn step(&mut self, conn: ConnId, now: Instant, input: Input<'_>) {
        let Some(HopSession { session, .. }) = self.sessions.get_mut(&conn) else { return };
        if !session.is_finished {
            session.now = now;
            let outputs = session.input(input);
            self.pending.extend(outputs.into_iter().map(|output| Pending::Output(conn, output)));
        }
    }

    fn handle_timeout(&mut self, gateway: &mut VirtualGateway, now: Instant) {
        let is_due = |wait: Option<Instant>| wait.is_some_and(|at| at <= now);
        if is_due(gateway.wait) {
            self.pass_to_gateway(gateway, now, SimInput::Timeout);
        }
        let due = self.sessions.iter().filter(|(_, hop)| is_due(hop.session.wait));
        for conn in due.map(|(conn, _)| *conn).collect::<Vec<_>>() {
            self.step(conn, now, Input::Timeout);
        }
    }

    fn pass_to_gateway(&mut self, gateway: &mut VirtualGateway, now: Instant, input: SimInput<'_>) {
        self.pending.extend(gateway.input(now, input).into_iter().map(Pending::FromGateway));
    }

    /// Does what a session wants. Returns a message to the other bridge.
    fn handle_output(
        &mut self,
        gateway: &mut VirtualGateway,
        now: Instant,
        conn: ConnId,
        output: Output,
    ) -> Option<SimOutput> {
        let hop = self.sessions.get_mut(&conn)?;
        match output {
            Output::ToClient(..) if !hop.is_client_open => {}
            Output::ToClient(Message::Text(text), _) => return Some(SimOutput::Text(conn, text)),
            Output::ToClient(Message::Close(code, reason), _) => {
                hop.is_client_open = false;
                return Some(SimOutput::Close(conn, code, reason));
            }
            Output::FindWorker(pause, _) => self.pending.push_back(Pending::WorkerFound(conn, pause)),
            Output::OpenLane(lane, Mode::Chat, _) => self.open_lane(gateway, now, conn, lane),
            Output::ToLane(lane, Message::Text(text)) => {
                self.pass_to_gateway(gateway, now, SimInput::Text(lane_conn(conn, lane), &text));
            }
            Output::CloseLane(lane) => {
                hop.lanes.remove(&lane);
                self.pass_to_gateway(gateway, now, SimInput::Closed(lane_conn(conn, lane)));
            }
            Output::DropTurn { .. } | Output::Observe(_) => {}
            output => unreachable!("a session of OpenAI's protocol at a gateway has no {output:?}"),
        }
        None
    }

    /// Dials the gateway for a chat. A lane that it refuses does not open.
    fn open_lane(&mut self, gateway: &mut VirtualGateway, now: Instant, conn: ConnId, lane: Lane) {
        let outputs = gateway.input(now, SimInput::Connected(lane_conn(conn, lane), SimMode::Chat));
        self.sessions.get_mut(&conn).unwrap().lanes.insert(lane);
        if !matches!(outputs.first(), Some(SimOutput::Refuse(..))) {
            self.step(conn, now, Input::LaneOpened(lane));
        }
        self.pending.extend(outputs.into_iter().map(Pending::FromGateway));
    }

    /// Passes on what the gateway sends. Returns what a test wants to know.
    fn handle_gateway_output(&mut self, now: Instant, output: SimOutput) -> Option<SimOutput> {
        match output {
            SimOutput::Text(at, text) => {
                self.handle_lane(at, now, |lane| Input::Lane(lane, Frame::Text(&text)))
            }
            SimOutput::Close(at, code, reason) => {
                self.end_lane(at, now, DisconnectReason::Closed(code, reason));
            }
            SimOutput::Refuse(at, page) => {
                self.end_lane(at, now, DisconnectReason::HttpRejected(page.status));
            }
            SimOutput::Abort(at) => {
                self.end_lane(at, now, DisconnectReason::Lost("Connection reset by peer".to_owned()));
            }
            SimOutput::AsrAudio(at, samples) => return Some(SimOutput::AsrAudio(lane_of(at).0, samples)),
            output @ SimOutput::AskEngines(..) => return Some(output),
            SimOutput::DuplexOpened(..) | SimOutput::DuplexUnit(..) | SimOutput::Wait(_) => {}
        }
        None
    }

    fn handle_lane<'i>(&mut self, at: ConnId, now: Instant, input: impl FnOnce(Lane) -> Input<'i>) {
        let (conn, lane) = lane_of(at);
        if self.sessions.get(&conn).is_some_and(|hop| hop.lanes.contains(&lane)) {
            self.step(conn, now, input(lane));
        }
    }

    fn end_lane(&mut self, at: ConnId, now: Instant, reason: DisconnectReason) {
        self.handle_lane(at, now, |lane| Input::LaneClosed(lane, reason));
        let (conn, lane) = lane_of(at);
        self.sessions.get_mut(&conn).map(|hop| hop.lanes.remove(&lane));
    }

    /// Removes the sessions that are over. Returns those whose client was not told.
    fn remove_finished(&mut self) -> Vec<ConnId> {
        let finished = self.sessions.extract_if(.., |_, hop| hop.session.is_finished);
        finished.filter(|(_, hop)| hop.is_client_open).map(|(conn, _)| conn).collect()
    }
}

/// True for a connection of the other bridge: the clients beside it dial the gateway.
fn is_own(conn: ConnId) -> bool {
    conn.0 < super::network::OTHER_CLIENTS_FROM
}

fn lane_conn(conn: ConnId, lane: Lane) -> ConnId {
    ConnId((conn.0 + 1) << LANE_BITS | u64::from(lane.0))
}

fn lane_of(at: ConnId) -> (ConnId, Lane) {
    let lane = u32::try_from(at.0 & ((1 << LANE_BITS) - 1)).unwrap();
    (ConnId((at.0 >> LANE_BITS) - 1), Lane(lane))
}
