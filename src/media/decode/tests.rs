use super::*;
use crate::audio::encoding::Encoding;
use crate::audio::opus::PacketDecoder;
use crate::audio::wav;
use proptest::prelude::*;
use std::io::Cursor;

/// Golden files, made by tests/media/make from the same 1.2 s of speech: with the latest start and the lowest
/// correlation with the recording that their codec and bit rate explain.
const GOLDEN: [(&str, &[u8], usize, f64); 16] = [
    golden("speech.wav", include_bytes!("../../../tests/media/speech.wav"), 0, 0.9999),
    golden("cbr_id3.mp3", include_bytes!("../../../tests/media/cbr_id3.mp3"), 1, 0.99),
    golden("vbr_stereo.mp3", include_bytes!("../../../tests/media/vbr_stereo.mp3"), 1, 0.99),
    golden("moov_at_end.m4a", include_bytes!("../../../tests/media/moov_at_end.m4a"), 0, 0.99),
    golden("moov_at_start.mp4", include_bytes!("../../../tests/media/moov_at_start.mp4"), 1, 0.97),
    golden("fragmented.mp4", include_bytes!("../../../tests/media/fragmented.mp4"), 342, 0.95),
    golden("video.mp4", include_bytes!("../../../tests/media/video.mp4"), 0, 0.99),
    golden("raw.aac", include_bytes!("../../../tests/media/raw.aac"), 1024, 0.99),
    golden("silk.opus", include_bytes!("../../../tests/media/silk.opus"), 1, 0.83),
    golden("hybrid.ogg", include_bytes!("../../../tests/media/hybrid.ogg"), 1, 0.85),
    golden("celt_stereo.ogg", include_bytes!("../../../tests/media/celt_stereo.ogg"), 1, 0.98),
    golden("vorbis.ogg", include_bytes!("../../../tests/media/vorbis.ogg"), 1, 0.99),
    golden("recorder.webm", include_bytes!("../../../tests/media/recorder.webm"), 1, 0.98),
    golden("vorbis.webm", include_bytes!("../../../tests/media/vorbis.webm"), 1, 0.99),
    golden("video.webm", include_bytes!("../../../tests/media/video.webm"), 1, 0.98),
    golden("speech.flac", include_bytes!("../../../tests/media/speech.flac"), 0, 0.9999),
];

const fn golden(
    name: &'static str,
    file: &'static [u8],
    delay_max: usize,
    correlation_min: f64,
) -> (&'static str, &'static [u8], usize, f64) {
    (name, file, delay_max, correlation_min)
}

fn limits(decoded_max: Duration) -> DecodeLimits {
    DecodeLimits { decoded_max, ..DecodeLimits::default() }
}

fn decode_up_to(file: &[u8], limits: DecodeLimits) -> (Vec<i16>, Option<MediaError>) {
    let mut samples = Vec::new();
    let mut decoder = match Decoder::open(Bytes::copy_from_slice(file), limits) {
        Ok(decoder) => decoder,
        Err(error) => return (samples, Some(error)),
    };
    let mut error = None;
    while let Some(chunk) = decoder.next_chunk() {
        assert!(error.is_none(), "the error comes last");
        match chunk {
            Ok(chunk) => {
                assert!(chunk.len() <= CHUNK_SAMPLES);
                samples.extend(chunk);
            }
            Err(found) => error = Some(found),
        }
    }
    assert!(decoder.next_chunk().is_none());
    (samples, error)
}

fn decode(file: &[u8]) -> (Vec<i16>, Option<MediaError>) {
    decode_up_to(file, DecodeLimits::default())
}

fn tone(samples: usize) -> Vec<i16> {
    (0..samples).map(|at| ((at as f32 * 0.2).sin() * 9000.0) as i16).collect()
}

/// Highest correlation of two recordings, and by how much the second is late there.
fn correlation(a: &[i16], b: &[i16]) -> (f64, usize) {
    let at = |delay: usize| {
        let pairs = a.iter().zip(b.get(delay..).unwrap_or_default());
        let sums = pairs
            .map(|(a, b)| (f64::from(*a), f64::from(*b)))
            .fold((0.0, 1.0, 1.0), |(ab, aa, bb), (a, b)| (ab + a * b, aa + a * a, bb + b * b));
        sums.0 / (sums.1 * sums.2).sqrt()
    };
    (0..1100).map(|delay| (at(delay), delay)).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
}

