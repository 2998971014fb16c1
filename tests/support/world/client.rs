//! A client made from its mapping: what it can, and the messages that it sends.
//!
//! To change here: how a kind of protocol spells a request that its mapping alone does not say, such as an item of OpenAI's. Not
//! here: what a client received, which is [`super::received`]'s.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use serde_json::{Value, json};
use voxbridge::{
    audio::{
        encoding::Encoding,
        opus::{PacketEncoder, PacketOptions},
        pcm, wav,
    },
    client::Codec,
    spelling::{
        ClientMapping,
        client::{Framing, LockStep, ProtocolCommand, RealtimeNames, Verb},
        field::{FieldRole, FieldType},
    },
    vocabulary::{ClientRequest, EventName, Frame, Message, Setting},
};

/// Rate of the speech that tests give to clients, Hz.
pub const SPEECH_HZ: u32 = 16_000;
/// Length of the client's audio frames, ms.
pub const FRAME_MS: u64 = 100;

/// A client of one protocol.
pub struct MappedClient {
    mapping: Arc<ClientMapping>,
    /// Formats of its audio, after the opening.
    pub formats: Formats,
    packets: Option<PacketEncoder>,
    /// Messages with audio so far.
    appends: usize,
}

/// Encodings and rates of a client's audio, and what else its opening says.
#[derive(Debug, Clone, Copy)]
pub struct Formats {
    /// Encoding of the client's audio.
    pub encoding_in: Encoding,
    /// Its rate, Hz.
    pub rate_in_hz: u32,
    /// Encoding of the audio to the client.
    pub encoding_out: Encoding,
    /// Its rate, Hz.
    pub rate_out_hz: u32,
    /// The client says when its utterances end.
    pub commits: bool,
}

impl Formats {
    fn new(mapping: &ClientMapping) -> Self {
        let (audio_in, audio_out) = (&mapping.audio_in, &mapping.audio_out);
        Self {
            encoding_in: audio_in.encoding,
            rate_in_hz: audio_in.rate_hz,
            encoding_out: audio_out.encoding,
            rate_out_hz: audio_out.rate_hz,
            commits: mapping.lock_step == LockStep::Finals,
        }
    }

    fn note(&mut self, mapping: &ClientMapping, settings: &[Setting]) {
        for setting in settings {
            match setting {
                Setting::InputEncoding(encoding) => {
                    self.encoding_in = *encoding;
                    let rate = mapping.audio_in.rates_hz.get(encoding);
                    self.rate_in_hz = rate.copied().unwrap_or(self.rate_in_hz);
                }
                Setting::InputRateHz(rate_hz) => self.rate_in_hz = *rate_hz,
                Setting::OutputEncoding(encoding) => {
                    self.encoding_out = *encoding;
                    let rate = mapping.audio_out.rates_hz.get(encoding);
                    self.rate_out_hz = rate.copied().unwrap_or(self.rate_out_hz);
                }
                Setting::OutputRateHz(rate_hz) => self.rate_out_hz = *rate_hz,
                Setting::TurnDetection(detection) => self.commits = !detection.is_automatic,
                _ => {}
            }
        }
    }
}

impl MappedClient {
    /// A client that has sent nothing.
    pub fn new(mapping: &Arc<ClientMapping>) -> Self {
        let formats = Formats::new(mapping);
        let mut client = Self { mapping: mapping.clone(), formats, packets: None, appends: 0 };
        let mut codec = Codec::new(mapping.clone(), 0.0);
        client.formats.note(mapping, &codec.decode_query(&client.query()).settings);
        for message in client.opening() {
            if let Message::Text(text) = message {
                let formats = &mut client.formats;
                let decoded = codec.decode(Frame::Text(&text), |event| {
                    if let ClientRequest::Configure(settings) | ClientRequest::Adjust(settings) = event {
                        formats.note(mapping, &settings);
                    }
                });
                assert!(decoded.is_ok(), "{}: {text}: {decoded:?}", mapping.name);
            }
        }
        let formats = client.formats;
        client.packets = (formats.encoding_in == Encoding::Opus)
            .then(|| PacketEncoder::new(formats.rate_in_hz, PacketOptions::default()).unwrap());
        client
    }

