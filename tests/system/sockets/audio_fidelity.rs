//! Audio fidelity: the upstream receives every sample of the client, and the client receives every sample of
//! the upstream.

use std::time::Instant;

use voxbridge::audio::{pcm, resample::resampled_len, wav::write_s16};

use super::*;

/// Frames of 10, 20, 40 and 256 ms at 16 kHz mono, and odd sizes that cut samples in two, down to single
/// bytes.
const FRAMINGS: [&[usize]; 6] = [&[320], &[640], &[1280], &[8192], &[333], &[1, 333, 1, 1, 777, 0, 5, 4095]];

/// Audio format of a client.
struct SendFormat<'w> {
    query: &'w str,
    configure: Option<Value>,
    frames: &'w [usize],
}

/// The questions the upstream receives when a clip is sent in this format at once and then committed.
async fn audio_heard_upstream(format: &SendFormat<'_>, speech_clip: &[u8]) -> Vec<Vec<f32>> {
    let bench = Bench::start().await;
    let mut client = bench.client(&format!("model=x&{}", format.query)).await;
    if let Some(mut configure) = format.configure.clone() {
        configure["type"] = "session.configure".into();
        client.send_json(configure).await;
    }
    let mut rest = speech_clip;
    for frame in format.frames.iter().cycle() {
        let (head, tail) = rest.split_at(rest.len().min(*frame));
        client.send_audio(head, usize::MAX).await;
        rest = tail;
        if rest.is_empty() {
            break;
        }
    }
    client.send_json(json!({"type": "input_audio_buffer.commit"})).await;
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    for kind in ["error", "session.frames_dropped"] {
        assert!(events(&frames, kind).is_empty(), "{frames:?}");
    }
    bench.recorder.asr_audio()
}

/// Speech up to the last sample, so that a commit at its end takes all of it.
fn speech_clip() -> Vec<i16> {
    recording("librivox_0920")[..72_000].to_vec()
}

fn to_float(samples: &[i16]) -> Vec<f32> {
    samples.iter().map(|sample| f32::from(*sample) / 32_768.0).collect()
}

fn to_int16(samples: &[f32]) -> Vec<i16> {
    samples.iter().map(|sample| (sample * 32_768.0).round().clamp(-32_768.0, 32_767.0) as i16).collect()
}

/// The clip at another rate, as a sound card would have recorded it.
fn at_rate(rate_hz: u32) -> Vec<i16> {
    to_int16(&resample_all(&to_float(&speech_clip()), 16_000, rate_hz).unwrap())
}

/// Interleaves the samples with other sounds in the ignored channels.
fn with_channels(samples: &[i16], channels: usize) -> Vec<i16> {
    let noise = |at: usize| (at as i16).wrapping_mul(7_919);
    let group = |(at, sample): (usize, &i16)| {
        std::iter::once(*sample).chain((1..channels).map(move |channel| noise(at * channels + channel)))
    };
    samples.iter().enumerate().flat_map(group).collect()
}

/// Concatenates the questions. Pauses between utterances are shorter than the pre-roll, so no sample is
/// missing.
fn concatenate(pieces: &[Vec<f32>]) -> Vec<f32> {
    assert!(!pieces.is_empty(), "no question was received");
    pieces.concat()
}

#[track_caller]
fn assert_close(actual: &[i16], expected: &[i16], tolerance: u16, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}: samples");
    let worst = actual.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
    assert!(worst <= tolerance, "{what}: off by {worst}");
}

#[tokio::test]
async fn sixteen_kilohertz_audio_arrives_exactly() {
    let speech_clip = speech_clip();
    for frames in FRAMINGS {
        for channels in [1, 2] {
            let query = format!("channels={channels}");
            let format = SendFormat { query: &query, configure: None, frames };
            let received = concatenate(
                &audio_heard_upstream(&format, &bytes(&with_channels(&speech_clip, channels))).await,
            );
            assert_eq!(received.len(), speech_clip.len(), "{channels} channels in frames of {frames:?}");
            assert!(received == to_float(&speech_clip), "{channels} channels in frames of {frames:?}");
        }
    }
}

