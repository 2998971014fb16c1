//! The task of one call: str0m between the network and an ordinary session.

use std::{sync::Arc, time::Duration};

use str0m::{
    Event, Input, Output, Rtc, RtcError,
    change::SdpOffer,
    channel::{ChannelData, ChannelId},
    media::{MediaKind, Mid, Pt},
    net::{Protocol, Receive},
    rtp::{RtpPacket, RtpWrite, Ssrc},
};
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep_until},
};
use tracing::{debug, info};

use super::{
    CallRejection, Joining, NewPeer, OpenSession, Packet, Place, Renewal, RenewedPeer, Request, Sideband,
    answer::Answerer,
    codec::{self, Codec},
    downlink::Downlink,
    dtls,
    events::carried,
    greeting::Greeting,
    jitter::JitterStats,
    offer::{self, Layout},
    outgoing::Outgoing,
    session::{QUEUED_MESSAGES_MAX, Session},
    uplink::Uplink,
};
use crate::{
    server::{
        CallChannel, CallProtocol, CallRates,
        channel_rules::ChannelRules,
        client_port::{PortInput, PortOutput},
    },
    vocabulary::Message,
};

/// Time for a client to connect, and then the longest silence of its network.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Events after which other tasks get their turn.
const EVENTS_PER_TURN: u32 = 16;
/// Time for the last events to reach the client.
const SEND_REST_MAX: Duration = Duration::from_secs(1);
/// Most connections besides the client's.
const SIDEBANDS_MAX: usize = 4;

/// One call.
pub(super) struct Call {
    /// The id in the call's URL.
    id: String,
    rtc: Rtc,
    place: Place,
    inbox: Inbox,
    /// Opens the session; `None` once it is open.
    open_session: Option<OpenSession>,
    session: Option<Session>,
    /// The session's rates, once it is open.
    rates: Option<CallRates>,
    audio: Option<Audio>,
    channel: Option<ChannelId>,
    protocol: CallProtocol,
    /// Events that the channel may carry.
    rules: ChannelRules,
    /// Commands for the session, which wait until it is open.
    commands: mpsc::Sender<PortInput>,
    queued: Option<mpsc::Receiver<PortInput>>,
    /// Events of the connections that have joined.
    sidebands: Vec<mpsc::Sender<String>>,
    /// The first event for those that join later.
    greeting: Greeting,
    /// Texts for the client.
    outgoing: Outgoing,
    /// Of the client's last offer.
    layout: Layout,
    /// Packets and concealed audio of earlier connections.
    earlier_audio: (JitterStats, f64),
    /// Longest event that the channel carries.
    event_max_bytes: usize,
    /// The client's last hello has no answer.
    may_verify_hello: bool,
    /// When the call ends unless the client is heard of.
    silent_until: Instant,
    /// Why the call ends, once it does.
    end: Option<&'static str>,
}

/// The peer that a call begins with.
pub(super) struct Peer {
    pub(super) rtc: Rtc,
    /// The client's offer.
    pub(super) offer: String,
    pub(super) channel: CallChannel,
}

/// What comes to a call's task from outside.
pub(super) struct Inbox {
    pub(super) packets: mpsc::Receiver<Packet>,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) hang_up: Arc<Notify>,
}

/// The audio track.
struct Audio {
    mid: Mid,
    /// Which of the client's streams is heard.
    source: Option<Ssrc>,
    pt: Pt,
    codec: Codec,
    uplink: Uplink,
    downlink: Downlink,
}

/// An event that wakes the task.
enum Wakeup {
    Packet(Option<Packet>),
    Session(Option<PortOutput>),
    Request(Request),
    HangUp,
    Timer,
}

