//! Messages of the server: which rule of the mapping file reads one, and what it means.

use super::{Dialect, http};
use crate::{
    audio::{pcm, scratch},
    foreign::shortened,
    spelling::{
        UpstreamMapping,
        extract::ExtractedValues,
        upstream::{ReceiveName, ReceiveRule, SampleEncoding},
    },
    vocabulary::{
        EndKind, Frame, LaneEvent, MessageMeta, Node, RefusedPart, ReportedUsage, UpstreamEnd,
        relay::{ModelOutput, QueuePosition, RelayEndReason, StepOutput, UpstreamMessage},
    },
};

/// Longest audio of one message that is decoded, characters of base64: 600 s at 24 kHz. A model that streams sends 1 s, and
/// others a whole answer. Longer audio ends the answer with an error.
pub(super) const AUDIO_MAX_CHARS: usize = 600 * 24_000 * 4 / 3 * 4;

impl Dialect {
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
                        let meta = message_meta(&self.mapping, rule, &found);
                        if let Some(problem) =
                            rule.require.iter().find_map(|it| it.problem(&found, self.mode))
                        {
                            let end = UpstreamEnd { kind: EndKind::UnfitStillOpen, detail: problem };
                            return emit(&UpstreamMessage::Failed(end, false), meta);
                        }
                        let message = read_message(&self.mapping, rule, &found);
                        let is_refusal =
                            matches!(&message, UpstreamMessage::Failed(end, true) if end.kind.is_refusal());
                        let refused = is_refusal.then_some(RefusedPart::Whole);
                        emit(&message, MessageMeta { refused, ..meta });
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
}

fn message_meta<'f>(
    mapping: &UpstreamMapping,
    rule: &ReceiveRule,
    found: &'f ExtractedValues<'_>,
) -> MessageMeta<'f> {
    let text = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_str);
    let tokens = rule.context_tokens.and_then(|slot| found.get(slot)).and_then(Node::as_f64);
    let whole = |slot: Option<usize>| match slot.and_then(|slot| found.get(slot)) {
        Some(Node::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let usage = match rule.usage.and_then(|slot| found.get(slot)) {
        Some(Node::Raw(json)) => ReportedUsage::read(json),
        _ => None,
    };
    let hits_limit = |reason| mapping.meanings.answer_limit.iter().any(|known| known == reason);
    MessageMeta {
        response_id: text(rule.response_id),
        input_id: text(rule.input_id),
        context_tokens: tokens.map(|tokens| tokens.clamp(0.0, f64::from(u32::MAX)) as u32),
        backend: text(rule.backend),
        sequence: whole(rule.sequence),
        resume_token: text(rule.resume_token),
        held_samples: 0,
        unit_ms: whole(rule.unit_ms).and_then(|ms| u32::try_from(ms).ok()),
        usage,
        hit_limit: text(rule.finish).is_some_and(hits_limit),
        refused: None,
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
                upstream_end(mapping, (reason, detail), None),
            );
        }
        ReceiveName::Failed => {
            let code = text(rule.code);
            // An error ends the session unless the dialect lists its code.
            let goes_on = code.is_some_and(|code| matches_any(&mapping.meanings.non_fatal, code));
            let is_retryable = match rule.retryable.and_then(|slot| found.get(slot)) {
                Some(Node::Bool(is_retryable)) => Some(*is_retryable),
                _ => None,
            };
            let end = upstream_end(mapping, (code, text(rule.detail)), is_retryable);
            return UpstreamMessage::Failed(end, goes_on);
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
        UpstreamMessage::Output(
            ModelOutput::Speech(audio)
            | ModelOutput::Answered(_, Some(audio))
            | ModelOutput::Step(StepOutput { audio: Some(audio), .. }),
        ) if is_too_long(audio) => {
            emit(audio_event(audio, encoding, samples));
            let seconds = AUDIO_MAX_CHARS / 128_000;
            emit(LaneEvent::RecoverableError(&format!("more than {seconds} s of audio in one message")));
        }
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

/// True for audio that is decoded in part.
fn is_too_long(audio: &str) -> bool {
    without_data_prefix(audio).len() > AUDIO_MAX_CHARS
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
    let has_text = || rule.text.and_then(|slot| found.get(slot)).is_some_and(|text| text.as_str().is_some());
    // A rule for any message reads those that have what it takes.
    if rule.when.is_empty() && rule.event == ReceiveName::Text {
        return has_text();
    }
    rule.when.iter().all(|(slot, values)| {
        let found = found.get(*slot).and_then(Node::as_str);
        found.is_some_and(|found| values.iter().any(|value| value == found))
    })
}

/// Replaces `samples` by the audio of a message, at most [`AUDIO_MAX_CHARS`], at the dialect's rate.
pub(super) fn decode_audio(
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

/// Strips `data:audio/…;base64,`. The C++ back-end accepts it (mappings/notes/llama-cpp-omni.md#input), so upstreams
/// may send it.
pub(super) fn without_data_prefix(text: &str) -> &str {
    let url = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    url.map_or(text, |(_, data)| data)
}

pub(super) fn end_reason(mapping: &UpstreamMapping, reason: Option<&str>) -> RelayEndReason {
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

/// True if the reason or the diagnostic names the server's own failure.
fn matches_server_failure(mapping: &UpstreamMapping, reason: &str, detail: Option<&str>) -> bool {
    let failures = &mapping.meanings.server_failed;
    matches_any(failures, reason) || detail.is_some_and(|detail| matches_any(failures, detail))
}

/// Meaning of a session's end, by its reason and diagnostic. The server may say whether another attempt can succeed.
fn upstream_end(
    mapping: &UpstreamMapping,
    (reason, detail): (Option<&str>, Option<&str>),
    is_retryable: Option<bool>,
) -> UpstreamEnd {
    let (reason, detail) = (reason.map_or("no reason given", shortened), detail.map(shortened));
    let kind = if detail.is_some_and(|detail| matches_any(&mapping.meanings.empty_answer, detail)) {
        EndKind::EmptyAnswer
    } else if matches_any(&mapping.meanings.queue_full, reason) {
        EndKind::QueueFull
    } else if matches_any(&mapping.meanings.limit_reached, reason) {
        if matches_any(&mapping.meanings.stays_open, reason) {
            EndKind::LimitReachedStillOpen
        } else if matches_any(&mapping.meanings.timeout, reason) {
            EndKind::TimeLimitReached
        } else {
            EndKind::LimitReached
        }
    } else if detail.is_none() && matches_any(&mapping.meanings.backend_lost, reason) {
        EndKind::BackendLost
    } else if matches_server_failure(mapping, reason, detail)
        || matches_any(&mapping.meanings.shutdown, reason)
    {
        EndKind::Other
    } else if !is_retryable.unwrap_or_else(|| !matches_any(&mapping.meanings.refused, reason)) {
        EndKind::RefusedForGood
    } else if is_retryable.is_none() && detail.is_some() {
        EndKind::Refused
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
