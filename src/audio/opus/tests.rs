use opus_pure::{Application, OpusEncoder};
use proptest::prelude::*;

use super::*;
use crate::pcm;

/// A harmonic sound that swells and fades like syllables.
fn voice(rate_hz: u32, ms: usize) -> Vec<i16> {
    let tone = |at: usize| {
        let t = at as f32 / rate_hz as f32;
        let harmonics = (1..12).map(|n| (t * 140.0 * n as f32 * std::f32::consts::TAU).sin() / n as f32);
        (harmonics.sum::<f32>() * (1.2 + (t * 25.0).sin()) * 4_000.0) as i16
    };
    (0..rate_hz as usize * ms / 1000).map(tone).collect()
}

fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// Packets of libopus's kind for speech over a network, 20 ms each.
fn packets_with_fec(ms: usize) -> Vec<Vec<u8>> {
    let mut encoder = OpusEncoder::new(16_000, 1, Application::Voip).unwrap();
    (encoder.bitrate_bps, encoder.complexity) = (32_000, 0);
    (encoder.use_inband_fec, encoder.packet_loss_perc) = (true, 20);
    let mut packet = [0; 1_500];
    let frames = voice(16_000, ms);
    let frames = frames.chunks_exact(320);
    frames
        .map(|frame| {
            let length = encoder.encode_s16(frame, 320, &mut packet).unwrap();
            packet[..length].to_vec()
        })
        .collect()
}

fn decode_all(packets: &[Vec<u8>]) -> Vec<f32> {
    let (mut decoder, mut packet_audio, mut all) = (PacketDecoder::default(), Vec::new(), Vec::new());
    for packet in packets {
        decoder.decode(packet, &mut packet_audio);
        all.extend_from_slice(&packet_audio);
    }
    all
}

/// Signal to noise ratio in dB.
fn snr_db(heard: &[f32], sent: &[f32]) -> f32 {
    let noise: f32 = heard.iter().zip(sent).map(|(a, b)| (a - b).powi(2)).sum();
    10.0 * (sent.iter().map(|b| b * b).sum::<f32>() / noise.max(1e-9)).log10()
}

#[test]
fn speech_survives_encoding_to_its_last_sample_in_every_format() {
    for (rate_hz, frame_ms) in
        RATES_HZ.into_iter().flat_map(|rate| PacketOptions::FRAMES_MS.map(|ms| (rate, ms)))
    {
        let options = PacketOptions { frame_ms, bit_rate: 64_000, ..PacketOptions::default() };
        let mut encoder = PacketEncoder::new(rate_hz, options).unwrap();
        encoder.note_audio();
        // The last packet has no room for the encoder's delay.
        let mut samples = voice(rate_hz, 600);
        let sent: Vec<f32> = voice(48_000, 600).into_iter().map(pcm::to_f32).collect();
        samples.resize(samples.len() + encoder.take_tail_samples(), 0);
        assert_eq!(encoder.take_tail_samples(), 0, "nothing to push out");
        let packets: Vec<Vec<u8>> = samples
            .chunks(encoder.packet_samples())
            .map(|frame| encoder.encode(&bytes(frame)).to_vec())
            .collect();
        assert_eq!(packets.len(), 600_usize.div_ceil(frame_ms as usize) + 1);
        let heard = decode_all(&packets);
        assert_eq!(heard.len(), packets.len() * 48 * frame_ms as usize);
        // The delay of the encoder and its own rounding of it.
        let delay =
            (100..140).max_by(|a, b| snr_db(&heard[*a..], &sent).total_cmp(&snr_db(&heard[*b..], &sent)));
        let delay = delay.unwrap();
        let (whole, end) =
            (snr_db(&heard[delay..], &sent), snr_db(&heard[delay + 28_000..], &sent[28_000..]));
        let least = if rate_hz == 8_000 { 9.0 } else { 12.0 };
        assert!(whole > least && end > least, "{rate_hz} Hz, {frame_ms} ms: {whole} dB, its end {end} dB");
    }
}

#[test]
fn packet_is_not_longer_than_allowed() {
    let options =
        PacketOptions { bit_rate: 128_000, frame_ms: 60, max_bytes: 300, ..PacketOptions::default() };
    let mut encoder = PacketEncoder::new(48_000, options).unwrap();
    for frame in voice(48_000, 600).chunks(encoder.packet_samples()) {
        assert!(encoder.encode(&bytes(frame)).len() <= 300);
    }
}

