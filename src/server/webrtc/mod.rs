//! Calls by WebRTC: OpenAI's Realtime protocol on a data channel, with the audio beside it.
//!
//! All calls share one UDP port. [`Calls`] owns its socket and passes each packet to the task of its [`call`], which runs
//! str0m and stands between the client and an ordinary [`session`]: [`codec`], [`uplink`] with its [`jitter`] buffer, and
//! [`downlink`] are the audio, [`events`] what the channel carries; [`offer`] checks what a stranger sends and [`answer`] answers
//! it, [`stun`] finds the call of a packet, [`crypto`] is the cryptography. [`fuzzing`] leads the fuzz targets to what strangers'
//! bytes pass through.
//!
//! Not here: the HTTP requests that begin and end calls ([`super::accept`]), and what the session does.
//!
//! Strangers get no packet: the socket answers only addresses that have proven the password of a call (ICE), and calls that
//! never connect are bounded and end soon.

mod answer;
mod call;
mod codec;
mod crypto;
mod downlink;
mod events;
pub mod fuzzing;
mod jitter;
mod offer;
mod session;
mod stun;
mod uplink;

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use str0m::IceCreds;
use tokio::{
    io::DuplexStream,
    net::UdpSocket,
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};
use tokio_tungstenite::tungstenite::Message;
use tracing::debug;

use self::{answer::Answerer, call::Call};
use super::{CallRates, WebRtcAddresses, access::address::client_subnet};
use crate::{secret::random_hex, telemetry::metrics::Metrics};

/// Longest UDP packet that is read: Ethernet's.
const PACKET_MAX_BYTES: usize = 2048;
/// Packets that wait for the task of a call: half a second of audio and control.
const QUEUED_PACKETS_MAX: usize = 64;
/// Calls that have not connected yet, of one address and in all.
const UNCONNECTED_PER_ADDRESS_MAX: usize = 8;
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
}

#[derive(Default)]
struct Table {
    /// By the name that a client's ICE messages carry.
    calls: HashMap<Arc<str>, Entry>,
    /// Addresses that have proven themselves, with the name of their call.
    addresses: HashMap<SocketAddr, Arc<str>>,
}

/// A call, as its packets and requests find it.
struct Entry {
    /// The network that began it, until it connects.
    waits_for: Option<IpAddr>,
    /// The id in its URL.
    id: String,
    /// Name of the key that began it.
    key: Option<Arc<str>>,
    packets: mpsc::Sender<Packet>,
    joining: mpsc::Sender<Joining>,
    hang_up: Arc<Notify>,
}

/// A connection besides the client's.
pub(crate) struct Sideband {
    /// The session's events. Ends with the call, or when too many wait.
    pub(crate) events: mpsc::Receiver<Message>,
    /// Commands to the session.
    pub(crate) commands: mpsc::Sender<Message>,
}

/// A connection that asks to join; dropped if it cannot.
type Joining = oneshot::Sender<Sideband>;

/// A packet from the network.
struct Packet {
    at: Instant,
    from: SocketAddr,
    bytes: Bytes,
}

