//! Upstream codecs: messages of one dialect to and from the neutral vocabulary.
//!
//! Every lane has a [codec](lane::LaneCodec) of its own, from its dial to its end. A codec may keep state: it may turn one
//! command into several messages and one message into several events, grant a lane that has no queue, and say why a
//! lane ended without a word. What differs only in spelling is in the mapping file; a dialect that behaves otherwise
//! becomes another kind of codec there, and the session does not change.
//!
//! To change here: what a server needs beyond its mapping file. Not here: retries, queues and closing, which are the
//! session's.
//!
//! - [`Dialect`] is what all lanes share: the mapping file, and the encoding of single messages
//! - [`lane`] is one lane's codec; the bridge keeps one for each lane
//! - [`http`] is a lane without a WebSocket: each request is an HTTP request; [`sse`] reads event streams
//! - [`sglang_omni`] and [`vllm_omni`] are what these servers do beyond their mapping files
//! - [`chat`] encodes conversations in turns; [`relay`] serves clients of the model's own protocol

mod chat;
mod codec_action;
mod http;
pub mod lane;
pub mod relay;
mod sglang_omni;
pub mod sse;
mod vllm_omni;

use std::sync::Arc;

use crate::{
    audio::{SPEECH_RATE_HZ, pcm, scratch, wav},
    event::{
        EndKind, Frame, LaneCommand, LaneEvent, MessageMeta, Mode, UnitInput, UpstreamEnd, VoiceEncoding,
        VoiceSample,
        relay::{ModelOutput, QueuePosition, RelayEndReason, StepOutput, UpstreamMessage},
    },
    foreign::shortened,
    mapping::{
        UpstreamMapping,
        extract::{ExtractedValues, Node},
        template::SlotValue,
        upstream::{ReceiveName, ReceiveRule, SampleEncoding, SendName},
    },
};

/// Longest audio of one message that is decoded, characters of base64: 120 s at 24 kHz. A model sends 1 s. The player takes
/// less and reports that the rest is dropped.
const AUDIO_MAX_CHARS: usize = 120 * 24_000 * 4 / 3 * 4;

/// Messages of a dialect, without the state of a lane.
#[derive(Debug, Clone)]
pub struct Dialect {
    mapping: Arc<UpstreamMapping>,
    /// Mode of the lane, if there is one.
    mode: Option<Mode>,
}

impl Dialect {
    /// The dialect of a mapping file.
    pub const fn new(mapping: Arc<UpstreamMapping>) -> Self {
        Self { mapping, mode: None }
    }

    /// The dialect on a lane of this mode.
    const fn in_mode(mapping: Arc<UpstreamMapping>, mode: Mode) -> Self {
        Self { mapping, mode: Some(mode) }
    }

    /// Mapping that defines the dialect.
    pub const fn mapping(&self) -> &Arc<UpstreamMapping> {
        &self.mapping
    }

    /// Decodes one frame. An unreadable frame becomes [`LaneEvent::Unknown`], never an error.
    ///
    /// A message may have several events. They are emitted in order, with the same metadata.
    pub fn decode(&self, frame: Frame<'_>, mut emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>)) {
        self.decode_message(frame, |message, meta| {
            let mut samples = scratch::take();
            let format = (self.mapping.output_encoding, self.mapping.output_rate_hz);
            emit_events(message, (format, &mut samples), |event| emit(event, meta));
            scratch::put_back(samples);
        });
    }

    /// Decodes one frame, which has two messages if it brings text and audio. The audio stays base64.
    pub fn decode_message(
        &self,
        frame: Frame<'_>,
        mut emit: impl FnMut(&UpstreamMessage<'_>, MessageMeta<'_>),
    ) {
        let unknown = match frame {
            Frame::Binary(_) => "a binary frame".to_owned(),
            Frame::Text(text) => match self.mapping.extractor.extract(text) {
                Ok(found) => match self.mapping.rules.iter().find(|rule| rule_matches(rule, &found)) {
                    Some(rule) => {
                        let meta = message_meta(rule, &found);
                        if let Some(problem) =
                            rule.require.iter().find_map(|it| it.problem(&found, self.mode))
                        {
                            let end = UpstreamEnd { kind: EndKind::UnfitStillOpen, detail: problem };
                            return emit(&UpstreamMessage::Failed(end, false), meta);
                        }
                        emit(&read_message(&self.mapping, rule, &found), meta);
                        if let (true, ReceiveName::Text, Some(audio)) =
                            (self.mapping.is_http(), rule.event, rule.audio)
                            && let Some(audio) = found.get(audio).and_then(Node::as_str)
                        {
                            emit(&UpstreamMessage::Output(ModelOutput::Speech(audio)), meta);
                        }
                        return;
                    }
                    None => describe_message(&self.mapping, &found),
                },
                Err(error) => error.to_string(),
            },
        };
        emit(&UpstreamMessage::Unknown(unknown), MessageMeta::default());
    }

