//! The values of event slots: what a [`ClientCommand`] and its session put into a protocol's templates.

use super::Codec;
use crate::{
    audio::word_times::WordTime,
    event::ClientCommand,
    mapping::{client::Slot, template::SlotValue},
};

/// Source of the values of an event's slots.
#[derive(Debug)]
pub(super) enum EventSource<'e> {
    /// A command of the session.
    Command(&'e ClientCommand),
    /// A word of a final transcript.
    Word(&'e WordTime),
    /// An error in the protocol's spelling.
    Error {
        /// Code of the error.
        code: &'e str,
        /// Message of the error.
        message: &'e str,
        /// The session goes on.
        recoverable: bool,
        /// Utterance that the error belongs to.
        segment_id: Option<u32>,
        /// Text to speak that the error belongs to.
        request_id: Option<&'e str>,
    },
}

impl Codec {
    /// The value of a slot in an event that is sent `at_s` seconds after the session was opened.
    pub(super) fn slot_value<'v>(
        &'v self,
        source: &'v EventSource<'_>,
        slot: Slot,
        at_s: f64,
    ) -> SlotValue<'v> {
        if slot == Slot::UnixS {
            return SlotValue::Float(self.opened_unix_s + at_s);
        }
        let own = match source {
            EventSource::Command(command) => self.own_value(command, slot),
            EventSource::Word(word) => word_value(word, slot),
            EventSource::Error { code, message, recoverable, segment_id, request_id } => match slot {
                Slot::Code => Some(SlotValue::Str(code)),
                Slot::Message => Some(SlotValue::Str(message)),
                Slot::Recoverable => Some(SlotValue::Bool(*recoverable)),
                Slot::SegmentId => segment_id.map(|id| SlotValue::Int(id.into())),
                Slot::RequestId => request_id.map(SlotValue::Str),
                _ => None,
            },
        };
        // `None` can only be an error without an utterance or text: files are checked against the slots of each event, and a
        // test asks for all of them.
        own.or_else(|| self.common_value(slot)).unwrap_or(SlotValue::Null)
    }

    /// The value of a slot that every event knows ([`Slot::COMMON`]).
    fn common_value(&self, slot: Slot) -> Option<SlotValue<'_>> {
        Some(match slot {
            Slot::SessionId => SlotValue::Str(&self.session_id),
            Slot::Model => SlotValue::Str(&self.model),
            Slot::OpenedAt => SlotValue::Str(&self.opened_at),
            _ => return None,
        })
    }

    /// The value of a slot that only this command's event knows.
    fn own_value<'v>(&'v self, command: &'v ClientCommand, slot: Slot) -> Option<SlotValue<'v>> {
        match command {
            ClientCommand::SessionCreated { session_id, model, language } => match slot {
                Slot::SessionId => Some(SlotValue::Str(session_id)),
                Slot::Model => Some(SlotValue::Str(model)),
                Slot::Language => Some(language.as_deref().into()),
                _ => None,
            },
            ClientCommand::SpeechStarted { from_ms, .. } if slot == Slot::SpeechFromMs => {
                Some(integer(*from_ms))
            }
            ClientCommand::SpeechStarted { at_ms, segment_id, .. }
            | ClientCommand::SpeechEnded { at_ms, segment_id } => match slot {
                Slot::SegmentId => Some(SlotValue::Int((*segment_id).into())),
                Slot::AtMs => Some(integer(*at_ms)),
                Slot::AtS => Some(seconds(*at_ms)),
                _ => None,
            },
            ClientCommand::TranscriptFinal { .. } if slot == Slot::Words => {
                Some(SlotValue::Elements(&self.words_json))
            }
            ClientCommand::TranscriptPartial { .. } | ClientCommand::TranscriptFinal { .. } => {
                transcript_value(command, slot)
            }
            ClientCommand::AudioCommitted { segment_id, audio_ms, .. } => match slot {
                Slot::SegmentId => Some(SlotValue::Int((*segment_id).into())),
                Slot::AudioMs => Some(integer(*audio_ms)),
                _ => None,
            },
            ClientCommand::AudioCleared => None,
            ClientCommand::AnswerStarted { segment_id, .. } => {
                (slot == Slot::SegmentId).then(|| SlotValue::Int((*segment_id).into()))
            }
            ClientCommand::AnswerEnded { segment_id, cancelled, .. } => match slot {
                Slot::SegmentId => Some(SlotValue::Int((*segment_id).into())),
                Slot::Cancelled => Some(SlotValue::Bool(*cancelled)),
                _ => None,
            },
            ClientCommand::UtteranceGap { last_ms } => (slot == Slot::LastS).then(|| seconds(*last_ms)),
            ClientCommand::SpeakingStarted { request_id, at_ms, text } => match slot {
                Slot::RequestId => Some(SlotValue::Str(request_id)),
                Slot::AtMs => Some(integer(*at_ms)),
                Slot::Text => Some(SlotValue::Str(text)),
                _ => None,
            },
            ClientCommand::SpeakingEnded { request_id, at_ms, cancelled, audio_ms } => match slot {
                Slot::RequestId => Some(SlotValue::Str(request_id)),
                Slot::AtMs => Some(integer(*at_ms)),
                Slot::Cancelled => Some(SlotValue::Bool(*cancelled)),
                Slot::AudioMs => Some(integer(*audio_ms)),
                _ => None,
            },
            ClientCommand::Flushed { sequence } | ClientCommand::Cleared { sequence } => {
                (slot == Slot::Sequence).then(|| SlotValue::Int((*sequence).into()))
            }
            ClientCommand::Queued { position, waited_ms, wait_max_ms } => match slot {
                Slot::Position => Some(SlotValue::Int((*position).into())),
                Slot::WaitedMs => Some(integer(*waited_ms)),
                Slot::WaitMaxMs => Some(integer(*wait_max_ms)),
                _ => None,
            },
            ClientCommand::RateLimited { delay_ms } => (slot == Slot::DelayMs).then(|| integer(*delay_ms)),
            ClientCommand::FramesDropped { dropped_ms } => {
                (slot == Slot::DroppedMs).then(|| integer(*dropped_ms))
            }
            ClientCommand::RolledOver { reason, gap_ms, standby, kept_ms, known_lines, missing_lines } => {
                match slot {
                    Slot::Reason => Some(SlotValue::Str(reason.name())),
                    Slot::GapMs => Some(integer(*gap_ms)),
                    Slot::Standby => Some(SlotValue::Bool(*standby)),
                    Slot::KeptMs => Some(integer(*kept_ms)),
                    Slot::KnownLines => Some(integer(*known_lines)),
                    Slot::MissingLines => Some(integer(*missing_lines)),
                    _ => None,
                }
            }
            ClientCommand::SessionClosed { reason, total_ms, audio_ms, segments, session_id } => match slot {
                Slot::SessionId => Some(SlotValue::Str(session_id)),
                Slot::Reason => {
                    let spelling = self.mapping.close(*reason);
                    Some(spelling.map_or(SlotValue::Null, |spelling| SlotValue::Str(&spelling.reason)))
                }
                Slot::TotalMs => Some(integer(*total_ms)),
                Slot::AudioS => Some(seconds(*audio_ms)),
                Slot::Segments => Some(SlotValue::Int((*segments).into())),
                _ => None,
            },
            ClientCommand::Audio(audio) => match slot {
                Slot::Audio => Some(SlotValue::Base64(&audio.bytes)),
                Slot::Turn => Some(SlotValue::Int(audio.turn.0.into())),
                _ => None,
            },
            ClientCommand::AudioComplete { turn } => {
                (slot == Slot::Turn).then(|| SlotValue::Int(turn.0.into()))
            }
            ClientCommand::Configured | ClientCommand::Error(_) => None,
        }
    }
}

