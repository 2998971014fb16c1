//! Opus packets against libopus, by way of ffmpeg: ours of its packets, and its of ours.

use std::{io::Cursor, process::Command};

use opus_pure::{OggOpusReader, OggOpusWriter, OpusHead};
use voxbridge::audio::opus::{PacketDecoder, PacketEncoder, PacketOptions};

use super::media_files::{has_ffmpeg, recording};
use super::*;

/// Samples of a file, decoded by libopus to 48 kHz.
fn decode_with_libopus(path: &Path) -> Vec<f32> {
    let mut command: Command = ffmpeg();
    command.args(["-c:a", "libopus", "-i"]).arg(path).args(["-ar", "48000", "-ac", "1", "-f", "s16le", "-"]);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let samples = done.stdout.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]]));
    samples.map(|sample| f32::from(sample) / 32_768.0).collect()
}

fn decode_with_ours<'p>(packets: impl IntoIterator<Item = &'p [u8]>) -> Vec<f32> {
    let (mut decoder, mut audio, mut all) = (PacketDecoder::default(), Vec::new(), Vec::new());
    for packet in packets {
        decoder.decode(packet, &mut audio);
        all.extend_from_slice(&audio);
    }
    all
}

/// Signal to noise ratio in dB.
fn snr_db(heard: &[f32], expected: &[f32]) -> f64 {
    let power = |samples: &mut dyn Iterator<Item = f32>| samples.map(|it| f64::from(it).powi(2)).sum::<f64>();
    let noise = power(&mut heard.iter().zip(expected).map(|(a, b)| a - b));
    10.0 * (power(&mut expected.iter().copied()) / noise.max(1e-9)).log10()
}

fn scratch() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("opus");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn opus_packets_of_libopus_decode_as_by_libopus() {
    if !has_ffmpeg() {
        return;
    }
    // The third one switches between the modes for speech and for music.
    for (name, arguments) in [
        ("device.ogg", "-ar 16000 -application voip -frame_duration 60 -b:a 16k -compression_level 0"),
        ("browser.ogg", "-ar 48000 -application voip -frame_duration 20 -b:a 32k -fec 1 -packet_loss 10"),
        ("switching.ogg", "-ar 16000 -application voip -frame_duration 20 -b:a 24k"),
        ("narrow.ogg", "-ar 8000 -application voip -frame_duration 40 -b:a 12k"),
        ("stereo.ogg", "-ar 24000 -ac 2 -application audio -frame_duration 20 -b:a 64k"),
        ("short.ogg", "-ar 48000 -application lowdelay -frame_duration 2.5 -b:a 64k"),
        ("long.ogg", "-ar 16000 -application voip -frame_duration 120 -b:a 24k"),
    ] {
        let path = scratch().join(name);
        let mut command = ffmpeg();
        command.arg("-i").arg(recording("jfk_16k.wav")).args(["-t", "9", "-c:a", "libopus"]);
        let done = command.args(arguments.split(' ')).arg(&path).output().unwrap();
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        let mut reader = OggOpusReader::new(Cursor::new(std::fs::read(&path).unwrap())).unwrap();
        let skipped = usize::from(reader.head().pre_skip);
        let packets: Vec<_> = reader.packets().map(|packet| packet.unwrap().data).collect();
        let ours = decode_with_ours(packets.iter().map(Vec::as_slice));
        let snr = snr_db(&ours[skipped..], &decode_with_libopus(&path));
        assert!(snr > 50.0, "{name}: {snr} dB");
    }
}

#[test]
fn opus_packets_of_ours_decode_as_by_libopus() {
    if !has_ffmpeg() {
        return;
    }
    let file = std::fs::read(recording("jfk_16k.wav")).unwrap();
    let samples = &file[44..44 + 2 * 16_000 * 6];
    for (frame_ms, bit_rate, complexity, least) in
        [(20, 48_000, 0, 12.0), (60, 48_000, 5, 12.0), (40, 24_000, 0, 7.0), (60, 12_000, 5, 4.0)]
    {
        let options = PacketOptions { frame_ms, bit_rate, complexity, ..PacketOptions::default() };
        let mut encoder = PacketEncoder::new(16_000, options).unwrap();
        let frames = samples.chunks(2 * encoder.packet_samples());
        let packets: Vec<Vec<u8>> = frames.map(|frame| encoder.encode(frame).to_vec()).collect();
        let head = OpusHead { pre_skip: 0, ..OpusHead::new(1, 16_000).unwrap() };
        let mut writer = OggOpusWriter::new(Vec::new(), head).unwrap();
        packets.iter().for_each(|packet| writer.write_packet(packet).unwrap());
        let path = scratch().join(format!("ours_{frame_ms}_{bit_rate}.ogg"));
        std::fs::write(&path, writer.finish().unwrap()).unwrap();
        let (theirs, ours) =
            (decode_with_libopus(&path), decode_with_ours(packets.iter().map(Vec::as_slice)));
        let name = format!("{frame_ms} ms, {bit_rate} bit/s, complexity {complexity}");
        assert!(snr_db(&ours, &theirs) > 50.0, "{name}: {} dB", snr_db(&ours, &theirs));
        // Every third sample is one of the source, after the encoder's delay.
        let source: Vec<f32> = samples
            .chunks_exact(2)
            .map(|two| f32::from(i16::from_le_bytes([two[0], two[1]])) / 32_768.0)
            .collect();
        let heard = |delay: usize| theirs[delay..].iter().step_by(3).copied().collect::<Vec<f32>>();
        let best = (0..600).step_by(3).map(|delay| snr_db(&heard(delay), &source)).fold(f64::MIN, f64::max);
        assert!(best > least, "{name}: {best} dB");
    }
}
