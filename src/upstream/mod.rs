//! The model side's wire: text frames of one dialect to and from the neutral vocabulary.
//!
//! One dialect type serves every mapping file; it holds no session state, only room to decode audio into.

mod relay;

use std::sync::Arc;

use crate::{
    audio::pcm,
    event::{Append, EndMeaning, Ending, Frame, LaneCommand, LaneEvent, Mark},
    mapping::{
        UpstreamMapping,
        extract::{Found, Node},
        template::Fill,
        upstream::{ReceiveName, Rule, SendName},
    },
};

/// One session's dialect.
#[derive(Debug)]
pub struct Dialect {
    mapping: Arc<UpstreamMapping>,
    /// Decoded audio of the message at hand; given back empty, so an idle session holds none.
    samples: Vec<f32>,
}

impl Dialect {
    /// A dialect for one session.
    #[must_use]
    pub const fn new(mapping: Arc<UpstreamMapping>) -> Self {
        Self { mapping, samples: Vec::new() }
    }

    /// The mapping it speaks by.
    #[must_use]
    pub const fn mapping(&self) -> &Arc<UpstreamMapping> {
        &self.mapping
    }

    /// Reads one frame, leniently: what cannot be read is [`LaneEvent::Unknown`], never an error.
    ///
    /// A message may mean several events; they are told in order, all with the same mark.
    pub fn decode<'a>(&'a mut self, frame: Frame<'a>, mut told: impl FnMut(LaneEvent<'_>, Mark<'_>)) {
        self.samples.clear();
        let Frame::Text(text) = frame else {
            return told(LaneEvent::Unknown("a binary frame".to_owned()), Mark::default());
        };
        match self.mapping.shape.extract(text) {
            Ok(found) => match self.mapping.rules.iter().find(|rule| matches(rule, &found)) {
                Some(rule) => {
                    let mark = mark(rule, &found);
                    tell(&self.mapping, rule, &found, &mut self.samples, |event| told(event, mark));
                }
                None => told(LaneEvent::Unknown(describe(&self.mapping, &found)), Mark::default()),
            },
            Err(error) => told(LaneEvent::Unknown(error.to_string()), Mark::default()),
        }
        self.samples = Vec::new();
    }

    /// The text frame for a command.
    #[must_use]
    pub fn encode(&self, command: &LaneCommand) -> String {
        let (name, room) = match command {
            LaneCommand::Init(None) => (SendName::Init, 64),
            LaneCommand::Init(Some(voice)) => (SendName::InitWithVoice, 256 + 2 * voice.0.len()),
            LaneCommand::Transcribe { audio, .. } => {
                (SendName::Transcribe, 1024 + pcm::base64_f32_len(audio.len()))
            }
            LaneCommand::Speak { voice: None, request, .. } => (SendName::Speak, 1024 + request.len()),
            LaneCommand::Speak { voice: Some(voice), request, .. } => {
                (SendName::SpeakWithVoice, 1024 + request.len() + 2 * voice.0.len())
            }
            LaneCommand::Converse(opening) => {
                let name = match opening.voice {
                    Some(_) => SendName::ConverseWithVoice,
                    None => SendName::Converse,
                };
                let voice = opening.voice.as_ref().map_or(0, |voice| 2 * voice.0.len());
                (name, 256 + opening.prompt.len() + opening.config.len() + voice)
            }
            LaneCommand::Append(Append { frame: None, audio, .. }) => {
                (SendName::Append, 160 + pcm::base64_f32_len(audio.len()))
            }
            LaneCommand::Append(Append { frame: Some(frame), audio, .. }) => {
                (SendName::AppendWithFrame, 200 + frame.0.len() + pcm::base64_f32_len(audio.len()))
            }
            LaneCommand::Close => (SendName::Close, 64),
            LaneCommand::Spelled(text) => return text.clone(),
        };
        let mut json = String::with_capacity(room);
        if let Some(template) = self.mapping.message(name) {
            template.render(&mut json, |slot| fill(command, name.slots()[slot]));
        }
        json
    }
}

/// A slot's value; the names are those of [`SendName::slots`].
fn fill<'v>(command: &'v LaneCommand, slot: &str) -> Fill<'v> {
    match (command, slot) {
        (LaneCommand::Init(Some(voice)) | LaneCommand::Speak { voice: Some(voice), .. }, "voice") => {
            Fill::Raw(&voice.0)
        }
        (LaneCommand::Transcribe { prompt, .. }, "prompt") => Fill::Str(prompt),
        (LaneCommand::Transcribe { audio, .. }, "audio") => Fill::Audio(audio),
        // Without a voice sample there is nothing to put between the two halves of the prompt.
        (LaneCommand::Speak { after_voice, .. }, "system" | "after_voice") => Fill::Str(after_voice),
        (LaneCommand::Speak { before_voice, .. }, "before_voice") => Fill::Str(before_voice),
        (LaneCommand::Speak { request, .. }, "text") => Fill::Str(request),
        (LaneCommand::Converse(opening), "prompt") => Fill::Str(&opening.prompt),
        (LaneCommand::Converse(opening), "config") => Fill::Raw(&opening.config),
        (LaneCommand::Converse(opening), "voice") => {
            opening.voice.as_ref().map_or(Fill::Null, |voice| Fill::Raw(&voice.0))
        }
        (LaneCommand::Append(append), "audio") => Fill::Audio(&append.audio),
        (LaneCommand::Append(append), "input_id") => Fill::Str(&append.input_id),
        (LaneCommand::Append(append), "force_listen") => Fill::Bool(append.force_listen),
        (LaneCommand::Append(append), "frame") => {
            append.frame.as_ref().map_or(Fill::Null, |frame| Fill::Raw(&frame.0))
        }
        (LaneCommand::Close, "reason") => Fill::Str("turn_done"),
        _ => Fill::Null,
    }
}