    /// Encoding in which the dialect takes this voice sample. A session with several dialects may have chosen one that this
    /// dialect lacks.
    fn encoding_of(&self, voice: &VoiceSample) -> VoiceEncoding {
        let encodings = &self.mapping.voice_encodings;
        if encodings.contains(&voice.encoding) { voice.encoding } else { encodings[0] }
    }

    /// True if the dialect takes this voice sample as a WAV file; over HTTP, it is one in a data URL.
    fn takes_wav(&self, voice: &VoiceSample) -> bool {
        self.encoding_of(voice) != VoiceEncoding::F32le || self.mapping.is_http()
    }

    /// The settings of a new conversation that the upstream knows; `None` if it takes all.
    fn known_config(&self, command: &LaneCommand) -> Option<String> {
        let LaneCommand::InitConversation(opening) = command else { return None };
        let known = self.mapping.config_keys.as_ref()?;
        let mut config: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&opening.config).unwrap_or_default();
        config.retain(|key, _| known.contains(key));
        Some(serde_json::Value::Object(config).to_string())
    }

    /// Encodes a command as a text message, for a lane in this mode.
    pub fn encode(&self, command: &LaneCommand, mode: Mode) -> String {
        let voice = command.voice();
        // Some dialects have two places for the voice.
        let voice_chars = voice.map_or(0, |voice| 2 * pcm::base64_f32_len(voice.samples.len()));
        let name = message_name(command);
        let capacity = match command {
            LaneCommand::Init(_) => 256 + voice_chars,
            LaneCommand::Transcribe { audio, .. } => 1024 + pcm::base64_f32_len(audio.len()),
            LaneCommand::Speak { request, .. } => 1024 + request.len() + voice_chars,
            LaneCommand::InitConversation(opening) => {
                256 + opening.prompt.len() + opening.config.len() + voice_chars
            }
            LaneCommand::Append(UnitInput { frame, audio, .. }) => {
                let picture_chars = frame.as_ref().map_or(0, |frame| 40 + frame.0.len().div_ceil(3) * 4);
                160 + picture_chars + pcm::base64_f32_len(audio.len())
            }
            LaneCommand::Chat(turn) => return self.encode_chat(turn),
            LaneCommand::Close | LaneCommand::Cancel => 64,
            LaneCommand::RawText(text) => return text.clone(),
        };
        let is_http = self.mapping.is_http();
        let wav = voice.filter(|voice| self.takes_wav(voice)).map(to_wav);
        let is_url = is_http || voice.is_some_and(|voice| self.encoding_of(voice) == VoiceEncoding::WavUrl);
        let is_form = self.mapping.is_form(name);
        let config = self.known_config(command);
        let mut json = String::with_capacity(capacity);
        if let Some(template) = self.mapping.message(name) {
            template.render(&mut json, |slot| match (name.slots()[slot], &wav) {
                ("voice", Some(wav)) if is_url => SlotValue::DataUrl("audio/wav", wav),
                ("voice", Some(wav)) => SlotValue::Base64(wav),
                // It is the form's file.
                ("audio", _) if is_form => SlotValue::Null,
                ("config", _) if config.is_some() => {
                    config.as_deref().map_or(SlotValue::Null, SlotValue::Raw)
                }
                ("mode", _) => SlotValue::Str(self.mapping.mode_name(mode)),
                (slot, _) => match slot_value(command, slot) {
                    SlotValue::Audio(samples) if slot == "audio" => self.mapping.audio_value(samples),
                    value => value,
                },
            });
        }
        json
    }
}