#[test]
fn lost_packets_are_recovered_or_concealed() {
    let packets = packets_with_fec(1_000);
    let whole = decode_all(&packets);
    let (mut decoder, mut audio, mut heard) = (PacketDecoder::default(), Vec::new(), Vec::new());
    for (number, packet) in packets.iter().enumerate() {
        match number % 7 {
            6 => decoder.note_lost(960),
            _ => {
                decoder.decode(packet, &mut audio);
                heard.extend_from_slice(&audio);
            }
        }
    }
    assert!(heard.len().abs_diff(whole.len()) <= 960, "only a loss at the end leaves a gap");
    assert!(snr_db(&heard, &whole) > 8.0, "{} dB with in-band FEC", snr_db(&heard, &whole));
    // A gap of three packets: the last one has its copy in the next packet, the others are concealed.
    let (mut decoder, mut audio) = (PacketDecoder::default(), Vec::new());
    packets[..20].iter().for_each(|packet| decoder.decode(packet, &mut audio));
    decoder.note_lost(3 * 960 + 77);
    decoder.decode(&packets[23], &mut audio);
    assert_eq!(audio.len(), 4 * 960, "a gap is filled in steps of 2.5 ms");
    let level = |samples: &[f32]| {
        (samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len() as f32).sqrt()
    };
    for (heard, sent) in audio.chunks(960).zip(whole[20 * 960..].chunks(960)) {
        assert!(level(heard) > 0.3 * level(sent), "{} of {}", level(heard), level(sent));
    }
    decoder.note_lost(usize::MAX);
    decoder.decode(&packets[24], &mut audio);
    assert_eq!(audio.len(), 5_760 + 960, "no more than 120 ms is made up for");
}

#[test]
fn first_packet_and_packet_after_skipped_ones_begin_anew() {
    let packets = packets_with_fec(400);
    let (mut decoder, mut first, mut again) = (PacketDecoder::default(), Vec::new(), Vec::new());
    decoder.note_lost(960);
    decoder.decode(&packets[9], &mut first);
    assert_eq!(first.len(), 960, "nothing came before the gap");
    decoder.decode(&packets[3], &mut again);
    decoder.skip();
    decoder.note_lost(960);
    decoder.decode(&packets[9], &mut again);
    assert_eq!(first, again);
}

#[test]
fn malformed_packets_are_rejected_with_the_reason() {
    let long = [0; 1_276];
    let cases: [(&[u8], &str); 9] = [
        (&[], "no frames"),
        (&[[0].as_slice(), &long].concat(), "does not fit"),
        (&[0x01, 1, 2, 3], "does not fit"),
        (&[0x02, 252], "does not fit"),
        (&[0x02, 9, 1], "does not fit"),
        (&[0x03], "no frames"),
        (&[0x03, 0], "no frames"),
        (&[0x1b, 3, 0, 0, 0], "more than 120 ms"),
        (&[0x03, 0x41, 200, 1], "does not fit"),
    ];
    for (packet, problem) in cases {
        let error = packet_samples(packet).unwrap_err().to_string();
        assert!(
            error.contains(problem) && error.starts_with(&packet.len().to_string()),
            "{packet:?}: {error}"
        );
        let (mut decoder, mut audio) = (PacketDecoder::default(), vec![1.0]);
        decoder.decode(packet, &mut audio);
        assert!(audio.is_empty());
    }
    assert_eq!(packet_samples(&[0x78]), Ok(960), "an empty frame is a pause of the sender");
    assert_eq!(packet_samples(&[0x7b, 0xc2, 1, 2, 9, 9, 9, 0]), Ok(1_920), "two frames and padding");
}

/// A packet in which some bytes are replaced, removed or added.
fn changed_packet() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), 0usize..3, any::<u8>());
    (prop::sample::select(packets_with_fec(300)), prop::collection::vec(change, 0..6)).prop_map(
        |(mut packet, changes)| {
            for (at, kind, byte) in changes {
                let at = at.index(packet.len() + 1);
                match kind {
                    0 => packet.insert(at, byte),
                    1 => packet.truncate(at.max(1)),
                    _ => packet.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
                }
            }
            packet
        },
    )
}

proptest! {
    #![proptest_config(crate::property_config::property_config(64))]

    #[test]
    fn changed_packets_give_bounded_audio_of_the_stated_length(
        packets in prop::collection::vec((changed_packet(), 0usize..9_000), 1..12),
    ) {
        let (mut decoder, mut audio) = (PacketDecoder::default(), Vec::new());
        let mut plain = opus_pure::OpusDecoder::new(48_000, 1).unwrap();
        for (number, (packet, lost)) in packets.into_iter().enumerate() {
            let stated = packet_samples(&packet);
            prop_assert!(stated.unwrap_or(0) <= 5_760);
            if stated.is_ok() {
                let decoded = plain.decode(&packet, 5_760, &mut [0.0; 5_760]);
                prop_assert_eq!(decoded.ok(), stated.ok(), "a checked packet decodes: {:?}", packet);
            }
            let lost = if number > 0 && lost > 6_000 { lost } else { 0 };
            decoder.note_lost(lost);
            decoder.decode(&packet, &mut audio);
            // A rejected packet leaves the gap before it open.
            let most = stated.map_or(0, |samples| samples + 5_760);
            prop_assert!(audio.len() <= most && audio.len() >= stated.unwrap_or(0));
        }
    }
}