fn mark<'f>(rule: &Rule, found: &'f Found<'_>) -> Mark<'f> {
    let text = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_str);
    let tokens = rule.context_tokens.and_then(|slot| found.get(slot)).and_then(Node::as_f64);
    Mark {
        response_id: text(rule.response_id),
        input_id: text(rule.input_id),
        context_tokens: tokens.map(|tokens| tokens.clamp(0.0, f64::from(u32::MAX)) as u32),
        backend: text(rule.backend),
    }
}

/// What a message means.
fn tell(
    mapping: &UpstreamMapping,
    rule: &Rule,
    found: &Found<'_>,
    samples: &mut Vec<f32>,
    mut told: impl FnMut(LaneEvent<'_>),
) {
    let text = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_str);
    let count = |slot: Option<usize>| {
        let number = slot.and_then(|slot| found.get(slot)).and_then(Node::as_f64)?;
        Some(number.clamp(0.0, f64::from(u32::MAX)) as u32)
    };
    match rule.event {
        ReceiveName::Queued => told(LaneEvent::Queued {
            position: count(rule.position),
            length: count(rule.length),
            wait_s: rule.wait_s.and_then(|slot| found.get(slot)).and_then(Node::as_f64),
        }),
        ReceiveName::Granted => told(LaneEvent::Granted),
        ReceiveName::Ready => told(LaneEvent::Ready { session_id: text(rule.session_id) }),
        ReceiveName::Listen => told(LaneEvent::Listen),
        ReceiveName::Text => told(LaneEvent::Text(text(rule.text).unwrap_or_default())),
        ReceiveName::Audio => told(audio(text(rule.audio), samples)),
        ReceiveName::Done => {
            // An answer whose audio cannot be read is still an answer: its text counts.
            let _ = decode_audio(text(rule.audio), samples);
            told(LaneEvent::Done { text: text(rule.text), audio: samples });
        }
        ReceiveName::Output => output(rule, found, samples, told),
        ReceiveName::Closed => {
            told(LaneEvent::Closed(ending(mapping, text(rule.reason), text(rule.detail))));
        }
        ReceiveName::Failed => failed(mapping, text(rule.code), text(rule.detail), told),
    }
}

fn audio<'s>(text: Option<&str>, samples: &'s mut Vec<f32>) -> LaneEvent<'s> {
    match decode_audio(text, samples) {
        Ok(()) => LaneEvent::Audio(samples),
        Err(problem) => LaneEvent::Unknown(problem),
    }
}

/// All of a unit in one message: what there is of it, and last what ends it, which is one event and not two: the next unit
/// may be on its way before a second one comes.
fn output(rule: &Rule, found: &Found<'_>, samples: &mut Vec<f32>, mut told: impl FnMut(LaneEvent<'_>)) {
    let node = |slot: Option<usize>| slot.and_then(|slot| found.get(slot));
    let text = |slot: Option<usize>| node(slot).and_then(Node::as_str).filter(|text| !text.is_empty());
    if let Some(text) = text(rule.text) {
        told(LaneEvent::Text(text));
    }
    if let Some(base64) = text(rule.audio) {
        told(audio(Some(base64), samples));
    }
    if node(rule.end_of_turn) == Some(&Node::Bool(true)) {
        told(LaneEvent::Listen);
    } else {
        told(LaneEvent::Done { text: None, audio: &[] });
    }
}

/// An error is the end, unless the dialect says otherwise of its code.
fn failed(
    mapping: &UpstreamMapping,
    code: Option<&str>,
    detail: Option<&str>,
    mut told: impl FnMut(LaneEvent<'_>),
) {
    let ending = ending(mapping, code, detail);
    if code.is_some_and(|code| is_in(&mapping.meanings.goes_on, code)) {
        told(LaneEvent::Trouble(&ending.words));
    } else {
        told(LaneEvent::Closed(ending));
    }
}

fn matches(rule: &Rule, found: &Found<'_>) -> bool {
    rule.when.iter().all(|(slot, value)| found.get(*slot).and_then(Node::as_str) == Some(value))
}

fn decode_audio(text: Option<&str>, samples: &mut Vec<f32>) -> Result<(), String> {
    let text = text.unwrap_or_default();
    pcm::pull_base64_f32(without_data_prefix(text), samples)
        .map_err(|error| format!("audio of {} characters that was dropped: {error}", text.len()))
}

/// Without `data:audio/…;base64,`: the C++ back-end takes it (field notes §1.7), so others may send it.
fn without_data_prefix(text: &str) -> &str {
    let url = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    url.map_or(text, |(_, data)| data)
}

fn is_in(list: &[String], text: &str) -> bool {
    list.iter().any(|entry| text.contains(entry.as_str()))
}

fn ending(mapping: &UpstreamMapping, reason: Option<&str>, detail: Option<&str>) -> Ending {
    let reason = reason.unwrap_or("no reason given");
    let meaning = if detail.is_some_and(|detail| is_in(&mapping.meanings.empty_answer, detail)) {
        EndMeaning::EmptyAnswer
    } else if is_in(&mapping.meanings.queue_full, reason) {
        EndMeaning::QueueFull
    } else if is_in(&mapping.meanings.used_up, reason) {
        let stays = is_in(&mapping.meanings.stays_open, reason);
        if stays { EndMeaning::UsedUpAndOpen } else { EndMeaning::UsedUp }
    } else {
        EndMeaning::Over
    };
    let words = detail.map_or_else(|| reason.to_owned(), |detail| format!("{reason}: {detail}"));
    Ending { meaning, words }
}

/// The values the rules look at, for the log.
fn describe(mapping: &UpstreamMapping, found: &Found<'_>) -> String {
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