#[test]
fn every_golden_file_decodes_to_the_recording() {
    let recording = decode(GOLDEN[0].1).0;
    assert_eq!(recording.len(), 19_200);
    for (name, file, delay_max, correlation_min) in GOLDEN {
        let (samples, error) = decode(file);
        assert_eq!(error, None, "{name}");
        let (correlation, delay) = correlation(&recording, &samples);
        assert!(correlation >= correlation_min, "{name}: {correlation}");
        assert!(delay <= delay_max, "{name}: late by {delay} samples");
        // Padding to the end of a packet, where the file does not state its length.
        let extra = samples.len() as i64 - recording.len() as i64 - delay as i64;
        assert!((-2..=700).contains(&extra), "{name}: {extra} samples more");
    }
}

#[test]
fn info_states_container_codec_rate_channels_and_length() {
    let info = |at: usize| {
        let (name, file, ..) = GOLDEN[at];
        let decoder = Decoder::open(Bytes::from_static(file), DecodeLimits::default()).unwrap();
        let info = decoder.info().clone();
        (
            name,
            info.container.name(),
            info.codec,
            info.sample_rate_hz,
            info.channels,
            info.duration.map(|d| d.as_secs_f64()),
        )
    };
    assert_eq!(info(0), ("speech.wav", "wav", "pcm_s16le", 16_000, 1, Some(1.2)));
    assert_eq!(info(2), ("vbr_stereo.mp3", "mp3", "mp3", 44_100, 2, Some(1.2)));
    assert_eq!(info(12), ("recorder.webm", "webm", "opus", 16_000, 1, None));
    assert_eq!(info(15), ("speech.flac", "flac", "flac", 16_000, 1, Some(1.2)));
}

#[test]
fn cut_off_files_return_the_audio_before_the_cut_and_an_error_where_they_state_a_length() {
    for (name, file, ..) in GOLDEN {
        let (whole, _) = decode(file);
        let (samples, error) = decode(&file[..file.len() * 3 / 4]);
        // An index at the end is lost with the end, and so is an Ogg page.
        let lost =
            name.ends_with("a") || name == "video.mp4" || name.ends_with("ogg") || name.ends_with("opus");
        assert!(lost || samples.len() > whole.len() / 2, "{name}: {} samples", samples.len());
        let states_length =
            name == "speech.wav" || name == "speech.flac" || name.ends_with("4") || name.ends_with("4a");
        assert!(error.is_some() || !states_length, "{name}");
    }
}

/// The decoder is wrong for the first 0.2 s after a change of mode at rates below 48 kHz.
#[test]
fn opus_that_changes_its_mode_sounds_as_its_packets_do() {
    use opus_pure::{Application, OggOpusWriter, OpusEncoder, OpusHead};
    let speech = decode(GOLDEN[0].1).0;
    let mut modes =
        [(Application::Voip, 12_000), (Application::RestrictedLowDelay, 64_000)].map(|(mode, bit_rate)| {
            let mut encoder = OpusEncoder::new(16_000, 1, mode).unwrap();
            encoder.bitrate_bps = bit_rate;
            encoder
        });
    let head = OpusHead { pre_skip: 0, ..OpusHead::for_encoder(&modes[0], 16_000) };
    let mut file = OggOpusWriter::new(Vec::new(), head).unwrap();
    let (mut decoder, mut audio, mut expected) = (PacketDecoder::default(), Vec::new(), Vec::new());
    for (at, frame) in speech.chunks_exact(320).enumerate() {
        let mut packet = [0; 1000];
        let length = modes[at / 15 % 2].encode_s16(frame, 320, &mut packet).unwrap();
        file.write_packet(&packet[..length]).unwrap();
        decoder.decode(&packet[..length], &mut audio);
        expected.extend_from_slice(&audio);
    }
    let expected = wav::resample_all(&expected, 48_000, 16_000).unwrap();
    let (samples, error) = decode(&file.finish().unwrap());
    assert!(
        error.is_none() && samples.len().abs_diff(expected.len()) < 2,
        "{error:?}, {} samples",
        samples.len()
    );
    let (mut power, mut noise) = (0.0, 1e-9);
    for (heard, expected) in samples.iter().zip(expected) {
        power += expected * expected;
        noise += (f32::from(*heard) / 32_768.0 - expected).powi(2);
    }
    assert!(power / noise > 1e4, "{} dB", 10.0 * (power / noise).log10());
}

