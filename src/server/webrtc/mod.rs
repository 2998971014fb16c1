//! Calls by WebRTC: OpenAI's Realtime protocol or Pipecat's on a data channel, with the audio beside it.
//!
//! All calls share one UDP port. [`Calls`] owns its socket and passes each packet to the task of its [`call`], which runs str0m
//! and stands between the client and an ordinary [`session`]: [`codec`], [`uplink`] with its [`jitter`] buffer, and [`downlink`]
//! are the audio, [`events`] and [`outgoing`] what the channel carries; [`offer`] checks what a stranger sends and [`answer`]
//! answers it, [`stun`] finds the call of a packet, [`crypto`] is the cryptography, [`dtls`] knows its first packets.
//! [`fuzzing`] has the entry points of the fuzz targets.
//!
//! Not here: the HTTP requests that begin and end calls ([`super::rest`]), and what the session does.
//!
//! Strangers get no packet: the socket answers only addresses that have proven the password of a call (ICE), and calls that
//! never connect are bounded and end soon.

mod answer;
mod call;
mod codec;
mod crypto;
mod downlink;
mod dtls;
mod events;
pub mod fuzzing;
mod greeting;
mod jitter;
mod offer;
mod outgoing;
mod session;
mod stun;
#[cfg(test)]
mod tests;
mod uplink;

use std::{
    cmp::Reverse,
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use str0m::{IceCreds, Rtc, change::SdpOffer};
use tokio::{
    net::UdpSocket,
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};
use tracing::debug;

use self::{
    answer::Answerer,
    call::{Call, Inbox, Peer},
};
use super::{
    CallChannel, CallRates, WebRtcAddresses,
    access::quota::CallerName,
    client_port::{PortInput, PortOutput},
    codec_threads::CodecThreads,
    registry::{Waiting, WaitingEntry},
};
use crate::{secret::random_hex, telemetry::metrics::Metrics};

/// Longest UDP packet that is read: Ethernet's.
const PACKET_MAX_BYTES: usize = 2048;
/// Packets that wait for the task of a call: half a second of audio and control.
const QUEUED_PACKETS_MAX: usize = 64;
/// Calls that have not connected yet, of one key or address and in all. Beyond, the oldest of the one with the most makes room.
const UNCONNECTED_PER_CLIENT_MAX: usize = 8;
const UNCONNECTED_MAX: usize = 100;
/// First bytes of the answer to an ICE check that has the right password (RFC 8489 §5).
const ICE_ANSWER: [u8; 2] = [1, 1];
/// Addresses of one client: its networks, and those it moves to.
const ADDRESSES_MAX: usize = 16;

/// All calls of a server. Clones share them.
#[derive(Clone)]
pub(crate) struct Calls(Arc<Shared>);

struct Shared {
    socket: UdpSocket,
    /// The socket takes IPv4 as IPv6.
    is_ipv6: bool,
    answerer: Answerer,
    table: Mutex<Table>,
    metrics: Metrics,
    waiting: Waiting,
}

#[derive(Default)]
struct Table {
    next_number: u64,
    /// By the name that a client's ICE messages carry.
    calls: HashMap<Arc<str>, Entry>,
    /// Addresses that have proven themselves, with the name of their call.
    addresses: HashMap<SocketAddr, Arc<str>>,
}

/// A call, as its packets and requests find it.
struct Entry {
    /// Until it connects.
    waits: Option<WaitingCall>,
    /// The id in its URL.
    id: String,
    /// Name of the key that began it.
    key: Option<Arc<str>>,
    packets: mpsc::Sender<Packet>,
    requests: mpsc::Sender<Request>,
    hang_up: Arc<Notify>,
}

/// A call whose client has not connected.
struct WaitingCall {
    /// The client that began it.
    from: CallerName,
    /// Older calls have smaller numbers.
    number: u64,
    _entry: WaitingEntry,
}

/// A request to a call in progress.
enum Request {
    /// A connection asks to join.
    Join(Joining),
    /// The client has another offer.
    Renew(Renewal),
}

/// A connection besides the client's.
pub(crate) struct Sideband {
    /// The session's events. Ends with the call, or when too many wait.
    pub(crate) events: mpsc::Receiver<String>,
    /// Commands to the session.
    pub(crate) commands: mpsc::Sender<PortInput>,
}

/// A connection that asks to join; dropped if it cannot.
type Joining = oneshot::Sender<Sideband>;

/// Another offer of a call's client.
struct Renewal {
    offer: String,
    peer: RenewedPeer,
    answer: oneshot::Sender<Result<String, CallRejection>>,
}

/// The peer of another offer.
enum RenewedPeer {
    /// The call's own, which gets this offer.
    Same(Box<SdpOffer>),
    /// A new one, because the client has a new peer connection.
    New(Box<NewPeer>),
}

/// A new peer of a call.
struct NewPeer {
    rtc: Rtc,
    answer: String,
    /// The name that the client's ICE messages carry.
    name: String,
}

/// A packet from the network.
struct Packet {
    at: Instant,
    from: SocketAddr,
    bytes: Bytes,
}

/// An offer to begin a call.
pub(crate) struct CallOffer {
    pub(crate) sdp: String,
    /// The client's address, and the name of its key.
    pub(crate) address: IpAddr,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) channel: CallChannel,
}