#[tokio::test]
async fn resampled_audio_is_independent_of_framing() {
    for rate_hz in [8_000, 24_000, 44_100, 48_000] {
        let sent = at_rate(rate_hz);
        let expected = to_int16(&resample_all(&to_float(&sent), rate_hz, 16_000).unwrap());
        let mut first = None;
        for (frames, channels) in FRAMINGS.into_iter().zip([1, 2, 1, 2, 2, 1]) {
            // Uses the two names of each parameter in turn.
            let format = match channels {
                1 => SendFormat { query: &format!("input_sample_rate={rate_hz}"), configure: None, frames },
                _ => SendFormat {
                    query: &format!("sample_rate={rate_hz}&channels=2"),
                    configure: None,
                    frames,
                },
            };
            let received =
                concatenate(&audio_heard_upstream(&format, &bytes(&with_channels(&sent, channels))).await);
            assert_close(
                &to_int16(&received),
                &expected,
                1,
                &format!("{rate_hz} Hz in frames of {frames:?}"),
            );
            let first = first.get_or_insert_with(|| to_int16(&received));
            // Rounding may go either way.
            assert_close(&to_int16(&received), first, 1, &format!("{rate_hz} Hz depends on the framing"));
        }
    }
}

#[tokio::test]
async fn session_configure_sets_input_format() {
    let sent = with_channels(&at_rate(48_000), 2);
    let by_query = SendFormat { query: "sample_rate=48000&channels=2", configure: None, frames: &[3840] };
    let by_command = |configure| SendFormat { query: "", configure: Some(configure), frames: &[3840] };
    let expected = audio_heard_upstream(&by_query, &bytes(&sent)).await;
    for configure in [
        json!({"input_sample_rate": 48_000, "channels": 2}),
        json!({"input_sample_rate": "48000", "input_channels": 2.0}),
    ] {
        assert!(audio_heard_upstream(&by_command(configure), &bytes(&sent)).await == expected);
    }
}

#[tokio::test]
async fn unsupported_format_is_rejected_without_effect() {
    let bench = Bench::start().await;
    for query in ["sample_rate=4000", "sample_rate=x", "channels=0", "channels=99", "sample_rate=99999999999"]
    {
        let mut client = bench.client(&format!("model=x&{query}")).await;
        let error = client.wait_for_event("error").await;
        assert_eq!(error["recoverable"], true, "{query}: {error}");
        client.send_audio(&bytes(&speech_clip()), 640).await;
        client.send_json(json!({"type": "input_audio_buffer.commit"})).await;
        client.close().await;
        let received = concatenate(&bench.recorder.asr_audio());
        assert!(received == to_float(&speech_clip()), "{query}");
        drop(bench.recorder.take());
    }
}

#[tokio::test]
async fn utterances_contain_their_onset_and_end() {
    for name in ["goforward", "cards_005", "arctic_a0007", "librivox_0880"] {
        // More silence before the speech than the pre-roll covers, and the silence that ends it.
        let speech = recording(name);
        let sent = [vec![0; 24_000], speech.clone(), vec![0; 16_000]].concat();
        let bench = Bench::start().await;
        let mut client = bench.client("model=x").await;
        client.send_audio(&bytes(&sent), 640).await;
        client.close().await;
        let peak = speech.iter().map(|sample| sample.unsigned_abs()).max().unwrap();
        let loud = |sample: &i16| sample.unsigned_abs() > peak / 4;
        let first = sent.iter().position(loud).unwrap();
        let last = sent.iter().rposition(loud).unwrap();
        let (mut at, mut covered) = (0, Vec::new());
        for piece in bench.recorder.asr_audio() {
            let piece = to_int16(&piece);
            // Bit for bit, in order, without repetition.
            let position = sent[at..].windows(piece.len()).position(|window| window == piece);
            let begin = at + position.unwrap_or_else(|| panic!("{name}: not a slice of the audio sent"));
            at = begin + piece.len();
            covered.push(begin..at);
        }
        let (Some(begin), Some(end)) = (covered.first(), covered.last()) else {
            panic!("{name}: no question")
        };
        assert!(begin.start < first && last < end.end, "{name}: {first}..{last} is not in {covered:?}");
        assert!(end.end - last <= 16_000, "{name}: more than a second of silence after {last}: {covered:?}");
    }
}

