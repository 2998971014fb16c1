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
//! - [`chat`] encodes conversations in turns; [`relay`] serves clients of the model's own protocol

mod chat;
mod http;
pub mod lane;
mod relay;
pub mod sse;

use std::sync::Arc;

use crate::{
    audio::{SPEECH_RATE_HZ, pcm, scratch, wav},
    event::{
        EndKind, Frame, LaneCommand, LaneEvent, MessageMeta, Mode, UnitInput, UpstreamEnd, VoiceEncoding,
        VoiceSample,
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
}

impl Dialect {
    /// The dialect of a mapping file.
    pub const fn new(mapping: Arc<UpstreamMapping>) -> Self {
        Self { mapping }
    }

    /// Mapping that defines the dialect.
    pub const fn mapping(&self) -> &Arc<UpstreamMapping> {
        &self.mapping
    }

    /// Decodes one frame. An unreadable frame becomes [`LaneEvent::Unknown`], never an error.
    ///
    /// A message may have several events. They are emitted in order, with the same metadata.
    pub fn decode<'a>(&'a self, frame: Frame<'a>, mut emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>)) {
        let Frame::Text(text) = frame else {
            return emit(LaneEvent::Unknown("a binary frame".to_owned()), MessageMeta::default());
        };
        match self.mapping.extractor.extract(text) {
            Ok(found) => match self.mapping.rules.iter().find(|rule| rule_matches(rule, &found)) {
                Some(rule) => {
                    let meta = message_meta(rule, &found);
                    let mut samples = scratch::take();
                    emit_events(&self.mapping, rule, &found, &mut samples, |event| emit(event, meta));
                    scratch::put_back(samples);
                }
                None => {
                    emit(LaneEvent::Unknown(describe_message(&self.mapping, &found)), MessageMeta::default());
                }
            },
            Err(error) => emit(LaneEvent::Unknown(error.to_string()), MessageMeta::default()),
        }
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
        let wav = voice.filter(|voice| self.takes_wav(voice)).map(to_wav);
        let is_form = self.mapping.is_form(name);
        let mut json = String::with_capacity(capacity);
        if let Some(template) = self.mapping.message(name) {
            template.render(&mut json, |slot| match (name.slots()[slot], &wav) {
                ("voice", Some(wav)) if self.mapping.is_http() => SlotValue::DataUrl("audio/wav", wav),
                ("voice", Some(wav)) => SlotValue::Base64(wav),
                // It is the form's file.
                ("audio", _) if is_form => SlotValue::Null,
                ("mode", _) => SlotValue::Str(self.mapping.mode_name(mode)),
                (slot, _) => match slot_value(command, slot) {
                    SlotValue::Audio(samples) if slot == "audio" => self.mapping.audio_value(samples),
                    value => value,
                },
            });
        }
        json
    }

    /// True if a voice sample is sent as a WAV file. Over HTTP, it is one in a data URL.
    fn takes_wav(&self, voice: &VoiceSample) -> bool {
        voice.encoding == VoiceEncoding::Wav || self.mapping.is_http()
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
    MessageMeta {
        response_id: text(rule.response_id),
        input_id: text(rule.input_id),
        context_tokens: tokens.map(|tokens| tokens.clamp(0.0, f64::from(u32::MAX)) as u32),
        backend: text(rule.backend),
    }
}

/// Emits the events of a message.
fn emit_events(
    mapping: &UpstreamMapping,
    rule: &ReceiveRule,
    found: &ExtractedValues<'_>,
    samples: &mut Vec<f32>,
    mut emit: impl FnMut(LaneEvent<'_>),
) {
    let text = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_str);
    let short = |slot: Option<usize>| text(slot).map(shortened);
    let count = |slot: Option<usize>| {
        let number = slot.and_then(|slot| found.get(slot)).and_then(Node::as_f64)?;
        Some(number.clamp(0.0, f64::from(u32::MAX)) as u32)
    };
    let encoding = (mapping.output_encoding, mapping.output_rate_hz);
    match rule.event {
        ReceiveName::Queued => emit(LaneEvent::Queued {
            position: count(rule.position),
            length: count(rule.length),
            wait_s: rule.wait_s.and_then(|slot| found.get(slot)).and_then(Node::as_f64),
        }),
        ReceiveName::Granted => emit(LaneEvent::Granted),
        ReceiveName::Ready => emit(LaneEvent::Ready { session_id: short(rule.session_id) }),
        ReceiveName::Listen => emit(LaneEvent::Listen),
        ReceiveName::Text => {
            emit(LaneEvent::Text(text(rule.text).unwrap_or_default()));
            // A chunk of a chat completion may have either.
            if let Some(base64) = text(rule.audio).filter(|_| mapping.is_http()) {
                emit(audio_event(Some(base64), encoding, samples));
            }
        }
        ReceiveName::Audio => emit(audio_event(text(rule.audio), encoding, samples)),
        ReceiveName::Done => {
            // An answer with unreadable audio still counts, for its text.
            let _ = decode_audio(text(rule.audio), encoding, samples);
            emit(LaneEvent::Done { text: text(rule.text), audio: samples });
        }
        ReceiveName::Output => emit_output(rule, found, (encoding, samples), emit),
        ReceiveName::Closed => {
            emit(LaneEvent::Closed(upstream_end(mapping, short(rule.reason), short(rule.detail))));
        }
        ReceiveName::Failed => emit_error(mapping, short(rule.code), short(rule.detail), emit),
    }
}

fn audio_event<'s>(
    text: Option<&str>,
    encoding: (SampleEncoding, u32),
    samples: &'s mut Vec<f32>,
) -> LaneEvent<'s> {
    match decode_audio(text, encoding, samples) {
        Ok(()) => LaneEvent::Audio(samples),
        Err(problem) => LaneEvent::Unknown(problem),
    }
}

