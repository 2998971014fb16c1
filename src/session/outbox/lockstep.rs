//! Transcripts in lock step: a client of such a protocol sends one frame, then waits for exactly one reply.
//!
//! Transcripts are held until the client asks. Finals that arrive in between are joined into one transcript, so that
//! the client gets one reply per request and every word once.

use std::collections::VecDeque;

use crate::vocabulary::{ClientEvent, Speaker};

/// Most replies pending at a time. A client that waits for its replies never has more.
const MAX_AWAITED: usize = 4096;

/// Reply that the client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwaitedReply {
    /// The newest transcript, partial or final.
    Current,
    /// The final transcript of all audio so far.
    Final,
}

/// Pending replies and held transcripts of one client.
#[derive(Debug, Default)]
pub(crate) struct Lockstep {
    /// A final transcript that is held is also reported as a part.
    reports_parts: bool,
    awaited: VecDeque<AwaitedReply>,
    /// Partial transcript of the current utterance.
    partial: Option<ClientEvent>,
    /// Final transcripts not sent yet, joined.
    finals: Option<ClientEvent>,
}

impl Lockstep {
    /// No reply is pending. With `reports_parts`, a final transcript that is held is also reported as a part.
    pub(super) fn new(reports_parts: bool) -> Self {
        Self { reports_parts, ..Self::default() }
    }

    /// Holds a transcript; returns any other event, or the part that the transcript is.
    pub(crate) fn hold_transcript(&mut self, event: ClientEvent) -> Option<ClientEvent> {
        match event {
            ClientEvent::TranscriptPartial { .. } => self.partial = Some(event),
            ClientEvent::TranscriptFinal { .. } => {
                let part = if self.reports_parts { self.part_of(&event) } else { None };
                self.partial = None;
                self.finals = Some(match self.finals.take() {
                    Some(earlier) => join_finals(earlier, event),
                    None => event,
                });
                return part;
            }
            other => return Some(other),
        }
        None
    }

    /// The replies that are due once transcripts are no longer held: the final transcripts that were not sent, joined, and
    /// an empty one for each further final that the client waits for, beside those that are still to come.
    pub(super) fn into_replies(self, finals_to_come: usize) -> impl Iterator<Item = ClientEvent> {
        let awaited = self.awaited.iter().filter(|reply| **reply == AwaitedReply::Final).count();
        let due = awaited.saturating_sub(finals_to_come);
        let held = self.finals.map(|mut held| {
            mark_finalized(&mut held, due > 0);
            held
        });
        let further = due.saturating_sub(held.is_some().into());
        held.into_iter().chain(std::iter::repeat_with(empty_final).take(further))
    }

    /// The words of a final transcript as they follow those that are held.
    fn part_of(&self, transcript: &ClientEvent) -> Option<ClientEvent> {
        let ClientEvent::TranscriptFinal { text, segment_id, .. } = transcript else { return None };
        let follows =
            matches!(&self.finals, Some(ClientEvent::TranscriptFinal { text, .. }) if !text.is_empty());
        let text = if follows { format!(" {text}") } else { text.clone() };
        (!text.trim().is_empty()).then_some(ClientEvent::TranscriptPart { text, segment_id: *segment_id })
    }

    /// Adds a reply that the client waits for. Returns false if too many are awaited already.
    pub(crate) fn await_reply(&mut self, reply: AwaitedReply) -> bool {
        let has_room = self.awaited.len() < MAX_AWAITED;
        if has_room {
            self.awaited.push_back(reply);
        }
        has_room
    }

    /// True if the next reply has to be final.
    pub(crate) fn awaits_final(&self) -> bool {
        self.awaited.front() == Some(&AwaitedReply::Final)
    }

    /// Takes the next reply that is available. `all_settled` means that all audio so far has its final transcript.
    ///
    /// A reply is `finalized` if the client asked for all words: whichever utterances it joins, it is the one answer to that.
    pub(crate) fn next_reply(&mut self, all_settled: bool) -> Option<ClientEvent> {
        let asked = *self.awaited.front()?;
        let mut reply = match asked {
            AwaitedReply::Final if !all_settled => return None,
            AwaitedReply::Final => {
                self.partial = None;
                self.finals.take().unwrap_or_else(empty_final)
            }
            AwaitedReply::Current => {
                let partial = || self.partial.clone().unwrap_or_else(empty_partial);
                self.finals.take().unwrap_or_else(partial)
            }
        };
        self.awaited.pop_front();
        mark_finalized(&mut reply, asked == AwaitedReply::Final);
        Some(reply)
    }
}

const fn mark_finalized(reply: &mut ClientEvent, on: bool) {
    if let ClientEvent::TranscriptFinal { finalized, .. } = reply {
        *finalized = on;
    }
}

