//! Opus in both directions: real speech through a protocol whose messages are packets.

use std::time::Instant;

use voxbridge::audio::opus::PacketDecoder;

use super::*;

const PROTOCOL: &str = r#"
kind = "client"
name = "opus"
title = "Opus"
paths = ["/opus"]
command_key = "/type"

[query]
model = { to = "model", type = "text", max = 64, default = "any" }
input = { to = "input_encoding", type = "choice", value_map = { pcm = "s16le", opus = "opus" } }
output = { to = "output_encoding", type = "choice", value_map = { pcm = "s16le", opus = "opus" } }

[audio_in]
encoding = "opus"
rate_hz = 16000
channels = 1
frame_max_bytes = 4000
message_max_bytes = 65536
rate_limit = 0
max_ahead_ms = 600000
idle_ms = 60000

[audio_out]
encoding = "opus"
rate_hz = 24000
frame_max_bytes = 4000
frame_ms = 60
bit_rate = 64000

[commands]
commit = { verb = "commit" }
speak = { verb = "speak", fields.text = { to = "text", type = "text", required = true } }
hush = { verb = "cancel_speech" }
"session.close" = { verb = "close" }

[events]
session_created = '{"type": "session.created"}'
speech_started = '{"type": "vad.speech_start"}'
transcript_final = '{"type": "final", "text": ${text}}'
speech_ended = '{"type": "vad.speech_end"}'
speaking_started = '{"type": "tts.speaking_start"}'
speaking_ended = '{"type": "tts.speaking_end", "cancelled": ${cancelled}, "audio_ms": ${audio_ms}}'
error = '{"type": "error", "code": ${code}, "message": ${message}}'
session_closed = '{"type": "session.closed"}'

[errors]
other = { code = "problem", recoverable = true }

[closes]
client_close = { reason = "bye", code = 1000 }
client_cancel = { reason = "bye", code = 1000 }
idle = { reason = "idle", code = 1000 }
shutdown = { reason = "shutdown", code = 1001 }
upstream = { reason = "lost", code = 1011 }
"#;

/// Speech of the upstream, as float32 at 24 kHz.
#[derive(Default)]
struct UpstreamAudio(Mutex<Vec<f32>>);

impl Tap for UpstreamAudio {
    fn on_frame(&self, _: &str, _: Instant, wire: TapPoint, frame: TapFrame<'_>) {
        if let (TapPoint::FromLane(_), TapFrame::Text(text)) = (wire, frame) {
            let message: Value = serde_json::from_str(text).unwrap();
            if message["kind"] == "audio" {
                let data = STANDARD.decode(message["audio"].as_str().unwrap()).unwrap();
                let floats = data.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
                self.0.lock().unwrap().extend(floats);
            }
        }
    }
}

async fn bench(tap: Option<Arc<dyn Tap>>) -> Bench {
    let mappings = Some(mappings_with("opus", "opus.toml", PROTOCOL));
    let config = Config { mappings, ..Config::default() };
    Bench::with_options(Options { simulator: instant_simulator(), config, tap, ..Options::default() }).await
}

async fn client(bench: &Bench, query: &str) -> Client {
    let mut client = bench.dial(&format!("/opus?{query}")).await;
    assert_eq!(client.next().await.kind(), "session.created");
    client
}

/// Encodes 16 kHz samples as a microphone with libopus's defaults for speech does, in packets of this length.
fn encode(samples: &[i16], frame_ms: usize) -> Vec<Vec<u8>> {
    let mut encoder = OpusEncoder::new(16_000, 1, Application::Voip).unwrap();
    (encoder.bitrate_bps, encoder.complexity) = (40_000, 2);
    let mut packet = [0; 4_000];
    let frames = samples.chunks_exact(16 * frame_ms);
    frames
        .map(|frame| {
            let length = encoder.encode_s16(frame, frame.len(), &mut packet).unwrap();
            packet[..length].to_vec()
        })
        .collect()
}

async fn send_packets(client: &mut Client, packets: &[Vec<u8>]) {
    for packet in packets {
        client.send(Message::binary(packet.clone())).await;
    }
}

/// A recording after and before silence.
fn utterance(name: &str) -> Vec<i16> {
    [vec![0; 16_000], recording(name), vec![0; 24_000]].concat()
}

/// Highest correlation of `heard` with a stretch of `sent`, both in steps of `step` samples.
fn correlation(heard: &[f32], sent: &[f32], step: usize) -> f32 {
    let at = |delay: usize| {
        let (mut both, mut power, mut other) = (0.0, 1e-9, 1e-9);
        for (a, b) in heard.iter().zip(sent.get(delay..).unwrap_or_default()).step_by(step) {
            (both, power, other) = (both + a * b, power + a * a, other + b * b);
        }
        both / (power * other).sqrt()
    };
    (0..sent.len().saturating_sub(heard.len() * 9 / 10)).map(at).fold(0.0, f32::max)
}

