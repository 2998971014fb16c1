//! A client whose microphone never stops, and the model's turns as the client plays them.

use super::{
    harness::{ClientFrame, Harness, recording},
    *,
};

/// Sends frames of one size in real time. Each frame arrives after its last sample.
#[derive(Debug)]
pub(crate) struct Microphone {
    pub(crate) rate_hz: u32,
    frame_bytes: usize,
    /// Recorded bytes that do not fill a frame yet.
    recorded: VecDeque<u8>,
    /// Frames sent, with their times.
    pub(crate) sent: Vec<(Duration, Vec<u8>)>,
    /// Samples recorded at 16 kHz.
    recorded_samples: usize,
}

impl Microphone {
    /// Creates a microphone. `rate_hz` is a multiple of 16 kHz.
    pub(crate) fn new(rate_hz: u32, frame_bytes: usize) -> Self {
        Self { rate_hz, frame_bytes, recorded: VecDeque::new(), sent: Vec::new(), recorded_samples: 0 }
    }

    /// A microphone at 16 kHz with frames of this many ms.
    pub(crate) fn of_ms(frame_ms: usize) -> Self {
        Self::new(16_000, 32 * frame_ms)
    }

    /// Duration of a frame.
    pub(crate) fn frame_length(&self) -> Duration {
        Duration::from_nanos(self.frame_bytes as u64 * 500_000_000 / u64::from(self.rate_hz))
    }

    /// Records samples of 16 kHz and sends every complete frame.
    pub(crate) fn record(&mut self, harness: &mut Harness, samples: &[i16]) {
        self.recorded_samples += samples.len();
        let times = self.rate_hz as usize / 16_000;
        for sample in samples {
            for byte in std::iter::repeat_n(sample.to_le_bytes(), times).flatten() {
                self.recorded.push_back(byte);
            }
        }
        while self.recorded.len() >= self.frame_bytes {
            let frame: Vec<u8> = self.recorded.drain(..self.frame_bytes).collect();
            harness.advance(self.frame_length());
            harness.send_binary(&frame);
            self.sent.push((harness.now(), frame));
        }
    }

    /// Records this many ms of silence.
    pub(crate) fn silence(&mut self, harness: &mut Harness, ms: u64) {
        self.record(harness, &vec![0; 16 * ms as usize]);
    }

    /// Records silence until the condition holds or the limit passes. True if the condition held.
    pub(crate) fn stream_until(
        &mut self,
        harness: &mut Harness,
        mut condition: impl FnMut(&Harness) -> bool,
        limit_ms: u64,
    ) -> bool {
        for _ in 0..=limit_ms / 50 {
            if condition(harness) {
                return true;
            }
            self.silence(harness, 50);
        }
        condition(harness)
    }

    /// Records silence until the condition holds; panics if the limit passes first.
    pub(crate) fn wait_until(
        &mut self,
        harness: &mut Harness,
        condition: impl FnMut(&Harness) -> bool,
        limit_ms: u64,
    ) {
        let holds = self.stream_until(harness, condition, limit_ms);
        assert!(holds, "not within {limit_ms} ms; the client saw {:?}", harness.names());
    }

    /// Arrival time of the frame with this sample, counted at 16 kHz over the whole recording.
    pub(crate) fn arrival_time(&self, sample: usize) -> Duration {
        let byte = sample * 2 * (self.rate_hz as usize / 16_000);
        self.sent[byte / self.frame_bytes].0
    }

    /// Number of samples recorded.
    pub(crate) const fn recorded(&self) -> usize {
        self.recorded_samples
    }
}

/// A recording and its speech onset: the first 10 ms at a tenth of the peak level.
#[derive(Debug)]
pub(crate) struct Voice {
    pub(crate) samples: Vec<i16>,
    pub(crate) onset: usize,
}

