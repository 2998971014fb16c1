use std::fs;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::{
    audio::{echo::Playback, encoding::Encoding},
    session::{RecordedItem, UserAudio},
};

fn options(name: &str) -> RecordingOptions {
    let dir = std::env::temp_dir().join(format!("voxbridge-recordings-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    let when_full = WhenFull::Refuse;
    let format = RecordingFormat::Wav;
    RecordingOptions { dir, format, sides: RecordedSides::Both, max_bytes: DEFAULT_MAX_BYTES, when_full }
}

fn head(number: u64) -> RecordingHead {
    RecordingHead {
        session: format!("sess_{number}"),
        client: "macaw".to_owned(),
        profile: "speech".to_owned(),
        key: None,
        opened_unix_ms: 1_795_148_864_000 + number,
    }
}

/// A second of both sides.
fn speak_for_a_second(recording: &SessionRecording, opened: Instant) {
    let audio = UserAudio {
        encoding: Encoding::S16le,
        rate_hz: 16_000,
        channels: 1,
        bytes: Bytes::from(vec![1; 32_000]),
    };
    let at = opened + Duration::from_secs(1);
    recording.push(at, RecordingNews::Item(Box::new(RecordedItem::UserAudio(audio))));
    let samples = Bytes::from(vec![2; 48_000]);
    let sent = Playback::Sent { at: opened, encoding: Encoding::S16le, rate_hz: 24_000, samples };
    recording.push(opened, RecordingNews::Item(Box::new(RecordedItem::Playback(sent))));
    recording.push(at, RecordingNews::Interrupted);
}

/// Records a session of a second, which ended a moment ago.
async fn record(recordings: &RecordingDirectory, number: u64) {
    let opened = tokio::time::Instant::now().into_std() - Duration::from_millis(1_050);
    let (drain_guard, mut written) = mpsc::channel(1);
    let recording = recordings.start_session(opened, head(number), drain_guard);
    speak_for_a_second(&recording, opened);
    drop(recording);
    assert_eq!(written.recv().await, None);
}

fn names(recordings: &RecordingDirectory) -> Vec<String> {
    let entries = fs::read_dir(recordings.dir()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn recording_has_both_sides_and_its_events() {
    let recordings = RecordingDirectory::new(options("whole"));
    recordings.create_dir().unwrap();
    record(&recordings, 1).await;
    assert_eq!(names(&recordings), ["1795148864001-sess_1.json", "1795148864001-sess_1.wav"]);
    let mut wav = hound::WavReader::open(recordings.dir().join("1795148864001-sess_1.wav")).unwrap();
    assert_eq!((wav.spec().channels, wav.spec().sample_rate), (2, 24_000));
    let samples: Vec<i16> = wav.samples().map(Result::unwrap).collect();
    assert!(samples.len() / 2 >= 25_000, "{}", samples.len());
    let middle = &samples[24_000..24_002];
    assert_eq!(middle, [0x0101, 0x0202]);
    let text = fs::read(recordings.dir().join("1795148864001-sess_1.json")).unwrap();
    let json: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["opened"], "2026-11-20T04:27:44.001Z");
    assert_eq!((&json["complete"], &json["lost_pieces"]), (&json!(true), &json!(0)));
    assert_eq!(json["events"], json!([{"at_ms": 1000, "event": "interrupted"}]));
    assert_eq!(recordings.incomplete(), 0);
    fs::remove_dir_all(recordings.dir()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_side_alone_is_mono() {
    for (sides, sample) in [(RecordedSides::User, 0x0101), (RecordedSides::Model, 0x0202)] {
        let recordings = RecordingDirectory::new(RecordingOptions { sides, ..options(sides.name()) });
        recordings.create_dir().unwrap();
        record(&recordings, 1).await;
        let mut wav = hound::WavReader::open(recordings.dir().join("1795148864001-sess_1.wav")).unwrap();
        assert_eq!(wav.spec().channels, 1);
        assert_eq!(wav.samples::<i16>().nth(12_000).unwrap().unwrap(), sample);
        fs::remove_dir_all(recordings.dir()).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn full_directory_refuses_recordings_or_deletes_the_oldest() {
    // A recording of a second has 101 KB.
    for when_full in WhenFull::ALL {
        let bound = RecordingOptions { max_bytes: 260_000, when_full, ..options(when_full.name()) };
        let recordings = RecordingDirectory::new(bound);
        recordings.create_dir().unwrap();
        fs::write(recordings.dir().join("notes.json"), vec![b' '; 300_000]).unwrap();
        for number in 1..=5 {
            record(&recordings, number).await;
        }
        let kept = names(&recordings);
        let whole = match when_full {
            WhenFull::Refuse => ["1795148864001-sess_1.wav", "1795148864002-sess_2.wav"],
            WhenFull::DeleteOldest => ["1795148864004-sess_4.wav", "1795148864005-sess_5.wav"],
        };
        for name in whole {
            assert!(kept.contains(&name.to_owned()), "{name}: {kept:?}");
        }
        assert!(kept.contains(&"notes.json".to_owned()), "other files stay");
        let size = |name: &String| fs::metadata(recordings.dir().join(name)).unwrap().len();
        let bytes: u64 = kept.iter().filter(|name| name.contains("sess_")).map(size).sum();
        assert!(bytes <= 260_000, "{bytes}");
        assert_eq!(recordings.incomplete(), if when_full == WhenFull::Refuse { 3 } else { 0 });
        fs::remove_dir_all(recordings.dir()).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn missing_directory_costs_recordings_and_nothing_else() {
    let recordings = RecordingDirectory::new(options("missing"));
    record(&recordings, 1).await;
    assert_eq!(recordings.incomplete(), 1);
}

#[tokio::test(start_paused = true)]
async fn sessions_are_recorded_side_by_side() {
    let recordings = RecordingDirectory::new(options("two"));
    recordings.create_dir().unwrap();
    tokio::join!(record(&recordings, 1), record(&recordings, 2));
    assert_eq!(names(&recordings).len(), 4);
    fs::remove_dir_all(recordings.dir()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn recording_of_a_new_configuration_shares_the_bound_of_the_directory() {
    let first = RecordingDirectory::new(RecordingOptions { max_bytes: 150_000, ..options("reload") });
    first.create_dir().unwrap();
    let opened = tokio::time::Instant::now().into_std();
    let (drain_guard, mut written) = mpsc::channel(1);
    let recording = first.start_session(opened, head(1), drain_guard.clone());
    let mut second = RecordingDirectory::new(RecordingOptions {
        when_full: WhenFull::DeleteOldest,
        ..first.options.clone()
    });
    second.share_state(&first);
    speak_for_a_second(&recording, opened);
    tokio::time::sleep(WRITE_INTERVAL * 3).await;
    record(&second, 2).await;
    assert!(names(&second).iter().any(|name| name.contains("sess_1")), "it is still being written");
    drop((recording, drain_guard));
    assert_eq!(written.recv().await, None);
    fs::remove_dir_all(first.dir()).unwrap();
}

/// Channels, and the samples of each channel in a file of Opus, as far as it goes.
fn decode_opus(path: &Path) -> (usize, Vec<f32>) {
    let file = io::BufReader::new(fs::File::open(path).unwrap());
    let mut reader = opus_pure::OggOpusReader::new(file).unwrap();
    let channels = usize::from(reader.head().channel_count);
    let mut decoder = reader.head().decoder(24_000).unwrap();
    let mut samples = Vec::new();
    while let Some(packet) = reader.read_packet().unwrap() {
        let mut audio = vec![0.0; 480 * channels];
        decoder.decode(&packet.data, 480, &mut audio).unwrap();
        samples.extend(audio);
    }
    (channels, samples)
}

#[tokio::test(start_paused = true)]
async fn opus_has_the_same_length_and_both_channels() {
    let options = RecordingOptions { format: RecordingFormat::Opus, ..options("opus") };
    let recordings = RecordingDirectory::new(options);
    recordings.create_dir().unwrap();
    record(&recordings, 1).await;
    let path = recordings.dir().join("1795148864001-sess_1.opus");
    let (channels, samples) = decode_opus(&path);
    let ms = samples.len() / channels / 24;
    assert!(channels == 2 && (1_050..1_100).contains(&ms), "{channels} {ms}");
    assert!(fs::metadata(&path).unwrap().len() < 12_000);
    fs::remove_dir_all(recordings.dir()).unwrap();
}

/// What a killed process leaves behind.
#[test]
fn opus_without_an_end_plays_up_to_what_cannot_change() {
    let options = RecordingOptions { format: RecordingFormat::Opus, ..options("opus-cut") };
    fs::create_dir_all(&options.dir).unwrap();
    let store = Arc::new(Store::new(&options));
    let opened = tokio::time::Instant::now().into_std();
    let mut files = SessionFiles::create(opened, &options, head(1), store).unwrap();
    for number in 0..50 {
        let at = opened + Duration::from_millis(20 * (number + 1));
        let tone = (0..480_i16).flat_map(|sample| (sample % 48 * 400).to_le_bytes());
        let samples = Bytes::from(tone.collect::<Vec<u8>>());
        let sent = Playback::Sent { at, encoding: Encoding::S16le, rate_hz: 24_000, samples };
        files.push(TimedNews { at, news: RecordingNews::Item(Box::new(RecordedItem::Playback(sent))) });
        if number % 10 == 0 {
            files.write(at).unwrap();
        }
    }
    files.write(opened + Duration::from_millis(1_000)).unwrap();
    let (channels, samples) = decode_opus(files.audio_path());
    let ms = samples.len() / channels / 24;
    assert!((420..=460).contains(&ms), "{ms}");
    let loud = |side: usize| samples.chunks(2).filter(|sides| sides[side].abs() > 0.1).count();
    assert!(loud(1) > 3_000 && loud(0) < loud(1) / 10, "{} {}", loud(0), loud(1));
    fs::remove_dir_all(&options.dir).unwrap();
}