/// The samples in these packets, at the model's rate. Tests beside the decoder compare it with libopus.
fn decoded(packets: &[Vec<u8>]) -> Vec<f32> {
    let (mut decoder, mut audio, mut samples) = (PacketDecoder::default(), Vec::new(), Vec::new());
    for packet in packets {
        decoder.decode(packet, &mut audio);
        samples.extend_from_slice(&audio);
    }
    resample_all(&samples, 48_000, 16_000).unwrap()
}

/// All packets that a client received.
fn packets(frames: &[ClientFrame]) -> Vec<&[u8]> {
    frames
        .iter()
        .filter_map(|frame| match frame {
            ClientFrame::Audio(packet) => Some(packet.as_slice()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn spoken_words_reach_the_model_in_packets_of_every_length() {
    let sent = utterance("goforward");
    for frame_ms in [20, 120] {
        let bench = bench(None).await;
        let mut client = client(&bench, "").await;
        let packets = encode(&sent, frame_ms);
        send_packets(&mut client, &packets).await;
        client.wait_for_event("vad.speech_end").await;
        let frames = client.close().await;
        assert_pairs_closed(&frames);
        assert!(events(&frames, "error").is_empty(), "{frames:?}");
        let heard = bench.recorder.asr_audio().concat();
        let likeness = correlation(&heard, &decoded(&packets), 41);
        assert!(likeness > 0.99, "packets of {frame_ms} ms: correlation {likeness}");
    }
}

#[tokio::test]
async fn spoken_text_is_played_to_its_end_in_packets() {
    let upstream_audio = Arc::new(UpstreamAudio::default());
    let bench = bench(Some(upstream_audio.clone())).await;
    let mut client = client(&bench, "").await;
    client.send_json(json!({"type": "speak", "text": "This is read aloud. It has two sentences."})).await;
    client.wait_for_event("tts.speaking_end").await;
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    let said = resample_all(&upstream_audio.0.lock().unwrap(), 24_000, 48_000).unwrap();
    let (mut decoder, mut audio, mut heard) = (PacketDecoder::default(), Vec::new(), Vec::new());
    for packet in packets(&frames) {
        assert_eq!(packet_samples(packet), Ok(2_880), "each message is a packet of 60 ms");
        decoder.decode(packet, &mut audio);
        heard.extend_from_slice(&audio);
    }
    assert!(heard.len() >= said.len() + 120, "{} of {} samples and the delay", heard.len(), said.len());
    assert!(heard.len() < said.len() + 120 + 2_880, "no packet more than needed");
    heard.extend([0.0; 2_880]);
    let (whole, end) = (said.as_slice(), said.len() - 9_600);
    let alike = |said: &[f32], from: usize| correlation(said, &heard[from..(from + said.len() + 400)], 37);
    assert!(alike(whole, 0) > 0.9 && alike(&whole[end..], end) > 0.9, "to the last sample");
}

#[tokio::test]
async fn message_that_is_no_packet_is_an_error_and_the_session_goes_on() {
    let sent = utterance("goforward");
    let bench = bench(None).await;
    let mut client = client(&bench, "").await;
    for wrong in [vec![0x02, 252], vec![0; 1_277], vec![0x1b, 3, 0, 0]] {
        client.send(Message::binary(wrong)).await;
        let error = client.wait_for_event("error").await;
        assert!(error["message"].as_str().unwrap().contains("not an Opus packet"), "{error}");
    }
    client.send(Message::binary(Vec::new())).await;
    let packets = encode(&sent, 60);
    send_packets(&mut client, &packets).await;
    client.wait_for_event("vad.speech_end").await;
    let frames = client.close().await;
    assert_eq!(events(&frames, "error").len(), 3, "a message without a byte is no audio");
    assert!(correlation(&bench.recorder.asr_audio().concat(), &decoded(&packets), 41) > 0.99);
}

#[tokio::test]
async fn query_selects_opus_or_samples_in_each_direction() {
    let bench = bench(None).await;
    let mut client = client(&bench, "input=pcm&output=pcm").await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("vad.speech_end").await;
    client.send_json(json!({"type": "speak", "text": "Samples."})).await;
    client.wait_for_event("tts.speaking_end").await;
    let frames = client.close().await;
    assert!(events(&frames, "error").is_empty(), "{frames:?}");
    assert!(packets(&frames).iter().all(|samples| samples.len() % 2 == 0 && samples.len() > 1_000));
}
