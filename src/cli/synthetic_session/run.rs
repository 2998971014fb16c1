//! The run of a synthetic session: drives the bridge, sends what the client sends, and answers as the upstream. A part of the
//! program, so it shares [`Bridge::step`] with the tests, and not their clients and servers.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::{Value, json};

use super::SyntheticSession;
use crate::{
    audio::{
        SPEECH_RATE_HZ,
        encoding::Encoding,
        opus::{PacketEncoder, PacketOptions},
        pcm, wav,
    },
    bridge::{Bridge, Input, Output},
    cli::demo::RECORDING,
    client::Codec,
    error::ErrorKind,
    session::{Observation, SessionSetup},
    spelling::{
        client::{Framing, RealtimeNames, Verb},
        upstream::{ReceiveName, SendName},
    },
    upstream::Dialect,
    vocabulary::{AnswerPart, DisconnectReason, EventName, Frame, Lane, LaneRequest, Message, Mode, Slot},
};

/// Words of the scripted upstream, and the text that the client has spoken.
const WORDS: &str = "synthetic words";
/// Speech of the client: the first sentence of the recording, followed by silence.
const SPEECH: Duration = Duration::from_millis(3000);
const SILENCE: Duration = Duration::from_millis(4000);
/// Length of the client's audio frames.
const FRAME: Duration = Duration::from_millis(100);
/// Units of a conversation before the model answers: the user has finished by then.
const UNITS_BEFORE_ANSWER: usize = 5;
/// Time from a message to the upstream's reply.
const REPLY_DELAY: Duration = Duration::from_millis(300);

/// State of one upstream connection.
struct ScriptedLane {
    mode: Mode,
    is_ready: bool,
    requests: usize,
}

/// An input that follows from the last outputs.
enum Reply {
    Opened(Lane),
    Text(Lane, String),
    /// A second of speech in a body.
    Speech(Lane),
    Answer(Lane, AnswerPart),
    Closed(Lane),
}

/// Makes a further message of the client from the one that follows it.
#[cfg(test)]
pub(super) type FurtherMessage = Box<dyn FnMut(&Message) -> Option<Message>>;

/// A running session: the bridge, the client and the scripted upstream.
pub(super) struct SessionRun<'s> {
    session: &'s SyntheticSession,
    bridge: Bridge,
    now: Instant,
    wakeup: Option<Instant>,
    close_message: String,
    lanes: BTreeMap<Lane, ScriptedLane>,
    /// Replies under way, and when they arrive.
    replies: VecDeque<(Instant, Reply)>,
    opened_lanes: usize,
    requests: usize,
    sent_appends: usize,
    pub(super) has_transcript: bool,
    pub(super) has_audio: bool,
    pub(super) is_finished: bool,
    pub(super) errors: Vec<String>,
    /// A further message of the client before this one.
    #[cfg(test)]
    pub(super) before_each: Option<FurtherMessage>,
    /// All messages to the client.
    #[cfg(test)]
    pub(super) got: Vec<Message>,
}

impl<'s> SessionRun<'s> {
    /// Opens the session at this instant.
    pub(super) fn new(session: &'s SyntheticSession, epoch: Instant) -> Self {
        let SyntheticSession { client, profile, dialect } = session;
        let mut codec = Codec::new(client.clone(), 0.0);
        let model = client.required_model_parameter();
        let connect = codec.decode_query(&model.map(|name| format!("{name}=synthetic")).unwrap_or_default());
        let setup = SessionSetup::new(client, profile.clone(), &dialect.clone().into(), 1);
        let mut run = Self {
            session,
            bridge: Bridge::open(epoch, codec, connect, dialect.clone(), setup),
            now: epoch,
            wakeup: None,
            close_message: Dialect::new(dialect.clone()).encode(&LaneRequest::Close, profile.mode),
            lanes: BTreeMap::new(),
            replies: VecDeque::new(),
            opened_lanes: 0,
            requests: 0,
            sent_appends: 0,
            has_transcript: false,
            has_audio: false,
            is_finished: false,
            errors: Vec::new(),
            #[cfg(test)]
            before_each: None,
            #[cfg(test)]
            got: Vec::new(),
        };
        run.step(None);
        run
    }