/// Opens the session of a call with this id, which takes these inputs: its outputs, or why there is none.
pub(crate) type OpenSession = Box<
    dyn FnOnce(&str, CallRates, mpsc::Receiver<PortInput>) -> Result<mpsc::Receiver<PortOutput>, String>
        + Send,
>;

/// A call that was accepted. Its task must be spawned.
pub(crate) struct AcceptedCall {
    pub(crate) id: String,
    /// The answer (SDP).
    pub(crate) answer: String,
    /// The task of the call.
    pub(crate) task: BoxFuture<'static, ()>,
}

/// Why a call was not accepted.
#[derive(Debug)]
pub(crate) enum CallRejection {
    /// Too many calls wait for their clients.
    Full(&'static str),
    /// The offer is wrong.
    Offer(String),
    /// The server has no random numbers or no certificate.
    Internal(String),
}

impl Calls {
    /// Binds the socket.
    ///
    /// # Errors
    /// Fails with the system's error.
    pub(crate) async fn bind(
        addresses: WebRtcAddresses,
        metrics: Metrics,
        waiting: Waiting,
    ) -> io::Result<Self> {
        let socket = UdpSocket::bind(addresses.listen).await?;
        let own = socket.local_addr()?;
        let (ip, advertised_port) = addresses.advertise;
        Ok(Self(Arc::new(Shared {
            socket,
            is_ipv6: own.is_ipv6(),
            answerer: Answerer::new(SocketAddr::new(ip, advertised_port.unwrap_or(own.port())))
                .map_err(io::Error::other)?,
            table: Mutex::default(),
            metrics,
            waiting,
        })))
    }

    /// The address that clients send to.
    pub(crate) fn advertised(&self) -> SocketAddr {
        self.0.answerer.advertised
    }

    /// Answers an offer on one of the threads. `open_session` is called once the client's channel
    /// is open.
    ///
    /// # Errors
    /// The offer is wrong, or too many calls wait for their clients. That is found out first.
    pub(crate) async fn accept(
        &self,
        offer: CallOffer,
        threads: &CodecThreads,
        open_session: OpenSession,
    ) -> Result<AcceptedCall, CallRejection> {
        let CallOffer { sdp, address, key, channel } = offer;
        let id = format!("rtc_{}", random::<16>()?);
        let creds = new_credentials()?;
        let (sender, packets) = mpsc::channel(QUEUED_PACKETS_MAX);
        let (send_request, requests) = mpsc::channel(1);
        let hang_up = Arc::new(Notify::new());
        let from = CallerName::new(key.as_ref(), address);
        let entry = Entry {
            waits: None,
            id: id.clone(),
            key,
            packets: sender,
            requests: send_request,
            hang_up: hang_up.clone(),
        };
        let place = self.register(creds.ufrag.as_str().into(), from, entry)?;
        // Making a peer takes milliseconds.
        let (calls, read) = (self.clone(), sdp.clone());
        let answered = threads.run(move || calls.0.answerer.answer(&read, creds)).await;
        let failed = || CallRejection::Internal("The offer cannot be answered".to_owned());
        let (rtc, answer) = answered.ok_or_else(failed)??;
        let peer = Peer { rtc, offer: sdp, channel };
        let inbox = Inbox { packets, requests, hang_up };
        let call = Call::new(id.clone(), peer, place, inbox, open_session);
        Ok(AcceptedCall { id, answer, task: Box::pin(call.run()) })
    }