/// Joins two final transcripts into one, from the start of the first to the end of the second.
fn join_finals(first: ClientEvent, second: ClientEvent) -> ClientEvent {
    match (first, second) {
        (
            ClientEvent::TranscriptFinal {
                text: first_text,
                start_ms: first_start_ms,
                segment_id: first_id,
                speech_ms: (first_speech_ms, _),
                words: mut first_words,
                ..
            },
            ClientEvent::TranscriptFinal {
                speaker,
                text: second_text,
                start_ms,
                duration_ms,
                speech_ms: (_, last_speech_ms),
                utterance_ended,
                finalized,
                language,
                words,
                ..
            },
        ) => ClientEvent::TranscriptFinal {
            speaker,
            text: [first_text.as_str(), second_text.as_str()].join(" ").trim().to_owned(),
            segment_id: first_id,
            duration_ms: (start_ms + duration_ms).saturating_sub(first_start_ms),
            start_ms: first_start_ms,
            speech_ms: (first_speech_ms, last_speech_ms),
            utterance_ended,
            finalized,
            language,
            words: {
                first_words.extend(words);
                first_words
            },
        },
        (_, second) => second,
    }
}

const fn empty_partial() -> ClientEvent {
    ClientEvent::TranscriptPartial {
        speaker: Speaker::User,
        text: String::new(),
        segment_id: 0,
        audio_ms: 0,
        start_ms: 0,
    }
}

pub(crate) const fn empty_final() -> ClientEvent {
    ClientEvent::TranscriptFinal {
        speaker: Speaker::User,
        text: String::new(),
        segment_id: 0,
        duration_ms: 0,
        start_ms: 0,
        speech_ms: (0, 0),
        utterance_ended: false,
        finalized: true,
        language: None,
        words: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn transcript(text: &str, is_final: bool) -> ClientEvent {
        let (speaker, text) = (Speaker::User, text.to_owned());
        if is_final {
            let mut transcript = empty_final();
            mark_finalized(&mut transcript, false);
            if let ClientEvent::TranscriptFinal { text: spoken, .. } = &mut transcript {
                *spoken = text;
            }
            return transcript;
        }
        ClientEvent::TranscriptPartial { speaker, text, segment_id: 0, audio_ms: 0, start_ms: 0 }
    }

    #[test]
    fn parts_join_to_the_reply() {
        let mut lockstep = Lockstep::new(true);
        let mut parts = String::new();
        for (text, is_final) in [("one", true), ("maybe", false), ("", true), ("two.", true)] {
            if let Some(ClientEvent::TranscriptPart { text, .. }) =
                lockstep.hold_transcript(transcript(text, is_final))
            {
                parts.push_str(&text);
            }
        }
        lockstep.await_reply(AwaitedReply::Final);
        let Some(ClientEvent::TranscriptFinal { text, .. }) = lockstep.next_reply(true) else { panic!() };
        assert_eq!((text.as_str(), parts.as_str()), ("one two.", "one two."));
    }

    #[test]
    fn held_words_leave_when_transcripts_are_no_longer_held() {
        for (awaited, to_come, expected) in [
            (0, 0, vec![("one", false)]),
            (2, 0, vec![("one", true), ("", true)]),
            (2, 2, vec![("one", false)]),
        ] {
            let mut lockstep = Lockstep::new(false);
            lockstep.hold_transcript(transcript("one", true));
            (0..awaited).for_each(|_| assert!(lockstep.await_reply(AwaitedReply::Final)));
            let replies: Vec<ClientEvent> = lockstep.into_replies(to_come).collect();
            let found = replies.iter().map(|reply| match reply {
                ClientEvent::TranscriptFinal { text, finalized, .. } => (text.as_str(), *finalized),
                other => panic!("{other:?}"),
            });
            assert_eq!(found.collect::<Vec<_>>(), expected, "{awaited} awaited, {to_come} to come");
        }
    }

    proptest! {
        #[test]
        fn every_request_gets_one_reply_and_every_final_word_is_sent_once(
            script in prop::collection::vec((0u8..5, any::<bool>()), 0..60),
        ) {
            let (mut lockstep, mut spoken, mut received, mut requests, mut replies) =
                (Lockstep::default(), Vec::new(), Vec::new(), 0, 0);
            let (mut asked_finals, mut finals) = (1, 0);
            let mut take = |lockstep: &mut Lockstep, settled| while let Some(reply) = lockstep.next_reply(settled) {
                replies += 1;
                if let ClientEvent::TranscriptFinal { text, finalized, .. } = reply {
                    finals += usize::from(finalized);
                    received.extend(text.split_whitespace().map(str::to_owned));
                }
            };
            for (number, (step, settled)) in script.into_iter().enumerate() {
                match step {
                    0 => drop(lockstep.hold_transcript(transcript("maybe", false))),
                    1 => {
                        spoken.push(format!("word{number}"));
                        drop(lockstep.hold_transcript(transcript(&format!("word{number}"), true)));
                    }
                    2 | 3 => { lockstep.await_reply(AwaitedReply::Current); requests += 1 }
                    _ => { lockstep.await_reply(AwaitedReply::Final); requests += 1; asked_finals += 1 }
                }
                take(&mut lockstep, settled);
            }
            lockstep.await_reply(AwaitedReply::Final);
            take(&mut lockstep, true);
            prop_assert_eq!(replies, requests + 1);
            prop_assert_eq!(received, spoken);
            prop_assert_eq!(finals, asked_finals);
            prop_assert!(!lockstep.awaits_final());
        }
    }
}
