//! Messages of the server: which rule of the mapping file reads one, and what it means.

use std::time::Duration;

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
        EndKind, Frame, LaneEvent, MessageMeta, Node, RefusedPart, ReportedUsage, Sound, UpstreamEnd,
        relay::RelayEndReason,
    },
};

/// Longest audio of one message that is decoded, characters of base64: 600 s at 24 kHz. A model that streams sends 1 s, and
/// others a whole answer. Longer audio ends the answer with an error.
pub(super) const AUDIO_MAX_CHARS: usize = 600 * 24_000 * 4 / 3 * 4;

/// Format of the samples in messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleFormat {
    pub(super) encoding: SampleEncoding,
    pub(super) rate_hz: u32,
}

impl Dialect {
    /// Decodes one frame. An unreadable frame becomes [`LaneEvent::Unknown`], never an error.
    ///
    /// A message may have several events. They are emitted in order, with the same metadata.
    pub fn decode(&self, frame: Frame<'_>, emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>)) {
        let (encoding, rate_hz) = (self.mapping.output_encoding, self.mapping.output_rate_hz);
        let format = SampleFormat { encoding, rate_hz };
        self.decode_with(frame, |audio, samples| decode_audio(audio, format, samples), emit);
    }

    /// Like [`Dialect::decode`], for a stream of int16 whose messages may end in the middle of a sample. `split` is the first
    /// byte of that sample.
    pub(super) fn decode_after(
        &self,
        split: &mut Option<u8>,
        frame: Frame<'_>,
        emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>),
    ) {
        let decode = |audio: &str, samples: &mut Vec<f32>| {
            let decoded = pcm::decode_base64_s16_after(split, bounded(audio), samples);
            decoded.map_err(|error| dropped_audio(audio, &error))
        };
        self.decode_with(frame, decode, emit);
    }

    fn decode_with(
        &self,
        frame: Frame<'_>,
        mut decode: impl FnMut(&str, &mut Vec<f32>) -> Result<(), String>,
        mut emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>),
    ) {
        self.decode_as_sent(frame, |event, meta| {
            let mut samples = scratch::take();
            emit_decoded(event, &mut decode, &mut samples, |event| emit(event, meta));
            scratch::put_back(samples);
        });
    }

    /// Decodes one frame, whose audio stays base64. It has one event, or two if an answer over HTTP brings text and audio.
    pub fn decode_as_sent(&self, frame: Frame<'_>, mut emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>)) {
        let mut emit_unknown = |words: String| emit(LaneEvent::Unknown(words), MessageMeta::default());
        let Frame::Text(text) = frame else { return emit_unknown("a binary frame".to_owned()) };
        let found = match self.mapping.extractor.extract(text) {
            Ok(found) => found,
            Err(error) => return emit_unknown(error.to_string()),
        };
        match self.mapping.rules.iter().find(|rule| rule_matches(rule, &found)) {
            Some(rule) => self.read_message(rule, &found, emit),
            None => emit_unknown(describe_message(&self.mapping, &found)),
        }
    }

    /// Reads a message by its rule.
    fn read_message(
        &self,
        rule: &ReceiveRule,
        found: &ExtractedValues<'_>,
        mut emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>),
    ) {
        let meta = message_meta(&self.mapping, rule, found);
        if let Some(problem) = rule.require.iter().find_map(|it| it.problem(found, self.mode)) {
            return emit(
                LaneEvent::Closed(UpstreamEnd { kind: EndKind::UnfitStillOpen, detail: problem }),
                meta,
            );
        }
        match rule.event {
            ReceiveName::Closed => {
                let (reason, detail) = (text_of(found, rule.take.reason), text_of(found, rule.take.detail));
                let end_reason = Some(end_reason(&self.mapping, reason));
                let end = upstream_end(&self.mapping, reason, detail, None);
                emit(LaneEvent::Closed(end), MessageMeta { end_reason, ..meta });
            }
            ReceiveName::Failed => self.read_failure(rule, found, meta, emit),
            ReceiveName::Text if self.mapping.is_http() => {
                emit(read_event(rule, found), meta);
                if let Some(audio) = text_of(found, rule.take.audio) {
                    emit(LaneEvent::Audio(Sound::Base64(audio)), meta);
                }
            }
            _ => emit(read_event(rule, found), meta),
        }
    }

    /// Reads an error. It ends the session unless the dialect lists its code.
    fn read_failure(
        &self,
        rule: &ReceiveRule,
        found: &ExtractedValues<'_>,
        meta: MessageMeta<'_>,
        mut emit: impl FnMut(LaneEvent<'_>, MessageMeta<'_>),
    ) {
        let code = text_of(found, rule.take.code);
        let is_retryable = match rule.take.retryable.and_then(|slot| found.get(slot)) {
            Some(Node::Bool(is_retryable)) => Some(*is_retryable),
            _ => None,
        };
        let detail = text_of(found, rule.take.detail);
        let meta = MessageMeta { retry_after: retry_after(rule, found, detail), ..meta };
        let end = upstream_end(&self.mapping, code, detail, is_retryable);
        if code.is_some_and(|code| matches_any(&self.mapping.meanings.non_fatal, code)) {
            let refused = end.kind.is_refusal().then_some(RefusedPart::Whole);
            emit(LaneEvent::RecoverableError(&end.detail), MessageMeta { refused, ..meta });
        } else {
            emit(LaneEvent::Closed(end), meta);
        }
    }
}