/// Audio sent by the upstream, in samples.
#[derive(Default)]
struct UpstreamAudio(Mutex<Vec<f32>>);

impl Tap for UpstreamAudio {
    fn on_frame(&self, _: &str, _: Instant, wire: TapPoint, frame: TapFrame<'_>) {
        if let (TapPoint::FromLane(_), TapFrame::Text(text)) = (wire, frame) {
            let message: Value = serde_json::from_str(text).unwrap();
            if message["kind"] == "audio" {
                let data = STANDARD.decode(message["audio"].as_str().unwrap()).unwrap();
                self.0.lock().unwrap().extend(floats(&data));
            }
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

const TEXT: &str = "This is read aloud. It has two sentences, and costs $5 & a smile.";

/// Audio the upstream sent, and audio the client received in this format.
async fn speak_and_compare(
    query: &str,
    configure: Option<Value>,
    text: &str,
) -> (Vec<f32>, Vec<ClientFrame>) {
    let upstream_audio = Arc::new(UpstreamAudio::default());
    let tap: Option<Arc<dyn Tap>> = Some(upstream_audio.clone());
    let bench =
        Bench::with_options(Options { simulator: instant_simulator(), tap, ..Options::default() }).await;
    let mut client = bench.client(&format!("model=x&{query}")).await;
    if let Some(configure) = configure {
        client.send_json(configure).await;
    }
    client.send_json(json!({"type": "tts.speak", "text": text, "request_id": "r1"})).await;
    client.wait_for_event("tts.speaking_end").await;
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    assert!(events(&frames, "error").is_empty(), "{frames:?}");
    let upstream_audio = upstream_audio.0.lock().unwrap().clone();
    (upstream_audio, frames)
}

#[tokio::test]
async fn model_audio_reaches_client_exactly() {
    for text in [TEXT, &TEXT.repeat(12)] {
        let (upstream_audio, frames) = speak_and_compare("", None, text).await;
        assert!(upstream_audio.len() > 24_000, "{} samples", upstream_audio.len());
        assert_close(&audio(&frames), &to_int16(&upstream_audio), 1, "speech");
        let kinds: Vec<&str> = frames.iter().map(ClientFrame::kind).filter(|kind| *kind != "audio").collect();
        let expected =
            ["session.created", "tts.speaking_start", "tts.speaking_end", "session.closed", "close", "end"];
        assert_eq!(kinds, expected);
        let end = events(&frames, "tts.speaking_end")[0];
        assert_eq!((&end["request_id"], &end["cancelled"]), (&json!("r1"), &json!(false)));
        assert_eq!(end["audio_ms"], upstream_audio.len() / 24);
        let largest =
            frames.iter().map(|frame| if let ClientFrame::Audio(frame) = frame { frame.len() } else { 0 });
        assert!(largest.max().unwrap() <= 65_536);
    }
}

#[tokio::test]
async fn model_audio_has_requested_rate() {
    for (query, configure, rate_hz) in [
        ("output_sample_rate=16000", None, 16_000),
        ("output_sample_rate=48000", None, 48_000),
        ("", Some(json!({"type": "session.configure", "output_sample_rate": 8_000})), 8_000),
        ("", Some(json!({"type": "session.configure", "output_sample_rate": 44_100})), 44_100),
    ] {
        let (upstream_audio, frames) = speak_and_compare(query, configure, TEXT).await;
        let client_audio = audio(&frames);
        let (sent, rate) = (upstream_audio.len() as u64, u64::from(rate_hz));
        assert_eq!(client_audio.len() as u64, resampled_len(sent, 24_000, rate_hz), "{rate_hz} Hz");
        let expected = to_int16(&resample_all(&upstream_audio, 24_000, rate_hz).unwrap());
        assert_close(&client_audio, &expected, 1, &format!("{rate_hz} Hz"));
        let ms = events(&frames, "tts.speaking_end")[0]["audio_ms"].as_u64().unwrap();
        assert!(ms.abs_diff(sent * 1000 / 24_000) <= 1, "{ms} ms of {sent} samples at {rate}");
    }
}

/// Every place in the upstream messages that holds a voice, as samples.
fn voice_samples(received: &[RecordedInput]) -> Vec<(String, Vec<f32>)> {
    let places = [
        "/payload/voice/ref_audio_base64",
        "/payload/voice/tts_ref_audio_base64",
        "/input/messages/0/content/1/data",
        "/input/tts/ref_audio_data",
    ];
    let mut voices = Vec::new();
    for received in received {
        let RecordedInput::Message(_, text) = received else { continue };
        let message: Value = serde_json::from_str(text).unwrap();
        for place in places {
            if let Some(data) = message.pointer(place).and_then(Value::as_str) {
                voices.push((place.to_owned(), floats(&STANDARD.decode(data).unwrap())));
            }
        }
    }
    assert_eq!(voices.iter().map(|(place, _)| place.as_str()).collect::<Vec<_>>(), places);
    voices
}

async fn voice_samples_for(config: Config, speak: Value) -> Vec<(String, Vec<f32>)> {
    let bench = Bench::of(config).await;
    let mut client = bench.client("model=x").await;
    let mut command = json!({"type": "tts.speak", "text": "In this voice."});
    command.as_object_mut().unwrap().extend(speak.as_object().unwrap().clone());
    client.send_json(command).await;
    client.wait_for_event("tts.speaking_end").await;
    client.close().await;
    voice_samples(&bench.recorder.all())
}

#[tokio::test]
async fn voice_sample_reaches_model_as_float32_at_16_khz() {
    let sample = recording("goforward")[..16_000].to_vec();
    let wav = STANDARD.encode(write_s16(&sample, 16_000));
    for (place, voice) in voice_samples_for(Config::default(), json!({"ref_audio": wav})).await {
        assert!(voice == to_float(&sample), "{place}");
    }
    let expected = to_int16(&resample_all(&to_float(&sample), 44_100, 16_000).unwrap());
    let wav = STANDARD.encode(write_s16(&sample, 44_100));
    for (place, voice) in voice_samples_for(Config::default(), json!({"ref_audio": wav})).await {
        assert_close(&to_int16(&voice), &expected, 1, &place);
    }
}

#[tokio::test]
async fn configured_voice_is_selected_by_name() {
    let dir = scratch("voices");
    let (anna, other) = (recording("goforward")[..8_000].to_vec(), recording("cards_005")[..8_000].to_vec());
    fs::write(dir.join("anna.wav"), write_s16(&anna, 16_000)).unwrap();
    fs::write(dir.join("default.wav"), write_s16(&other, 16_000)).unwrap();
    let voice_samples = [("anna", "anna.wav"), ("default", "default.wav")];
    let config = || Config {
        voices: voice_samples.map(|(name, file)| (name.to_owned(), dir.join(file))).into(),
        ..Config::default()
    };
    for (speak, expected) in [
        (json!({"voice": "anna"}), &anna),
        (json!({"voice": "default"}), &other),
        (json!({"voice": "somebody else"}), &other),
        (json!({}), &other),
    ] {
        for (place, voice) in voice_samples_for(config(), speak.clone()).await {
            assert!(voice == to_float(expected), "{speak}: {place}");
        }
    }
}

#[test]
fn test_conversions_match_bridge() {
    let all: Vec<i16> = (i16::MIN..=i16::MAX).collect();
    assert!(to_float(&all).iter().zip(&all).all(|(to_float, int)| *to_float == pcm::to_f32(*int)));
    assert_eq!(to_int16(&to_float(&all)), all);
}
