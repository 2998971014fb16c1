//! Word accuracy through the bridge: real recordings and real engines, both ways, in every client format.
//!
//! `sockets/audio_fidelity.rs` covers errors that transcripts do not show: aliasing, small gaps, gain.

use futures_util::future::join_all;
use serde::Deserialize;
use tokio::time::{Instant, interval, sleep_until};
use tokio_tungstenite::tungstenite::Message;
use voxbridge::{audio::wav::resample_all, simulator::HttpApi};
use voxbridge_test_support::bench::{
    Client, ClientFrame, assert_pairs_closed, audio, bytes, conversation_profile_with, events,
    profile_with_numbers, speech_dir,
};

use super::*;

/// Increase of the word error rate allowed to the bridge, over all recordings and formats: two words by
/// chance.
const ADDED_WER_MAX: f64 = 0.01;

/// Number of concurrent sessions; the engines answer one question at a time.
const SESSIONS: usize = 6;

#[derive(Deserialize, Clone)]
struct Recording {
    file: String,
    transcript: String,
}

/// A client's audio format: rate in Hz, channels, and frame length in ms, or in bytes for odd frames.
#[derive(Debug, Clone, Copy)]
struct Format {
    rate_hz: u32,
    channels: usize,
    frame: FrameLength,
}

#[derive(Debug, Clone, Copy)]
enum FrameLength {
    Ms(usize),
    Bytes(usize),
}

impl Format {
    fn frame_bytes(&self) -> usize {
        match self.frame {
            FrameLength::Ms(ms) => self.rate_hz as usize * ms / 1000 * 2 * self.channels,
            FrameLength::Bytes(bytes) => bytes,
        }
    }

    /// The recording in this format, with the silence that ends it.
    fn of(&self, samples: &[f32]) -> Vec<u8> {
        let resampled = resample_all(samples, 16_000, self.rate_hz).unwrap();
        let silence = vec![0.0; self.rate_hz as usize * 6 / 10];
        let mono = resampled.into_iter().chain(silence).map(|s| (s * 32_768.0).round() as i16);
        // The other channel holds a tone that must be ignored.
        let other = |at: usize| if at % 50 < 25 { 9_000 } else { -9_000 };
        bytes(
            &mono
                .enumerate()
                .flat_map(|(at, s)| [s, other(at)].into_iter().take(self.channels))
                .collect::<Vec<_>>(),
        )
    }
}

const FRAMES: [FrameLength; 5] = [
    FrameLength::Ms(20),
    FrameLength::Ms(10),
    FrameLength::Ms(40),
    FrameLength::Ms(256),
    FrameLength::Bytes(333),
];
const RATES_HZ: [u32; 5] = [16_000, 8_000, 24_000, 44_100, 48_000];

/// Formats for a recording: the usual one, and one at each other rate. Over all recordings each rate meets
/// each frame length and both channel counts.
fn formats(recording: usize) -> impl Iterator<Item = Format> {
    (0..RATES_HZ.len()).map(move |at| Format {
        rate_hz: RATES_HZ[at],
        channels: if at == 0 { 1 } else { 1 + (recording + at) % 2 },
        frame: if at == 0 { FRAMES[0] } else { FRAMES[(recording + at) % FRAMES.len()] },
    })
}

fn recordings() -> Vec<(Recording, Vec<f32>)> {
    let manifest = std::fs::read_to_string(speech_dir().join("manifest.json")).unwrap();
    let recordings: Vec<Recording> = serde_json::from_str(&manifest).unwrap();
    let samples = |recording: Recording| {
        let name = recording.file.trim_end_matches("_16k.wav").to_owned();
        let samples = voxbridge_test_support::bench::recording(&name)
            .into_iter()
            .map(|s| f32::from(s) / 32_768.0)
            .collect();
        (recording, samples)
    };
    recordings.into_iter().map(samples).collect()
}

async fn bench(engines: Arc<SharedEngines>, http_api: Option<HttpApi>) -> Bench {
    // On a busy machine the last words take longer than a closing session waits.
    let mappings = Some(profile_with_numbers(
        "patient",
        &[("speech_end_wait_ms", 5000, 60_000), ("answer_max_ms", 30_000, 90_000)],
    ));
    Bench::with_options(Options {
        config: Config { mappings, ..Config::default() },
        simulator: SimulatorConfig { workers: SESSIONS, record: false, http_api, ..instant_simulator() },
        engines: Some(engines),
        ..Options::default()
    })
    .await
}