/// The text in a slot.
fn text_of<'f>(found: &'f ExtractedValues<'_>, slot: Option<usize>) -> Option<&'f str> {
    found.get(slot?).and_then(Node::as_str)
}

fn message_meta<'f>(
    mapping: &UpstreamMapping,
    rule: &ReceiveRule,
    found: &'f ExtractedValues<'_>,
) -> MessageMeta<'f> {
    let tokens = rule.take.context_tokens.and_then(|slot| found.get(slot)).and_then(Node::as_f64);
    let whole = |slot: Option<usize>| match slot.and_then(|slot| found.get(slot)) {
        Some(Node::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let usage = match rule.take.usage.and_then(|slot| found.get(slot)) {
        Some(Node::Raw(json)) => ReportedUsage::read(json),
        _ => None,
    };
    let hits_limit = |reason| mapping.meanings.answer_limit.iter().any(|known| known == reason);
    MessageMeta {
        response_id: text_of(found, rule.take.response_id),
        item_id: text_of(found, rule.take.item_id),
        input_id: text_of(found, rule.take.input_id),
        context_tokens: tokens.map(|tokens| tokens.clamp(0.0, f64::from(u32::MAX)) as u32),
        backend: text_of(found, rule.take.backend),
        sequence: whole(rule.take.sequence),
        resume_token: text_of(found, rule.take.resume_token),
        transcriber: text_of(found, rule.take.transcriber),
        turn_detector: text_of(found, rule.take.turn_detector),
        held_samples: 0,
        unit_ms: whole(rule.take.unit_ms).and_then(|ms| u32::try_from(ms).ok()),
        input_rate_hz: whole(rule.take.input_rate_hz).and_then(|hz| u32::try_from(hz).ok()),
        output_rate_hz: whole(rule.take.output_rate_hz).and_then(|hz| u32::try_from(hz).ok()),
        input_format: text_of(found, rule.take.input_format),
        output_format: text_of(found, rule.take.output_format),
        usage,
        hit_limit: text_of(found, rule.take.finish).is_some_and(hits_limit),
        refused: None,
        retry_after: None,
        end_reason: None,
    }
}

/// The time after which a server that refuses a request wants it again: a number of seconds, or OpenAI's words "Please try again in
/// 494ms", "in 20s" or "in 1m5.2s".
fn retry_after(rule: &ReceiveRule, found: &ExtractedValues<'_>, detail: Option<&str>) -> Option<Duration> {
    let named_s = rule.take.retry_after.and_then(|slot| found.get(slot)).and_then(Node::as_f64);
    let seconds = named_s.or_else(|| {
        let (_, rest) = detail?.split_once("try again in ")?;
        let is_of_time = |letter: char| letter.is_ascii_digit() || ['.', 'h', 'm', 's'].contains(&letter);
        let time = rest.split(|letter| !is_of_time(letter)).next()?.trim_end_matches('.');
        if let Some(ms) = time.strip_suffix("ms") {
            return ms.parse::<f64>().ok().map(|ms| ms / 1000.0);
        }
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m').unwrap_or(("0", time));
        Some(60.0 * minutes.parse::<f64>().ok()? + seconds.trim_end_matches('s').parse::<f64>().ok()?)
    });
    Duration::try_from_secs_f64(seconds?).ok()
}

/// Reads a message that is neither an error nor the end of the session.
fn read_event<'f>(rule: &ReceiveRule, found: &'f ExtractedValues<'_>) -> LaneEvent<'f> {
    let number = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_f64);
    let count = |slot| number(slot).map(|number| number.clamp(0.0, f64::from(u32::MAX)) as u32);
    let (text, audio) = (text_of(found, rule.take.text), text_of(found, rule.take.audio));
    match rule.event {
        ReceiveName::Queued => LaneEvent::Queued {
            position: count(rule.take.position),
            length: count(rule.take.length),
            wait_s: number(rule.take.wait_s),
            ticket: text_of(found, rule.take.ticket),
        },
        ReceiveName::Granted => LaneEvent::Granted,
        ReceiveName::Ready => LaneEvent::Ready { session_id: text_of(found, rule.take.session_id) },
        ReceiveName::Listen => LaneEvent::Listen,
        ReceiveName::AnswerDue => LaneEvent::AnswerDue,
        ReceiveName::Text => LaneEvent::Text(text.unwrap_or_default()),
        ReceiveName::Audio => LaneEvent::Audio(Sound::Base64(audio.unwrap_or_default())),
        ReceiveName::Done => LaneEvent::Done { text, audio: audio.map_or(Sound::NONE, Sound::Base64) },
        ReceiveName::Output => LaneEvent::Step {
            text: text.unwrap_or_default(),
            audio: audio.filter(|audio| !audio.is_empty()).map_or(Sound::NONE, Sound::Base64),
            end_of_turn: rule.take.end_of_turn.and_then(|slot| found.get(slot)) == Some(&Node::Bool(true)),
        },
        ReceiveName::Call => LaneEvent::Call {
            call_id: text_of(found, rule.take.call_id).unwrap_or_default(),
            name: text_of(found, rule.take.name).unwrap_or_default(),
            arguments: text_of(found, rule.take.arguments).unwrap_or_default(),
        },
        ReceiveName::Ignored | ReceiveName::Closed | ReceiveName::Failed => LaneEvent::Ignored,
    }
}

