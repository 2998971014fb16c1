//! A client of calls, made with the same library as the server.

use std::{net::Ipv4Addr, time::Instant};

use str0m::{
    Candidate, Event, Input, Output, Rtc,
    change::{SdpAnswer, SdpPendingOffer},
    channel::ChannelId,
    format::Codec,
    media::{Direction, MediaKind, Mid},
    net::{Protocol, Receive},
    rtp::RtpWrite,
};
use tokio::{net::UdpSocket, time::sleep_until};
use voxbridge::audio::g722::{G722Decoder, G722Encoder};

use super::*;

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const PACKET: Duration = Duration::from_millis(20);

/// Samples louder than this are sound.
const LOUD: i16 = 300;

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Counts of a client's traffic.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) sent_bytes: usize,
    pub(super) received_bytes: usize,
    /// Of ICE checks and the server's answers, bytes.
    pub(super) shortest_check: usize,
    pub(super) longest_answer: usize,
    /// Packets of DTLS that came.
    pub(super) dtls_packets: usize,
    pub(super) changed_packets: usize,
}

impl Traffic {
    fn count(&mut self, packet: &[u8], is_sent: bool) {
        let (bytes, is_check) = (packet.len(), packet[0] < 4);
        match is_sent {
            true => self.sent_bytes += bytes,
            false => self.received_bytes += bytes,
        }
        match (is_check, is_sent) {
            (true, true) if self.shortest_check == 0 => self.shortest_check = bytes,
            (true, true) => self.shortest_check = self.shortest_check.min(bytes),
            (true, false) => self.longest_answer = self.longest_answer.max(bytes),
            (false, false) if is_dtls(packet) => self.dtls_packets += 1,
            _ => {}
        }
    }
}

fn is_dtls(packet: &[u8]) -> bool {
    (20..64).contains(&packet[0])
}

pub(super) struct CallClient {
    rtc: Rtc,
    socket: UdpSocket,
    pending: Option<SdpPendingOffer>,
    mid: Mid,
    /// A second track, of noise.
    noise: Option<Mid>,
    channel: Option<ChannelId>,
    microphone: Vec<i16>,
    encoder: G722Encoder,
    decoder: G722Decoder,
    /// Number of packets of the microphone; some may be left out.
    sent: u64,
    pub(super) is_lossy: bool,
    /// Sends no audio.
    pub(super) is_muted: bool,
    /// Does not hear the server's half of DTLS.
    pub(super) is_deaf_to_dtls: bool,
    /// Sends changed copies of each packet before it.
    pub(super) changes: Option<fastrand::Rng>,
    pub(super) traffic: Traffic,
    next_at: Instant,
    pub(super) events: Vec<Value>,
    /// Whether each packet that came has sound.
    pub(super) sounds: Vec<bool>,
    /// Number of packets that had come when each event came.
    pub(super) packets_at: Vec<usize>,
}

impl CallClient {
    /// A client with its offer.
    pub(super) async fn new() -> (Self, String) {
        Self::with_tracks(1).await
    }