    /// Adds a call, unless too many of its key or network wait for their clients. If too many calls wait in all, the oldest of
    /// the one with the most ends.
    fn register(&self, name: Arc<str>, from: CallerName, mut entry: Entry) -> Result<Place, CallRejection> {
        let mut table = self.table();
        let waiting = || table.calls.values().filter_map(|call| call.waits.as_ref());
        if waiting().filter(|call| call.from == from).count() >= UNCONNECTED_PER_CLIENT_MAX {
            return Err(CallRejection::Full(match from {
                CallerName::Address(_) => "Too many calls of this address wait for their clients",
                CallerName::Key(_) => "Too many calls of this key wait for their clients",
            }));
        }
        if waiting().count() >= UNCONNECTED_MAX {
            table.end_one_waiting();
        }
        let (number, of_call) = (table.next_number, self.0.waiting.add_call());
        table.next_number += 1;
        entry.waits = Some(WaitingCall { from, number, _entry: of_call });
        table.calls.insert(name.clone(), entry);
        drop(table);
        Ok(Place { calls: self.clone(), name, addresses: Vec::new() })
    }

    /// Ends the call with this id, if this key began it.
    pub(crate) fn hang_up(&self, id: &str, key: Option<&str>) -> bool {
        self.find(id, key, |call| call.hang_up.notify_one()).is_some()
    }

    /// True if there is a call with this id, and this key began it.
    pub(crate) fn has(&self, id: &str, key: Option<&str>) -> bool {
        self.find(id, key, |_| ()).is_some()
    }

    /// Answers another offer for the call with this id, if this key began it; reads it on one of the threads. `restarts` is for a
    /// client with a new peer connection, as after a change of its network: the session goes on. `None` without such a call.
    pub(crate) async fn renew(
        &self,
        id: &str,
        key: Option<&str>,
        offer: String,
        threads: &CodecThreads,
        restarts: bool,
    ) -> Option<Result<String, CallRejection>> {
        let requests = self.find(id, key, |call| call.requests.clone())?;
        let (calls, read) = (self.clone(), offer.clone());
        let peer = threads.run(move || calls.renewed_peer(&read, restarts)).await?;
        let peer = match peer {
            Ok(peer) => peer,
            Err(rejection) => return Some(Err(rejection)),
        };
        let (answer, answered) = oneshot::channel();
        requests.send(Request::Renew(Renewal { offer, peer, answer })).await.ok()?;
        answered.await.ok()
    }

    /// Reads another offer. Making a peer takes milliseconds.
    fn renewed_peer(&self, offer: &str, restarts: bool) -> Result<RenewedPeer, CallRejection> {
        if !restarts {
            return Ok(RenewedPeer::Same(Box::new(answer::parse(offer)?.0)));
        }
        let creds = new_credentials()?;
        let name = creds.ufrag.clone();
        let (rtc, answer) = self.0.answerer.answer(offer, creds)?;
        Ok(RenewedPeer::New(Box::new(NewPeer { rtc, answer, name })))
    }

    /// Joins the call with this id, if this key began it. Its client may still have to connect.
    pub(crate) async fn join(&self, id: &str, key: Option<&str>) -> Option<Sideband> {
        let requests = self.find(id, key, |call| call.requests.clone())?;
        let (reply, joined) = oneshot::channel();
        requests.send(Request::Join(reply)).await.ok()?;
        joined.await.ok()
    }

    /// Reads the entry of the call with this id, if this key began it.
    fn find<T>(&self, id: &str, key: Option<&str>, read: impl FnOnce(&Entry) -> T) -> Option<T> {
        let table = self.table();
        let found = table.calls.values().find(|call| call.id == id && call.key.as_deref() == key);
        found.map(read)
    }

    /// Ends the calls that wait for their clients.
    pub(crate) fn end_waiting(&self) {
        self.table().calls.retain(|_, call| call.waits.is_none());
    }

    /// Passes packets to their calls, until the future is dropped.
    pub(crate) async fn run(self) {
        let mut buffer = [0; PACKET_MAX_BYTES];
        loop {
            match self.0.socket.recv_from(&mut buffer).await {
                Ok((length, from)) => self.pass_on(&buffer[..length], canonical(from)),
                // An earlier packet could not be delivered; the socket works.
                Err(error) => debug!(%error, "UDP socket of calls"),
            }
        }
    }