/// Emits an event with decoded audio. A message that holds a whole unit has an event for its text, one for its audio, and one
/// that ends the unit: a second end could be counted for the next unit, which may be in flight by then.
fn emit_decoded(
    event: LaneEvent<'_>,
    decode: &mut impl FnMut(&str, &mut Vec<f32>) -> Result<(), String>,
    samples: &mut Vec<f32>,
    mut emit: impl FnMut(LaneEvent<'_>),
) {
    match event {
        LaneEvent::Audio(Sound::Base64(audio))
        | LaneEvent::Done { audio: Sound::Base64(audio), .. }
        | LaneEvent::Step { audio: Sound::Base64(audio), .. }
            if is_too_long(audio) =>
        {
            emit(audio_event(decode(audio, samples), samples));
            let seconds = AUDIO_MAX_CHARS / 128_000;
            emit(LaneEvent::RecoverableError(&format!("more than {seconds} s of audio in one message")));
        }
        LaneEvent::Audio(Sound::Base64(audio)) => emit(audio_event(decode(audio, samples), samples)),
        LaneEvent::Done { text, audio: Sound::Base64(audio) } => {
            // An answer with unreadable audio still counts, for its text.
            let _ = decode(audio, samples);
            emit(LaneEvent::Done { text, audio: Sound::Samples(samples) });
        }
        LaneEvent::Step { text, audio, end_of_turn } => {
            if !text.is_empty() {
                emit(LaneEvent::Text(text));
            }
            if let Sound::Base64(audio) = audio {
                emit(audio_event(decode(audio, samples), samples));
            }
            emit(match end_of_turn {
                true => LaneEvent::Listen,
                false => LaneEvent::Done { text: None, audio: Sound::NONE },
            });
        }
        event => emit(event),
    }
}

/// True for audio that is decoded in part.
fn is_too_long(audio: &str) -> bool {
    without_data_prefix(audio).len() > AUDIO_MAX_CHARS
}

fn audio_event(decoded: Result<(), String>, samples: &[f32]) -> LaneEvent<'_> {
    match decoded {
        Ok(()) => LaneEvent::Audio(Sound::Samples(samples)),
        Err(problem) => LaneEvent::Unknown(problem),
    }
}

fn rule_matches(rule: &ReceiveRule, found: &ExtractedValues<'_>) -> bool {
    let has_what_it_takes = || match rule.event {
        ReceiveName::Text => text_of(found, rule.take.text).is_some(),
        ReceiveName::Failed => text_of(found, rule.take.detail).is_some(),
        _ => true,
    };
    // A rule that names no value reads the messages that have what it takes.
    let names_values = rule.when.iter().any(|(_, values)| !values.is_empty());
    (names_values || has_what_it_takes())
        && rule.when.iter().all(|(slot, values)| match found.get(*slot).and_then(Node::as_str) {
            Some(found) => values.iter().any(|value| value == found),
            None => values.is_empty(),
        })
}

/// Replaces `samples` by the audio of a message, at most [`AUDIO_MAX_CHARS`], at the dialect's rate.
pub(super) fn decode_audio(text: &str, format: SampleFormat, samples: &mut Vec<f32>) -> Result<(), String> {
    let data = bounded(text);
    let decoded = match format.encoding {
        SampleEncoding::F32le => pcm::decode_base64_f32(data, samples),
        SampleEncoding::S16le => pcm::decode_base64_s16(data, samples),
        SampleEncoding::Wav => return http::decode_base64_wav(data, format.rate_hz, samples),
    };
    decoded.map_err(|error| dropped_audio(text, &error))
}

fn dropped_audio(text: &str, error: &pcm::PcmError) -> String {
    format!("audio of {} characters that was dropped: {error}", text.len())
}

/// The base64 of a message's audio that is decoded.
fn bounded(text: &str) -> &str {
    let data = without_data_prefix(text);
    data.get(..AUDIO_MAX_CHARS).unwrap_or(data)
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
    reason: Option<&str>,
    detail: Option<&str>,
    is_retryable: Option<bool>,
) -> UpstreamEnd {
    let (reason, detail) = (reason.map_or("no reason given", shortened), detail.map(shortened));
    let kind = if detail.is_some_and(|detail| matches_any(&mapping.meanings.empty_answer, detail)) {
        EndKind::EmptyAnswer
    } else if matches_any(&mapping.meanings.queue_full, reason) {
        EndKind::QueueFull
    } else if matches_any(&mapping.meanings.misconfigured, reason) {
        EndKind::Misconfigured
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
