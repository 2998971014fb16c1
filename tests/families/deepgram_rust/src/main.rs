//! Deepgram's public crate for Rust, unmodified: deepgram_rust API CELL BASE_URL RECORDING.wav HEARD.wav TEXT
//!
//! Prints one JSON object. APIs and cells: listen and flux: transcription, error and close; speak: speech; flux_speak: speech and
//! error; rest: transcription, speech and error; agent: conversation, interruption, speech, error and close.

mod agent;
mod listen;
mod rest;
mod speak;

use std::{error::Error, fs, time::Duration};

use deepgram::Deepgram;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Rates of the recording, and of speech.
const IN_HZ: u32 = 16_000;
const OUT_HZ: u32 = 24_000;
const PIECE: Duration = Duration::from_millis(50);
const PIECE_BYTES: usize = IN_HZ as usize / 20 * 2;
const PATIENCE: Duration = Duration::from_secs(60);

type Outcome<T = Value> = Result<T, Box<dyn Error>>;

/// What a cell works with.
struct Task {
    client: Deepgram,
    base_url: String,
    cell: String,
    /// The recording as a file.
    recording: Vec<u8>,
    heard: String,
    text: String,
}

impl Task {
    /// The recording's samples in pieces as long as [`PIECE`].
    fn pieces(&self) -> impl Iterator<Item = Vec<u8>> {
        self.recording[44..].chunks(PIECE_BYTES).map(<[u8]>::to_vec)
    }

    /// Keeps speech of one channel. The length in seconds.
    fn keep(&self, audio: &[u8]) -> Outcome<f64> {
        let length = u32::try_from(audio.len())?;
        let mut file = b"RIFF".to_vec();
        file.extend((36 + length).to_le_bytes());
        file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
        for number in [OUT_HZ, 2 * OUT_HZ, 0x0010_0002] {
            file.extend(number.to_le_bytes());
        }
        file.extend(b"data");
        file.extend(length.to_le_bytes());
        file.extend(audio);
        fs::write(&self.heard, file)?;
        Ok(seconds(audio))
    }
}

fn seconds(audio: &[u8]) -> f64 {
    audio.len() as f64 / f64::from(2 * OUT_HZ)
}

/// A clock that ticks as fast as pieces are spoken.
fn pace() -> tokio::time::Interval {
    let mut pace = interval(PIECE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    pace
}

async fn run() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [api, cell, base_url, recording, heard, text] =
        <[String; 6]>::try_from(arguments).map_err(|_| "API CELL BASE_URL RECORDING HEARD TEXT")?;
    let client = Deepgram::with_base_url_and_api_key(base_url.as_str(), "any")?;
    let task = Task { client, base_url, cell, recording: fs::read(recording)?, heard, text };
    match api.as_str() {
        "agent" => agent::run(&task).await,
        "flux" => listen::flux(&task).await,
        "flux_speak" => speak::flux(&task).await,
        "listen" => listen::run(&task).await,
        "rest" => rest::run(&task).await,
        "speak" => speak::run(&task).await,
        other => Err(format!("no API {other}").into()),
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    println!("{}", timeout(PATIENCE, run()).await.map_err(|_| "nothing came for too long")??);
    Ok(())
}
