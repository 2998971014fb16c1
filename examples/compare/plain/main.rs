//! A plain bridge in Rust from Macaw clients to MiniCPM-o's current dialect in audio mode, for comparison with voxbridge.
//!
//! It does the work of `bridge.py` one frame at a time, with the usual crates and their defaults. Its voice detector is
//! the network that voxbridge uses. It has no transcription, `tts.speak`, pacing, rollover, limits or recovery.
//!
//! Usage: plain-bridge HOST:PORT ws://HOST:PORT/v1/realtime

use std::{mem, time::Duration, time::SystemTime};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{SinkExt as _, StreamExt as _};
use rubato::{Fft, FixedSync, Resampler as _, audioadapter_buffers::direct::InterleavedSlice};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::{Message, handshake::server::Request};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, accept_hdr_async, connect_async_with_config};

const MODEL_RATE_HZ: usize = 16_000; // a unit is one second
const HOP_SAMPLES: usize = 256; // step of the voice detector
const START_HOPS: u32 = 4; // 64 ms of speech
const STOP_HOPS: u32 = 19; // 304 ms of silence
const GAP_TIMEOUT: Duration = Duration::from_millis(400); // longer than the jitter of a network

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

enum Found {
    Unit(Vec<f32>),
    /// Speech begins or ends.
    Speech(bool),
}

/// Converts the client's int16 frames to units of 16000 samples at 16 kHz, and detects speech.
struct Microphone {
    resampler: Fft<f32>,
    delay: usize, // samples that the resampler returns before the audio
    pending: Vec<u8>,
    samples_received: usize,
    detector: Box<earshot::Detector>,
    hop: Vec<f32>,
    is_speaking: bool,
    run_length: u32,
    unit: Vec<f32>,
}

impl Microphone {
    fn new(rate_hz: usize) -> Result<Self> {
        let resampler = Fft::new(rate_hz, MODEL_RATE_HZ, rate_hz / 50, 1, FixedSync::Both)?;
        let (delay, detector) = (resampler.output_delay(), Box::default());
        let (pending, hop, unit) = (vec![], vec![], vec![]);
        let (samples_received, is_speaking, run_length) = (0, false, 0);
        Ok(Self { resampler, delay, pending, samples_received, detector, hop, is_speaking, run_length, unit })
    }

    fn push(&mut self, frame: &[u8]) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        self.pending.extend_from_slice(frame);
        let samples = self.resampler.input_frames_next();
        while self.pending.len() >= 2 * samples {
            let bytes: Vec<u8> = self.pending.drain(..2 * samples).collect();
            let to_f32 = |sample: &[u8; 2]| f32::from(i16::from_le_bytes(*sample)) / 32_768.0;
            let block: Vec<f32> = bytes.as_chunks().0.iter().map(to_f32).collect();
            self.samples_received += samples;
            let resampled = self.resampler.process(&InterleavedSlice::new(&block, 1, samples)?, None)?;
            let audio_start = mem::take(&mut self.delay);
            self.append(&resampled.take_data()[audio_start..], &mut found);
        }
        Ok(found)
    }

    fn append(&mut self, samples: &[f32], found: &mut Vec<Found>) {
        self.hop.extend(samples.iter().map(|sample| sample.clamp(-1.0, 1.0)));
        while self.hop.len() >= HOP_SAMPLES {
            let is_speech = self.detector.predict_f32(&self.hop[..HOP_SAMPLES]) > 0.5;
            self.hop.drain(..HOP_SAMPLES);
            self.run_length = if is_speech == self.is_speaking { 0 } else { self.run_length + 1 };
            if self.run_length == if self.is_speaking { STOP_HOPS } else { START_HOPS } {
                (self.is_speaking, self.run_length) = (is_speech, 0);
                found.push(Found::Speech(is_speech));
            }
        }
        self.unit.extend_from_slice(samples);
        if self.unit.len() >= MODEL_RATE_HZ {
            let rest = self.unit.split_off(MODEL_RATE_HZ);
            found.push(Found::Unit(mem::replace(&mut self.unit, rest)));
        }
    }

    /// Continues with a second of silence, which completes a unit.
    fn push_silence(&mut self) -> Result<Vec<Found>> {
        self.push(&vec![0; 100 * self.resampler.input_frames_next()])
    }
}

/// Converts the model's base64 float32 to int16, rounded and clipped.
fn to_int16_bytes(audio: &str) -> Result<Vec<u8>> {
    let to_int16 = |sample: &[u8; 4]| ((f32::from_le_bytes(*sample) * 32_768.0).round() as i16).to_le_bytes();
    Ok(STANDARD.decode(audio)?.as_chunks().0.iter().map(to_int16).collect::<Vec<_>>().into_flattened())
}

/// One client and its upstream session.
struct Session {
    client: WebSocketStream<TcpStream>,
    upstream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    microphone: Microphone,
    id: String,
    units_sent: u64,
    answer: Option<String>, // its text so far
}

