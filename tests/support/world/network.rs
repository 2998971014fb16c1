//! The network between the bridge and the server, and the drivers of both: moves frames, and advances from deadline to deadline.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use serde_json::Value;
use voxbridge::{
    bridge::{Input, Output},
    simulator::{ConnId, RealtimeServer, SimDialect, SimInput, SimOutput},
    vocabulary::{AnswerPart, DisconnectReason, Frame, Lane, LanePurpose, Message, Mode},
};

use super::{
    harness::{BridgeStep, Harness, StepMeter},
    observed::{ClientFrame, Traffic},
};

/// Outputs in a row without `Wait`, or inputs at one instant, above which the bridge or gateway is in an
/// endless loop.
const MAX_STEPS_PER_INSTANT: usize = 20_000;

/// Number of the first connection of another client. Lanes have lower ones.
pub(super) const OTHER_CLIENTS_FROM: u64 = 1 << 40;

/// A frame in transit.
#[derive(Debug)]
pub(super) enum InFlight {
    Connect(Lane, Mode),
    ToGateway(Lane, Message),
    Hangup(Lane),
    Opened(Lane),
    ToBridge(Lane, String),
    Answer(Lane, AnswerPart),
    Body(Lane, Vec<u8>),
    Closed(Lane, DisconnectReason),
}

impl InFlight {
    pub(super) const fn lane(&self) -> Lane {
        match self {
            Self::Connect(lane, _)
            | Self::ToGateway(lane, _)
            | Self::Hangup(lane)
            | Self::Opened(lane)
            | Self::ToBridge(lane, _)
            | Self::Answer(lane, _)
            | Self::Body(lane, _)
            | Self::Closed(lane, _) => *lane,
        }
    }
}

impl<M: StepMeter> Harness<M> {
    /// Reports the flow control to the bridge, as the driver does. Returns true if it has changed.
    pub(super) fn update_flow(&mut self) -> bool {
        let flow = self.reader.changed_flow(&self.report()).filter(|_| self.client_open);
        flow.into_iter().for_each(|flow| self.feed_bridge(Input::Flow(flow)));
        flow.is_some()
    }

    /// True if the bridge's driver does not read the frame now.
    pub(super) fn is_held(&self, frame: &InFlight) -> bool {
        let is_to_bridge = matches!(
            frame,
            InFlight::ToBridge(..) | InFlight::Answer(..) | InFlight::Body(..) | InFlight::Closed(..)
        );
        is_to_bridge && self.reader.are_lanes_held() && self.session.bridge.is_lane_held(frame.lane())
    }

    pub(super) fn feed_bridge_and_settle(&mut self, input: Input<'_>) {
        self.feed_bridge(input);
        self.process_due();
    }

    pub(super) fn feed_bridge(&mut self, input: Input<'_>) {
        let (is_from_client, frame_bytes) = match &input {
            Input::Client(Frame::Text(text)) => (true, text.len()),
            Input::Client(Frame::Binary(bytes)) => (true, bytes.len()),
            Input::Lane(_, Frame::Text(text)) => (false, text.len()),
            _ => (false, 0),
        };
        let mut cost = None;
        let outputs = self.session.step(Some(input), |step| cost = Some(M::measure(step)));
        let cost = cost.expect("every step is measured");
        self.steps.push(BridgeStep { frame_bytes, is_from_client, outputs: outputs.len(), cost });
        self.handle_outputs(outputs);
    }

    pub(super) fn feed_gateway(&mut self, input: SimInput<'_>) {
        let outputs = self.server.input(self.session.now, input);
        self.handle_gateway_outputs(outputs);
    }

