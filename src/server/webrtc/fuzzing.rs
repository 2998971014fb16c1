//! The path of strangers' bytes, without sockets: for the fuzz targets (`tests/fuzz`) and the tests that run their seeds.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, LazyLock},
    time::Duration,
};

use str0m::{
    IceCreds, Input, Output, Rtc,
    net::{Protocol, Receive},
};
use tokio::time::Instant;

use super::{
    CallRejection,
    answer::Answerer,
    codec::Codec,
    stun,
    uplink::{Packet, Uplink},
};
use crate::audio::encoding::Encoding;

const OWN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3478);
const CODECS: [Codec; 4] =
    [Codec::Opus, Codec::G722, Codec::G711(Encoding::Mulaw), Codec::G711(Encoding::Alaw)];

static ANSWERER: LazyLock<Result<Answerer, String>> =
    LazyLock::new(|| Answerer::new(OWN).map_err(|error| error.to_string()));

fn answer(offer: &str) -> Result<(Rtc, String), String> {
    let creds = IceCreds { ufrag: "name".to_owned(), pass: "password".repeat(3) };
    let answerer = ANSWERER.as_ref().map_err(Clone::clone)?;
    answerer.answer(offer, creds).map_err(|rejection| match rejection {
        CallRejection::Offer(message) | CallRejection::Internal(message) => message,
        CallRejection::Full(message) => message.to_owned(),
    })
}

/// Answers an offer.
///
/// # Errors
/// The mistake in the offer.
pub fn answer_offer(offer: &str) -> Result<String, String> {
    answer(offer).map(|(_, answer)| answer)
}

/// Gives packets to a call that has answered this offer, one each 20 ms. Returns the number of bytes that it sends.
///
/// # Errors
/// The mistake in the offer, or why the call ended.
pub fn send_to_call(offer: &str, packets: &[&[u8]]) -> Result<usize, String> {
    let (mut rtc, _) = answer(offer)?;
    let (mut at, mut sent) = (Instant::now().into_std(), 0);
    for packet in packets {
        let _ = stun::local_name(packet);
        at += Duration::from_millis(20);
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let received = Receive::new(Protocol::Udp, from, OWN, packet).ok();
        let input = received.map(|received| Input::Receive(at, received));
        let input = input.filter(|input| rtc.accepts(input)).unwrap_or(Input::Timeout(at));
        rtc.handle_input(input).map_err(|error| error.to_string())?;
        loop {
            match rtc.poll_output().map_err(|error| error.to_string())? {
                Output::Timeout(_) => break,
                Output::Transmit(packet) => sent += packet.contents.len(),
                Output::Event(_) => {}
            }
        }
    }
    Ok(sent)
}

/// A packet of audio.
#[derive(Debug)]
pub struct AudioPacket<'p> {
    /// Number in its stream.
    pub number: u64,
    /// RTP timestamp.
    pub time: u64,
    /// Opus, G.722, G.711 µ-law or A-law, from 0.
    pub codec: u8,
    /// The payload of a packet that a client sent.
    pub payload: &'p [u8],
}

/// Plays packets, each after 20 ms, to a call that prefers this codec. Returns the number of samples of each step, and the sample
/// rate.
pub fn decode_audio(preferred: u8, packets: &[AudioPacket<'_>]) -> (Vec<usize>, u32) {
    let types: Vec<_> = CODECS.iter().enumerate().map(|(pt, codec)| ((pt as u8).into(), *codec)).collect();
    let (pt, codec) = types[usize::from(preferred) % CODECS.len()];
    let (mut uplink, mut at) = (Uplink::new(pt, codec, types), Instant::now().into_std());
    let counts = packets.iter().map(|AudioPacket { number, time, codec, payload }| {
        let (pt, payload) = ((codec % 4).into(), Arc::from(*payload));
        uplink.push(at, *number, Packet { pt, time: *time, payload });
        at += Duration::from_millis(20);
        let mut samples = Vec::new();
        uplink.take(at, &mut samples);
        samples.len()
    });
    (counts.collect(), codec.rates().in_hz)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_before_the_first_ones_are_decoded() {
        let packet = |number, time| AudioPacket { number, time, codec: 1, payload: &[0; 160] };
        let packets = [packet(0, 1), packet(u64::MAX, u64::MAX - 5), packet(0, 161)];
        let (counts, _) = decode_audio(1, &packets);
        assert_eq!(counts, [320, 16_000 + 320, 320], "a gap of at most a second is filled");
    }

    #[test]
    fn seeds_reach_ice_and_dtls() {
        let offer = include_str!("../../../tests/calls/aiortc");
        let seed = include_bytes!("../../../tests/calls/hello");
        let (check, hello) = seed[2..].split_at(usize::from(u16::from_be_bytes([seed[0], seed[1]])));
        let answered = send_to_call(offer, &[check]).unwrap();
        assert!((1..=check.len()).contains(&answered), "{answered}");
        let greeted = send_to_call(offer, &[check, &hello[2..]]).unwrap() - answered;
        assert!((1..hello.len()).contains(&greeted), "{greeted}");
    }
}