impl Session {
    async fn run(socket: TcpStream, number: u64, upstream_url: String) -> Result<()> {
        socket.set_nodelay(true)?;
        let mut query = String::new();
        let client = accept_hdr_async(socket, |request: &Request, response| {
            query = request.uri().query().unwrap_or_default().to_owned();
            Ok(response)
        });
        let client = client.await?;
        let parameter = |name| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let microphone = Microphone::new(parameter("input_sample_rate").unwrap_or("16000").parse()?)?;
        let (upstream, _) = connect_async_with_config(upstream_url + "?mode=audio", None, true).await?;
        let id = format!("sess_{number:012x}");
        let mut session = Self { client, upstream, microphone, id, units_sent: 0, answer: None };
        let created = json!({"session_id": session.id, "model": parameter("model")});
        session.send_event("session.created", created).await?;
        session.open_upstream().await?;
        let reason = session.forward().await?;
        let found = session.microphone.push_silence()?;
        session.deliver(found).await?;
        session.upstream.send(Message::text(r#"{"type":"session.close","reason":"user_stop"}"#)).await?;
        session.send_event("session.closed", json!({"reason": reason, "session_id": session.id})).await?;
        Ok(session.client.close(None).await?)
    }

    async fn send_event(&mut self, kind: &str, mut event: Value) -> Result<()> {
        event["type"] = kind.into();
        event["timestamp"] = SystemTime::UNIX_EPOCH.elapsed()?.as_secs_f64().into();
        Ok(self.client.send(Message::text(event.to_string())).await?)
    }

    async fn open_upstream(&mut self) -> Result<()> {
        self.wait_for_event("session.queue_done").await?;
        let config = json!({"length_penalty": 1.1, "listen_prob_scale": 1.0});
        let payload = json!({"system_prompt": "You are a helpful assistant.", "config": config});
        let init = json!({"type": "session.init", "payload": payload});
        self.upstream.send(Message::text(init.to_string())).await?;
        self.wait_for_event("session.created").await
    }

    async fn wait_for_event(&mut self, kind: &str) -> Result<()> {
        loop {
            let message = self.upstream.next().await.ok_or("the upstream wanted no session")??;
            if serde_json::from_str::<Value>(message.to_text()?)?["type"] == kind {
                return Ok(());
            }
        }
    }

    /// Forwards in both directions until one side ends; returns the reason.
    async fn forward(&mut self) -> Result<&'static str> {
        let mut gap_check = tokio::time::interval(GAP_TIMEOUT);
        let mut received_before = 0;
        loop {
            tokio::select! {
                message = self.client.next() => match message.ok_or("the client disconnected")?? {
                    Message::Binary(frame) => {
                        let found = self.microphone.push(&frame)?;
                        self.deliver(found).await?;
                    }
                    Message::Text(text) => match serde_json::from_str::<Value>(&text)?["type"].as_str() {
                        Some("session.close") => return Ok("client_request"),
                        Some("session.cancel") => return Ok("cancelled"),
                        _ => {} // session.configure has no effect here
                    },
                    _ => {}
                },
                message = self.upstream.next() => {
                    let message = message.ok_or("the upstream disconnected")??;
                    if message.is_text() && !self.handle_model_event(serde_json::from_str(message.to_text()?)?).await? {
                        return Ok("upstream_lost");
                    }
                }
                // Sends silence in place of missing audio, because the model stops without input.
                _ = gap_check.tick() => {
                    if received_before > 0 && self.microphone.samples_received == received_before {
                        let found = self.microphone.push_silence()?;
                        self.deliver(found).await?;
                        gap_check.reset_after(Duration::from_secs(1));
                    }
                    received_before = self.microphone.samples_received;
                }
            }
        }
    }

    /// Sends units to the model and speech events to the client.
    async fn deliver(&mut self, found: Vec<Found>) -> Result<()> {
        for found in found {
            match found {
                Found::Speech(begins) => {
                    let kind = if begins { "vad.speech_start" } else { "vad.speech_end" };
                    self.send_event(kind, json!({"samples_received": self.microphone.samples_received}))
                        .await?;
                }
                Found::Unit(unit) => {
                    let bytes: Vec<_> = unit.iter().map(|sample| sample.to_le_bytes()).collect();
                    // Barge-in: the user speaks while the model answers.
                    let is_barge_in = self.microphone.is_speaking && self.answer.is_some();
                    let id = self.units_sent.to_string();
                    let input = json!({"audio": STANDARD.encode(bytes.as_flattened()), "input_id": id, "force_listen": is_barge_in});
                    self.units_sent += 1;
                    let append = json!({"type": "input.append", "input": input});
                    self.upstream.send(Message::text(append.to_string())).await?;
                }
            }
        }
        Ok(())
    }

    /// Returns false after the last event.
    async fn handle_model_event(&mut self, event: Value) -> Result<bool> {
        let kind = event["kind"].as_str().unwrap_or_default();
        if matches!(kind, "audio" | "text") && self.answer.is_none() {
            self.answer = Some(String::new());
            self.send_event("tts.speaking_start", json!({"request_id": self.id})).await?;
        }
        match (kind, &mut self.answer) {
            ("audio", _) => {
                let audio = to_int16_bytes(event["audio"].as_str().unwrap_or_default())?;
                self.client.send(Message::binary(audio)).await?;
            }
            ("text", Some(answer)) => {
                *answer += event["text"].as_str().unwrap_or_default();
                let partial = json!({"text": answer, "speaker": "assistant"});
                self.send_event("transcript.partial", partial).await?;
            }
            ("listen", Some(answer)) => {
                let words = json!({"text": mem::take(answer), "speaker": "assistant"});
                self.answer = None;
                self.send_event("transcript.final", words).await?;
                self.send_event("tts.speaking_end", json!({"request_id": self.id, "cancelled": false}))
                    .await?;
            }
            _ => {}
        }
        Ok(event["type"] != "session.closed")
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, upstream_url] = &arguments[..] else {
        return Err("usage: plain-bridge HOST:PORT URL".into());
    };
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    for number in 1.. {
        let (socket, _) = listener.accept().await?;
        // A side that disconnects ends the session.
        tokio::spawn(Session::run(socket, number, upstream_url.clone()));
    }
    Ok(())
}