impl Call {
    pub(super) fn new(
        id: String,
        Peer { rtc, offer, channel: CallChannel { protocol, rules } }: Peer,
        place: Place,
        inbox: Inbox,
        open_session: OpenSession,
    ) -> Self {
        let (commands, queued) = mpsc::channel(QUEUED_MESSAGES_MAX);
        Self {
            id,
            rtc,
            place,
            inbox,
            open_session: Some(open_session),
            session: None,
            rates: None,
            audio: None,
            channel: None,
            protocol,
            rules,
            commands,
            queued: Some(queued),
            sidebands: Vec::new(),
            greeting: Greeting::default(),
            outgoing: Outgoing::default(),
            layout: Layout::of(&offer),
            earlier_audio: Default::default(),
            event_max_bytes: offer::event_max_bytes(&offer),
            may_verify_hello: false,
            silent_until: Instant::now() + SILENCE_MAX,
            end: None,
        }
    }

    /// Runs the call to its end.
    pub(super) async fn run(mut self) {
        let end = match self.run_to_end().await {
            Ok(end) => end,
            Err(error) => {
                debug!(%error, "call failed");
                "failed"
            }
        };
        self.report(end);
        // The client hears of the end if it still listens; nothing waits for its answer.
        let _ = self.rtc.close();
        let _ = self.drain_rtc();
    }

    /// Reports what became of the client's audio.
    fn report(&self, end: &'static str) {
        let (JitterStats { received, lost, late, reordered }, concealed_s) = self.heard_audio();
        let packets = [("received", received), ("lost", lost), ("late", late), ("reordered", reordered)];
        self.place.calls.0.metrics.record_call_audio(packets, concealed_s);
        info!(reason = end, received, lost, late, reordered, concealed_s, "call ended");
    }

    /// Packets of the client's audio so far by their fate, and the time that was made up, s.
    fn heard_audio(&self) -> (JitterStats, f64) {
        let (earlier, earlier_s) = self.earlier_audio;
        let Some(audio) = &self.audio else { return self.earlier_audio };
        (earlier + audio.uplink.stats(), earlier_s + audio.uplink.concealed_s())
    }