/// Sends a recording as fast as the bridge accepts it, up to ten seconds ahead of the clock, and returns all
/// words.
async fn transcribe_through_bridge(bench: &Bench, format: Format, samples: &[f32]) -> String {
    let query = format!("model=x&sample_rate={}&channels={}", format.rate_hz, format.channels);
    let mut client = bench.client(&query).await;
    let (started, mut sent) = (Instant::now(), Duration::ZERO);
    for frame in format.of(samples).chunks(format.frame_bytes()) {
        let second = f64::from(format.rate_hz) * 2.0 * format.channels as f64;
        sent += Duration::from_secs_f64(frame.len() as f64 / second);
        sleep_until(started + sent.saturating_sub(Duration::from_millis(9_500))).await;
        client.send_audio(frame, usize::MAX).await;
    }
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    for kind in ["error", "session.frames_dropped"] {
        assert!(events(&frames, kind).is_empty(), "{format:?}: {frames:?}");
    }
    let finals = events(&frames, "transcript.final");
    finals.iter().map(|it| it["text"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transcripts_over_http_have_no_more_word_errors_than_those_of_the_demo() {
    let Some(engines) = shared_engines().await else { return };
    let mut errors = Vec::new();
    for api in [None, Some(HttpApi::VllmOmni), Some(HttpApi::SglangOmni), Some(HttpApi::OpenaiAudio)] {
        let bench = bench(engines.clone(), api).await;
        let of_one = |(recording, samples): (Recording, Vec<f32>)| {
            let bench = &bench;
            async move {
                let format = Format { rate_hz: 16_000, channels: 1, frame: FRAMES[0] };
                let text = transcribe_through_bridge(bench, format, &samples).await;
                let expected = normalise(&recording.transcript);
                (word_errors(&expected, &normalise(&text)), expected.len())
            }
        };
        let counted = join_all(recordings().into_iter().map(of_one)).await;
        let (wrong, words): (Vec<_>, Vec<_>) = counted.into_iter().unzip();
        let (wrong, words) = (wrong.iter().sum::<usize>(), words.iter().sum::<usize>());
        println!("{api:?}: {wrong} of {words} words wrong");
        errors.push(wrong);
    }
    assert!(errors.iter().all(|wrong| *wrong <= errors[0]), "{errors:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bridge_does_not_increase_word_error_rate() {
    let Some(engines) = shared_engines().await else { return };
    let bench = Arc::new(bench(engines.clone(), None).await);
    let mut cases = Vec::new();
    let mut directly = Vec::new();
    for (at, (recording, samples)) in recordings().into_iter().enumerate() {
        directly.push(normalise(&engines.recognise(samples.clone()).await.unwrap()));
        let samples: Arc<[f32]> = samples.into();
        cases.extend(formats(at).map(|format| (at, recording.clone(), samples.clone(), format)));
    }
    let count = cases.len();
    let mut cases = cases.into_iter();
    let (mut running, mut done) = (JoinSet::new(), Vec::new());
    while done.len() < count {
        while running.len() < SESSIONS
            && let Some((at, recording, samples, format)) = cases.next()
        {
            let bench = bench.clone();
            running.spawn(async move {
                (at, recording, format, transcribe_through_bridge(&bench, format, &samples).await)
            });
        }
        done.push(running.join_next().await.unwrap().unwrap());
    }
    let (mut total, mut bridged, mut direct) = (0, 0, 0);
    for (at, recording, format, text) in done {
        let (expected, recognised, unbridged) =
            (normalise(&recording.transcript), normalise(&text), &directly[at]);
        let (errors, direct_errors) =
            (word_errors(&expected, &recognised), word_errors(&expected, unbridged));
        total += expected.len();
        bridged += errors;
        direct += direct_errors;
        if errors != direct_errors {
            println!("{} {format:?}: {errors} wrong, directly {direct_errors}: {text}", recording.file);
        }
        // Onset and ending are complete.
        for edge in
            [expected.first(), expected.last()].into_iter().flatten().filter(|edge| unbridged.contains(edge))
        {
            assert!(recognised.contains(edge), "{} {format:?}: {edge:?} is missing: {text}", recording.file);
        }
    }
    let share = |errors: usize| errors as f64 / total as f64;
    println!(
        "{count} sessions, {total} words: {:.2} % wrong through the bridge, {:.2} % without",
        share(bridged) * 100.0,
        share(direct) * 100.0
    );
    assert!(share(bridged) <= share(direct) + ADDED_WER_MAX, "{bridged} of {total} wrong, directly {direct}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn synthesized_speech_is_understood() {
    let Some(engines) = shared_engines().await else { return };
    let bench = bench(engines.clone(), None).await;
    for (rate_hz, text) in [
        (24_000, "The train to London leaves at half past nine."),
        (48_000, "She opened the window and looked out over the garden."),
        (
            16_000,
            "She opened the window and looked out over the garden. The train to London leaves at half past nine.",
        ),
    ] {
        let mut client = bench.client(&format!("model=x&output_sample_rate={rate_hz}")).await;
        client.send_json(json!({"type": "tts.speak", "text": text})).await;
        client.wait_for_event("tts.speaking_end").await;
        let frames = client.close().await;
        assert_pairs_closed(&frames);
        let speech: Vec<f32> = audio(&frames).into_iter().map(|s| f32::from(s) / 32_768.0).collect();
        let recognised = engines.recognise(resample_all(&speech, rate_hz, 16_000).unwrap()).await.unwrap();
        assert_eq!(normalise(&recognised), normalise(text), "{rate_hz} Hz");
    }
}

/// Asks a question with a continuous microphone until an answer was played; returns the received frames.
async fn ask_question(client: &mut Client, format: Format, samples: &[f32]) -> Vec<ClientFrame> {
    let from = client.received.len();
    let question = format.of(samples);
    let mut frames = question.chunks(format.frame_bytes());
    let mut ticks = interval(Duration::from_millis(20));
    let talking = async {
        loop {
            tokio::select! {
                frames = client.next() => if frames.kind() == "tts.speaking_end" { return },
                _ = ticks.tick() => {
                    let frame = frames.next().map_or(vec![0; format.frame_bytes()], <[u8]>::to_vec);
                    client.send(Message::binary(frame)).await;
                }
            }
        }
    };
    timeout(Duration::from_secs(90), talking).await.expect("no answer arrives");
    client.received.split_off(from)
}

/// The final transcripts of one speaker, joined.
fn words_of_speaker(frames: &[ClientFrame], speaker: &str) -> String {
    let finals = events(frames, "transcript.final").into_iter().filter(|it| it["speaker"] == speaker);
    finals.map(|it| it["text"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spoken_question_gets_spoken_answer() {
    let Some(engines) = shared_engines().await else { return };
    let options = |mappings| Options {
        config: Config {
            profile: Some("conversation".into()),
            mappings: Some(mappings),
            ..Config::default()
        },
        simulator: SimulatorConfig { workers: 2, record: false, ..instant_simulator() },
        engines: Some(engines.clone()),
        ..Options::default()
    };
    let plain = Bench::with_options(options(scratch("words-plain"))).await;
    let transcribes =
        conversation_profile_with("words-user", &[("transcribe_user = false", "transcribe_user = true")]);
    let transcribing = Bench::with_options(options(transcribes)).await;
    for (name, rate_hz, bench, user) in [
        ("goforward_16k.wav", 16_000, &plain, false),
        ("cards_005_16k.wav", 48_000, &plain, false),
        ("arctic_a0007_16k.wav", 48_000, &transcribing, true),
    ] {
        let (recording, samples) = recordings().into_iter().find(|(it, _)| it.file == name).unwrap();
        let format = Format { rate_hz, channels: 1, frame: FrameLength::Ms(20) };
        let mut client = bench.client(&format!("model=x&sample_rate={rate_hz}")).await;
        let answer = ask_question(&mut client, format, &samples).await;
        let speech: Vec<f32> = audio(&answer).into_iter().map(|s| f32::from(s) / 32_768.0).collect();
        let recognised = engines.recognise(resample_all(&speech, 24_000, 16_000).unwrap()).await.unwrap();
        let rest = client.close().await;
        let frames = [answer, rest].concat();
        assert_pairs_closed(&frames);
        assert!(events(&frames, "error").is_empty(), "{frames:?}");
        let written = words_of_speaker(&frames, "assistant");
        println!("{name} at {rate_hz} Hz: {written:?}, heard as {recognised:?}");
        // Errors the recogniser makes without the bridge do not count; one more word may differ by chance.
        let directly = engines.recognise(samples).await.unwrap();
        let missed = word_errors(&normalise(&recording.transcript), &normalise(&directly));
        let right = |text: &str, reference: &str| {
            let reference = normalise(reference);
            let errors = word_errors(&reference, &normalise(text));
            assert!(errors <= missed + 1, "{errors} of {} words wrong: {text}", reference.len());
        };
        right(&written, &format!("You said: {}", recording.transcript));
        right(&recognised, &written);
        let by_user = words_of_speaker(&frames, "user");
        if user {
            println!("the user: {by_user:?}");
            right(&by_user, &recording.transcript);
        } else {
            assert_eq!(by_user, "");
        }
    }
}