    /// The protocol.
    pub fn mapping(&self) -> &ClientMapping {
        &self.mapping
    }

    /// The query string: a model if the protocol needs one, and interim transcripts if they must be asked for.
    pub fn query(&self) -> String {
        let model = self.mapping.required_model_parameter().map(|name| format!("{name}=any"));
        let is_off = |it: &str| ["false", "0"].contains(&it);
        let partials = self.mapping.query.iter().find(|field| {
            let is_flag = field.file.type_name == FieldType::Flag;
            is_flag
                && field.file.to == Some(FieldRole::Partials)
                && field.file.default.as_deref().is_some_and(is_off)
        });
        let partials = partials.map(|field| format!("{}=true", field.name));
        model.into_iter().chain(partials).collect::<Vec<_>>().join("&")
    }

    /// True if the client sends audio.
    pub fn sends_audio(&self) -> bool {
        self.mapping.audio_in.frame_max_bytes > 0
    }

    /// True if the client gets audio, unless it wants answers in writing.
    pub fn gets_audio(&self) -> bool {
        let mut fields = self.mapping.commands.iter().flat_map(|command| &command.fields);
        let is_written = fields.any(|field| {
            field.file.to == Some(FieldRole::SpokenAnswer) && field.file.default.as_deref() == Some("false")
        });
        self.mapping.audio_out.frame_max_bytes > 0 && !is_written
    }

    /// True if the client has texts spoken.
    pub fn speaks_texts(&self) -> bool {
        self.has_any(&[Verb::Speak, Verb::AppendText]) && self.text("a").is_some()
    }

    /// True if the client gets the user's words.
    pub fn gets_user_words(&self) -> bool {
        let mut names = [
            EventName::TranscriptFinal,
            EventName::UserTranscript,
            EventName::TurnEnded,
            EventName::TranscriptSegment,
        ]
        .into_iter();
        self.is_rust() || names.any(|name| !self.mapping.event(name).is_empty())
    }

    /// True if the client asks the model in writing.
    pub fn asks_texts(&self) -> bool {
        self.question("a").is_some()
    }

    /// True if the request to stop speech also asks the model something.
    pub fn cancels_by_asking(&self) -> bool {
        let cancels =
            |command: &&ProtocolCommand| command.verbs.iter().any(|it| it.verb == Verb::CancelSpeech);
        let command = self.mapping.commands.iter().find(cancels);
        command.is_some_and(|it| it.verbs.iter().any(|it| matches!(it.verb, Verb::Ask | Verb::Tell)))
    }

    /// True if the request to stop speech has the model answer something else.
    pub fn cancels_by_request(&self) -> bool {
        let mut codec = Codec::new(self.mapping.clone(), 0.0);
        let mut answers = false;
        if let Some(Message::Text(text)) = self.cancel() {
            let note = |event: ClientRequest<'_>| answers |= matches!(event, ClientRequest::Answer(_));
            let _ = codec.decode(Frame::Text(&text), note);
        }
        answers
    }

    /// True if Rust knows what its messages contain.
    pub fn is_rust(&self) -> bool {
        self.mapping.realtime.is_some() || self.mapping.is_live
    }

    /// The client's first messages. They ask for the user's words, if the protocol leaves that to the client.
    pub fn opening(&self) -> Vec<Message> {
        if self.mapping.is_live {
            return vec![text(self.with(Verb::LiveStart, "session", json!({})))];
        }
        if self.mapping.realtime.is_some() && !self.numbers_input() {
            let transcription = json!({"model": "any"});
            let sessions = [
                json!({"type": "realtime", "audio": {"input": {"transcription": transcription}}}),
                json!({"input_audio_transcription": transcription}),
            ];
            let updates = sessions.map(|session| text(self.with(Verb::SessionUpdate, "session", session)));
            return updates.into_iter().find(|update| self.is_understood(update)).into_iter().collect();
        }
        let Some(message) = self.example(Verb::Configure, "", "") else { return Vec::new() };
        let Ok(mut message) = serde_json::from_str::<Value>(&message) else { return vec![text(message)] };
        let has_verb = |command: &&ProtocolCommand| command.verbs.iter().any(|it| it.verb == Verb::Configure);
        let fields = self.mapping.commands.iter().find(has_verb).into_iter().flat_map(|it| &it.fields);
        for field in fields {
            let roles = [FieldRole::TranscribeUser, FieldRole::AnswerWords, FieldRole::Partials];
            if field.file.to.is_some_and(|role| roles.contains(&role)) {
                let default = format!("/{}", field.name);
                let value = match field.file.type_name {
                    FieldType::Presence => json!({}),
                    _ => true.into(),
                };
                set(&mut message, field.file.at.as_deref().unwrap_or(&default), value);
            }
        }
        vec![text(message.to_string())]
    }