    /// How far an utterance came.
    pub(super) const fn progress(&self) -> &'static str {
        match (self.opened_lanes, self.requests) {
            (0, _) => "the detector finds no speech in the audio",
            (_, 0) => "the upstream session never becomes ready",
            _ => "the upstream's answer has no effect",
        }
    }

    /// Sends the first of these commands that the protocol has.
    pub(super) fn send_first(&mut self, verbs: &[Verb]) -> bool {
        let message = verbs.iter().find_map(|verb| self.example(*verb, ""));
        message.map(|message| self.send(Message::Text(message))).is_some()
    }

    /// A message of the client. Where the input is numbered, it has its number.
    fn example(&self, verb: Verb, audio: &str) -> Option<String> {
        let client = &self.session.client;
        let message = client.example(verb, WORDS, audio)?;
        if !client.realtime.as_ref().is_some_and(RealtimeNames::numbers_input) {
            return Some(message);
        }
        let mut message: Value = serde_json::from_str(&message).ok()?;
        message["event_id"] = "synthetic".into();
        match verb {
            Verb::Audio => message["sglang"] = json!({"seq": self.sent_appends}),
            Verb::SessionUpdate => message["session"] = json!({}),
            _ => {}
        }
        Some(message.to_string())
    }

    /// Sends the client's speech in real time.
    pub(super) fn send_speech(&mut self) {
        let session = self.session;
        let format = &session.client.audio_in;
        if format.frame_max_bytes == 0 {
            return;
        }
        let count =
            |duration: Duration, rate_hz: u32| duration.as_millis() as usize * rate_hz as usize / 1000;
        // The recording and its rate are valid, and a rate that the resampler rejects is an error of the session.
        let (mut samples, rate_hz) =
            wav::read(RECORDING, Duration::from_secs(60)).unwrap_or((Vec::new(), SPEECH_RATE_HZ));
        samples.truncate(count(SPEECH, rate_hz));
        samples.resize(count(SPEECH + SILENCE, rate_hz), 0.0);
        let samples = wav::resample_all(&samples, rate_hz, format.rate_hz).unwrap_or_default();
        let packets = PacketEncoder::new(format.rate_hz, PacketOptions::default());
        let mut packets = packets.ok().filter(|_| format.encoding == Encoding::Opus);
        if session.client.framing == Framing::Announced {
            return self.send_announced(&samples);
        }
        for frame in samples.chunks(count(FRAME, format.rate_hz).max(1)) {
            let channels = usize::from(format.channels);
            let interleaved: Vec<f32> =
                frame.iter().flat_map(|sample| std::iter::repeat_n(*sample, channels)).collect();
            let mut bytes = Vec::new();
            format.encoding.encode(&interleaved, &mut bytes);
            match &mut packets {
                Some(encoder) => {
                    for part in bytes.chunks(2 * encoder.packet_samples()) {
                        self.send_audio(&encoder.encode(part));
                    }
                }
                None => bytes.chunks(format.frame_max_bytes).for_each(|part| self.send_audio(part)),
            }
            self.advance(FRAME);
        }
    }

    /// Sends the speech behind one header, in real time.
    fn send_announced(&mut self, samples: &[f32]) {
        let client = self.session.client.clone();
        let format = &client.audio_in;
        let mut bytes = Vec::new();
        format.encoding.encode(samples, &mut bytes);
        let Message::Binary(message) = client.framing.write_audio(&bytes.into(), format.rate_hz, 0.0) else {
            return;
        };
        let second = format.encoding.bytes_per_sample() * format.rate_hz as usize;
        for part in message.chunks((second / 10).max(1)) {
            self.send(Message::Binary(Bytes::copy_from_slice(part)));
            self.advance(FRAME);
        }
    }

    fn send_audio(&mut self, bytes: &[u8]) {
        if !self.session.client.has_audio_in_json {
            // A rate of 0 is the protocol's own.
            let framing = self.session.client.framing;
            return self.send(framing.write_audio(&Bytes::copy_from_slice(bytes), 0, 0.0));
        }
        let mut audio = String::new();
        pcm::encode_base64(bytes, &mut audio);
        if self.sent_appends == 0
            && self.session.client.realtime.as_ref().is_some_and(RealtimeNames::numbers_input)
        {
            self.send_first(&[Verb::SessionUpdate]);
        }
        let message = self.example(Verb::Audio, &audio);
        self.sent_appends += 1;
        message.into_iter().for_each(|message| self.send(Message::Text(message)));
    }

    /// Sends a message of the client.
    fn send(&mut self, message: Message) {
        #[cfg(test)]
        if let Some(changed) = self.before_each.as_mut().and_then(|before| before(&message)) {
            self.feed_message(&changed);
        }
        self.feed_message(&message);
    }

    fn feed_message(&mut self, message: &Message) {
        match message {
            Message::Text(text) => self.feed(Input::Client(Frame::Text(text))),
            Message::Binary(bytes) => self.feed(Input::Client(Frame::Binary(bytes))),
            Message::Close(..) => {}
        }
    }

    /// Lets this time pass.
    pub(super) fn advance(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(at) = self.next_event().filter(|at| *at <= end && !self.is_finished) {
            let is_reply = self.replies.front().is_some_and(|(due, _)| *due <= at);
            match is_reply.then(|| self.replies.pop_front()).flatten() {
                Some((due, reply)) => {
                    self.now = due.max(self.now);
                    self.feed_reply(&reply);
                }
                None => {
                    // Time passes, so that a session with timeouts in a row ends as well.
                    self.now = at.max(self.now + Duration::from_millis(1));
                    self.feed(Input::Timeout);
                }
            }
        }
        self.now = end.max(self.now);
    }

    /// When the next reply arrives or the session wants to be called.
    fn next_event(&self) -> Option<Instant> {
        self.replies.front().map(|(due, _)| *due).into_iter().chain(self.wakeup).min()
    }

    /// Passes an input to the session and handles what follows.
    pub(super) fn feed(&mut self, input: Input<'_>) {
        if !self.is_finished {
            self.step(Some(input));
        }
    }

    fn step(&mut self, input: Option<Input<'_>>) {
        let mut outputs = Vec::new();
        let is_endless = self.bridge.step(self.now, input, &mut outputs);
        outputs.into_iter().for_each(|output| self.handle_output(output));
        if let Err(endless) = is_endless {
            self.is_finished = true;
            self.errors.push(endless.to_string());
        }
    }

    fn feed_reply(&mut self, reply: &Reply) {
        let input = match reply {
            Reply::Opened(lane) => Input::LaneOpened(*lane),
            Reply::Text(lane, text) => Input::Lane(*lane, Frame::Text(text)),
            Reply::Speech(lane) => Input::Lane(*lane, Frame::Binary(&[15; 48_000])),
            Reply::Answer(lane, part) => Input::Answer(*lane, part.clone()),
            Reply::Closed(lane) => Input::LaneClosed(*lane, DisconnectReason::Closed(1000, String::new())),
        };
        let (Reply::Opened(lane)
        | Reply::Text(lane, _)
        | Reply::Speech(lane)
        | Reply::Answer(lane, _)
        | Reply::Closed(lane)) = reply;
        if self.lanes.contains_key(lane) {
            self.feed(input);
        }
    }

    fn handle_output(&mut self, output: Output) {
        match output {
            Output::Wait(wakeup) => self.wakeup = wakeup,
            Output::Finished => self.is_finished = true,
            Output::ToClient(message, turn) => {
                self.has_audio |= turn.is_some();
                #[cfg(test)]
                self.got.push(message.clone());
                if let Message::Text(text) = message {
                    self.has_transcript |= self.is_transcript(&text);
                }
            }
            Output::OpenLane(lane, mode, _) => {
                self.opened_lanes += 1;
                self.lanes.insert(lane, ScriptedLane { mode, is_ready: false, requests: 0 });
                self.push_reply(Reply::Opened(lane));
                self.reply(lane, ReceiveName::Granted, "");
            }
            Output::ToLane(lane, Message::Text(text)) => self.answer(lane, &text),
            Output::ToLane(lane, Message::Close(..)) => self.push_reply(Reply::Closed(lane)),
            Output::Request(lane, request) => self.answer_request(lane, &request.path),
            Output::CloseLane(lane) => drop(self.lanes.remove(&lane)),
            // The detector may have ended the utterance before the commit.
            Output::Observe(Observation::ErrorTold(error)) if error.kind == ErrorKind::EmptyCommit => {}
            Output::Observe(Observation::ErrorTold(error)) => self.errors.push(error.to_string()),
            Output::Observe(Observation::UnknownFromLane { words, .. }) => self.errors.push(words),
            _ => {}
        }
    }

    /// True for a final transcript with all words.
    fn is_transcript(&self, message: &str) -> bool {
        let finals = [EventName::TranscriptFinal, EventName::UserTranscript];
        finals.into_iter().any(|name| self.session.client.is_event(name, Slot::Text, WORDS, message))
    }

    /// Answers a message as a MiniCPM-o server does.
    fn answer(&mut self, lane: Lane, message: &str) {
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        if message == self.close_message {
            self.reply(lane, ReceiveName::Closed, "");
            return self.push_reply(Reply::Closed(lane));
        }
        if !std::mem::replace(&mut state.is_ready, true) {
            return self.reply(lane, ReceiveName::Ready, "");
        }
        state.requests += 1;
        self.requests += 1;
        if state.mode != Mode::Chat && state.requests != UNITS_BEFORE_ANSWER {
            return self.reply(lane, ReceiveName::Listen, "");
        }
        let mut audio = String::new();
        pcm::encode_base64_f32(&[4000; 12_000], &mut audio);
        for event in [ReceiveName::Output, ReceiveName::Text, ReceiveName::Audio] {
            self.reply(lane, event, &audio);
        }
        self.reply(lane, ReceiveName::Done, "");
    }

    /// Answers an HTTP request: by a body of speech where only texts to speak go, otherwise by a stream.
    fn answer_request(&mut self, lane: Lane, path: &str) {
        self.requests += 1;
        let is_for = |name| self.session.dialect.request_path(name) == Some(path);
        let is_speech = is_for(SendName::Speak) && !is_for(SendName::Transcribe) && !is_for(SendName::Chat);
        let content_type = if is_speech { "audio/pcm" } else { "text/event-stream" };
        let head = AnswerPart::Head { status: 200, content_type: content_type.to_owned() };
        self.push_reply(Reply::Answer(lane, head));
        if is_speech {
            self.push_reply(Reply::Speech(lane));
        } else {
            let mut audio = String::new();
            pcm::encode_base64_s16(&[4000; 12_000], &mut audio);
            for event in [ReceiveName::Text, ReceiveName::Audio] {
                self.reply(lane, event, &audio);
            }
        }
        self.push_reply(Reply::Answer(lane, AnswerPart::End));
    }

    fn reply(&mut self, lane: Lane, event: ReceiveName, audio: &str) {
        let message = self.session.dialect.example(event, WORDS, audio);
        message.into_iter().for_each(|text| self.push_reply(Reply::Text(lane, text)));
    }

    fn push_reply(&mut self, reply: Reply) {
        self.replies.push_back((self.now + REPLY_DELAY, reply));
    }
}
