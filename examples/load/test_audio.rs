//! Test audio: the clients' loop, and the model's voice.
//!
//! Up: all clients repeat one loop of speech followed by room noise, each from its own start position. No second of the
//! loop equals another (the noise is random and continues under the speech), so the audio is its own watermark: any 10
//! ms identify their position. The upstream must receive the same loop, converted as a whole.
//!
//! Down: random int16 numbers that survive float32, so that every received byte can be verified.

use std::{fs, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use voxbridge::audio::{SPEECH_RATE_HZ, pcm, wav};

/// Length of the loop.
pub(crate) const LOOP_SECONDS: usize = 14;
/// Length of the loop at the model's rate.
pub(crate) const LOOP_SAMPLES: usize = LOOP_SECONDS * SECOND_SAMPLES;
/// One second (and unit) at the model's input rate.
pub(crate) const SECOND_SAMPLES: usize = SPEECH_RATE_HZ as usize;
/// Block of comparison: 10 ms.
pub(crate) const BLOCK_SAMPLES: usize = SECOND_SAMPLES / 100;
/// One second of the model's voice.
pub(crate) const MODEL_SECOND_SAMPLES: usize = 24_000;
/// Number of different seconds of the model's voice, which repeat in order.
pub(crate) const MODEL_SECONDS: usize = 8;
/// Offset between clients that start in the same second of the loop.
const CLIENT_OFFSET_SAMPLES: usize = 4;
/// Level of the room noise, −62 dBFS.
const NOISE_RMS: f32 = 26.0;

/// All audio of a run.
pub(crate) struct TestAudio {
    rate_hz: usize,
    frame_bytes: usize,
    /// int16 at the clients' rate: the loop plus one frame.
    client_bytes: Vec<u8>,
    /// The same as base64, for rates and frames of whole groups of three bytes.
    client_base64: String,
    /// The same audio as the model must receive it: the loop plus a second.
    model_input: Vec<f32>,
    /// Seconds of speech in the loop.
    speech_seconds: usize,
    /// Model's voice, int16 bytes, [`MODEL_SECONDS`] seconds.
    pub(crate) model_voice: Vec<u8>,
    /// Model's voice as base64 of float32, by second.
    pub(crate) model_voice_base64: Vec<String>,
    /// The same of int16.
    pub(crate) model_voice_base64_s16: Vec<String>,
}

impl TestAudio {
    pub(crate) fn new(rate_hz: u32, frame_samples: usize, share: f64) -> Result<Self, String> {
        let speech_seconds = (share * LOOP_SECONDS as f64).round() as usize;
        let once = mix_loop(rate_hz, speech_seconds)?;
        let mut thrice = once.repeat(3);
        thrice.truncate(3 * once.len());
        let model_input =
            wav::resample_all(&thrice, rate_hz, SPEECH_RATE_HZ).map_err(|error| error.to_string())?;
        let model_input = model_input[LOOP_SAMPLES..2 * LOOP_SAMPLES + SECOND_SAMPLES]
            .iter()
            .map(|s| pcm::to_f32(pcm::to_i16(*s)))
            .collect();
        let mut client_bytes = Vec::new();
        pcm::encode_s16le(&thrice[..once.len() + frame_samples], &mut client_bytes);
        let (model_voice, model_voice_base64) = generate_model_voice();
        let frame_bytes = 2 * frame_samples;
        Ok(Self {
            rate_hz: rate_hz as usize,
            frame_bytes,
            client_base64: STANDARD.encode(&client_bytes),
            client_bytes,
            model_input,
            speech_seconds,
            model_voice_base64_s16: model_voice
                .chunks(2 * MODEL_SECOND_SAMPLES)
                .map(|second| STANDARD.encode(second))
                .collect(),
            model_voice,
            model_voice_base64,
        })
    }

    /// Start of this client in the loop, at 16 kHz: in another second than its neighbours and at a position of its own.
    pub(crate) fn loop_offset(client: usize) -> usize {
        ((client % LOOP_SECONDS) * SECOND_SAMPLES + client / LOOP_SECONDS * CLIENT_OFFSET_SAMPLES)
            % LOOP_SAMPLES
    }

    /// Bytes of a client's frame that starts `samples` after its start (at its own rate).
    pub(crate) fn frame(&self, begins: usize, samples: u64) -> &[u8] {
        let at = self.byte_position(begins, samples);
        &self.client_bytes[at..at + self.frame_bytes]
    }

    /// The same as base64.
    pub(crate) fn frame_base64(&self, begins: usize, samples: u64) -> &[u8] {
        let at = self.byte_position(begins, samples) / 3 * 4;
        &self.client_base64.as_bytes()[at..at + self.frame_bytes / 3 * 4]
    }

    fn byte_position(&self, begins: usize, samples: u64) -> usize {
        2 * ((begins * self.rate_hz / SECOND_SAMPLES + samples as usize) % (LOOP_SECONDS * self.rate_hz))
    }

    /// Audio that the model receives from this loop position, at most a second.
    pub(crate) fn expected_samples(&self, at: u64, length: usize) -> &[f32] {
        let at = (at % LOOP_SAMPLES as u64) as usize;
        &self.model_input[at..at + length]
    }

    /// True if the model answers a unit that ends at this position. Its second of speech must end before the user
    /// speaks again.
    pub(crate) fn is_answered_at(&self, end: u64) -> bool {
        let end = (end % LOOP_SAMPLES as u64) as usize;
        self.speech_seconds > 0
            && end >= self.speech_seconds * SECOND_SAMPLES
            && end + SECOND_SAMPLES <= LOOP_SAMPLES + SECOND_SAMPLES / 10
    }

    /// True if the speech is over at this position.
    pub(crate) fn is_quiet(&self, at: u64) -> bool {
        (at % LOOP_SAMPLES as u64) as usize >= self.speech_seconds * SECOND_SAMPLES
    }

    /// True if the user is clearly audible in this block.
    pub(crate) fn is_loud(&self, at: u64) -> bool {
        let block = self.expected_samples(at, BLOCK_SAMPLES);
        let energy: f32 = block.iter().map(|sample| sample * sample).sum();
        // −40 dBFS.
        !self.is_quiet(at) && energy > 1e-4 * BLOCK_SAMPLES as f32
    }
}

/// Builds the loop at the clients' rate, rounded to int16.
fn mix_loop(rate: u32, speech: usize) -> Result<Vec<f32>, String> {
    let mut voice = Vec::new();
    for name in ["librivox_0870", "librivox_0920", "arctic_a0007"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/speech/{name}_16k.wav"));
        let bytes = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let (samples, own) = wav::read(&bytes, Duration::from_secs(60)).map_err(|error| error.to_string())?;
        voice.extend(wav::resample_all(&samples, own, rate).map_err(|error| error.to_string())?);
    }
    voice.truncate(speech * rate as usize);
    voice.resize(LOOP_SECONDS * rate as usize, 0.0);
    let noise = room_noise(voice.len());
    let mixed = voice.iter().zip(noise).map(|(voice, noise)| pcm::to_f32(pcm::to_i16(voice + noise)));
    Ok(mixed.collect())
}

/// Noise of a quiet room: darker than white, always the same.
fn room_noise(samples: usize) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(6);
    let mut last = 0.0f32;
    let mut noise = Vec::with_capacity(samples);
    for _ in 0..samples {
        let white = (0..4).map(|_| rng.f32() - 0.5).sum::<f32>();
        last = 0.75 * last + white;
        noise.push(last);
    }
    let rms = (noise.iter().map(|n| n * n).sum::<f32>() / samples as f32).sqrt();
    noise.iter().map(|n| n * NOISE_RMS / rms / 32_768.0).collect()
}

fn generate_model_voice() -> (Vec<u8>, Vec<String>) {
    let mut rng = fastrand::Rng::with_seed(7);
    let samples: Vec<i16> =
        (0..MODEL_SECONDS * MODEL_SECOND_SAMPLES).map(|_| rng.i16(-8_000..8_000)).collect();
    let base64 = samples.chunks(MODEL_SECOND_SAMPLES).map(|second| {
        STANDARD.encode(second.iter().flat_map(|s| pcm::to_f32(*s).to_le_bytes()).collect::<Vec<u8>>())
    });
    let base64 = base64.collect();
    (samples.iter().flat_map(|sample| sample.to_le_bytes()).collect(), base64)
}