    /// The messages of this speech, int16 mono at [`SPEECH_HZ`]: those of each frame of [`FRAME_MS`].
    pub fn speech(&mut self, samples: &[i16]) -> Vec<Vec<Message>> {
        let Formats { encoding_in, rate_in_hz, .. } = self.formats;
        let format = self.mapping.audio_in.clone();
        let samples = resampled(samples, rate_in_hz);
        if self.mapping.framing == Framing::Announced {
            return self.announced_speech(&samples);
        }
        let frame_samples = (u64::from(rate_in_hz) * FRAME_MS / 1000) as usize;
        let mut messages = Vec::new();
        for frame in samples.chunks(frame_samples) {
            let channels = usize::from(format.channels);
            let interleaved: Vec<f32>;
            let frame = match channels {
                1 => frame,
                _ => {
                    let repeat = |sample: &f32| std::iter::repeat_n(*sample, channels);
                    interleaved = frame.iter().flat_map(repeat).collect();
                    &interleaved
                }
            };
            let mut bytes = Vec::new();
            encoding_in.encode(frame, &mut bytes);
            let parts: Vec<Bytes> = match &mut self.packets {
                Some(encoder) => {
                    let packet_bytes = 2 * encoder.packet_samples();
                    bytes.chunks(packet_bytes).map(|part| encoder.encode(part)).collect()
                }
                None => bytes.chunks(format.frame_max_bytes).map(Bytes::copy_from_slice).collect(),
            };
            messages.push(parts.iter().flat_map(|part| self.audio_messages(part)).collect());
        }
        messages
    }

    /// Speech behind one header, in pieces.
    fn announced_speech(&self, samples: &[f32]) -> Vec<Vec<Message>> {
        let format = &self.mapping.audio_in;
        let mut bytes = Vec::new();
        format.encoding.encode(samples, &mut bytes);
        let Message::Binary(message) = self.mapping.framing.write_audio(&bytes.into(), format.rate_hz, 0.0)
        else {
            unreachable!("audio behind a header is binary")
        };
        let frame_bytes =
            format.encoding.bytes_per_sample() * (u64::from(format.rate_hz) * FRAME_MS / 1000) as usize;
        let frames = message.chunks(frame_bytes);
        frames.map(|part| vec![Message::Binary(Bytes::copy_from_slice(part))]).collect()
    }

    /// The messages with this audio, in the client's encoding.
    pub fn audio_messages(&mut self, audio: &Bytes) -> Vec<Message> {
        if !self.mapping.has_audio_in_json {
            // A rate of 0 is the protocol's own.
            return vec![self.mapping.framing.write_audio(audio, 0, 0.0)];
        }
        let mut base64 = String::new();
        pcm::encode_base64(audio, &mut base64);
        let mut messages = Vec::new();
        if self.appends == 0 && self.numbers_input() {
            messages.extend(self.example(Verb::SessionUpdate, "", "").map(text));
        }
        messages.extend(self.example(Verb::Audio, "", &base64).map(text));
        self.appends += 1;
        messages
    }

    /// Asks for all words so far; `None` if the protocol has no such request.
    pub fn end_of_words(&self) -> Option<Message> {
        self.first(&[Verb::Commit, Verb::Finalize, Verb::Complete])
    }

    /// Has this text spoken; `None` if the protocol has no such request.
    pub fn text(&self, words: &str) -> Option<Vec<Message>> {
        let speak = self.example(Verb::Speak, words, "").map(text);
        if let Some(speak) = speak.filter(|message| self.is_understood(message)) {
            return Some(vec![speak]);
        }
        let append = self.example(Verb::AppendText, words, "").map(text)?;
        let flush = self.first(&[Verb::Flush, Verb::SpeakAppended]);
        Some(std::iter::once(append).chain(flush).collect())
    }