    pub(super) fn handle_outputs(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Wait(_) | Output::Finished => unreachable!("the session keeps these"),
                Output::Event(_) => unreachable!("the client takes messages"),
                Output::ToClient(message, turn) => match &mut self.unread {
                    Some(unread) => unread.push((message, turn)),
                    None => {
                        let read = self.reader.send(self.session.now, message, turn);
                        read.into_iter().for_each(|message| self.record_client_frame(message));
                    }
                },
                Output::DropTurn { turn, .. } => {
                    self.reader.drop_turn(turn);
                    self.unread.iter_mut().for_each(|unread| unread.retain(|(_, tag)| *tag != Some(turn)));
                }
                Output::Observe(observation) => self.observations.push(observation),
                Output::JudgeTurn(pause, audio) => {
                    self.judged.push(audio.len());
                    let judge = self.judge.as_mut().expect("the session knows that there is a judge");
                    let answer = Input::TurnJudged(pause, (judge.verdict)(&audio));
                    self.pause_answers.push_back((self.session.now + judge.takes, answer));
                }
                Output::WithdrawJudgement => {
                    let before = self.pause_answers.len();
                    self.pause_answers.retain(|(_, answer)| !matches!(answer, Input::TurnJudged(..)));
                    assert!(
                        self.pause_answers.len() < before,
                        "only a question without a verdict is withdrawn"
                    );
                }
                Output::FindWorker(pause, lane) if self.has_free_worker => {
                    assert_eq!(self.lanes.get(&lane), Some(&true), "{lane:?} cannot be asked on");
                    self.pause_answers.push_front((self.session.now, Input::WorkerFound(pause)));
                }
                Output::FindWorker(..) => {}
                Output::Record(item) => self.recorded.push((self.session.now, *item)),
                Output::CallTool(call) => {
                    let tools = self.tools.as_mut().expect("the session knows of tool servers");
                    let result = (tools.answer)(&call).map(|result| Input::ToolResult(call.id, result));
                    let at = self.session.now + tools.takes;
                    self.called.push((self.now(), *call));
                    if let Some(result) = result {
                        let place = self.pause_answers.partition_point(|(known, _)| *known <= at);
                        self.pause_answers.insert(place, (at, result));
                    }
                }
                Output::ConnectTools(number, server) => {
                    let tools = self.tools.as_mut().expect("the session knows of tool servers");
                    let list = Input::ToolList(number, (tools.list)(&server));
                    let at = self.session.now + tools.takes;
                    self.connected.push((number, *server));
                    let place = self.pause_answers.partition_point(|(known, _)| *known <= at);
                    self.pause_answers.insert(place, (at, list));
                }
                Output::LeaveTools(number) => self.connected.retain(|(known, _)| *known != number),
                Output::Request(lane, request) => self.answer_request(lane, request),
                Output::OpenLane(lane, mode, purpose) | Output::ReopenLane(lane, mode, purpose) => {
                    self.purposes.insert(lane, (mode, purpose));
                    assert!(self.lanes.insert(lane, false).is_none(), "{lane:?} is opened twice");
                    self.traffic.push((self.now(), Traffic::Dialled(lane)));
                    self.send_delayed(InFlight::Connect(lane, mode));
                }
                Output::ToLane(lane, message) => {
                    assert_eq!(self.lanes.get(&lane), Some(&true), "{lane:?} is not up for {message:?}");
                    if let Message::Text(text) = &message {
                        self.traffic.push((self.now(), Traffic::Sent(lane, text.clone())));
                    }
                    self.send_delayed(InFlight::ToGateway(lane, message));
                }
                Output::CloseLane(lane) => {
                    assert!(self.lanes.remove(&lane).is_some(), "{lane:?} is closed but not open");
                    self.traffic.push((self.now(), Traffic::Dropped(lane)));
                    self.send_delayed(InFlight::Hangup(lane));
                }
            }
        }
        if self.session.is_finished {
            assert!(self.lanes.is_empty(), "finished with lanes open: {:?}", self.lanes);
            self.finished = true;
        }
    }

    pub(super) fn record_client_frame(&mut self, message: Message) {
        assert!(self.client_open, "message to a client that is gone: {message:?}");
        self.received.push((self.now(), message.clone()));
        let frame = match message {
            Message::Text(text) => {
                let is_json = text.starts_with('{');
                let event =
                    if is_json { serde_json::from_str(&text).unwrap() } else { Value::from(text.as_str()) };
                self.texts.push(text);
                ClientFrame::Event(event)
            }
            Message::Binary(bytes) => ClientFrame::Binary(bytes),
            Message::Close(code, reason) => {
                self.client_open = false;
                ClientFrame::Close(code, reason)
            }
        };
        self.log.push((self.now(), frame));
    }

    pub(super) fn handle_gateway_outputs(&mut self, outputs: Vec<SimOutput>) {
        let mut outputs = VecDeque::from(outputs);
        while let Some(output) = outputs.pop_front() {
            let frame = match output {
                SimOutput::Wait(_) => unreachable!("`VirtualGateway` keeps these"),
                SimOutput::AsrAudio(_, samples) => {
                    self.question_audio.push(samples);
                    continue;
                }
                SimOutput::DuplexOpened(conn, opening) => {
                    self.openings.push((lane_of(conn), opening));
                    continue;
                }
                SimOutput::DuplexUnit(conn, unit) => {
                    self.units.push((lane_of(conn), unit));
                    continue;
                }
                SimOutput::Text(conn, _)
                | SimOutput::Close(conn, ..)
                | SimOutput::Abort(conn)
                | SimOutput::Refuse(conn, _)
                    if conn.0 >= OTHER_CLIENTS_FROM =>
                {
                    continue;
                }
                SimOutput::AskEngines(job, request) => {
                    let answer = self.engines.expect("the test has engines")(request);
                    outputs.extend(self.server.input(self.session.now, SimInput::EngineDone(job, answer)));
                    continue;
                }
                SimOutput::Text(conn, text) => InFlight::ToBridge(lane_of(conn), text),
                SimOutput::Close(conn, code, reason) => {
                    InFlight::Closed(lane_of(conn), DisconnectReason::Closed(code, reason))
                }
                SimOutput::Refuse(conn, page) => {
                    let lane = lane_of(conn);
                    self.in_flight
                        .retain(|(_, frame)| !matches!(frame, InFlight::Opened(known) if *known == lane));
                    InFlight::Closed(lane, DisconnectReason::HttpRejected(page.status))
                }
                SimOutput::Abort(conn) => InFlight::Closed(
                    lane_of(conn),
                    DisconnectReason::Lost("Connection reset by peer (os error 104)".to_owned()),
                ),
            };
            self.send_delayed(frame);
        }
    }

    fn send_delayed(&mut self, frame: InFlight) {
        self.send_after(self.latency, frame);
    }

    pub(super) fn send_after(&mut self, delay: Duration, frame: InFlight) {
        let at = self.session.now + delay;
        let place = self.in_flight.iter().rposition(|(known, _)| *known <= at).map_or(0, |place| place + 1);
        self.in_flight.insert(place, (at, frame));
    }

    /// Time of the next event.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let mut unheld = self.in_flight.iter().filter(|(_, frame)| !self.is_held(frame));
        let frame = unheld.next().map(|(at, _)| *at);
        let answer = self.pause_answers.front().map(|(at, _)| *at);
        [frame, answer, self.reader.next_read(), self.session.wait, self.server.wait()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Processes everything due now.
    pub(super) fn process_due(&mut self) {
        for _ in 0..MAX_STEPS_PER_INSTANT {
            if self.update_flow() {
                continue;
            }
            if let Some(message) = self.reader.read(self.session.now) {
                self.record_client_frame(message);
            } else if let Some(frame) = self.take_due_frame() {
                self.deliver(frame);
            } else if let Some(answer) = self.take_due_answer() {
                self.feed_bridge(answer);
            } else if self.server.wait().is_some_and(|at| at <= self.session.now) {
                self.feed_gateway(SimInput::Timeout);
            } else if self.session.wait.is_some_and(|at| at <= self.session.now) {
                self.feed_bridge(Input::Timeout);
            } else {
                return;
            }
        }
        panic!("something is always due at {:?}; the client saw {:?}", self.now(), self.names());
    }

    fn take_due_frame(&mut self) -> Option<InFlight> {
        let is_due = |(at, frame): &(Instant, InFlight)| *at <= self.session.now && !self.is_held(frame);
        let at = self.in_flight.iter().position(is_due)?;
        self.in_flight.remove(at).map(|(_, frame)| frame)
    }

    fn take_due_answer(&mut self) -> Option<Input<'static>> {
        self.pause_answers.front().filter(|(at, _)| *at <= self.session.now)?;
        self.pause_answers.pop_front().map(|(_, answer)| answer)
    }

    /// Query of a lane's handshake.
    fn query(&self, lane: Lane, mode: Mode) -> &'static str {
        let is_transcript =
            self.purposes.get(&lane).is_some_and(|(_, purpose)| *purpose == LanePurpose::Transcribe);
        match (self.dialect, mode) {
            (SimDialect::OpenaiRealtime(RealtimeServer::Openai), _) if is_transcript => {
                "intent=transcription"
            }
            (SimDialect::OpenaiRealtime(RealtimeServer::Openai), _) => "model=gpt-realtime",
            (SimDialect::OpenaiRealtime(RealtimeServer::VllmOmni), _) => "",
            (_, Mode::Chat) => "mode=chat",
            (_, Mode::Audio) => "mode=audio",
            (_, Mode::Video) => "mode=video",
        }
    }

    fn deliver(&mut self, frame: InFlight) {
        match frame {
            InFlight::Connect(lane, _) if self.refused_handshakes > 0 => {
                self.refused_handshakes -= 1;
                self.send_delayed(InFlight::Closed(lane, DisconnectReason::HttpRejected(403)));
            }
            InFlight::Connect(lane, _) if self.mapping.is_http() => {
                self.send_delayed(InFlight::Opened(lane));
            }
            InFlight::Connect(lane, mode) => match self.dialect.parse_mode(Some(self.query(lane, mode))) {
                Ok(mode) => {
                    self.send_delayed(InFlight::Opened(lane));
                    self.feed_gateway(SimInput::Connected(conn_of(lane), mode));
                }
                Err(refused) => {
                    self.send_delayed(InFlight::Closed(lane, DisconnectReason::HttpRejected(refused.status)));
                }
            },
            InFlight::Hangup(_) if self.mapping.is_http() => {}
            InFlight::ToGateway(lane, Message::Text(text)) => {
                self.feed_gateway(SimInput::Text(conn_of(lane), &text));
            }
            InFlight::ToGateway(lane, Message::Binary(_)) => {
                self.feed_gateway(SimInput::Binary(conn_of(lane)));
            }
            InFlight::ToGateway(lane, Message::Close(code, reason)) => {
                self.feed_gateway(SimInput::Closed(conn_of(lane)));
                // The server's WebSocket answers with the same close frame.
                self.send_delayed(InFlight::Closed(lane, DisconnectReason::Closed(code, reason)));
            }
            InFlight::Hangup(lane) => self.feed_gateway(SimInput::Closed(conn_of(lane))),
            // A lane that the bridge dropped delivers nothing, even if frames are in transit.
            InFlight::Opened(lane)
            | InFlight::ToBridge(lane, _)
            | InFlight::Answer(lane, _)
            | InFlight::Body(lane, _)
            | InFlight::Closed(lane, _)
                if !self.lanes.contains_key(&lane) => {}
            InFlight::Opened(lane) => {
                self.lanes.insert(lane, true);
                self.traffic.push((self.now(), Traffic::Opened(lane)));
                if self.http.has_others {
                    self.feed_bridge(Input::LaneReplaceable(lane));
                }
                self.feed_bridge(Input::LaneOpened(lane));
            }
            InFlight::ToBridge(lane, text) => {
                self.traffic.push((self.now(), Traffic::Received(lane, text.clone())));
                self.feed_bridge(Input::Lane(lane, Frame::Text(&text)));
            }
            InFlight::Answer(lane, part) => self.feed_bridge(Input::Answer(lane, part)),
            InFlight::Body(lane, bytes) => {
                self.traffic.push((self.now(), Traffic::Body(lane, bytes.clone())));
                self.feed_bridge(Input::Lane(lane, Frame::Binary(&bytes)));
            }
            InFlight::Closed(lane, why) => {
                self.lanes.remove(&lane);
                self.traffic.push((self.now(), Traffic::Closed(lane, why.clone())));
                self.feed_bridge(Input::LaneClosed(lane, why));
            }
        }
    }
}

pub(super) fn conn_of(lane: Lane) -> ConnId {
    ConnId(lane.0.into())
}

fn lane_of(conn: ConnId) -> Lane {
    Lane(u32::try_from(conn.0).unwrap())
}