/// Opens the session of a call: the other end of its stream in memory.
pub(crate) type OpenSession = Box<dyn FnOnce(CallRates) -> DuplexStream + Send>;

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
    pub(crate) async fn bind(addresses: WebRtcAddresses, metrics: Metrics) -> io::Result<Self> {
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
        })))
    }

    /// The address that clients send to.
    pub(crate) fn advertised(&self) -> SocketAddr {
        self.0.answerer.advertised
    }

    /// Answers an offer from this address, made with this key. `open_session` is called once the client's channel is open.
    ///
    /// # Errors
    /// The offer is wrong, or too many calls wait for their clients. That is found out first.
    pub(crate) fn accept(
        &self,
        offer: &str,
        (address, key): (IpAddr, Option<Arc<str>>),
        open_session: OpenSession,
    ) -> Result<AcceptedCall, CallRejection> {
        let no_random = || CallRejection::Internal("The system has no random numbers".to_owned());
        let [id, name, pass] = [random_hex::<16>(), random_hex::<8>(), random_hex::<16>()]
            .map(|random| random.ok_or_else(no_random));
        let (id, creds) = (format!("rtc_{}", id?), IceCreds { ufrag: name?, pass: pass? });
        let (sender, packets) = mpsc::channel(QUEUED_PACKETS_MAX);
        let (join, joining) = mpsc::channel(1);
        let hang_up = Arc::new(Notify::new());
        let entry = Entry {
            waits_for: Some(client_subnet(address)),
            id: id.clone(),
            key,
            packets: sender,
            joining: join,
            hang_up: hang_up.clone(),
        };
        let place = self.register(creds.ufrag.as_str().into(), entry)?;
        let (rtc, answer) = self.0.answerer.answer(offer, creds)?;
        let rtc = (rtc, offer::event_max_bytes(offer));
        let call = Call::new(rtc, place, (packets, joining), hang_up, open_session);
        Ok(AcceptedCall { id, answer, task: Box::pin(call.run()) })
    }

    /// Adds a call, unless too many wait for their clients.
    fn register(&self, name: Arc<str>, entry: Entry) -> Result<Place, CallRejection> {
        let mut table = self.table();
        let waiting = || table.calls.values().filter_map(|call| call.waits_for);
        if waiting().count() >= UNCONNECTED_MAX {
            return Err(CallRejection::Full("Too many calls wait for their clients"));
        }
        if waiting().filter(|from| Some(*from) == entry.waits_for).count() >= UNCONNECTED_PER_ADDRESS_MAX {
            return Err(CallRejection::Full("Too many calls of this address wait for their clients"));
        }
        table.calls.insert(name.clone(), entry);
        Ok(Place { calls: self.clone(), name, addresses: Vec::new() })
    }

    /// Ends the call with this id, if this key began it.
    pub(crate) fn hang_up(&self, id: &str, key: Option<&str>) -> bool {
        let table = self.table();
        let found = table.calls.values().find(|call| call.id == id && call.key.as_deref() == key);
        found.inspect(|call| call.hang_up.notify_one()).is_some()
    }

    /// Joins the call with this id, if this key began it and it has begun.
    pub(crate) async fn join(&self, id: &str, key: Option<&str>) -> Option<Sideband> {
        let joining = {
            let table = self.table();
            let found = table.calls.values().find(|call| call.id == id && call.key.as_deref() == key);
            found?.joining.clone()
        };
        let (reply, joined) = oneshot::channel();
        joining.send(reply).await.ok()?;
        joined.await.ok()
    }

    /// Ends the calls that wait for their clients.
    pub(crate) fn end_waiting(&self) {
        self.table().calls.retain(|_, call| call.waits_for.is_none());
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

/// The address without IPv4 in IPv6. Other addresses keep their scope, which answers need.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), address.port()),
        IpAddr::V6(_) => address,
    }
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
            call.waits_for = None;
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
        let mut table = self.calls.table();
        table.calls.remove(&self.name);
        for address in &self.addresses {
            if table.addresses.get(address) == Some(&self.name) {
                table.addresses.remove(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use str0m::Rtc;

    use super::*;
    use crate::telemetry::metrics::scrape::ServerSnapshot;

    async fn calls() -> Calls {
        let localhost = IpAddr::from([127, 0, 0, 1]);
        let addresses =
            WebRtcAddresses { listen: SocketAddr::new(localhost, 0), advertise: (localhost, None) };
        Calls::bind(addresses, Metrics::new(ServerSnapshot::default)).await.unwrap()
    }

    fn offer() -> String {
        let mut rtc = Rtc::builder().set_crypto_provider(crypto::provider()).build(Instant::now().into_std());
        let mut change = rtc.sdp_api();
        change.add_media(str0m::media::MediaKind::Audio, str0m::media::Direction::SendRecv, None, None, None);
        change.add_channel("oai-events".to_owned());
        change.apply().unwrap().0.to_sdp_string()
    }

    fn accept(
        calls: &Calls,
        offer: &str,
        address: [u8; 4],
        held: &Arc<()>,
    ) -> Result<AcceptedCall, CallRejection> {
        let held = held.clone();
        let open = move |_| {
            drop(held);
            tokio::io::duplex(1).0
        };
        calls.accept(offer, (address.into(), None), Box::new(open))
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_never_connects_is_dropped_after_30_s_with_all_it_holds() {
        let (calls, offer, held, start) = (calls().await, offer(), Arc::new(()), Instant::now());
        let accepted = accept(&calls, &offer, [10, 0, 0, 1], &held).unwrap();
        assert_eq!((calls.table().calls.len(), Arc::strong_count(&held)), (1, 2));
        accepted.task.await;
        let after = start.elapsed();
        assert!(after >= Duration::from_secs(30) && after < Duration::from_secs(31), "{after:?}");
        assert_eq!((calls.table().calls.len(), Arc::strong_count(&held)), (0, 1));
    }

    #[tokio::test]
    async fn offer_without_a_known_codec_is_rejected_and_leaves_nothing() {
        let (calls, held) = (calls().await, Arc::new(()));
        let offer = include_str!("../../../tests/fuzz/corpus/call_offer/no_codec_of_ours");
        let rejected = accept(&calls, offer, [10, 0, 0, 1], &held);
        assert!(matches!(rejected, Err(CallRejection::Offer(words)) if words.contains("no audio codec")));
        assert_eq!((calls.table().calls.len(), Arc::strong_count(&held)), (0, 1));
        for offer in [
            include_str!("../../../tests/fuzz/corpus/call_offer/g722_only"),
            include_str!("../../../tests/fuzz/corpus/call_offer/chromium"),
        ] {
            accept(&calls, offer, [10, 0, 0, 1], &held).unwrap();
        }
    }

    #[tokio::test]
    async fn calls_without_a_client_are_bounded_by_address_and_in_all() {
        let (calls, offer, held) = (calls().await, offer(), Arc::new(()));
        let mut accepted = Vec::new();
        for at in 0..UNCONNECTED_MAX {
            accepted.push(accept(&calls, &offer, [10, 0, at as u8 / 8, 1], &held).unwrap());
        }
        let full = accept(&calls, &offer, [10, 1, 0, 1], &held);
        assert!(matches!(full, Err(CallRejection::Full(words)) if !words.contains("address")));
        accepted.truncate(UNCONNECTED_PER_ADDRESS_MAX);
        let full = accept(&calls, &offer, [10, 0, 0, 1], &held);
        assert!(matches!(full, Err(CallRejection::Full(words)) if words.contains("address")));
        assert!(calls.hang_up(&accepted[0].id, None) && !calls.hang_up(&accepted[0].id, Some("ann")));
        accepted.swap_remove(0).task.await;
        accept(&calls, &offer, [10, 0, 0, 1], &held).unwrap();
    }

    #[tokio::test]
    async fn packets_of_strangers_cost_no_state_and_those_of_a_call_are_bounded() {
        let (calls, offer, held) = (calls().await, offer(), Arc::new(()));
        let _accepted = accept(&calls, &offer, [10, 0, 0, 1], &held).unwrap();
        let name = calls.table().calls.keys().next().unwrap().clone();
        let user = format!("{name}:you!");
        let check = [&[0, 1, 0, 24, 0x21, 0x12, 0xa4, 0x42], &[7; 12][..], &[0, 6, 0, 21], user.as_bytes()];
        let mut rng = fastrand::Rng::with_seed(1);
        for at in 0..10_000_u32 {
            let from = SocketAddr::from((at.to_be_bytes(), 9));
            let mut packet = vec![0; rng.usize(..300)];
            packet.iter_mut().for_each(|byte| *byte = rng.u8(..));
            calls.pass_on(&packet, from);
            calls.pass_on(&check.concat(), from);
        }
        let table = calls.table();
        assert_eq!((table.calls.len(), table.addresses.len()), (1, 0));
        assert_eq!(table.calls[&name].packets.capacity(), 0, "{QUEUED_PACKETS_MAX} checks wait, no more");
    }

    fn entry() -> Entry {
        Entry {
            waits_for: None,
            id: "rtc_1".to_owned(),
            key: None,
            packets: mpsc::channel(1).0,
            joining: mpsc::channel(1).0,
            hang_up: Arc::default(),
        }
    }

    #[tokio::test]
    async fn client_gets_back_an_address_that_another_call_claims() {
        let calls = calls().await;
        let [mut own, mut other] = ["own", "other"].map(|name| calls.register(name.into(), entry()).unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let owner = || calls.table().addresses[&address].clone();
        own.send(&ICE_ANSWER, address);
        other.send(&ICE_ANSWER, address);
        assert_eq!(&*owner(), "other");
        own.send(b"audio", address);
        assert_eq!(&*owner(), "other", "only a check proves the address");
        own.send(&ICE_ANSWER, address);
        drop(other);
        assert_eq!(&*owner(), "own");
    }

    #[test]
    fn addresses_keep_their_scope() {
        let local = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 3).into();
        assert_eq!(canonical(local), local);
        assert_eq!(canonical("[::ffff:10.0.0.1]:9".parse().unwrap()), "10.0.0.1:9".parse().unwrap());
    }

    #[tokio::test]
    async fn call_has_a_bounded_number_of_addresses() {
        let calls = calls().await;
        let mut place = calls.register("name".into(), entry()).unwrap();
        let address = |at: usize| SocketAddr::from(([127, 0, 0, 1], at as u16 + 1));
        for at in 0..ADDRESSES_MAX {
            assert!(place.has_room_for(address(at)));
            place.send(b"", address(at));
        }
        assert!(place.has_room_for(address(0)) && !place.has_room_for(address(ADDRESSES_MAX)));
        assert_eq!(calls.table().addresses.len(), ADDRESSES_MAX);
        drop(place);
        assert!(calls.table().addresses.is_empty());
    }
}