    /// Asks the model in writing; `None` if the protocol has no such request.
    pub fn question(&self, words: &str) -> Option<Vec<Message>> {
        if self.mapping.realtime.is_some() {
            let content = json!([{"type": "input_text", "text": words}]);
            let item = json!({"type": "message", "role": "user", "content": content});
            self.example(Verb::ItemCreate, "", "")?;
            let create = self.with(Verb::ItemCreate, "item", item);
            let respond = self.example(Verb::ResponseCreate, "", "")?;
            return Some(vec![text(create), text(respond)]);
        }
        let ask = text(self.example(Verb::Ask, words, "")?);
        Some(vec![ask])
    }

    /// Stops speech; `None` if the protocol has no such request.
    pub fn cancel(&self) -> Option<Message> {
        self.first(&[Verb::CancelSpeech, Verb::ResponseCancel, Verb::Clear])
    }

    /// Says that the client is there; `None` if the protocol has no such message.
    pub fn keep_alive(&self) -> Option<Message> {
        self.first(&[Verb::KeepAlive])
    }

    /// Ends the session once everything is answered; `None` if the client just leaves.
    pub fn goodbye(&self) -> Option<Message> {
        self.first(&[Verb::Finish, Verb::Close, Verb::CancelSession])
    }

    /// True if the protocol has one of these verbs.
    pub fn has_any(&self, verbs: &[Verb]) -> bool {
        verbs.iter().any(|verb| self.mapping.has_verb(*verb))
    }

    fn first(&self, verbs: &[Verb]) -> Option<Message> {
        verbs.iter().find_map(|verb| self.example(*verb, "", "")).map(text)
    }

    fn numbers_input(&self) -> bool {
        self.mapping.realtime.as_ref().is_some_and(RealtimeNames::numbers_input)
    }

    /// A message with another member.
    fn with(&self, verb: Verb, member: &str, value: Value) -> String {
        let message = self.mapping.example(verb, "", "").unwrap();
        let mut message: Value = serde_json::from_str(&message).unwrap();
        message[member] = value;
        message.to_string()
    }

    /// A message with this verb. Where the input is numbered, it has its number.
    fn example(&self, verb: Verb, words: &str, audio: &str) -> Option<String> {
        let message = self.mapping.example(verb, words, audio)?;
        if !self.numbers_input() {
            return Some(message);
        }
        let mut message: Value = serde_json::from_str(&message).unwrap();
        message["event_id"] = "mapped".into();
        match verb {
            Verb::Audio => message["sglang"] = json!({"seq": self.appends}),
            Verb::SessionUpdate => message["session"] = json!({}),
            _ => {}
        }
        Some(message.to_string())
    }

    /// True if a fresh session takes the message.
    fn is_understood(&self, message: &Message) -> bool {
        let Message::Text(text) = message else { return true };
        Codec::new(self.mapping.clone(), 0.0).decode(Frame::Text(text), |_| ()).is_ok()
    }
}

/// Speech at another rate. What was resampled once is kept, because a test program has the same words said by all clients.
fn resampled(samples: &[i16], rate_hz: u32) -> Arc<Vec<f32>> {
    type Kept = BTreeMap<(u32, Vec<i16>), Arc<Vec<f32>>>;
    static KEPT: Mutex<Kept> = Mutex::new(BTreeMap::new());
    if samples.iter().all(|sample| *sample == 0) {
        let count = samples.len() as u64 * u64::from(rate_hz) / u64::from(SPEECH_HZ);
        return Arc::new(vec![0.0; count as usize]);
    }
    let make = || {
        let samples: Vec<f32> = samples.iter().map(|sample| pcm::to_f32(*sample)).collect();
        Arc::new(wav::resample_all(&samples, SPEECH_HZ, rate_hz).unwrap())
    };
    KEPT.lock().unwrap().entry((rate_hz, samples.to_vec())).or_insert_with(make).clone()
}

/// Sets a value by JSON pointer, with the objects around it.
fn set(message: &mut Value, pointer: &str, value: Value) {
    let mut place = message;
    for name in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[name];
    }
    *place = value;
}

const fn text(message: String) -> Message {
    Message::Text(message)
}
