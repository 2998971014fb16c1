//! A client within this process: a REST request, a command or a call. No wire lies between it and its session, so requests and events
//! pass as they are. A call passes the messages of its data channel, which the session's codec reads and writes.
//!
//! [`client_port`] and [`PortEnd::new`] make the ends. A request waits until the session takes it, and an event until the client
//! does: a session whose client takes no events holds its playout back, as for a socket. Dropping the receiver of the events ends the
//! session.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc::{self, OwnedPermit, error::SendError};

use super::{
    memory::{Held, MemoryShare},
    websocket::{
        outbox::{Content, Outbox},
        session_socket::OUT_OF_MEMORY,
    },
};
use crate::{
    net::Traffic,
    vocabulary::{ClientEvent, ClientRequest, DisconnectReason, Message, SpeechId},
};

/// Why a session ends whose client has gone.
const GONE: &str = "the client has gone";
/// Close code of a client that gives none (RFC 6455 §7.1.5).
const NO_CLOSE_CODE: u16 = 1005;

/// Input of a session from its client.
#[derive(Debug)]
pub(crate) enum PortInput {
    /// Audio in the format of the session.
    Audio(Bytes),
    /// A request.
    Request(ClientRequest<'static>),
    /// A message of the client's protocol.
    Message(Message),
}

impl PortInput {
    /// Length of its audio or message, bytes.
    pub(crate) const fn bytes(&self) -> usize {
        match self {
            Self::Audio(bytes) => bytes.len(),
            Self::Request(_) => 0,
            Self::Message(message) => message_bytes(message),
        }
    }
}

/// Output of a session to its client.
#[derive(Debug)]
pub(crate) enum PortOutput {
    /// An event, and the message that spells it, for a client that shows that.
    Event(ClientEvent, Option<String>),
    /// A message of the client's protocol. Nothing follows a close frame.
    Message(Message),
    /// The user has interrupted the text or turn of the last audio: what is left of it must not be heard.
    DropTurn,
}

const fn message_bytes(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) => bytes.len(),
        Message::Close(..) => 0,
    }
}

impl Content for PortOutput {
    fn bytes(&self) -> usize {
        match self {
            Self::Event(ClientEvent::Audio(audio), _) => audio.bytes.len(),
            Self::Message(message) => message_bytes(message),
            Self::Event(..) | Self::DropTurn => 0,
        }
    }
}

/// Form in which a client within this process takes outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortForm {
    /// Events.
    Events,
    /// Events, and the messages that spell them, which it shows.
    ShownEvents,
    /// Messages of its protocol.
    Messages,
}

/// The client's end.
pub(crate) struct ClientPort {
    pub(crate) requests: mpsc::Sender<PortInput>,
    pub(crate) events: mpsc::Receiver<PortOutput>,
}

/// The session's end.
pub(crate) struct PortEnd {
    inputs: mpsc::Receiver<PortInput>,
    outputs: mpsc::Sender<PortOutput>,
    /// Room for an output, as soon as there is some.
    room: Option<BoxFuture<'static, Result<OwnedPermit<PortOutput>, SendError<()>>>>,
    /// Completes when the client has dropped its end.
    gone: BoxFuture<'static, ()>,
    pub(crate) outbox: Outbox<PortOutput>,
    /// Its share of the memory for messages in transit.
    pub(crate) memory: MemoryShare,
    /// Bytes of audio and messages.
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) form: PortForm,
    /// Longest message of the client, bytes. A longer one ends the session.
    pub(crate) message_max_bytes: usize,
}

/// Both ends of a port. One request and one event fit into it, so that one that was sent is nearly handled.
pub(crate) fn client_port(form: PortForm) -> (ClientPort, PortEnd) {
    let (requests, inputs) = mpsc::channel(1);
    let (end, events) = PortEnd::new(form, inputs);
    (ClientPort { requests, events }, end)
}

impl PortEnd {
    /// The session's end of a port with these inputs, and its outputs.
    pub(crate) fn new(
        form: PortForm,
        inputs: mpsc::Receiver<PortInput>,
    ) -> (Self, mpsc::Receiver<PortOutput>) {
        let (outputs, events) = mpsc::channel(1);
        let watched = outputs.clone();
        let end = Self {
            inputs,
            room: None,
            gone: Box::pin(async move { watched.closed().await }),
            outputs,
            outbox: Outbox::default(),
            memory: MemoryShare::default(),
            traffic: Arc::default(),
            form,
            message_max_bytes: usize::MAX,
        };
        (end, events)
    }

    /// Puts an output into the outbox. It is discarded with its text or turn.
    pub(crate) fn send(&mut self, output: PortOutput, turn: Option<SpeechId>) {
        self.outbox.push(output, turn);
    }

    /// Discards the outputs of a text or turn that the client has not taken, and tells it that it was interrupted.
    pub(crate) fn drop_turn(&mut self, turn: SpeechId) {
        self.outbox.drop_turn(turn);
        self.outbox.push(PortOutput::DropTurn, None);
    }

    /// Why the session ends once the client has gone. The end of a call is orderly.
    fn gone(&self) -> DisconnectReason {
        match self.form {
            PortForm::Messages => DisconnectReason::Closed(NO_CLOSE_CODE, String::new()),
            PortForm::Events | PortForm::ShownEvents => DisconnectReason::Lost(GONE.to_owned()),
        }
    }