/// A stream that was cut out of a longer one begins with up to 1.4 s that are decoded and dropped (RFC 7845 §4.3).
#[test]
fn dropped_start_of_an_opus_stream_leaves_no_silence() {
    use opus_pure::{Application, OggOpusWriter, OpusEncoder, OpusHead};
    let tone: Vec<i16> = (0..48_000).map(|at| ((at as f32 * 0.2).sin() * 9000.0) as i16).collect();
    for pre_skip in [0, 312, 1920, 3840, 65_535] {
        let mut encoder = OpusEncoder::new(16_000, 1, Application::Audio).unwrap();
        let head = OpusHead { pre_skip, ..OpusHead::for_encoder(&encoder, 16_000) };
        let mut file = OggOpusWriter::new(Vec::new(), head).unwrap();
        for frame in tone.chunks_exact(320) {
            let mut packet = [0; 1000];
            let length = encoder.encode_s16(frame, 320, &mut packet).unwrap();
            file.write_packet(&packet[..length]).unwrap();
        }
        let (samples, error) = decode(&file.finish().unwrap());
        let expected = tone.len() - usize::from(pre_skip) / 3;
        let start = &samples[160..320];
        assert!(
            error.is_none() && samples.len().abs_diff(expected) < 3,
            "{pre_skip}: {} samples",
            samples.len()
        );
        assert!(pre_skip == 0 || start.iter().any(|sample| sample.abs() > 4000), "{pre_skip}: silent start");
    }
}

#[test]
fn unknown_empty_and_mislabelled_files_are_named() {
    let open = |file: &[u8]| decode(file).1.unwrap().to_string();
    assert_eq!(open(b""), "the audio file is empty");
    let accepted = "(accepted: wav, mp3, m4a or mp4 (AAC-LC or ALAC), webm or ogg (Opus or Vorbis), flac, aiff, caf; convert \
                    other files, for example with `ffmpeg -i FILE speech.wav`)";
    assert_eq!(open(b"%PDF-1.7 ..."), format!("the file is not audio in a known format {accepted}"));
    assert_eq!(
        open(b"wvpk\x10\0\0\0\x10\x04"),
        format!("the file has the format WavPack, which is not supported {accepted}")
    );
    assert!(open(b"OggS").contains("the ogg file is damaged"), "{}", open(b"OggS"));
}

#[test]
fn damage_in_the_middle_is_reported_after_the_remaining_audio() {
    let (name, file, ..) = GOLDEN[7];
    let mut damaged = file.to_vec();
    damaged[2500..2900].fill(0xff);
    let (samples, error) = decode(&damaged);
    assert!((14_000..19_200).contains(&samples.len()), "{name}: {} samples", samples.len());
    assert!(
        matches!(error, Some(MediaError::Broken { at, .. }) if at > Duration::from_millis(300)),
        "{error:?}"
    );
}

#[test]
fn audio_beyond_the_limits_is_refused() {
    let (samples, error) = decode_up_to(GOLDEN[1].1, limits(Duration::from_millis(700)));
    assert_eq!(samples.len(), 11_200);
    assert_eq!(error.unwrap().to_string(), "the audio is longer than the limit of 0.7 s");
    let exact = limits(Duration::from_millis(1200));
    assert_eq!(decode_up_to(GOLDEN[1].1, exact).1, None);
    let mono = DecodeLimits { channels_max: 1, ..DecodeLimits::default() };
    assert_eq!(decode_up_to(GOLDEN[2].1, mono).1, Some(MediaError::TooManyChannels { actual: 2, max: 1 }));
    let slow = DecodeLimits { rate_hz_max: 24_000, ..DecodeLimits::default() };
    let error = decode_up_to(GOLDEN[2].1, slow).1.unwrap();
    assert_eq!(error.to_string(), "the audio's sample rate is 44100 Hz (accepted: 8000 to 24000 Hz)");
}