/// Name of the message for a command; of [`SendName::Close`] for a command that has none.
const fn message_name(command: &LaneCommand) -> SendName {
    match command {
        LaneCommand::Init(None) => SendName::Init,
        LaneCommand::Init(Some(_)) => SendName::InitWithVoice,
        LaneCommand::Transcribe { .. } => SendName::Transcribe,
        LaneCommand::Speak { voice: None, .. } => SendName::Speak,
        LaneCommand::Speak { voice: Some(_), .. } => SendName::SpeakWithVoice,
        LaneCommand::InitConversation(opening) if opening.voice.is_some() => SendName::ConverseWithVoice,
        LaneCommand::InitConversation(_) => SendName::Converse,
        LaneCommand::Append(UnitInput { frame: None, .. }) => SendName::Append,
        LaneCommand::Append(UnitInput { frame: Some(_), .. }) => SendName::AppendWithFrame,
        LaneCommand::Chat(turn) if turn.voice.is_some() => SendName::ChatWithVoice,
        LaneCommand::Chat(_) => SendName::Chat,
        LaneCommand::Close | LaneCommand::Cancel | LaneCommand::RawText(_) => SendName::Close,
    }
}

/// A voice sample as a WAV file whose length is never a multiple of four bytes. A server that expects raw float32 then
/// rejects the file instead of playing noise (field notes §3).
fn to_wav(voice: &VoiceSample) -> Vec<u8> {
    let mut samples = voice.samples.to_vec();
    if samples.len().is_multiple_of(2) {
        samples.push(0);
    }
    wav::write_s16(&samples, SPEECH_RATE_HZ)
}

/// Value of a slot. The names are those of [`SendName::slots`].
fn slot_value<'v>(command: &'v LaneCommand, slot: &str) -> SlotValue<'v> {
    match (command, slot) {
        (_, "voice") => command.voice().map_or(SlotValue::Null, |voice| SlotValue::Audio(&voice.samples)),
        (LaneCommand::Transcribe { prompt, .. }, "prompt") => SlotValue::Str(&prompt.instruction),
        (LaneCommand::Transcribe { prompt, .. }, "language") => known_text(&prompt.language),
        (LaneCommand::Transcribe { prompt, .. }, "hints") => known_text(&prompt.hints),
        (LaneCommand::Transcribe { audio, .. }, "audio") => SlotValue::Audio(audio),
        // Without a voice sample the prompt is the second half alone.
        (LaneCommand::Speak { after_voice, .. }, "system" | "after_voice") => SlotValue::Str(after_voice),
        (LaneCommand::Speak { before_voice, .. }, "before_voice") => SlotValue::Str(before_voice),
        (LaneCommand::Speak { request, .. }, "text") => SlotValue::Str(request),
        (LaneCommand::Speak { text, .. }, "words") => SlotValue::Str(text),
        (LaneCommand::InitConversation(opening), "prompt") => SlotValue::Str(&opening.prompt),
        (LaneCommand::InitConversation(opening), "config") => SlotValue::Raw(&opening.config),
        (LaneCommand::Append(append), "audio") => SlotValue::Audio(&append.audio),
        (LaneCommand::Append(append), "input_id") => SlotValue::Str(&append.input_id),
        (LaneCommand::Append(append), "force_listen") => SlotValue::Bool(append.force_listen),
        (LaneCommand::Append(append), "frame") => {
            append.frame.as_ref().map_or(SlotValue::Null, |frame| SlotValue::Base64(&frame.0))
        }
        (LaneCommand::Close, "reason") => SlotValue::Str("turn_done"),
        _ => SlotValue::Null,
    }
}

fn known_text(text: &str) -> SlotValue<'_> {
    Some(text).filter(|text| !text.is_empty()).into()
}