/// All recordings.
pub(crate) fn voices() -> &'static [Voice] {
    static VOICES: OnceLock<Vec<Voice>> = OnceLock::new();
    VOICES.get_or_init(|| {
        let names = [
            "jfk",
            "goforward",
            "arctic_a0007",
            "cards_005",
            "librivox_0870",
            "librivox_0880",
            "librivox_0920",
        ];
        names.iter().map(|name| voice(recording(&format!("{name}_16k.wav")))).collect()
    })
}

fn voice(samples: Vec<i16>) -> Voice {
    let level = |window: &[i16]| window.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>().sqrt();
    let levels: Vec<f64> = samples.chunks(160).map(level).collect();
    let loudest = levels.iter().copied().fold(0.0, f64::max);
    let onset = 160 * levels.iter().position(|level| *level >= loudest / 10.0).unwrap();
    Voice { samples, onset }
}

/// One `tts.speaking_start … tts.speaking_end` pair as the client received it.
#[derive(Debug, Clone)]
pub(crate) struct SpokenText {
    pub(crate) request_id: String,
    pub(crate) started: Duration,
    pub(crate) ended: Option<Duration>,
    pub(crate) end: Value,
    pub(crate) frames: Vec<(Duration, usize)>,
    pub(crate) samples: Vec<i16>,
}

impl SpokenText {
    /// True if the model spoke on its own.
    pub(crate) fn is_model_turn(&self) -> bool {
        self.request_id.starts_with("turn_")
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.end["cancelled"] == true
    }

    /// Number of the model turn in these samples, which must be complete from the first one and in order.
    pub(crate) fn model_turn(&self) -> u64 {
        let turn = read_watermark(self.samples[0]).expect("model audio has a watermark").0;
        for (at, sample) in self.samples.iter().enumerate() {
            assert_eq!(read_watermark(*sample), Some((turn, at % 8190)), "{at} of {}", self.request_id);
        }
        turn
    }

    /// True if the audio contains part of this model turn.
    pub(crate) fn contains_turn(&self, turn: u64) -> bool {
        let places =
            self.samples.iter().map(|sample| read_watermark(*sample).filter(|(of, _)| *of == turn % 8));
        let (mut last, mut run) = (None, 0);
        for place in places {
            let follows =
                matches!((last, place), (Some((_, one)), Some((_, two))) if (one + 1) % 8190 == two);
            run = if follows { run + 1 } else { 0 };
            last = place;
            if run == 8 {
                return true;
            }
        }
        false
    }
}

/// All the audio the client played, text by text.
pub(crate) fn spoken_texts(harness: &Harness) -> Vec<SpokenText> {
    let mut all: Vec<SpokenText> = Vec::new();
    for (at, frame) in &harness.log {
        match frame {
            ClientFrame::Event(event) if event["type"] == "tts.speaking_start" => all.push(SpokenText {
                request_id: event["request_id"].as_str().unwrap().to_owned(),
                started: *at,
                ended: None,
                end: Value::Null,
                frames: Vec::new(),
                samples: Vec::new(),
            }),
            ClientFrame::Event(event) if event["type"] == "tts.speaking_end" => {
                let last = all.last_mut().expect("a start before the end");
                assert_eq!(last.request_id, event["request_id"], "the end belongs to another text");
                assert!(last.ended.replace(*at).is_none(), "the text ended twice");
                last.end = event.clone();
            }
            ClientFrame::Binary(bytes) => {
                let last =
                    all.last_mut().filter(|last| last.ended.is_none()).expect("audio lies inside a pair");
                last.frames.push((*at, bytes.len()));
                last.samples.extend(bytes.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])));
            }
            _ => {}
        }
    }
    all
}

/// Number of model turns played to their end.
pub(crate) fn turns_heard(harness: &Harness) -> usize {
    let ended = harness.events("tts.speaking_end");
    ended.iter().filter(|end| end["request_id"].as_str().unwrap().starts_with("turn_")).count()
}

/// The user asks a question of one second.
pub(crate) fn ask(harness: &mut Harness, microphone: &mut Microphone, voice: usize) {
    let voice = &voices()[voice];
    microphone.record(harness, &voice.samples[voice.onset..voice.onset + 14_000]);
}