/// Emits the events of a message that holds a whole unit: its text, its audio, and one event that ends the unit. A
/// second end could be counted for the next unit, which may be in flight by then.
fn emit_output(
    rule: &ReceiveRule,
    found: &ExtractedValues<'_>,
    (encoding, samples): ((SampleEncoding, u32), &mut Vec<f32>),
    mut emit: impl FnMut(LaneEvent<'_>),
) {
    let node = |slot: Option<usize>| slot.and_then(|slot| found.get(slot));
    let text = |slot: Option<usize>| node(slot).and_then(Node::as_str).filter(|text| !text.is_empty());
    if let Some(text) = text(rule.text) {
        emit(LaneEvent::Text(text));
    }
    if let Some(base64) = text(rule.audio) {
        emit(audio_event(Some(base64), encoding, samples));
    }
    if node(rule.end_of_turn) == Some(&Node::Bool(true)) {
        emit(LaneEvent::Listen);
    } else {
        emit(LaneEvent::Done { text: None, audio: &[] });
    }
}

/// Emits an error. It ends the session unless the dialect lists its code as non-fatal.
fn emit_error(
    mapping: &UpstreamMapping,
    code: Option<&str>,
    detail: Option<&str>,
    mut emit: impl FnMut(LaneEvent<'_>),
) {
    let end = upstream_end(mapping, code, detail);
    if code.is_some_and(|code| matches_any(&mapping.meanings.non_fatal, code)) {
        emit(LaneEvent::RecoverableError(&end.detail));
    } else {
        emit(LaneEvent::Closed(end));
    }
}

fn rule_matches(rule: &ReceiveRule, found: &ExtractedValues<'_>) -> bool {
    rule.when.iter().all(|(slot, value)| found.get(*slot).and_then(Node::as_str) == Some(value))
}

/// Replaces `samples` by the audio of a message, at most [`AUDIO_MAX_CHARS`], at the dialect's rate.
fn decode_audio(
    text: Option<&str>,
    (encoding, rate_hz): (SampleEncoding, u32),
    samples: &mut Vec<f32>,
) -> Result<(), String> {
    let text = text.unwrap_or_default();
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

fn matches_any(list: &[String], text: &str) -> bool {
    list.iter().any(|entry| text.contains(entry.as_str()))
}

fn upstream_end(mapping: &UpstreamMapping, reason: Option<&str>, detail: Option<&str>) -> UpstreamEnd {
    let reason = reason.unwrap_or("no reason given");
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