fn message_meta<'f>(rule: &ReceiveRule, found: &'f ExtractedValues<'_>) -> MessageMeta<'f> {
    let text = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_str);
    let tokens = rule.context_tokens.and_then(|slot| found.get(slot)).and_then(Node::as_f64);
    let whole = |slot: Option<usize>| match slot.and_then(|slot| found.get(slot)) {
        Some(Node::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    MessageMeta {
        response_id: text(rule.response_id),
        input_id: text(rule.input_id),
        context_tokens: tokens.map(|tokens| tokens.clamp(0.0, f64::from(u32::MAX)) as u32),
        backend: text(rule.backend),
        sequence: whole(rule.sequence),
        resume_token: text(rule.resume_token),
        unit_ms: whole(rule.unit_ms).and_then(|ms| u32::try_from(ms).ok()),
    }
}

/// Reads a message by its rule.
fn read_message<'f>(
    mapping: &UpstreamMapping,
    rule: &ReceiveRule,
    found: &'f ExtractedValues<'_>,
) -> UpstreamMessage<'f> {
    let text = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_str);
    let number = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_f64);
    let count = |slot| number(slot).map(|number| number.clamp(0.0, f64::from(u32::MAX)) as u32);
    UpstreamMessage::Output(match rule.event {
        ReceiveName::Queued => {
            return UpstreamMessage::Queued(QueuePosition {
                position: count(rule.position),
                length: count(rule.length),
                wait_s: number(rule.wait_s),
                ticket: text(rule.ticket),
            });
        }
        ReceiveName::Granted => return UpstreamMessage::Granted,
        ReceiveName::Ready => return UpstreamMessage::Opened(text(rule.session_id)),
        ReceiveName::Closed => {
            let (reason, detail) = (text(rule.reason), text(rule.detail));
            return UpstreamMessage::Ended(
                end_reason(mapping, reason),
                upstream_end(mapping, reason, detail),
            );
        }
        ReceiveName::Failed => {
            let code = text(rule.code);
            // An error ends the session unless the dialect lists its code.
            let goes_on = code.is_some_and(|code| matches_any(&mapping.meanings.non_fatal, code));
            return UpstreamMessage::Failed(upstream_end(mapping, code, text(rule.detail)), goes_on);
        }
        ReceiveName::Ignored => return UpstreamMessage::Ignored,
        ReceiveName::Listen => ModelOutput::Listening,
        ReceiveName::Text => ModelOutput::Text(text(rule.text).unwrap_or_default()),
        ReceiveName::Audio => ModelOutput::Speech(text(rule.audio).unwrap_or_default()),
        ReceiveName::Done => ModelOutput::Answered(text(rule.text), text(rule.audio)),
        ReceiveName::Output => ModelOutput::Step(StepOutput {
            text: text(rule.text).unwrap_or_default(),
            audio: text(rule.audio).filter(|audio| !audio.is_empty()),
            end_of_turn: rule.end_of_turn.and_then(|slot| found.get(slot)) == Some(&Node::Bool(true)),
        }),
    })
}

/// Emits the events of a message, with decoded audio.
fn emit_events(
    message: &UpstreamMessage<'_>,
    (encoding, samples): ((SampleEncoding, u32), &mut Vec<f32>),
    mut emit: impl FnMut(LaneEvent<'_>),
) {
    match message {
        UpstreamMessage::Output(ModelOutput::Speech(audio)) => emit(audio_event(audio, encoding, samples)),
        UpstreamMessage::Output(ModelOutput::Answered(text, audio)) => {
            // An answer with unreadable audio still counts, for its text.
            let _ = decode_audio(audio.unwrap_or_default(), encoding, samples);
            emit(LaneEvent::Done { text: *text, audio: samples });
        }
        UpstreamMessage::Output(ModelOutput::Step(step)) => emit_step(step, (encoding, samples), emit),
        message => emit(message.to_lane_event()),
    }
}

fn audio_event<'s>(text: &str, encoding: (SampleEncoding, u32), samples: &'s mut Vec<f32>) -> LaneEvent<'s> {
    match decode_audio(text, encoding, samples) {
        Ok(()) => LaneEvent::Audio(samples),
        Err(problem) => LaneEvent::Unknown(problem),
    }
}