fn transcript_value(command: &ClientCommand, slot: Slot) -> Option<SlotValue<'_>> {
    let (ClientCommand::TranscriptPartial { speaker, text, segment_id, audio_ms: length_ms, start_ms }
    | ClientCommand::TranscriptFinal {
        speaker, text, segment_id, duration_ms: length_ms, start_ms, ..
    }) = command
    else {
        return None;
    };
    match slot {
        Slot::Text => Some(SlotValue::Str(text)),
        Slot::SegmentId => Some(SlotValue::Int((*segment_id).into())),
        Slot::Speaker => Some(SlotValue::Str(speaker.name())),
        Slot::Source => Some(SlotValue::Str(speaker.source())),
        Slot::FromS => Some(seconds(*start_ms)),
        Slot::ToS => Some(seconds(start_ms + length_ms)),
        Slot::DurationS => Some(seconds(*length_ms)),
        _ => match command {
            ClientCommand::TranscriptFinal { utterance_ended, finalized, language, speech_ms, .. } => {
                match slot {
                    Slot::SpeechFromMs => Some(integer(speech_ms.0)),
                    Slot::SpeechToMs => Some(integer(speech_ms.1)),
                    Slot::StartMs => Some(SlotValue::Int(0)),
                    Slot::StartS => Some(SlotValue::Float(0.0)),
                    Slot::EndMs => Some(integer(*length_ms)),
                    Slot::EndS => Some(seconds(*length_ms)),
                    Slot::Ended => Some(SlotValue::Bool(*utterance_ended)),
                    Slot::Finalized => Some(SlotValue::Bool(*finalized)),
                    Slot::Language => Some(language.as_deref().into()),
                    _ => None,
                }
            }
            _ => (slot == Slot::AtMs).then(|| integer(*length_ms)),
        },
    }
}

