//! Bodies for calls by WebRTC: offers, packets before a call is connected, and audio.

use voxbridge::server::webrtc::fuzzing::{AudioPacket, answer_offer, decode_audio, send_to_call};

/// Longest offer that the server reads.
const OFFER_MAX_BYTES: usize = 32 * 1024;
/// Longest packet that the server reads.
const PACKET_MAX_BYTES: usize = 2048;
/// Longest silence that the server makes of a gap, longest concealment, and longest packet of Opus, ms.
const MADE_UP_MAX_MS: usize = 1000 + 120 + 120;

const OFFER: &str = include_str!("../../calls/aiortc");

/// Answers an offer. The answer offers one address, and its length is at most in proportion to the offer.
pub fn call_offer(data: &[u8]) {
    let offer = String::from_utf8_lossy(&data[..data.len().min(OFFER_MAX_BYTES)]);
    match answer_offer(&offer) {
        Ok(answer) => {
            assert!(answer.starts_with("v=0\r\n") && answer.contains("a=ice-lite"), "{answer}");
            // The name of the client's stream stands in three lines.
            assert!(answer.len() < 8192 + 4 * offer.len(), "{} bytes for {}", answer.len(), offer.len());
            assert!(answer.lines().filter(|line| line.starts_with("a=candidate")).count() <= 8, "{answer}");
        }
        Err(problem) => assert!(!problem.is_empty()),
    }
}

/// Sends packets, each after its length in two bytes, to a call whose client has not connected. It sends no more than it gets.
pub fn call_packets(data: &[u8]) {
    let (mut rest, mut packets) = (data, Vec::new());
    while let Some((length, tail)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)) % PACKET_MAX_BYTES;
        let (packet, after) = tail.split_at(length.min(tail.len()));
        packets.push(packet);
        rest = after;
    }
    let got: usize = packets.iter().map(|packet| packet.len()).sum();
    match send_to_call(OFFER, &packets) {
        Ok(sent) => assert!(sent <= got, "{sent} bytes for {got}"),
        Err(problem) => assert!(!problem.contains("offer"), "{problem}"),
    }
}

/// Plays audio to a call. After the preferred codec, each packet has the steps of its number and of its time, its codec with two
/// flags for long jumps, its length in one byte, and its payload.
pub fn call_audio(data: &[u8]) {
    let Some((preferred, mut rest)) = data.split_first() else { return };
    let (mut number, mut time, mut packets) = (1000_u64, 1_u64 << 32, Vec::new());
    while let Some(([step, ticks, codec, length], tail)) = rest.split_first_chunk() {
        let (payload, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        number = number.saturating_add_signed(step.cast_signed().into());
        time = time.saturating_add_signed(i64::from(ticks.cast_signed()) * 160);
        number += if codec & 0x80 == 0 { 0 } else { 10_000 };
        time += if codec & 0x40 == 0 { 0 } else { 1 << 40 };
        packets.push(AudioPacket { number, time, codec: *codec, payload });
    }
    let (counts, rate_hz) = decode_audio(*preferred, &packets);
    let longest = packets.len() * MADE_UP_MAX_MS * rate_hz as usize / 1000 + 2 * data.len();
    assert!(counts.iter().sum::<usize>() <= longest, "{counts:?}");
}