    async fn run_to_end(&mut self) -> Result<&'static str, RtcError> {
        for event in 1_u32.. {
            // A client may send packets as fast as it likes, and each may hold many messages.
            if event.is_multiple_of(EVENTS_PER_TURN) {
                tokio::task::yield_now().await;
            }
            let mut due = self.drain_rtc()?;
            if !self.outgoing.is_written() && self.write_texts()? {
                due = self.drain_rtc()?;
            }
            self.pass_on_speech();
            if self.play() {
                continue;
            }
            if let Some(end) = self.end.or((!self.rtc.is_alive()).then_some("closed")) {
                return Ok(end);
            }
            if self.is_session_over() && self.is_all_sent() {
                return Ok("session ended");
            }
            match self.next_wakeup(due).await {
                Wakeup::Packet(Some(packet)) => self.receive(&packet)?,
                Wakeup::Session(Some(output)) => self.take_output(output)?,
                Wakeup::Timer if Instant::now() >= self.silent_until && self.is_session_over() => {
                    return Ok("session ended");
                }
                Wakeup::Timer if Instant::now() >= self.silent_until => return Ok("silence"),
                Wakeup::Timer => self.rtc.handle_input(Input::Timeout(Instant::now().into_std()))?,
                Wakeup::Request(Request::Join(joining)) => self.add_sideband(joining),
                // Without an answer, the client begins another call.
                Wakeup::Request(Request::Renew(_)) if self.is_session_over() => {}
                Wakeup::Request(Request::Renew(Renewal { offer, peer, answer })) => {
                    // A client that has gone asks again.
                    let _ = answer.send(self.renew(&offer, peer));
                }
                Wakeup::HangUp => return Ok("hang-up"),
                Wakeup::Packet(None) => return Ok("shutdown"),
                Wakeup::Session(None) => self.end_session(),
            }
        }
        Ok("too many packets")
    }

    async fn next_wakeup(&mut self, due: Instant) -> Wakeup {
        let audio = self.audio.as_ref();
        let due_audio =
            audio.filter(|_| self.session.is_some()).map(|audio| Instant::from_std(audio.downlink.due()));
        let due_speech = audio.and_then(|audio| audio.uplink.deadline()).map(Instant::from_std);
        let due = [Some(due), due_audio, due_speech, Some(self.silent_until)].into_iter().flatten().min();
        let has_room = self.outgoing.has_room(self.channel.is_some())
            && audio.is_none_or(|audio| audio.downlink.has_room());
        let session = self.session.as_mut().filter(|_| has_room);
        let output = async {
            match session {
                Some(session) => session.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            packet = self.inbox.packets.recv() => Wakeup::Packet(packet),
            output = output => Wakeup::Session(output),
            Some(request) = self.inbox.requests.recv() => Wakeup::Request(request),
            () = self.inbox.hang_up.notified() => Wakeup::HangUp,
            () = sleep_until(due.unwrap_or(self.silent_until)) => Wakeup::Timer,
        }
    }

    /// Gives a packet to str0m, if it is this call's and well-formed.
    fn receive(&mut self, packet: &Packet) -> Result<(), RtcError> {
        // str0m keeps every address that it has answered.
        if !self.place.has_room_for(packet.from) {
            return Ok(());
        }
        let own = self.place.calls.advertised();
        let Ok(received) = Receive::new(Protocol::Udp, packet.from, own, &packet.bytes) else {
            return Ok(());
        };
        let input = Input::Receive(packet.at.into_std(), received);
        if self.rtc.accepts(&input) {
            self.may_verify_hello |= dtls::handshake_kind(&packet.bytes) == Some(dtls::CLIENT_HELLO);
            self.rtc.handle_input(input)?;
            if self.session.is_some() {
                self.silent_until = packet.at + SILENCE_MAX;
            }
        }
        Ok(())
    }

    /// Sends what str0m has to send, and handles its events. Returns its next deadline.
    fn drain_rtc(&mut self) -> Result<Instant, RtcError> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => return Ok(Instant::from_std(at)),
                // The library repeats it by its timer, as other flights. RFC 6347 §4.2.1: a server does not, because anyone may have
                // sent the hello.
                Output::Transmit(packet)
                    if dtls::handshake_kind(&packet.contents) == Some(dtls::HELLO_VERIFY_REQUEST)
                        && !std::mem::take(&mut self.may_verify_hello) => {}
                Output::Transmit(packet) => self.place.send(&packet.contents, packet.destination),
                Output::Event(event) => self.handle_event(event),
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Connected => self.place.set_connected(),
            Event::MediaAdded(added) if added.kind == MediaKind::Audio && self.audio.is_none() => {
                self.audio = self.negotiated_audio(added.mid);
            }
            Event::RtpPacket(packet) => self.hear(packet),
            Event::ChannelOpen(id, _) if self.channel.is_none() => {
                self.channel = Some(id);
                self.begin_session();
            }
            Event::ChannelData(ChannelData { id, binary: false, data }) if self.channel == Some(id) => {
                match String::from_utf8(data) {
                    Ok(text) if self.protocol.is_ping(&text) => {}
                    Ok(text) => match self.rules.refusal(&text) {
                        Some(refusal) => {
                            if self.rules.permits_to_client(&refusal) {
                                self.outgoing.push(refusal);
                            }
                        }
                        None => self.send_to_session(Message::Text(text)),
                    },
                    Err(_) => self.end = Some("text that is not UTF-8"),
                }
            }
            Event::ChannelClose(id) if self.channel == Some(id) => self.end = Some("channel closed"),
            Event::MediaEgressStats(stats) => {
                if let Some(round_trip) = stats.rtt {
                    self.place.calls.0.metrics.record_call_round_trip(round_trip.as_secs_f64());
                }
            }
            Event::MediaIngressStats(stats) => {
                if let Some(audio) = &self.audio {
                    let jitter_s = f64::from(stats.jitter) / f64::from(audio.codec.clock_hz());
                    self.place.calls.0.metrics.record_call_jitter(jitter_s);
                }
            }
            _ => {}
        }
    }

    /// Takes a packet of the audio track; other tracks are not heard. The track may get another source, which numbers anew.
    fn hear(&mut self, packet: RtpPacket) {
        let Some(audio) = &mut self.audio else { return };
        let source = packet.header.ssrc;
        if audio.source != Some(source) {
            let mid = self.rtc.direct_api().stream_rx(&source).map(|stream| stream.mid());
            if mid != Some(audio.mid) {
                return;
            }
            audio.source = Some(source);
            audio.uplink.restart();
        }
        audio.uplink.push(packet.timestamp, *packet.seq_no, packet.into());
    }

    /// The audio track with the codec that the client likes best; `None` if it has none of ours. The rates of an open session
    /// stay.
    fn negotiated_audio(&self, mid: Mid) -> Option<Audio> {
        let known = codec::negotiated(&self.rtc, mid);
        let fits = |codec: &Codec| self.rates.is_none_or(|rates| codec.rates() == rates);
        let (pt, codec) = *known.iter().find(|(_, codec)| fits(codec))?;
        let downlink = Downlink::new(Instant::now().into_std(), codec);
        Some(Audio { mid, source: None, pt, codec, uplink: Uplink::new(pt, codec, known), downlink })
    }

    /// Opens the session, now that the client can hear of it.
    fn begin_session(&mut self) {
        let Some(audio) = &mut self.audio else {
            self.end = Some("no common audio codec");
            return;
        };
        // The session of a client that has restarted goes on.
        let Some((open, queued)) = self.open_session.take().zip(self.queued.take()) else { return };
        self.rates = Some(audio.codec.rates());
        audio.downlink = Downlink::new(Instant::now().into_std(), audio.codec);
        match open(&self.id, audio.codec.rates(), queued) {
            Ok(outputs) => self.session = Some(Session::new(self.commands.clone(), outputs)),
            Err(refusal) => {
                self.outgoing.push(self.protocol.refusal(&refusal));
                self.silent_until = Instant::now() + SEND_REST_MAX;
            }
        }
    }

    fn send_to_session(&mut self, message: Message) {
        let Some(session) = &self.session else { return };
        // A client that floods the channel is cut off.
        if !session.send(message) {
            self.end = Some("too many messages");
        }
    }

    /// Passes on the client's audio that is due.
    fn pass_on_speech(&mut self) {
        let Some(audio) = &mut self.audio else { return };
        let mut samples = Vec::new();
        audio.uplink.take(Instant::now().into_std(), &mut samples);
        if !samples.is_empty() {
            let bytes: Vec<u8> = samples.into_iter().flat_map(i16::to_le_bytes).collect();
            self.send_to_session(Message::Binary(bytes.into()));
        }
    }

    /// Sends the next packet to the client, if it is due.
    fn play(&mut self) -> bool {
        let Some(audio) = self.audio.as_mut().filter(|_| self.session.is_some()) else { return false };
        let now = Instant::now().into_std();
        let Some(packet) = audio.downlink.take(now) else { return false };
        let (mid, pt) = (audio.mid, audio.pt);
        if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(mid, None) {
            let write = RtpWrite::new(pt, packet.number.into(), packet.time, now, packet.payload);
            stream.write_rtp(write.marker(packet.begins));
        }
        true
    }

    /// Takes an output of the session: text for the channel, audio, or an interruption.
    fn take_output(&mut self, output: PortOutput) -> Result<(), RtcError> {
        // While the client has no connection, its audio is lost, as on the network.
        let downlink =
            self.audio.as_mut().filter(|_| self.channel.is_some()).map(|audio| &mut audio.downlink);
        match (output, downlink) {
            (PortOutput::DropTurn, Some(downlink)) => downlink.clear(),
            (PortOutput::Message(Message::Binary(bytes)), Some(downlink)) => downlink.push(&bytes),
            (PortOutput::Message(Message::Text(text)), _) => {
                self.greeting.note(&text);
                self.sidebands.retain(|events| events.try_send(text.clone()).is_ok());
                let permitted = Some(&text).filter(|text| self.rules.permits_to_client(text));
                let text = permitted.and_then(|text| carried(text, self.event_max_bytes, self.protocol));
                text.into_iter().for_each(|text| self.outgoing.push(text));
                self.write_texts()?;
            }
            (PortOutput::Message(Message::Close(..)), _) => self.end_session(),
            _ => {}
        }
        Ok(())
    }

    /// Answers another offer. A client that restarts has a new peer connection; the session goes on.
    fn renew(&mut self, offer: &str, peer: RenewedPeer) -> Result<String, CallRejection> {
        match peer {
            RenewedPeer::Same(read) => self.renew_same(offer, *read),
            RenewedPeer::New(peer) => self.restart(offer, *peer),
        }
    }

    /// Answers another offer of the client's peer connection.
    fn renew_same(&mut self, offer: &str, read: SdpOffer) -> Result<String, CallRejection> {
        let layout = Layout::of(offer);
        if !self.layout.may_become(&layout) {
            let message = "The offer is not of the call's peer connection, and does not restart it";
            return Err(CallRejection::Offer(message.to_owned()));
        }
        let answered = Answerer::answer_again(&mut self.rtc, read);
        // The library may have taken a part of the offer.
        let (answer, name) = answered.inspect_err(|_| self.end = Some("wrong offer"))?;
        self.layout = layout;
        self.place.rename(&name);
        Ok(answer)
    }

    /// Continues with a new peer of a client that restarts.
    fn restart(&mut self, offer: &str, peer: NewPeer) -> Result<String, CallRejection> {
        let NewPeer { rtc, answer, name } = peer;
        let codecs = offer::audio_mids(offer).into_iter().flat_map(|mid| codec::negotiated(&rtc, mid));
        if self.rates.is_some_and(|rates| codecs.into_iter().all(|(_, codec)| codec.rates() != rates)) {
            let message = "The offer has no audio codec with the sample rates of the call";
            return Err(CallRejection::Offer(message.to_owned()));
        }
        let channel = self.channel.and_then(|id| self.rtc.channel(id));
        self.outgoing.restart(channel.map_or(0, |mut channel| channel.buffered_amount()));
        self.rtc = rtc;
        self.event_max_bytes = offer::event_max_bytes(offer);
        self.layout = Layout::of(offer);
        self.earlier_audio = self.heard_audio();
        (self.audio, self.channel) = (None, None);
        self.place.forget_addresses();
        self.place.rename(&name);
        self.silent_until = Instant::now() + SILENCE_MAX;
        info!("call restarted by its client");
        Ok(answer)
    }

    /// Ends the session. The client still gets the events before its end.
    fn end_session(&mut self) {
        if self.session.take().is_none() {
            return;
        }
        self.protocol.farewell().into_iter().for_each(|text| self.outgoing.push(text));
        self.silent_until = Instant::now() + SEND_REST_MAX;
    }

    /// True once there was a session, and it has ended.
    const fn is_session_over(&self) -> bool {
        self.open_session.is_none() && self.session.is_none()
    }

    /// True once the client has all events.
    fn is_all_sent(&mut self) -> bool {
        let channel = self.channel.and_then(|id| self.rtc.channel(id));
        self.outgoing.is_written() && channel.is_none_or(|mut channel| channel.buffered_amount() == 0)
    }

    /// Lets a connection join. It gets the greeting and the events from now on, and its commands reach the session once that is
    /// open.
    fn add_sideband(&mut self, joining: Joining) {
        self.sidebands.retain(|events| !events.is_closed());
        if self.is_session_over() || self.sidebands.len() >= SIDEBANDS_MAX {
            return;
        }
        let (events, heard) = mpsc::channel(QUEUED_MESSAGES_MAX);
        // The channel is empty.
        self.greeting.text().into_iter().for_each(|greeting| _ = events.try_send(greeting));
        if joining.send(Sideband { events: heard, commands: self.commands.clone() }).is_ok() {
            self.sidebands.push(events);
        }
    }

    /// Writes the texts that wait, as far as the channel has room. Returns true if something was written.
    fn write_texts(&mut self) -> Result<bool, RtcError> {
        let Some(mut channel) = self.channel.and_then(|id| self.rtc.channel(id)) else { return Ok(false) };
        self.outgoing.write(&mut channel)
    }
}