fn word_value(word: &WordTime, slot: Slot) -> Option<SlotValue<'_>> {
    match slot {
        Slot::Word => Some(SlotValue::Str(&word.word)),
        Slot::BareWord => Some(SlotValue::Str(&word.bare)),
        Slot::FromS => Some(seconds(word.start_ms)),
        Slot::ToS => Some(seconds(word.end_ms)),
        _ => None,
    }
}

fn seconds(ms: u64) -> SlotValue<'static> {
    SlotValue::Float(ms as f64 / 1000.0)
}

fn integer(number: u64) -> SlotValue<'static> {
    SlotValue::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{ClientAudio, CloseReason, RolloverReason, Speaker, TurnTag},
        mapping::{Library, client::EventName},
    };

    fn example(name: EventName) -> Option<ClientCommand> {
        let text = || "t".to_owned();
        Some(match name {
            EventName::SessionCreated => {
                ClientCommand::SessionCreated { session_id: text(), model: text(), language: Some(text()) }
            }
            EventName::SpeechStarted => ClientCommand::SpeechStarted { at_ms: 1, from_ms: 1, segment_id: 1 },
            EventName::AudioCommitted => {
                ClientCommand::AudioCommitted { segment_id: 1, audio_ms: 1, is_transcribed: true }
            }
            EventName::AudioCleared => ClientCommand::AudioCleared,
            EventName::AnswerStarted => ClientCommand::AnswerStarted { segment_id: 1, by_client: true },
            EventName::AnswerEnded => {
                ClientCommand::AnswerEnded { segment_id: 1, cancelled: true, audio_ms: 1 }
            }
            EventName::SpeechEnded => ClientCommand::SpeechEnded { at_ms: 1, segment_id: 1 },
            EventName::TranscriptPartial => ClientCommand::TranscriptPartial {
                speaker: Speaker::User,
                text: text(),
                segment_id: 1,
                audio_ms: 1,
                start_ms: 1,
            },
            EventName::TranscriptFinal => ClientCommand::TranscriptFinal {
                speaker: Speaker::User,
                text: text(),
                segment_id: 1,
                duration_ms: 1,
                start_ms: 1,
                speech_ms: (1, 1),
                utterance_ended: true,
                finalized: true,
                language: Some(text()),
                words: Vec::new(),
            },
            EventName::UtteranceGap => ClientCommand::UtteranceGap { last_ms: 1 },
            EventName::SpeakingStarted => {
                ClientCommand::SpeakingStarted { request_id: text(), at_ms: 1, text: text() }
            }
            EventName::Audio => {
                ClientCommand::Audio(ClientAudio { bytes: vec![0; 2].into(), turn: TurnTag(1) })
            }
            EventName::AudioComplete => ClientCommand::AudioComplete { turn: TurnTag(1) },
            EventName::SpeakingEnded | EventName::SpeakingCancelled => {
                let cancelled = name == EventName::SpeakingCancelled;
                ClientCommand::SpeakingEnded { request_id: text(), at_ms: 1, cancelled, audio_ms: 1 }
            }
            EventName::Flushed => ClientCommand::Flushed { sequence: 1 },
            EventName::Cleared => ClientCommand::Cleared { sequence: 1 },
            EventName::Configured => ClientCommand::Configured,
            EventName::Queued => ClientCommand::Queued { position: 1, waited_ms: 1, wait_max_ms: 1 },
            EventName::RateLimited => ClientCommand::RateLimited { delay_ms: 1 },
            EventName::FramesDropped => ClientCommand::FramesDropped { dropped_ms: 1 },
            EventName::RolledOver => ClientCommand::RolledOver {
                reason: RolloverReason::TimeLimit,
                gap_ms: 1,
                standby: true,
                kept_ms: 1,
                known_lines: 1,
                missing_lines: 1,
            },
            EventName::SessionClosed => ClientCommand::SessionClosed {
                reason: CloseReason::Idle,
                total_ms: 1,
                audio_ms: 1,
                segments: 1,
                session_id: text(),
            },
            // Their values come from the protocol's own `[errors]`, and from the words of a final transcript.
            EventName::Error | EventName::TranscriptWord => return None,
        })
    }

    #[test]
    fn every_slot_of_every_event_has_a_value() {
        let codec = Codec::new(Library::embedded().unwrap().client("macaw").unwrap(), 1.0);
        for name in EventName::ALL {
            let Some(command) = example(name) else { continue };
            let source = EventSource::Command(&command);
            for slot in name.slots() {
                let value = codec.slot_value(&source, slot, 1.0);
                assert!(!matches!(value, SlotValue::Null), "{name:?} {slot:?}");
            }
        }
    }
}
