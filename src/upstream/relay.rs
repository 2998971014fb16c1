//! Upstream codec for relays: relay messages to templates, upstream frames to relay messages.
//!
//! It uses the same compiled rules as the codec of served sessions. Audio passes as base64 text and is not decoded.

use super::{
    Dialect, describe_message, matches_any, message_meta, rule_matches, upstream_end, without_data_prefix,
};
use crate::{
    event::{
        Frame, MessageMeta, Mode,
        relay::{QueuePosition, RelayEndReason, RelayInput, RelayOpening, RelayUpstreamEvent, StepOutput},
    },
    mapping::{
        UpstreamMapping,
        extract::{ExtractedValues, Node},
        template::SlotValue,
        upstream::{ReceiveName, ReceiveRule, SendName},
    },
};

impl Dialect {
    /// Decodes one frame. An unreadable frame becomes [`RelayUpstreamEvent::Unknown`], never an error.
    pub fn decode_for_relay(
        &self,
        frame: Frame<'_>,
        emit: impl FnOnce(&RelayUpstreamEvent<'_>, MessageMeta<'_>),
    ) {
        let Frame::Text(text) = frame else {
            return emit(&RelayUpstreamEvent::Unknown("a binary frame".to_owned()), MessageMeta::default());
        };
        let mapping = self.mapping();
        match mapping.extractor.extract(text) {
            Ok(found) => match mapping.rules.iter().find(|rule| rule_matches(rule, &found)) {
                Some(rule) => emit(&relay_event(mapping, rule, &found), message_meta(rule, &found)),
                None => emit(
                    &RelayUpstreamEvent::Unknown(describe_message(mapping, &found)),
                    MessageMeta::default(),
                ),
            },
            Err(error) => emit(&RelayUpstreamEvent::Unknown(error.to_string()), MessageMeta::default()),
        }
    }

    /// Encodes the message that opens a session in this mode.
    pub fn encode_relay_opening(&self, opening: &RelayOpening<'_>, mode: Mode) -> String {
        let capacity = [opening.prompt, opening.config, opening.voice, opening.speech_voice];
        let capacity = capacity.iter().flatten().map(|text| text.len()).sum::<usize>();
        self.render_message(SendName::RelayOpen, capacity, |slot| match slot {
            "prompt" => opening.prompt.into(),
            "config" => opening.config.map_or(SlotValue::Null, SlotValue::Raw),
            "voice" => opening.voice.into(),
            "speech_voice" => opening.speech_voice.into(),
            "slice_max" => opening.slice_max.map_or(SlotValue::Null, SlotValue::Int),
            "mode" => SlotValue::Str(self.mapping().mode_name(mode)),
            _ => SlotValue::Null,
        })
    }

    /// Encodes the input of one step.
    pub fn encode_relay_append(&self, input: &RelayInput<'_>) -> String {
        let frames = input.frames.iter().copied().flatten().filter_map(Node::as_str).map(str::len);
        let capacity = input.audio.map_or(0, str::len) + frames.sum::<usize>();
        self.render_message(SendName::RelayAppend, capacity, |slot| match slot {
            "audio" => input.audio.map(without_data_prefix).map_or(SlotValue::Null, base64_fill),
            "frames" => input.frames.map_or(SlotValue::Null, SlotValue::List),
            "force_listen" => input.force_listen.map_or(SlotValue::Null, SlotValue::Bool),
            "slice_max" => input.slice_max.map_or(SlotValue::Null, SlotValue::Int),
            "input_id" => input.input_id.into(),
            "response_id" => input.response_id.into(),
            _ => SlotValue::Null,
        })
    }

    /// Encodes the message that closes a session.
    pub fn encode_relay_close(&self, reason: Option<&str>) -> String {
        self.render_message(SendName::Close, 64, |_| SlotValue::Str(reason.unwrap_or("user_stop")))
    }

    fn render_message<'v>(
        &self,
        name: SendName,
        capacity: usize,
        fill: impl Fn(&str) -> SlotValue<'v>,
    ) -> String {
        let mut json = String::with_capacity(capacity + 256);
        if let Some(template) = self.mapping().message(name) {
            template.render(&mut json, |slot| fill(name.slots()[slot]));
        }
        json
    }

    /// True if the message's template has this slot.
    pub fn supports_slot(&self, name: SendName, slot: &str) -> bool {
        let at = name.slots().iter().position(|known| *known == slot);
        at.zip(self.mapping().message(name)).is_some_and(|(at, template)| template.uses_slot(at))
    }
}

/// Fills a slot with base64. Valid base64 needs no JSON escapes; text that only claims to be base64 may need them.
fn base64_fill(text: &str) -> SlotValue<'_> {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) { SlotValue::Plain(text) } else { SlotValue::Str(text) }
}

fn relay_event<'f>(
    mapping: &UpstreamMapping,
    rule: &ReceiveRule,
    found: &'f ExtractedValues<'_>,
) -> RelayUpstreamEvent<'f> {
    let text = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_str);
    let number = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_f64);
    let count = |slot| number(slot).map(|number| number.clamp(0.0, f64::from(u32::MAX)) as u32);
    match rule.event {
        ReceiveName::Queued => RelayUpstreamEvent::Queued(QueuePosition {
            position: count(rule.position),
            length: count(rule.length),
            wait_s: number(rule.wait_s),
            ticket: text(rule.ticket),
        }),
        ReceiveName::Granted => RelayUpstreamEvent::Granted,
        ReceiveName::Ready => RelayUpstreamEvent::Opened(text(rule.session_id)),
        ReceiveName::Listen => RelayUpstreamEvent::Listening,
        ReceiveName::Text => RelayUpstreamEvent::Text(text(rule.text).unwrap_or_default()),
        ReceiveName::Audio => RelayUpstreamEvent::Speech(text(rule.audio).unwrap_or_default()),
        ReceiveName::Done => RelayUpstreamEvent::Answered(text(rule.text), text(rule.audio)),
        ReceiveName::Output => RelayUpstreamEvent::Output(StepOutput {
            text: text(rule.text).unwrap_or_default(),
            audio: text(rule.audio).filter(|audio| !audio.is_empty()),
            end_of_turn: rule.end_of_turn.and_then(|slot| found.get(slot)) == Some(&Node::Bool(true)),
        }),
        ReceiveName::Closed => {
            let reason = text(rule.reason);
            RelayUpstreamEvent::Ended(
                end_name(mapping, reason),
                upstream_end(mapping, reason, text(rule.detail)),
            )
        }
        ReceiveName::Failed => {
            let code = text(rule.code);
            let goes_on = code.is_some_and(|code| matches_any(&mapping.meanings.non_fatal, code));
            RelayUpstreamEvent::Failed(upstream_end(mapping, code, text(rule.detail)), goes_on)
        }
    }
}

fn end_name(mapping: &UpstreamMapping, reason: Option<&str>) -> RelayEndReason {
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
