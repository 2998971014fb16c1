//! Readable form of events, for logs, traces, `voxbridge mappings try` and the playground: the words of mapping files, with
//! audio, voices and pictures by their length.

use std::fmt::{self, Display, Formatter};

use super::{
    AnswerRequest, ClientEvent, Entry, EntryPart, EntryPlace, LaneEvent, MicrophoneMode, Setting,
    SpeakRequest, TurnDetection, UpstreamEnd,
    relay::{RelayClientEvent, RelayInput, RelayOpening, RelayUpstreamEvent, StepOutput},
};
use crate::audio::{encoding::Encoding, vad::Sensitivity};

/// A text in quotes, without control characters.
struct Quoted<'t>(&'t str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Length of something that is not shown.
struct Length(usize, &'static str);

impl Display for Length {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}

fn base64_length(base64: &str) -> Length {
    Length(base64.len(), "characters of base64")
}

/// Elements with commas between them.
struct List<'t, T>(&'t [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, element) in self.0.iter().enumerate() {
            let separator = if at > 0 { ", " } else { "" };
            write!(f, "{separator}{element}")?;
        }
        Ok(())
    }
}

/// Writes a name and its fields: `name: field = value, field = value`.
struct Fields<'f, 'w> {
    f: &'f mut Formatter<'w>,
    separator: &'static str,
}

impl<'f, 'w> Fields<'f, 'w> {
    fn after(name: &str, f: &'f mut Formatter<'w>) -> Result<Self, fmt::Error> {
        f.write_str(name)?;
        Ok(Self { f, separator: ": " })
    }

    fn add(&mut self, name: &str, value: impl Display) -> fmt::Result {
        self.text(format_args!("{name} = {value}"))
    }

    fn add_some(&mut self, name: &str, value: Option<impl Display>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.add(name, value))
    }

    fn text(&mut self, text: impl Display) -> fmt::Result {
        write!(self.f, "{}{text}", self.separator)?;
        self.separator = ", ";
        Ok(())
    }
}

impl Display for ClientEvent<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Audio(bytes) => write!(f, "audio: {} bytes", bytes.len()),
            Self::Played(turn) => write!(f, "played: turn = {}", turn.0),
            Self::Configure(settings) if settings.is_empty() => f.write_str("configure"),
            Self::Configure(settings) => write!(f, "configure: {}", List(settings)),
            Self::Speak(request) => write!(f, "{request}"),
            Self::CancelSpeech => f.write_str("cancel_speech"),
            Self::AppendText(text) => write!(f, "append_text: {}", Quoted(text)),
            Self::Flush => f.write_str("flush"),
            Self::Clear => f.write_str("clear"),
            Self::Commit { may_be_empty: true } => f.write_str("commit"),
            Self::Commit { may_be_empty: false } => f.write_str("commit, with speech"),
            Self::Finalize => f.write_str("finalize"),
            Self::Finish => f.write_str("finish"),
            Self::KeepAlive => f.write_str("keep_alive"),
            Self::VideoFrame(frame) => write!(f, "frame: {} bytes", frame.0.len()),
            Self::ClearAudio => f.write_str("clear_audio"),
            Self::AddEntry(entry, place) => write!(f, "add entry {place}: {entry}"),
            Self::RemoveEntry(id) => write!(f, "remove entry {}", id.0),
            Self::TruncateEntry(id, heard_ms) => write!(f, "cut entry {} after {heard_ms} ms", id.0),
            Self::Answer(request) => write!(f, "{request}"),
            Self::Close(reason) => write!(f, "close: {}", reason.name()),
        }
    }
}

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Language(code) => write!(f, "language = {code}"),
            Self::HotWords(words) => write!(f, "hot_words = [{}]", words.join(", ")),
            Self::TranscriptionPrompt(text) => write!(f, "transcription_prompt = {}", Quoted(text)),
            Self::Translation(is_on) => {
                write!(f, "task = {}", if *is_on { "translate" } else { "transcribe" })
            }
            Self::VadSensitivity(sensitivity) => {
                write!(f, "vad_sensitivity = {}", sensitivity_name(*sensitivity))
            }
            Self::EndSilence(silence) => write!(f, "end_silence_ms = {}", silence.as_millis()),
            Self::SegmentMax(length) => write!(f, "segment_max_ms = {}", length.as_millis()),
            Self::Partials(is_on) => write!(f, "partials = {is_on}"),
            Self::WordTimes(is_on) => write!(f, "word_times = {is_on}"),
            Self::SpeakModel(name) => write!(f, "speak_model = {name}"),
            Self::SpeakModelIfKnown(name) => write!(f, "speak_model_if_known = {name}"),
            Self::Voice(name) => write!(f, "voice = {name}"),
            Self::InputEncoding(encoding) => write!(f, "input_encoding = {}", encoding_name(*encoding)),
            Self::InputRate(rate_hz) => write!(f, "input_rate_hz = {rate_hz}"),
            Self::InputChannels(channels) => write!(f, "input_channels = {channels}"),
            Self::OutputEncoding(encoding) => write!(f, "output_encoding = {}", encoding_name(*encoding)),
            Self::OutputRate(rate_hz) => write!(f, "output_rate_hz = {rate_hz}"),
            Self::SpeechEvents(is_on) => write!(f, "speech_events = {is_on}"),
            Self::UtteranceGap(gap) => write!(f, "utterance_gap_ms = {}", gap.as_millis()),
            Self::Microphone(MicrophoneMode::Open) => f.write_str("microphone = open"),
            Self::Microphone(MicrophoneMode::Muted) => f.write_str("microphone = muted"),
            Self::RolloverEvents(is_on) => write!(f, "rollover_events = {is_on}"),
            Self::Instructions(text) => write!(f, "instructions = {}", Quoted(text)),
            Self::TurnDetection(detection) => write!(f, "turn_detection = {detection}"),
            Self::SpokenAnswers(is_on) => write!(f, "spoken_answers = {is_on}"),
            Self::TranscribeUser(is_on) => write!(f, "transcribe_user = {is_on}"),
        }
    }
}

