//! Uploads and answers against ffmpeg: decodes what its encoders write, and lets it decode what ours write.

use std::process::Command;

use voxbridge::audio::encode::{AudioFormat, Encoder};
use voxbridge_test_support::wait::thread_cpu_time;

use super::*;

const RECORDINGS: [&str; 3] = ["cards_005_16k.wav", "goforward_16k.wav", "librivox_0880_16k.wav"];

/// Name of a file, arguments of ffmpeg, and the lowest correlation with the recording. 8 kHz files lack the upper half
/// of the band, and ADPCM and low bit rates add noise.
const FILES: [(&str, &str, f64); 31] = [
    ("u8.wav", "-c:a pcm_u8 -ar 8000", 0.9),
    ("stereo.wav", "-ac 2 -ar 44100", 0.999),
    ("s24.wav", "-c:a pcm_s24le -ar 48000", 0.999),
    ("s32.wav", "-c:a pcm_s32le -ar 22050", 0.999),
    ("f32.wav", "-c:a pcm_f32le -ar 192000", 0.999),
    ("f64.wav", "-c:a pcm_f64le -ar 96000", 0.999),
    ("alaw.wav", "-c:a pcm_alaw -ar 8000", 0.9),
    ("mulaw.wav", "-c:a pcm_mulaw -ar 8000", 0.9),
    ("ima.wav", "-c:a adpcm_ima_wav -ar 22050", 0.9),
    ("ms.wav", "-c:a adpcm_ms -ar 22050", 0.9),
    ("slow.mp3", "-c:a libmp3lame -ar 8000 -b:a 16k", 0.85),
    ("stereo.mp3", "-c:a libmp3lame -ar 44100 -ac 2 -b:a 128k", 0.99),
    ("variable.mp3", "-c:a libmp3lame -ar 24000 -q:a 4 -id3v2_version 3 -write_id3v1 1", 0.99),
    ("stereo.m4a", "-c:a aac -ac 2 -ar 48000 -b:a 96k", 0.9),
    ("moov_first.m4a", "-c:a aac -ar 44100 -movflags faststart -b:a 64k", 0.95),
    ("fragmented.mp4", "-c:a aac -movflags frag_keyframe+empty_moov -frag_duration 1000000 -b:a 64k", 0.95),
    ("quicktime.mov", "-c:a aac -b:a 64k", 0.95),
    ("opus.mp4", "-c:a libopus -b:a 32k", 0.9),
    ("adts.aac", "-c:a aac -b:a 64k", 0.95),
    ("narrow.ogg", "-c:a libopus -b:a 6k", 0.7),
    ("music.opus", "-c:a libopus -ac 2 -application audio -b:a 96k", 0.98),
    ("short.opus", "-c:a libopus -frame_duration 2.5 -b:a 96k", 0.98),
    ("long.opus", "-c:a libopus -frame_duration 120 -b:a 24k", 0.9),
    ("opus.webm", "-c:a libopus -b:a 24k", 0.9),
    ("recorder.webm", "-c:a libopus -ac 2 -b:a 64k -frame_duration 60 -live 1", 0.95),
    ("vorbis.webm", "-c:a libvorbis -ar 48000", 0.98),
    ("vorbis.ogg", "-c:a libvorbis -ac 2 -ar 44100", 0.98),
    ("flac.ogg", "-c:a flac", 0.999),
    ("deep.flac", "-c:a flac -ar 96000 -ac 2 -sample_fmt s32", 0.999),
    ("plain.flac", "-c:a flac", 0.999),
    ("aac.mkv", "-c:a aac -b:a 64k", 0.95),
];

/// Delay of the AAC encoder, where the file does not state it: 1024 samples at the file's rate, here at most at 16 kHz.
const DELAY_MAX: usize = 1024;
/// Files that state the delay in an edit list.
const EDITED: [&str; 4] = ["stereo.m4a", "moov_first.m4a", "quicktime.mov", "opus.mp4"];

/// Installs ffmpeg if necessary, as root on Debian. False skips the test.
pub(super) fn has_ffmpeg() -> bool {
    static READY: OnceLock<Result<(), String>> = OnceLock::new();
    let ensure = || ensure("command -v ffmpeg", "ffmpeg", "install it with the system package manager");
    installed(READY.get_or_init(ensure)).is_some()
}

pub(super) fn ffmpeg() -> Command {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-v", "warning", "-y"]);
    ffmpeg
}

pub(super) fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/speech").join(name)
}

/// Samples and rate of a recording.
fn read_recording(name: &str) -> Vec<i16> {
    let file = std::fs::read(recording(name)).unwrap();
    let (samples, rate_hz) = wav::read(&file, Duration::from_secs(60)).unwrap();
    assert_eq!(rate_hz, 16_000);
    samples.into_iter().map(pcm::to_i16).collect()
}

fn decode(file: Vec<u8>) -> Vec<i16> {
    let mut decoder = Decoder::open(file.into(), DecodeLimits::default()).unwrap();
    std::iter::from_fn(|| decoder.next_chunk()).flat_map(Result::unwrap).collect()
}