#[test]
fn panic_in_a_decoder_becomes_an_error() {
    let (_, error) = decode(include_bytes!("../../../tests/media/decoder_panic.webm"));
    assert!(matches!(error, Some(MediaError::Broken { .. })), "{error:?}");
}

#[test]
fn index_with_endless_empty_packets_ends() {
    // The first run of samples has no table, and as many samples as the field holds.
    let (_, file, ..) = GOLDEN[5];
    let mut endless = file.to_vec();
    let run = endless.windows(4).position(|kind| kind == b"trun").unwrap();
    endless[run + 4..run + 12].copy_from_slice(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
    let error = decode(&endless).1.unwrap().to_string();
    assert!(error.contains("the mp4 file is damaged"), "{error}");
    // Fewer, but all without bytes.
    endless[run + 8..run + 12].copy_from_slice(&5000u32.to_be_bytes());
    let error = decode(&endless).1.unwrap().to_string();
    assert!(error.contains("the mp4 file is damaged"), "{error}");
}

/// WAV file with any sample format, 8 channels at most.
fn wav_file(tag: u16, bits: u16, channels: u16, rate_hz: u32, data: &[u8]) -> Vec<u8> {
    let group = channels * bits / 8;
    let mut file = wav::write_s16(&[], rate_hz);
    // The format chunk of all but PCM ends with the length of an extension.
    file.splice(36..36, [0, 0]);
    file[16] = 18;
    file[20..22].copy_from_slice(&tag.to_le_bytes());
    file[22..24].copy_from_slice(&channels.to_le_bytes());
    file[28..32].copy_from_slice(&(rate_hz * u32::from(group)).to_le_bytes());
    file[32..34].copy_from_slice(&group.to_le_bytes());
    file[34..36].copy_from_slice(&bits.to_le_bytes());
    file[42..46].copy_from_slice(&(data.len() as u32).to_le_bytes());
    file.extend_from_slice(data);
    let riff = file.len() as u32 - 8;
    file[4..8].copy_from_slice(&riff.to_le_bytes());
    file
}

#[test]
fn wav_sample_formats_are_decoded() {
    let samples = tone(4000);
    let float = |sample: &i16| f64::from(*sample) / 32_768.0;
    let bytes = |encode: &dyn Fn(&i16) -> Vec<u8>| samples.iter().flat_map(encode).collect::<Vec<u8>>();
    let g711 = |law: Encoding| {
        let mut out = Vec::new();
        law.encode(&samples.iter().map(|s| float(s) as f32).collect::<Vec<_>>(), &mut out);
        out
    };
    // Format tags of the registry: PCM 1, float 3, A-law 6, μ-law 7.
    let files = [
        (1, 8, bytes(&|s| vec![((s >> 8) + 128) as u8]), 256),
        (1, 16, bytes(&|s| s.to_le_bytes().to_vec()), 0),
        (1, 24, bytes(&|s| (i32::from(*s) << 8).to_le_bytes()[..3].to_vec()), 0),
        (1, 32, bytes(&|s| (i32::from(*s) << 16).to_le_bytes().to_vec()), 0),
        (3, 32, bytes(&|s| (float(s) as f32).to_le_bytes().to_vec()), 0),
        (3, 64, bytes(&|s| float(s).to_le_bytes().to_vec()), 0),
        (6, 8, g711(Encoding::Alaw), 512),
        (7, 8, g711(Encoding::Mulaw), 512),
    ];
    for (tag, bits, data, error_max) in files {
        let (decoded, error) = decode(&wav_file(tag, bits, 1, 16_000, &data));
        assert_eq!((decoded.len(), error), (samples.len(), None), "format {tag}, {bits} bits");
        let worst = decoded.iter().zip(&samples).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        assert!(worst <= error_max, "format {tag}, {bits} bits: off by {worst}");
    }
}

#[test]
fn wav_format_chunks_of_other_lengths_are_accepted() {
    let plain = wav_file(7, 8, 1, 8000, &[0x7f; 800]);
    let expected = decode(&plain);
    assert_eq!((expected.0.len(), &expected.1), (1600, &None));
    for (tag, extension) in [(7, 0), (7, 4), (6, 0), (1, 0), (1, 4), (3, 4)] {
        let bits = if tag == 3 { 32 } else { 8 };
        let mut file = wav_file(tag, bits, 1, 8000, &[0x7f; 800]);
        // 16 bytes are fixed. Some programs write no extension, others one that is too long.
        file.splice(36..38, vec![0; extension]);
        file[16] = 16 + extension as u8;
        let (samples, error) = decode(&file);
        assert_eq!(
            (samples.len() * usize::from(bits), error),
            (1600 * 8, None),
            "format {tag}, {extension} bytes more"
        );
    }
}

#[test]
fn odd_chunk_of_a_wav_may_lack_its_padding() {
    let expected = decode(&wav_file(1, 16, 1, 16_000, &[1; 3200]));
    assert_eq!((expected.0.len(), &expected.1), (1600, &None));
    for padding in [&[][..], &[0]] {
        for at in [12, 38] {
            let mut file = wav_file(1, 16, 1, 16_000, &[1; 3200]);
            let chunk = [b"LIST\x0b\0\0\0INFOISFT\x05\0\0", padding].concat();
            file.splice(at..at, chunk);
            assert_eq!(decode(&file), expected, "{padding:?} at {at}");
        }
    }
}

#[test]
fn extensible_wav_with_six_channels_is_mixed() {
    let spec = hound::WavSpec {
        channels: 6,
        sample_rate: 16_000,
        bits_per_sample: 24,
        sample_format: hound::SampleFormat::Int,
    };
    let mut file = Cursor::new(Vec::new());
    let mut writer = hound::WavWriter::new(&mut file, spec).unwrap();
    // Frames of 600, 0, 0, 0, 0, 0 in 16 bits.
    (0..6000).for_each(|at| writer.write_sample(if at % 6 == 0 { 600 << 8 } else { 0 }).unwrap());
    writer.finalize().unwrap();
    // The average is raised to 7 dB below the one channel with a voice.
    assert_eq!(decode(&file.into_inner()), (vec![268; 1000], None));
}

#[test]
fn wav_of_every_rate_keeps_its_length() {
    for rate_hz in [8000, 11_025, 12_345, 22_050, 44_100, 48_000, 96_000, 192_000] {
        let (decoded, error) = decode(&wav::write_s16(&vec![500; rate_hz as usize], rate_hz));
        assert_eq!((decoded.len(), error), (16_000, None), "{rate_hz} Hz");
    }
    assert!(matches!(decode(&wav::write_s16(&[1; 9], 4000)).1, Some(MediaError::RateNotSupported { .. })));
    assert!(decode(&wav_file(1, 16, 1, 0, &[1; 9])).1.is_some());
}

#[test]
fn wav_with_unknown_length_is_read_to_the_end() {
    let samples = tone(5000);
    for (riff, data) in [(u32::MAX, u32::MAX), (0x8000_0023, 0x7fff_ffff), (0, 0), (0x7fff_f024, 0x7fff_f000)]
    {
        let mut file = wav::write_s16(&samples, 16_000);
        file[4..8].copy_from_slice(&riff.to_le_bytes());
        file[40..44].copy_from_slice(&data.to_le_bytes());
        assert_eq!(decode(&file), (samples.clone(), None), "{riff:#x} {data:#x}");
    }
}

#[test]
fn cut_off_wav_states_where_it_ends() {
    let file = wav::write_s16(&tone(32_000), 16_000);
    let (samples, error) = decode(&file[..32_044]);
    assert_eq!(samples.len(), 16_000);
    assert!(
        error.unwrap().to_string().starts_with("the wav file is damaged or cut off after 1.00 s of audio: ")
    );
}

#[test]
fn cancelled_decoder_stops() {
    let (file, cancel) = (Bytes::from_static(GOLDEN[15].1), CancelFlag::default());
    let open = || Decoder::open_cancellable(file.clone(), DecodeLimits::default(), cancel.clone());
    let mut decoder = open().unwrap();
    assert!(matches!(decoder.next_chunk(), Some(Ok(chunk)) if chunk.len() == CHUNK_SAMPLES));
    cancel.cancel();
    assert_eq!(decoder.next_chunk(), None);
    assert!(open().is_err());
}

#[test]
fn one_call_reads_a_bounded_number_of_packets() {
    // A cluster with blocks of the video follows, of one byte each.
    let mut file = include_bytes!("../../../tests/media/video.webm").to_vec();
    file.extend([0x1f, 0x43, 0xb6, 0x75, 0xff, 0xe7, 0x81, 0]);
    let block = [0xa3, 0x85, 0x81, 0, 0, 0, 0];
    file.extend(block.repeat(20_000));
    let mut decoder = Decoder::open(file.into(), DecodeLimits::default()).unwrap();
    let chunks: Vec<_> = std::iter::from_fn(|| decoder.next_chunk()).map(Result::unwrap).collect();
    let empty = chunks.iter().filter(|chunk| chunk.is_empty()).count();
    assert!((2..=20_000 / PACKETS_PER_CALL + 1).contains(&empty), "{empty} calls without audio");
}

#[test]
fn decoder_moves_between_threads() {
    const fn is_send<T: Send>() {}
    is_send::<Decoder>();
}

/// A change to a file. Positions are fractions of its length.
#[derive(Debug, Clone)]
enum Damage {
    FlipBit(f64, u8),
    Cut(f64),
    Repeat(f64, usize),
    Remove(f64, usize),
    Length(f64, u32),
}

fn damage() -> impl Strategy<Value = Damage> {
    // Half of the damage hits the headers.
    let at = prop_oneof![0.0..0.1, 0.0..1.0];
    let extremes = [0, 1, 0xff, 0x00ff_ffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];
    prop_oneof![
        (at.clone(), 0..8u8).prop_map(|(at, bit)| Damage::FlipBit(at, bit)),
        (0.0..1.0).prop_map(Damage::Cut),
        (at.clone(), 1..200usize).prop_map(|(at, len)| Damage::Repeat(at, len)),
        (at.clone(), 1..200usize).prop_map(|(at, len)| Damage::Remove(at, len)),
        (at, prop::sample::select(extremes.to_vec())).prop_map(|(at, length)| Damage::Length(at, length)),
    ]
}

impl Damage {
    fn apply(&self, file: &mut Vec<u8>) {
        let (Self::FlipBit(at, _)
        | Self::Cut(at)
        | Self::Repeat(at, _)
        | Self::Remove(at, _)
        | Self::Length(at, _)) = *self;
        let at = (at * file.len() as f64) as usize;
        let end = |len: usize| (at + len).min(file.len());
        match *self {
            Self::FlipBit(_, bit) => file[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << bit),
            Self::Cut(_) => file.truncate(at),
            Self::Repeat(_, len) => {
                let range = file[at..end(len)].to_vec();
                file.splice(at..at, range);
            }
            Self::Remove(_, len) => drop(file.drain(at..end(len))),
            Self::Length(_, length) => {
                file[at..].iter_mut().zip(length.to_be_bytes()).for_each(|(byte, new)| *byte = new);
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::property_config::property_config(200))]

    /// Neither panic nor endless loop, and no more audio than allowed.
    #[test]
    fn damaged_files_end_within_the_limits(golden in 0..GOLDEN.len(), damages in prop::collection::vec(damage(), 1..6)) {
        let mut file = GOLDEN[golden].1.to_vec();
        damages.iter().for_each(|damage| damage.apply(&mut file));
        let (samples, _) = decode_up_to(&file, limits(Duration::from_secs(3)));
        prop_assert!(samples.len() <= 48_000);
    }
}