    /// Passes a packet to its call. A packet that belongs to none is dropped without an answer.
    fn pass_on(&self, packet: &[u8], from: SocketAddr) {
        let table = self.table();
        let name = stun::local_name(packet).or_else(|| table.addresses.get(&from).map(|name| &**name));
        let Some(call) = name.and_then(|name| table.calls.get(name)) else { return };
        let packet = Packet { at: Instant::now(), from, bytes: Bytes::copy_from_slice(packet) };
        // A call that is behind loses packets, as on the network.
        let _ = call.packets.try_send(packet);
    }

    /// Sends a packet, or loses it if the network is behind.
    fn send(&self, packet: &[u8], to: SocketAddr) {
        let to = match to {
            SocketAddr::V4(v4) if self.0.is_ipv6 => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            other => other,
        };
        let sent = self.0.socket.try_send_to(packet, to);
        if let Err(error) = sent {
            debug!(%to, %error, "packet of a call not sent");
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic cannot leave the table inconsistent.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Ends the oldest waiting call of the key or network that has the most.
    fn end_one_waiting(&mut self) {
        let waiting = || self.calls.iter().filter_map(|(name, call)| Some((name, call.waits.as_ref()?)));
        let mut counts = HashMap::<&CallerName, usize>::new();
        waiting().for_each(|(_, call)| *counts.entry(&call.from).or_default() += 1);
        let chosen = waiting().max_by_key(|(_, call)| (counts.get(&call.from), Reverse(call.number)));
        if let Some(name) = chosen.map(|(name, _)| name.clone()) {
            // The call's task ends when it finds its packet channel closed.
            self.calls.remove(&name);
        }
    }
}

/// The address without IPv4 in IPv6. Other addresses keep their scope, which answers need.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Random hexadecimal digits for this many bytes.
fn random<const BYTES: usize>() -> Result<String, CallRejection> {
    random_hex::<BYTES>()
        .ok_or_else(|| CallRejection::Internal("The system has no random numbers".to_owned()))
}

/// A new name and password for a client's ICE messages.
fn new_credentials() -> Result<IceCreds, CallRejection> {
    Ok(IceCreds { ufrag: random::<8>()?, pass: random::<16>()? })
}

/// A call's place in the table. Dropping it removes the call.
struct Place {
    calls: Calls,
    name: Arc<str>,
    /// Addresses that lead to the call.
    addresses: Vec<SocketAddr>,
}

impl Place {
    /// Notes that the client has connected.
    fn set_connected(&self) {
        if let Some(call) = self.calls.table().calls.get_mut(&self.name) {
            call.waits = None;
        }
    }

    /// Has the packets with another name, and those of the addresses so far, lead to the call.
    fn rename(&mut self, name: &str) {
        let mut table = self.calls.table();
        let name: Arc<str> = name.into();
        let entry = table.calls.remove(&self.name);
        table.calls.extend(entry.map(|entry| (name.clone(), entry)));
        for address in &self.addresses {
            let of_address = table.addresses.get_mut(address).filter(|owner| **owner == self.name);
            of_address.into_iter().for_each(|owner| owner.clone_from(&name));
        }
        self.name = name;
    }

    /// Forgets the client's addresses, because it has a new peer connection.
    fn forget_addresses(&mut self) {
        let mut table = self.calls.table();
        for address in self.addresses.drain(..) {
            if table.addresses.get(&address) == Some(&self.name) {
                table.addresses.remove(&address);
            }
        }
    }

    /// True for an address of the client, and for a new one while it may have more.
    fn has_room_for(&self, address: SocketAddr) -> bool {
        self.addresses.len() < ADDRESSES_MAX || self.addresses.contains(&address)
    }

    /// Sends a packet to an address that has proven itself, and takes packets from it from now on.
    fn send(&mut self, packet: &[u8], to: SocketAddr) {
        let is_new = !self.addresses.contains(&to);
        if is_new {
            self.addresses.push(to);
        }
        // Another call may have claimed the address; the client has just proven it again.
        if is_new || packet.starts_with(&ICE_ANSWER) {
            self.calls.table().addresses.insert(to, self.name.clone());
        }
        self.calls.send(packet, to);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.forget_addresses();
        self.calls.table().calls.remove(&self.name);
    }
}