/// Highest correlation of two recordings, and by how much the second is late there.
fn correlation(a: &[i16], b: &[i16]) -> (f64, usize) {
    let at = |delay: usize| {
        let (mut ab, mut aa, mut bb) = (0.0, 1.0, 1.0);
        for (a, b) in a.iter().zip(b.get(delay..).unwrap_or_default()) {
            let (a, b) = (f64::from(*a), f64::from(*b));
            (ab, aa, bb) = (ab + a * b, aa + a * a, bb + b * b);
        }
        ab / (aa * bb).sqrt()
    };
    (0..1200).map(|delay| (at(delay), delay)).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
}

#[test]
fn files_of_ffmpeg_decode_to_the_recording() {
    if !has_ffmpeg() {
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("media");
    std::fs::create_dir_all(&dir).unwrap();
    for (at, (name, arguments, correlation_min)) in FILES.into_iter().enumerate() {
        let source = RECORDINGS[at % RECORDINGS.len()];
        let path = dir.join(name);
        let mut command = ffmpeg();
        command.arg("-i").arg(recording(source)).args(arguments.split(' ')).arg(&path);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        let samples = decode(std::fs::read(&path).unwrap());
        let expected = read_recording(source);
        let (correlation, delay) = correlation(&expected, &samples);
        assert!(correlation >= correlation_min, "{name}: correlation {correlation}");
        let delay_max = if EDITED.contains(&name) { 2 } else { DELAY_MAX };
        assert!(delay <= delay_max, "{name}: late by {delay} samples");
        let extra = samples.len() as i64 - expected.len() as i64 - delay as i64;
        assert!((-40..=2000).contains(&extra), "{name}: {extra} samples more");
    }
}

#[test]
fn ffmpeg_decodes_every_answer_without_warnings() {
    if !has_ffmpeg() {
        return;
    }
    let expected = read_recording(RECORDINGS[0]);
    for (format, correlation_min) in [
        (AudioFormat::Mp3, 0.999),
        (AudioFormat::Opus, 0.95),
        (AudioFormat::Flac, 0.9999),
        (AudioFormat::Wav, 0.9999),
    ] {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(format, 16_000).unwrap();
        expected.chunks(700).for_each(|chunk| encoder.push(chunk, &mut file));
        encoder.finish(&mut file);
        let (heard, warnings) = decode_with_ffmpeg(file);
        // A WAV of unknown length ends in the middle of the data that its header claims.
        assert!(warnings.is_empty() || format == AudioFormat::Wav, "{}: {warnings}", format.name());
        let (correlation, delay) = correlation(&expected, &heard);
        assert!(correlation >= correlation_min, "{}: correlation {correlation}", format.name());
        // Streams of mp3 cannot state the delay of their encoder.
        assert!(delay == 0 || format == AudioFormat::Mp3, "{}: late by {delay} samples", format.name());
    }
}

/// Decodes to 16 kHz through pipes, as a player that streams does. Returns the samples and the warnings.
fn decode_with_ffmpeg(file: Vec<u8>) -> (Vec<i16>, String) {
    let mut command = ffmpeg();
    command.args(["-i", "pipe:0", "-ar", "16000", "-f", "s16le", "pipe:1"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut input, &file).unwrap());
    let done = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let samples = done.stdout.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect();
    (samples, String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Prints the table in `media::decode`: run it with `--release` and `--ignored --nocapture`.
#[test]
#[ignore = "a measurement for the documentation; asserts nothing"]
fn cpu_time_of_decoding_a_minute_is_printed() {
    if !has_ffmpeg() {
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("media_cost");
    std::fs::create_dir_all(&dir).unwrap();
    for (name, arguments) in [
        ("mono_16k.wav", "-ar 16000"),
        ("stereo_48k.wav", "-ar 48000 -ac 2"),
        ("mono_16k.flac", "-ar 16000"),
        ("mono_24k.mp3", "-c:a libmp3lame -ar 24000 -b:a 64k"),
        ("stereo_44k.mp3", "-c:a libmp3lame -ar 44100 -ac 2 -b:a 128k"),
        ("mono_48k.m4a", "-c:a aac -ar 48000 -b:a 64k"),
        ("stereo_44k.m4a", "-c:a aac -ar 44100 -ac 2 -b:a 128k"),
        ("voice_note.ogg", "-c:a libopus -b:a 16k"),
        ("recorder.webm", "-c:a libopus -b:a 32k"),
        ("stereo.webm", "-c:a libopus -ac 2 -b:a 96k"),
        ("stereo_vorbis.ogg", "-c:a libvorbis -ac 2 -ar 44100"),
    ] {
        let path = dir.join(name);
        let mut command = ffmpeg();
        // Six times jfk_16k.wav, 66 s.
        command
            .args(["-stream_loop", "5", "-i"])
            .arg(recording("jfk_16k.wav"))
            .args(arguments.split(' '))
            .arg(&path);
        assert!(command.status().unwrap().success(), "{name}");
        let file = std::fs::read(&path).unwrap();
        let start = thread_cpu_time();
        let minutes = decode(file).len() as f64 / 16_000.0 / 60.0;
        let cost_ms = (thread_cpu_time() - start).as_secs_f64() * 1e3;
        println!("{name:20} {:6.1} ms", cost_ms / minutes);
    }
}