/// Emits the events of a message that holds a whole unit: its text, its audio, and one event that ends the unit. A
/// second end could be counted for the next unit, which may be in flight by then.
fn emit_step(
    step: &StepOutput<'_>,
    (encoding, samples): ((SampleEncoding, u32), &mut Vec<f32>),
    mut emit: impl FnMut(LaneEvent<'_>),
) {
    if !step.text.is_empty() {
        emit(LaneEvent::Text(step.text));
    }
    if let Some(base64) = step.audio {
        emit(audio_event(base64, encoding, samples));
    }
    emit(match step.end_of_turn {
        true => LaneEvent::Listen,
        false => LaneEvent::Done { text: None, audio: &[] },
    });
}

fn rule_matches(rule: &ReceiveRule, found: &ExtractedValues<'_>) -> bool {
    rule.when.iter().all(|(slot, values)| {
        let found = found.get(*slot).and_then(Node::as_str);
        found.is_some_and(|found| values.iter().any(|value| value == found))
    })
}

/// Replaces `samples` by the audio of a message, at most [`AUDIO_MAX_CHARS`], at the dialect's rate.
fn decode_audio(
    text: &str,
    (encoding, rate_hz): (SampleEncoding, u32),
    samples: &mut Vec<f32>,
) -> Result<(), String> {
    let data = without_data_prefix(text);
    let data = data.get(..AUDIO_MAX_CHARS).unwrap_or(data);
    let decoded = match encoding {
        SampleEncoding::F32le => pcm::decode_base64_f32(data, samples),
        SampleEncoding::S16le => pcm::decode_base64_s16(data, samples),
        SampleEncoding::Wav => return http::decode_base64_wav(data, rate_hz, samples),
    };
    decoded.map_err(|error| format!("audio of {} characters that was dropped: {error}", text.len()))
}

/// Strips `data:audio/…;base64,`. The C++ back-end accepts it (field notes §1.7), so upstreams may send it.
fn without_data_prefix(text: &str) -> &str {
    let url = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    url.map_or(text, |(_, data)| data)
}

fn end_reason(mapping: &UpstreamMapping, reason: Option<&str>) -> RelayEndReason {
    let meanings = &mapping.meanings;
    let known_reasons = [
        (&meanings.client_close, RelayEndReason::ClientClose),
        (&meanings.timeout, RelayEndReason::Timeout),
        (&meanings.context_full, RelayEndReason::ContextFull),
        (&meanings.shutdown, RelayEndReason::Shutdown),
    ];
    let contains_reason = |list: &[String]| list.iter().any(|known| Some(known.as_str()) == reason);
    known_reasons
        .into_iter()
        .find(|(list, _)| contains_reason(list))
        .map_or(RelayEndReason::Failed, |(_, name)| name)
}

fn matches_any(list: &[String], text: &str) -> bool {
    list.iter().any(|entry| text.contains(entry.as_str()))
}

fn upstream_end(mapping: &UpstreamMapping, reason: Option<&str>, detail: Option<&str>) -> UpstreamEnd {
    let (reason, detail) = (reason.map_or("no reason given", shortened), detail.map(shortened));
    let kind = if detail.is_some_and(|detail| matches_any(&mapping.meanings.empty_answer, detail)) {
        EndKind::EmptyAnswer
    } else if matches_any(&mapping.meanings.queue_full, reason) {
        EndKind::QueueFull
    } else if matches_any(&mapping.meanings.limit_reached, reason) {
        let stays_open = matches_any(&mapping.meanings.stays_open, reason);
        if stays_open { EndKind::LimitReachedStillOpen } else { EndKind::LimitReached }
    } else if detail.is_none() && matches_any(&mapping.meanings.backend_lost, reason) {
        EndKind::BackendLost
    } else {
        EndKind::Other
    };
    let description = detail.map_or_else(|| reason.to_owned(), |detail| format!("{reason}: {detail}"));
    UpstreamEnd { kind, detail: description }
}

/// Describes a message for the log by the values that the rules match on.
fn describe_message(mapping: &UpstreamMapping, found: &ExtractedValues<'_>) -> String {
    let mut slots: Vec<usize> =
        mapping.rules.iter().flat_map(|rule| rule.when.iter().map(|when| when.0)).collect();
    slots.sort_unstable();
    slots.dedup();
    let values: Vec<&str> =
        slots.iter().filter_map(|slot| found.get(*slot)).filter_map(Node::as_str).collect();
    if values.is_empty() {
        "a message without a type".to_owned()
    } else {
        format!("a message of type {}", values.join("/"))
    }
}

#[cfg(test)]
mod tests;
