//! Inputs of a session: passes each event of the sockets, the pool, the operator and the clock to the bridge.

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_tungstenite::tungstenite::{Message as WsMessage, protocol::frame::coding::CloseCode};
use tracing::{debug, info, warn};

use super::{ClientEnd, LANE_CLOSE_TIMEOUT, SessionRegistration, SessionTask, std_now};
use crate::{
    bridge::Input,
    server::{
        client_port::PortInput,
        memory::MemoryShare,
        recordings::RecordingNews,
        registry::{
            OperatorOrder, TrafficCounts,
            observer::{FrameDirection, close_code},
        },
        session_task::socket_poll::{CLIENT_OUTBOX_MAX_BYTES, LaneSocket, Wakeup},
        tap::TapPoint,
        tool_servers::ToolNews,
        upstream_pool::{
            DialledLane,
            dial::{DialledUpstream, UpstreamSocket},
        },
        websocket::{
            pausable_stream::PausableRead,
            session_socket::{OUT_OF_MEMORY, SessionSocket, SocketEvent, TOO_SLOW},
        },
    },
    vocabulary::{AnswerPart, ClientRequest, DisconnectReason, Frame, Lane, Message, SpeechId},
};

impl<C: AsyncRead + AsyncWrite + PausableRead + Unpin + Send + 'static> SessionTask<C> {
    /// Handles the event that the session has waited for.
    pub(super) fn handle_wakeup(&mut self, wakeup: Wakeup) {
        match wakeup {
            // A message that comes as the hold ends must not overtake those that were held back.
            Wakeup::Client(SocketEvent::Message(message))
                if self.is_client_held() || self.backlog.bytes > 0 =>
            {
                self.backlog.push(message);
            }
            Wakeup::Client(SocketEvent::Message(message)) | Wakeup::HeldBack(message) => {
                self.handle_message(None, &message);
            }
            Wakeup::Request(PortInput::Audio(bytes)) => self.handle_request(ClientRequest::Audio(&bytes)),
            Wakeup::Request(PortInput::Request(request)) => self.handle_request(request),
            Wakeup::Request(PortInput::Message(message)) => self.handle_port_message(&message),
            Wakeup::Client(SocketEvent::End(reason)) => self.handle_client_end(&reason),
            Wakeup::Lane(lane, SocketEvent::Message(message)) => self.handle_message(Some(lane), &message),
            Wakeup::Lane(lane, SocketEvent::End(reason)) => {
                // An upstream that broke the protocol gets a close frame with the reason.
                if let Some(LaneSocket::Connected(socket)) = self.take_lane_socket(lane) {
                    socket.close_in_background(LANE_CLOSE_TIMEOUT, self.drain_guard.clone());
                }
                self.handle_lane_end(lane, reason);
            }
            Wakeup::Answer(lane, part) => self.handle_answer(lane, part),
            Wakeup::InLine(lane, position) => self.feed_bridge(Input::LaneQueued(lane, position)),
            Wakeup::Dialled(lane, Err(reason)) | Wakeup::Redialled(lane, Err(reason)) => {
                self.handle_lane_end(lane, reason);
            }
            Wakeup::Dialled(lane, Ok(dialled)) => {
                let DialledLane { socket, lease } = *dialled;
                self.lane_leases.insert(lane, lease);
                self.handle_lane_connected(lane, socket);
            }
            Wakeup::Redialled(lane, Ok(dialled)) => {
                self.lane_leases.lane_reconnected(lane);
                self.handle_lane_connected(lane, *dialled);
            }
            Wakeup::Drain(timeout) => {
                self.drain_order = None;
                self.feed_bridge(Input::Drain(timeout));
            }
            Wakeup::OutOfMemory => {
                self.eviction = None;
                self.close_client_early(CloseCode::Again, OUT_OF_MEMORY);
            }
            Wakeup::OperatorOrder(order) => self.handle_order(order),
            Wakeup::TurnJudged(pause, probability) => {
                self.feed_bridge(Input::TurnJudged(pause, probability));
            }
            Wakeup::ToolNews(ToolNews::Servers(servers)) => self.feed_bridge(Input::ToolServers(servers)),
            Wakeup::ToolNews(ToolNews::Result(call, result)) => {
                self.feed_bridge(Input::ToolResult(call, result));
            }
            Wakeup::ToolNews(ToolNews::List(number, list)) => self.feed_bridge(Input::ToolList(number, list)),
            Wakeup::Timer => self.handle_timer(),
            Wakeup::Flow(flow) => {
                self.flow = flow;
                self.feed_bridge(Input::Flow(flow));
            }
            // The client is read again.
            Wakeup::LaneDrained => {}
        }
    }

    fn handle_order(&mut self, order: OperatorOrder) {
        info!(order = order.name(), "operator order");
        self.feed_bridge(match order {
            OperatorOrder::Close => Input::Close(self.close_timeout),
            OperatorOrder::Rollover => Input::Rollover,
        });
    }

    /// Passes a part of a lane's answer to the bridge.
    fn handle_answer(&mut self, lane: Lane, part: AnswerPart) {
        // A server that is busy is not broken.
        if let AnswerPart::Head { status: 429 | 503, .. } = part {
            let socket = self.lanes.iter().find(|(known, _)| *known == lane);
            let retry_after = socket.and_then(|(_, socket)| socket.retry_after());
            self.lane_leases.report_busy(lane, retry_after);
        }
        self.feed_bridge(Input::Answer(lane, part));
    }

    /// Passes a message of a lane, or else of the client, to the bridge.
    fn handle_message(&mut self, lane: Option<Lane>, message: &WsMessage) {
        let frame = match message {
            WsMessage::Text(text) => Frame::Text(text),
            WsMessage::Binary(bytes) => Frame::Binary(bytes),
            _ => return,
        };
        let frames = if lane.is_some() { 1 } else { self.reader.count_frames(message.is_binary()) };
        self.handle_frame(lane, frame, frames);
    }

    /// Passes a message of a client within this process to the bridge.
    fn handle_port_message(&mut self, message: &Message) {
        match message {
            Message::Text(text) => self.handle_frame(None, Frame::Text(text), 1),
            Message::Binary(bytes) => self.handle_frame(None, Frame::Binary(bytes), 1),
            Message::Close(..) => {}
        }
    }

    /// Passes a frame of a lane, or else of the client, to the bridge. It was joined of so many.
    fn handle_frame(&mut self, lane: Option<Lane>, frame: Frame<'_>, frames: u32) {
        if let Some(SessionRegistration { observer, .. }) = &mut self.registration {
            let TrafficCounts { client_frames, upstream_frames, .. } = &mut observer.counts;
            let counts = if lane.is_some() { upstream_frames } else { client_frames };
            counts[FrameDirection::In as usize] += u64::from(frames);
        }
        let (point, input) = match lane {
            Some(lane) => (TapPoint::FromLane(lane), Input::Lane(lane, frame)),
            None => (TapPoint::FromClient, Input::Client(frame)),
        };
        self.show_tap(point, frame);
        self.feed_bridge(input);
    }

    /// Passes a request or audio of a client within this process to the bridge.
    fn handle_request(&mut self, request: ClientRequest<'_>) {
        if let Some(SessionRegistration { observer, .. }) = &mut self.registration {
            observer.counts.client_frames[FrameDirection::In as usize] += 1;
        }
        self.report_unwritten();
        let now = std_now();
        let audio_bytes = if let ClientRequest::Audio(bytes) = request { bytes.len() } else { 0 };
        self.slice.count_message(now, audio_bytes);
        self.show_request(now, &request);
        self.bridge.handle_request(now, request);
    }

    /// Shows the tap and the traces a request, as the message that spells it.
    fn show_request(&mut self, now: std::time::Instant, request: &ClientRequest<'_>) {
        if self.traces.is_empty() && self.tap.is_none() {
            return;
        }
        let spelled = self.bridge.spell_request(request);
        let frame = match (request, &spelled) {
            (ClientRequest::Audio(bytes), _) => Frame::Binary(bytes),
            (_, Some(message)) => Frame::Text(message),
            (_, None) => return,
        };
        self.show_tap(TapPoint::FromClient, frame);
        for trace in &mut self.traces {
            trace.record_input(now, &Input::Client(frame));
        }
    }

    fn handle_client_end(&mut self, reason: &DisconnectReason) {
        debug!(%reason, "client disconnected");
        self.show_tap(TapPoint::FromClient, reason);
        self.close_client();
        self.with_observer(|observer| observer.client_closed(true, close_code(reason)));
        self.backlog.clear();
        self.feed_bridge(Input::ClientClosed);
    }

    /// Closes the client, whose messages take more memory or time than they may.
    pub(super) fn close_client_early(&mut self, code: CloseCode, reason: &str) {
        info!(reason, "client dropped");
        if let Some(client) = &mut self.client {
            client.release_memory();
        }
        self.send_client(Message::Close(code.into(), reason.to_owned()), None);
        self.backlog.clear();
        self.feed_bridge(Input::ClientClosed);
    }

    fn handle_lane_connected(&mut self, lane: Lane, dialled: DialledUpstream) {
        let DialledUpstream { socket, dialect, model } = dialled;
        let (budget, max_bytes) = &self.memory;
        let memory = MemoryShare::new(budget.clone(), *max_bytes);
        let (connected, traffic) = match socket {
            UpstreamSocket::WebSocket(mut socket) => {
                socket.memory = memory;
                let traffic = socket.traffic.clone();
                (LaneSocket::Connected(Box::new(SessionSocket::new(*socket))), traffic)
            }
            UpstreamSocket::Http(mut socket) => {
                socket.memory = memory;
                let traffic = socket.traffic.clone();
                (LaneSocket::Http(socket), traffic)
            }
        };
        let upstream = self.lane_leases.upstream(lane).unwrap_or_default();
        debug!(lane = lane.0, upstream, "lane connected");
        if let Some((_, lane_socket)) = self.lanes.iter_mut().find(|(known, _)| *known == lane) {
            if let Some(SessionRegistration { observer, .. }) = &mut self.registration {
                observer.lane_connected(lane, upstream, &dialect.name, model.as_deref(), traffic);
            }
            *lane_socket = connected;
            if dialect.name != self.bridge.dialect() {
                self.feed_bridge(Input::LaneDialect(lane, &dialect.name));
            }
            if self.lane_leases.get(lane).is_some_and(|lease| self.pool.has_other_for(lease)) {
                self.feed_bridge(Input::LaneReplaceable(lane));
            }
            self.feed_bridge(Input::LaneOpened(lane));
        }
    }

    fn handle_lane_end(&mut self, lane: Lane, reason: DisconnectReason) {
        let is_unreachable = matches!(reason, DisconnectReason::Unreachable(_));
        match is_unreachable {
            true => warn!(lane = lane.0, "upstream {reason}"),
            false => debug!(lane = lane.0, %reason, "lane disconnected"),
        }
        self.show_tap(TapPoint::FromLane(lane), &reason);
        drop(self.take_lane_socket(lane));
        self.lane_leases.lane_ended(lane, &reason);
        self.with_observer(|observer| observer.lane_closed(lane, Some(&reason)));
        // The bridge passes the reason on to the client.
        let reason = match is_unreachable && !self.tells_upstream_addresses {
            true => DisconnectReason::Unreachable(String::new()),
            false => reason,
        };
        self.feed_bridge(Input::LaneClosed(lane, reason));
    }

    fn handle_timer(&mut self) {
        let now = Instant::now();
        let is_paced = self.report.is_paced;
        let check_alive = |client: &mut ClientEnd<C>| {
            let is_lost = is_paced && client.outbox_bytes() > CLIENT_OUTBOX_MAX_BYTES;
            client.handle_timer(now).or_else(|| {
                is_lost.then(|| DisconnectReason::Lost("the client reads slower than real time".to_owned()))
            })
        };
        if let Some(reason) = self.client.as_mut().and_then(check_alive) {
            info!(%reason, "client dropped");
            self.client = None;
            self.with_observer(|observer| observer.client_closed(false, None));
            self.feed_bridge(Input::ClientClosed);
        }
        let socket = self.client.as_mut().and_then(ClientEnd::socket_mut);
        if socket.is_some_and(|client| client.is_too_slow) {
            self.close_client_early(CloseCode::Policy, TOO_SLOW);
        }
        let ended: Vec<_> = self
            .lanes
            .iter_mut()
            .filter_map(|(lane, lane_socket)| Some((*lane, lane_socket.handle_timer(now)?)))
            .collect();
        for (lane, reason) in ended {
            self.handle_lane_end(lane, reason);
        }
        self.feed_bridge(Input::Timeout);
    }

    /// Passes an input to the bridge.
    pub(super) fn feed_bridge(&mut self, input: Input<'_>) {
        // The bound of the audio heard counts where playback may be cut.
        if matches!(input, Input::Client(_) | Input::Timeout | Input::TurnJudged(..)) {
            self.report_unwritten();
        }
        self.give_bridge(input);
    }

    /// Tells the bridge how much of a speech waits to be written to the client, if that has changed.
    fn report_unwritten(&mut self) {
        if let Some((turn, waiting, total)) = self.unwritten() {
            self.give_bridge(Input::Unwritten(turn, waiting, total));
        }
    }

    /// The speech whose messages wait to be written to the client, if more or less of it waits than at the last call.
    pub(super) fn unwritten(&mut self) -> Option<(SpeechId, u64, u64)> {
        let unwritten = self.client.as_ref().and_then(ClientEnd::unwritten);
        let waiting = unwritten.filter(|(_, waiting, _)| *waiting > 0);
        // An empty outbox is reported once.
        let told = std::mem::replace(&mut self.told_unwritten, waiting);
        waiting.filter(|_| waiting != told).or(unwritten.filter(|_| waiting.is_none() && told.is_some()))
    }

    fn give_bridge(&mut self, input: Input<'_>) {
        let now = std_now();
        if let Input::Client(frame) | Input::Lane(_, frame) = &input {
            let bytes = match frame {
                Frame::Text(text) => text.len(),
                Frame::Binary(bytes) => bytes.len(),
            };
            self.slice.count_message(now, bytes);
        }
        for trace in &mut self.traces {
            trace.record_input(now, &input);
        }
        if let Input::ToolResult(call, result) = &input {
            self.record(now, || Some(RecordingNews::of_result(*call, result)));
        }
        self.bridge.handle_input(now, input);
    }
}