fn encoding_name(encoding: Encoding) -> &'static str {
    Encoding::ALL.iter().find(|(_, known)| *known == encoding).map_or("unknown", |(name, _)| name)
}

const fn sensitivity_name(sensitivity: Sensitivity) -> &'static str {
    match sensitivity {
        Sensitivity::High => "high",
        Sensitivity::Normal => "normal",
        Sensitivity::Low => "low",
    }
}

impl Display for TurnDetection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { is_automatic, answers, client_asks, interrupts } = *self;
        f.write_str(if is_automatic { "automatic" } else { "by commits" })?;
        f.write_str(if answers { ", with answers" } else { ", without answers" })?;
        f.write_str(if client_asks { ", the client asks for answers" } else { "" })?;
        f.write_str(if interrupts { ", speech interrupts" } else { ", speech does not interrupt" })
    }
}

impl Display for SpeakRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut fields = Fields::after("speak", f)?;
        fields.text(Quoted(&self.text))?;
        fields.add_some("request_id", self.request_id.as_ref())?;
        fields.add_some("voice", self.voice.as_ref())?;
        fields.add_some("language", self.language.as_ref())?;
        let reference = self.reference.as_ref().map(|voice| Length(voice.samples.len(), "samples"));
        fields.add_some("reference_audio", reference)?;
        fields.add_some("instruction", self.instruction.as_deref().map(Quoted))
    }
}

impl Display for AnswerRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut fields = Fields::after("answer", f)?;
        fields.add_some("instructions", self.instructions.as_deref().map(Quoted))?;
        fields.add_some("spoken", self.speaks)?;
        fields.add_some("max_tokens", self.max_tokens)?;
        fields.add_some("entries", self.entries.as_deref().map(|entries| format!("[{}]", List(entries))))?;
        if self.is_remembered { Ok(()) } else { fields.text("not part of the conversation") }
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {}", self.id.0, self.role.name(), List(&self.parts))
    }
}

impl Display for EntryPart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{}", Quoted(text)),
            Self::Picture(bytes) => write!(f, "picture of {} bytes", bytes.len()),
            Self::Audio(samples) => write!(f, "audio of {} samples", samples.len()),
        }
    }
}

impl Display for EntryPlace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("at the end"),
            Self::Front => f.write_str("at the front"),
            Self::After(id) => write!(f, "after {}", id.0),
        }
    }
}

impl Display for LaneEvent<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued { position, length, wait_s } => {
                write!(f, "queued: {}", describe_queue(*position, *length, *wait_s))
            }
            Self::Granted => f.write_str("granted"),
            Self::Ready { session_id } => Fields::after("ready", f)?.add_some("session_id", *session_id),
            Self::Listen => f.write_str("listen"),
            Self::Text(text) => write!(f, "text: {}", Quoted(text)),
            Self::Audio(samples) => write!(f, "audio: {} samples", samples.len()),
            Self::Done { text, audio } => {
                let mut fields = Fields::after("done", f)?;
                fields.add_some("text", text.map(Quoted))?;
                fields.add("audio", Length(audio.len(), "samples"))
            }
            Self::RecoverableError(detail) => write!(f, "failed, and goes on: {detail}"),
            Self::Closed(end) => write!(f, "closed: {end}"),
            Self::Unknown(words) => write!(f, "unknown: {words}"),
        }
    }
}