    /// A client with one or two tracks of audio. The second one is noise.
    pub(super) async fn with_tracks(tracks: usize) -> (Self, String) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let now = now();
        let mut rtc = Rtc::builder()
            .set_crypto_provider(crypto::provider())
            .set_rtp_mode(true)
            .set_sctp_max_buffered_amount(512 * 1024)
            .clear_codecs()
            .enable_g722(true, false)
            .enable_vp8(true)
            .build(now);
        rtc.add_local_candidate(Candidate::host(socket.local_addr().unwrap(), Protocol::Udp).unwrap());
        let mut change = rtc.sdp_api();
        let [mid, noise] = [0, 1].map(|at| {
            (at < tracks).then(|| change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None))
        });
        change.add_channel("oai-events".to_owned());
        let (offer, pending) = change.apply().unwrap();
        let client = Self {
            rtc,
            socket,
            pending: Some(pending),
            mid: mid.unwrap(),
            noise,
            channel: None,
            microphone: Vec::new(),
            encoder: G722Encoder::default(),
            decoder: G722Decoder::default(),
            sent: 0,
            is_lossy: false,
            is_muted: false,
            is_deaf_to_dtls: false,
            changes: None,
            traffic: Traffic::default(),
            next_at: now,
            events: Vec::new(),
            sounds: Vec::new(),
            packets_at: Vec::new(),
        };
        (client, offer.to_sdp_string())
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Takes the server's answer, and begins to connect.
    pub(super) fn take_answer(&mut self, answer: &str) {
        let answer = SdpAnswer::from_sdp_string(answer).unwrap();
        self.rtc.sdp_api().accept_answer(self.pending.take().unwrap(), answer).unwrap();
    }

    /// True once the server has opened the channel.
    pub(super) fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// Speaks from now on, and is silent after it.
    pub(super) fn speak(&mut self, samples: &[i16]) {
        self.microphone.extend(samples);
    }

    pub(super) fn send(&mut self, command: &Value) {
        self.send_text(&command.to_string());
    }

    pub(super) fn send_text(&mut self, text: &str) {
        let mut channel = self.rtc.channel(self.channel.unwrap()).unwrap();
        assert!(channel.write(false, text.as_bytes()).unwrap());
    }

    /// Another offer of the same peer: with a track of video, and new passwords for its addresses.
    pub(super) fn offer_again(&mut self) -> String {
        let mut change = self.rtc.sdp_api();
        change.add_media(MediaKind::Video, Direction::SendRecv, None, None, None);
        change.ice_restart(true);
        let (offer, pending) = change.apply().unwrap();
        self.pending = Some(pending);
        offer.to_sdp_string()
    }

    /// The first event of this kind.
    pub(super) fn event(&self, kind: &str) -> Option<&Value> {
        self.events.iter().find(|event| event["type"] == kind)
    }

    /// Runs until the event comes.
    pub(super) async fn wait_for(&mut self, kind: &str) -> Value {
        self.run_until(kind, |client| client.event(kind).is_some()).await;
        self.event(kind).unwrap().clone()
    }

    /// Runs until the condition holds.
    pub(super) async fn run_until(&mut self, what: &str, is_met: impl Fn(&Self) -> bool) {
        let running = async {
            while !is_met(self) {
                self.step().await;
            }
        };
        if timeout(PATIENCE, running).await.is_err() {
            let kinds: Vec<_> = self.events.iter().map(|event| event["type"].as_str()).collect();
            panic!("{what} does not come; {} packets, {kinds:?}", self.sounds.len());
        }
    }

    /// Runs until the future completes.
    pub(super) async fn step_until<T>(&mut self, future: impl Future<Output = T>) {
        tokio::pin!(future);
        loop {
            tokio::select! {
                _ = &mut future => return,
                () = self.step() => {}
            }
        }
    }

    /// True once the server has ended the call.
    pub(super) fn is_over(&self) -> bool {
        !self.rtc.is_alive()
    }

    async fn step(&mut self) {
        let due = self.drain();
        self.send_audio();
        let due = due.min(self.drain());
        let due = if self.is_muted { due } else { due.min(self.next_at) };
        let mut buffer = [0; 2048];
        tokio::select! {
            received = self.socket.recv_from(&mut buffer) => {
                let (length, from) = received.unwrap();
                self.traffic.count(&buffer[..length], false);
                if self.is_deaf_to_dtls && is_dtls(&buffer) {
                    return;
                }
                let own = self.address();
                if let Ok(packet) = Receive::new(Protocol::Udp, from, own, &buffer[..length]) {
                    self.rtc.handle_input(Input::Receive(now(), packet)).unwrap();
                }
            }
            () = sleep_until(due.into()) => self.rtc.handle_input(Input::Timeout(now())).unwrap(),
        }
    }

    fn drain(&mut self) -> Instant {
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(at) => return at,
                Output::Transmit(packet) => {
                    self.traffic.count(&packet.contents, true);
                    self.send_changed(&packet.contents, packet.destination);
                    self.socket.try_send_to(&packet.contents, packet.destination).unwrap();
                }
                Output::Event(Event::ChannelOpen(id, _)) => self.channel = Some(id),
                Output::Event(Event::ChannelData(data)) => {
                    self.events.push(serde_json::from_slice(&data.data).unwrap());
                    self.packets_at.push(self.sounds.len());
                }
                Output::Event(Event::RtpPacket(packet)) => {
                    let mut samples = Vec::new();
                    self.decoder.decode(&packet.payload, &mut samples);
                    self.sounds.push(samples.iter().any(|sample| sample.saturating_abs() > LOUD));
                }
                Output::Event(_) => {}
            }
        }
    }

    /// Sends copies of a packet in which bytes are replaced or missing.
    fn send_changed(&mut self, packet: &[u8], to: SocketAddr) {
        let Some(rng) = &mut self.changes else { return };
        for _ in 0..3 {
            let mut copy = packet.to_vec();
            copy.truncate(if rng.bool() { copy.len() } else { rng.usize(..copy.len()) });
            for _ in 0..rng.usize(1..6) {
                let at = rng.usize(..=copy.len());
                copy.get_mut(at).into_iter().for_each(|byte| *byte = rng.u8(..));
            }
            self.traffic.changed_packets += 1;
            let _ = self.socket.try_send_to(&copy, to);
        }
    }

    /// Sends a packet of the microphone each 20 ms.
    fn send_audio(&mut self) {
        let now = now();
        if self.is_muted || self.channel.is_none() || now < self.next_at {
            return;
        }
        self.next_at = (self.next_at + PACKET).max(now - 10 * PACKET);
        let mut samples: Vec<_> = self.microphone.drain(..320.min(self.microphone.len())).collect();
        samples.resize(320, 0);
        let mut payload = Vec::new();
        self.encoder.encode(&samples, &mut payload);
        self.sent += 1;
        if self.is_lossy && self.sent.is_multiple_of(10) {
            return;
        }
        let g722 = self.rtc.codec_config().find(|params| params.spec().codec == Codec::G722).unwrap().pt();
        let time = (self.sent * 160) as u32;
        let noise: Vec<_> = payload.iter().map(|_| fastrand::u8(..)).collect();
        let tracks = [(Some(self.mid), self.sent, payload), (self.noise, self.sent + 100, noise)];
        for (mid, number, payload) in tracks {
            let Some(mid) = mid else { continue };
            if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(mid, None) {
                stream.write_rtp(RtpWrite::new(g722, number.into(), time, now, payload));
            }
        }
    }
}
