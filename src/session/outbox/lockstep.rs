//! Transcripts told in lock step: a client of such a protocol sends a frame, then waits for one answer to it.
//!
//! What is understood is kept until something asks for it. What was final meanwhile is one transcript: a client that
//! counts its answers gets no more of them than it asked for, and no word twice.

use std::collections::VecDeque;

use crate::event::{ClientCommand, Speaker};

/// Answers owed at a time: more than a client can ask for that waits for them.
const MAX_AWAITED: usize = 4096;

/// What the client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwaitedReply {
    /// What is understood at the moment.
    Current,
    /// All that came so far, when it is final.
    Final,
}

/// One client's answers.
#[derive(Debug, Default)]
pub(crate) struct Lockstep {
    awaited: VecDeque<AwaitedReply>,
    /// The utterance at hand, as far as it is understood.
    partial: Option<ClientCommand>,
    /// What is final and was not told.
    finals: Option<ClientCommand>,
}

impl Lockstep {
    /// Keeps a transcript; gives back what is none.
    pub(crate) fn hold_transcript(&mut self, command: ClientCommand) -> Option<ClientCommand> {
        match command {
            ClientCommand::TranscriptPartial { .. } => self.partial = Some(command),
            ClientCommand::TranscriptFinal { .. } => {
                self.partial = None;
                self.finals = Some(match self.finals.take() {
                    Some(earlier) => join_finals(earlier, command),
                    None => command,
                });
            }
            other => return Some(other),
        }
        None
    }

    /// The client waits for another answer.
    pub(crate) fn await_reply(&mut self, reply: AwaitedReply) {
        if self.awaited.len() < MAX_AWAITED {
            self.awaited.push_back(reply);
        }
    }

    /// Whether the client has to wait for what is not final yet.
    pub(crate) fn awaits_final(&self) -> bool {
        self.awaited.front() == Some(&AwaitedReply::Final)
    }

    /// The next answer that can be given; `all_settled` says that all that came is final.
    pub(crate) fn next_reply(&mut self, all_settled: bool) -> Option<ClientCommand> {
        match self.awaited.front()? {
            AwaitedReply::Final if !all_settled => None,
            AwaitedReply::Final => {
                self.awaited.pop_front();
                self.partial = None;
                Some(self.finals.take().unwrap_or_else(empty_final))
            }
            AwaitedReply::Current => {
                self.awaited.pop_front();
                let partial = || self.partial.clone().unwrap_or_else(empty_partial);
                Some(self.finals.take().unwrap_or_else(partial))
            }
        }
    }
}

/// Two transcripts as one, from the beginning of the first to the end of the second.
fn join_finals(first: ClientCommand, second: ClientCommand) -> ClientCommand {
    match (first, second) {
        (
            ClientCommand::TranscriptFinal {
                text: first_text,
                start_ms: first_start_ms,
                segment_id: first_id,
                ..
            },
            ClientCommand::TranscriptFinal {
                speaker,
                text: second_text,
                start_ms,
                duration_ms,
                utterance_ended,
                finalized,
                language,
                ..
            },
        ) => ClientCommand::TranscriptFinal {
            speaker,
            text: [first_text.as_str(), second_text.as_str()].join(" ").trim().to_owned(),
            segment_id: first_id,
            duration_ms: (start_ms + duration_ms).saturating_sub(first_start_ms),
            start_ms: first_start_ms,
            utterance_ended,
            finalized,
            language,
        },
        (_, second) => second,
    }
}

const fn empty_partial() -> ClientCommand {
    ClientCommand::TranscriptPartial {
        speaker: Speaker::User,
        text: String::new(),
        segment_id: 0,
        audio_ms: 0,
        start_ms: 0,
    }
}

const fn empty_final() -> ClientCommand {
    ClientCommand::TranscriptFinal {
        speaker: Speaker::User,
        text: String::new(),
        segment_id: 0,
        duration_ms: 0,
        start_ms: 0,
        utterance_ended: false,
        finalized: true,
        language: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn transcript(text: &str, is_final: bool) -> ClientCommand {
        let (speaker, text) = (Speaker::User, text.to_owned());
        if is_final {
            let mut transcript = empty_final();
            if let ClientCommand::TranscriptFinal { text: spoken, .. } = &mut transcript {
                *spoken = text;
            }
            return transcript;
        }
        ClientCommand::TranscriptPartial { speaker, text, segment_id: 0, audio_ms: 0, start_ms: 0 }
    }

    proptest! {
        #[test]
        fn every_request_gets_one_reply_and_every_final_word_is_sent_once(
            script in prop::collection::vec((0u8..5, any::<bool>()), 0..60),
        ) {
            let (mut lockstep, mut spoken, mut received, mut requests, mut replies) =
                (Lockstep::default(), Vec::new(), Vec::new(), 0, 0);
            let mut take = |lockstep: &mut Lockstep, settled| while let Some(reply) = lockstep.next_reply(settled) {
                replies += 1;
                if let ClientCommand::TranscriptFinal { text, .. } = reply {
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
                    _ => { lockstep.await_reply(AwaitedReply::Final); requests += 1 }
                }
                take(&mut lockstep, settled);
            }
            lockstep.await_reply(AwaitedReply::Final);
            take(&mut lockstep, true);
            prop_assert_eq!(replies, requests + 1);
            prop_assert_eq!(received, spoken);
            prop_assert!(!lockstep.awaits_final());
        }
    }
}