/// Position in an upstream's queue.
#[must_use]
pub fn describe_queue(position: Option<u32>, length: Option<u32>, wait_s: Option<f64>) -> String {
    let position = position.map_or("unknown".to_owned(), |position| position.to_string());
    let length = length.map_or(String::new(), |length| format!(" of {length}"));
    let wait = wait_s.map_or(String::new(), |wait| format!(", about {wait:.0} s"));
    format!("position {position}{length}{wait}")
}

impl Display for UpstreamEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.detail.is_empty() { "without a reason" } else { &self.detail })
    }
}

impl Display for RelayClientEvent<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(opening) => write!(f, "{opening}"),
            Self::Append(input) => write!(f, "{input}"),
            Self::Close(reason) => Fields::after("close", f)?.add_some("reason", *reason),
            Self::Unknown(words) => write!(f, "unknown: {words}"),
        }
    }
}

impl Display for RelayOpening<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut fields = Fields::after("open", f)?;
        fields.add_some("prompt", self.prompt.map(Quoted))?;
        fields.add_some("config", self.config)?;
        fields.add_some("voice", self.voice.map(base64_length))?;
        fields.add_some("speech_voice", self.speech_voice.map(base64_length))?;
        fields.add_some("slice_max", self.slice_max)
    }
}

impl Display for RelayInput<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut fields = Fields::after("append", f)?;
        fields.add_some("audio", self.audio.map(base64_length))?;
        fields.add_some("frames", self.frames.map(<[_]>::len))?;
        fields.add_some("force_listen", self.force_listen)?;
        fields.add_some("slice_max", self.slice_max)?;
        fields.add_some("input_id", self.input_id)?;
        fields.add_some("response_id", self.response_id)
    }
}

impl Display for RelayUpstreamEvent<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Speech(base64) => write!(f, "audio: {}", base64_length(base64)),
            Self::Output(StepOutput { text, audio, end_of_turn }) => {
                let mut fields = Fields::after("output", f)?;
                fields.add("text", Quoted(text))?;
                fields.add_some("audio", audio.map(base64_length))?;
                fields.add("end_of_turn", end_of_turn)
            }
            Self::Answered(text, audio) => {
                let mut fields = Fields::after("done", f)?;
                fields.add_some("text", text.map(Quoted))?;
                fields.add_some("audio", audio.map(base64_length))
            }
            Self::Ended(reason, end) => write!(f, "closed: {}: {end}", reason.name()),
            Self::Queued(_)
            | Self::Granted
            | Self::Opened(_)
            | Self::Listening
            | Self::Text(_)
            | Self::Failed(..)
            | Self::Unknown(_) => write!(f, "{}", self.to_lane_event()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::event::{EntryId, Role};

    #[test]
    fn events_read_as_in_mapping_files() {
        let settings = vec![
            Setting::InputEncoding(Encoding::S16le),
            Setting::EndSilence(Duration::from_millis(300)),
            Setting::HotWords(vec!["Pix".to_owned(), "Macaw".to_owned()]),
            Setting::VadSensitivity(Sensitivity::High),
        ];
        let speak =
            SpeakRequest { text: "Say \"hi\".".to_owned(), voice: Some("ana".into()), ..Default::default() };
        let parts = vec![EntryPart::Text("look".to_owned()), EntryPart::Audio(Arc::new(vec![0; 160]))];
        let entry = Entry { id: EntryId(3), role: Role::User, parts };
        let opening = RelayOpening { voice: Some("AAAA"), slice_max: Some(2), ..RelayOpening::default() };
        for (event, words) in [
            (
                ClientEvent::Configure(settings).to_string(),
                "configure: input_encoding = s16le, end_silence_ms = 300, hot_words = [Pix, Macaw], vad_sensitivity = high",
            ),
            (ClientEvent::Speak(Box::new(speak)).to_string(), r#"speak: "Say \"hi\".", voice = ana"#),
            (
                ClientEvent::AddEntry(Box::new(entry), EntryPlace::Front).to_string(),
                r#"add entry at the front: 3 of user: "look", audio of 160 samples"#,
            ),
            (ClientEvent::Answer(Box::default()).to_string(), "answer"),
            (
                LaneEvent::Queued { position: Some(1), length: Some(2), wait_s: None }.to_string(),
                "queued: position 1 of 2",
            ),
            (
                LaneEvent::Done { text: Some("hi"), audio: &[0.0] }.to_string(),
                r#"done: text = "hi", audio = 1 samples"#,
            ),
            (
                RelayClientEvent::Open(opening).to_string(),
                "open: voice = 4 characters of base64, slice_max = 2",
            ),
            (RelayUpstreamEvent::Opened(Some("s1")).to_string(), "ready: session_id = s1"),
        ] {
            assert_eq!(event, words);
        }
    }
}