    /// Gives the client what it takes; ready when the outbox is empty, or when the client has gone.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DisconnectReason>> {
        let written = self.poll_outbox(cx);
        if !self.memory.hold(Held::Outgoing, self.outbox.bytes()) {
            self.outbox.clear();
            return Poll::Ready(Err(DisconnectReason::Lost(OUT_OF_MEMORY.to_owned())));
        }
        written
    }

    fn poll_outbox(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DisconnectReason>> {
        while !self.outbox.is_empty() {
            let room = self.room.get_or_insert_with(|| Box::pin(self.outputs.clone().reserve_owned()));
            let room = ready!(room.as_mut().poll(cx));
            self.room = None;
            let Ok(room) = room else {
                return Poll::Ready(Err(self.gone()));
            };
            if let Some(output) = self.outbox.pop() {
                self.traffic.written.fetch_add(output.bytes() as u64, Relaxed);
                room.send(output);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The next input, unless the client is paused; or the end of the client.
    pub(crate) fn poll_read(
        &mut self,
        is_paused: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PortInput, DisconnectReason>> {
        if self.gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(self.gone()));
        }
        if is_paused {
            return Poll::Pending;
        }
        match ready!(self.inputs.poll_recv(cx)) {
            Some(PortInput::Message(message)) if message_bytes(&message) > self.message_max_bytes => {
                Poll::Ready(Err(DisconnectReason::Lost("message too long".to_owned())))
            }
            Some(input) => {
                self.traffic.read.fetch_add(input.bytes() as u64, Relaxed);
                Poll::Ready(Ok(input))
            }
            // The client asks for nothing more, and may wait for events.
            None => Poll::Pending,
        }
    }

    /// Gives the client the rest of the outbox in a task of its own, however slowly it takes that, until `too_late` completes.
    /// Holds `drain_guard` until then.
    pub(crate) fn deliver_in_background(
        mut self,
        too_late: BoxFuture<'static, ()>,
        drain_guard: mpsc::Sender<()>,
    ) {
        self.inputs.close();
        tokio::spawn(async move {
            let _guard = drain_guard;
            tokio::select! {
                _ = std::future::poll_fn(|cx| self.poll_write(cx)) => {}
                () = too_late => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::vocabulary::ClientAudio;

    fn send_audio(end: &mut PortEnd, turn: u32) {
        let turn = SpeechId(turn);
        let audio = ClientAudio { bytes: Bytes::from_static(&[1; 48_000]), turn };
        end.send(PortOutput::Event(ClientEvent::Audio(audio), None), Some(turn));
    }

    fn write(end: &mut PortEnd) -> Option<Result<(), DisconnectReason>> {
        std::future::poll_fn(|cx| end.poll_write(cx)).now_or_never()
    }

    fn read(end: &mut PortEnd, is_paused: bool) -> Option<Result<PortInput, DisconnectReason>> {
        std::future::poll_fn(|cx| end.poll_read(is_paused, cx)).now_or_never()
    }

    #[tokio::test]
    async fn events_wait_for_a_client_that_takes_none_and_a_dropped_turn_is_discarded() {
        let (mut port, mut end) = client_port(PortForm::Events);
        for turn in [1, 1, 2, 2] {
            send_audio(&mut end, turn);
        }
        assert!(write(&mut end).is_none());
        assert!(end.outbox.bytes() > 3 * 48_000, "one has left");
        assert_eq!(end.outbox.unwritten(), Some((SpeechId(2), 96_000, 96_000)));
        end.drop_turn(SpeechId(2));
        let mut taken = Vec::new();
        while let Some(output) = port.events.recv().now_or_never() {
            taken.extend(output);
            write(&mut end);
        }
        assert!(end.outbox.is_empty());
        assert!(matches!(taken[..], [_, _, PortOutput::DropTurn]), "{taken:?}");
    }

    #[tokio::test]
    async fn request_waits_for_a_paused_session_and_the_client_may_leave_meanwhile() {
        let (port, mut end) = client_port(PortForm::Events);
        assert!(port.requests.try_send(PortInput::Request(ClientRequest::Finish)).is_ok());
        assert!(port.requests.try_send(PortInput::Request(ClientRequest::Finish)).is_err(), "full");
        assert!(read(&mut end, true).is_none());
        assert!(matches!(read(&mut end, false), Some(Ok(PortInput::Request(ClientRequest::Finish)))));
        let ClientPort { requests, events } = port;
        drop(requests);
        assert!(read(&mut end, false).is_none(), "it waits for events");
        drop(events);
        assert!(matches!(read(&mut end, true), Some(Err(_))), "it has gone");
        send_audio(&mut end, 1);
        assert!(matches!(write(&mut end), Some(Err(_))));
    }

    #[tokio::test]
    async fn message_beyond_the_limit_ends_the_session() {
        for (bytes, is_taken) in [(8, true), (9, false)] {
            let (port, mut end) = client_port(PortForm::Messages);
            end.message_max_bytes = 8;
            port.requests.try_send(PortInput::Message(Message::Text("x".repeat(bytes)))).unwrap();
            assert_eq!(read(&mut end, false).unwrap().is_ok(), is_taken, "{bytes} bytes");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn client_gets_all_that_waits_for_it_however_slowly_it_takes_that() {
        for (memory_is_needed_after_s, expected) in [(1000, 60), (20, 20)] {
            let (mut port, mut end) = client_port(PortForm::Events);
            (0..60).for_each(|_| send_audio(&mut end, 1));
            let too_late = tokio::time::sleep(Duration::from_secs(memory_is_needed_after_s));
            let (guard, mut guarded) = mpsc::channel(1);
            end.deliver_in_background(Box::pin(too_late), guard);
            let mut taken = 0;
            while port.events.recv().await.is_some() {
                taken += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert!((expected..=expected + 2).contains(&taken), "{taken} of 60 s");
            assert_eq!(guarded.recv().await, None);
        }
    }
}
