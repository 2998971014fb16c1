//! Phone calls over Twilio Media Streams and, in [`providers`], over those of other providers, in virtual time.
//!
//! [`Call`] is Twilio's end of the socket (mappings/notes/telephony.md#twilio): it sends what the caller says in frames
//! of 20 ms, plays what it receives from a buffer, returns a mark when the audio before it was played, and empties the
//! buffer at `clear`.

mod audio_messages;
mod bad_messages;
mod calls;
mod providers;

use super::*;

/// Samples of 20 ms at 8 kHz, the length of Twilio's messages.
const FRAME_SAMPLES: usize = 160;

const STREAM: &str = "MZ0123456789abcdef";

/// An item that Twilio has received and not played yet.
#[derive(Debug)]
enum Buffered {
    Audio(usize),
    Mark(String),
}

/// One phone call.
struct Call {
    harness: Harness,
    sequence: u64,
    log_position: usize,
    buffer: VecDeque<Buffered>,
    /// Twilio returns marks.
    returns_marks: bool,
    /// Everything the caller heard, in mu-law.
    heard_bytes: usize,
    /// All audio received, in mu-law.
    received: Vec<u8>,
    /// Bytes received since the last `clear`.
    received_since_clear: usize,
    marks: Vec<(Duration, String)>,
    clears: Vec<Duration>,
}

impl Call {
    /// Connects a call with these `<Parameter>` elements.
    fn connect(profile: &'static str, parameters: &Value) -> Self {
        let mut call = Self::before_start(HarnessConfig::of("twilio", profile, ""));
        call.send("connected", json!({"protocol": "Call", "version": "1.0.0"}));
        call.start(parameters);
        call
    }

    fn before_start(config: HarnessConfig) -> Self {
        Self {
            harness: Harness::new(config),
            sequence: 0,
            log_position: 0,
            buffer: VecDeque::new(),
            returns_marks: true,
            heard_bytes: 0,
            received: Vec::new(),
            received_since_clear: 0,
            marks: Vec::new(),
            clears: Vec::new(),
        }
    }

    fn start(&mut self, parameters: &Value) {
        let start = json!({
            "streamSid": STREAM, "accountSid": "AC0", "callSid": "CA0", "tracks": ["inbound"],
            "customParameters": parameters,
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        });
        self.send("start", json!({"start": start}));
    }

    /// Sends a message with the members that all of Twilio's messages have.
    fn send(&mut self, event: &str, mut message: Value) {
        self.sequence += 1;
        message["event"] = event.into();
        message["sequenceNumber"] = self.sequence.to_string().into();
        message["streamSid"] = STREAM.into();
        self.harness.send_json(&message);
        self.take_messages();
    }

    fn send_media(&mut self, mulaw: &[u8]) {
        let payload = STANDARD.encode(mulaw);
        let timestamp = self.harness.now().as_millis().to_string();
        self.send(
            "media",
            json!({"media": {"track": "inbound", "chunk": "1", "timestamp": timestamp, "payload": payload}}),
        );
    }

    /// The caller says this, in real time.
    fn say(&mut self, mulaw: &[u8]) {
        for frame in mulaw.chunks(FRAME_SAMPLES) {
            self.send_media(frame);
            self.pass_frame_time();
        }
    }

    /// The caller is silent for this long.
    fn listen(&mut self, time: Duration) {
        self.say(&silence(time));
    }

    /// The caller is silent until the condition holds.
    fn listen_until(&mut self, condition: impl Fn(&Self) -> bool) {
        let limit = self.harness.now() + Duration::from_secs(60);
        while !condition(self) {
            assert!(self.harness.now() < limit, "{:?}", self.harness.names());
            self.listen(Duration::from_millis(20));
        }
    }

    /// 20 ms pass: Twilio plays from its buffer.
    fn pass_frame_time(&mut self) {
        self.harness.advance(Duration::from_millis(20));
        self.take_messages();
        let mut budget = FRAME_SAMPLES;
        while let Some(item) = self.buffer.pop_front() {
            match item {
                Buffered::Mark(name) => self.return_mark(&name),
                Buffered::Audio(bytes) if bytes <= budget => {
                    budget -= bytes;
                    self.heard_bytes += bytes;
                }
                Buffered::Audio(bytes) => {
                    self.heard_bytes += budget;
                    self.buffer.push_front(Buffered::Audio(bytes - budget));
                    return;
                }
            }
        }
    }

    fn return_mark(&mut self, name: &str) {
        if self.returns_marks && !self.harness.is_closed() {
            self.send("mark", json!({"mark": {"name": name}}));
        }
    }

    /// Takes what the bridge has sent.
    fn take_messages(&mut self) {
        while let Some((at, frame)) = self.harness.log.get(self.log_position).cloned() {
            self.log_position += 1;
            match frame {
                ClientFrame::Event(message) => self.take_message(at, &message),
                ClientFrame::Binary(_) => panic!("Twilio takes no binary message"),
                ClientFrame::Close(..) => {}
            }
        }
    }

    fn take_message(&mut self, at: Duration, message: &Value) {
        assert_eq!(message["streamSid"], STREAM, "{message}");
        match message["event"].as_str().unwrap() {
            "media" => {
                let mulaw = STANDARD.decode(message["media"]["payload"].as_str().unwrap()).unwrap();
                self.received_since_clear += mulaw.len();
                self.buffer.push_back(Buffered::Audio(mulaw.len()));
                self.received.extend(mulaw);
            }
            "mark" => {
                let name = message["mark"]["name"].as_str().unwrap().to_owned();
                self.marks.push((at, name.clone()));
                self.buffer.push_back(Buffered::Mark(name));
            }
            "clear" => {
                self.clears.push(at);
                self.received_since_clear = 0;
                // Twilio returns the marks that it drops.
                for item in std::mem::take(&mut self.buffer) {
                    if let Buffered::Mark(name) = item {
                        self.return_mark(&name);
                    }
                }
            }
            other => panic!("Twilio knows no {other}: {message}"),
        }
    }

    /// Audio of the caller that was muted, in samples.
    fn muted_samples(&self) -> u64 {
        self.harness.bridge().sample_counts().0.muted
    }
}

/// Silence in mu-law.
fn silence(time: Duration) -> Vec<u8> {
    vec![0xff; time.as_millis() as usize * 8]
}

/// A recording as a phone carries it: 8 kHz mu-law.
fn phone_recording(name: &str) -> Vec<u8> {
    let samples: Vec<f32> = recording(name).iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
    let samples = wav::resample_all(&samples, 16_000, 8_000).unwrap();
    let mut mulaw = Vec::new();
    Encoding::Mulaw.encode(&samples, &mut mulaw);
    mulaw
}
