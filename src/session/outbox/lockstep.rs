//! Transcripts told in lock step: a client of such a protocol sends a frame, then waits for one answer to it.
//!
//! What is understood is kept until something asks for it. What was final meanwhile is one transcript: a client that
//! counts its answers gets no more of them than it asked for, and no word twice.

use std::collections::VecDeque;

use crate::event::{ClientCommand, Speaker};

/// Answers owed at a time: more than a client can ask for that waits for them.
const MOST_OWED: usize = 4096;

/// What the client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owed {
    /// What is understood at the moment.
    Step,
    /// All that came so far, when it is final.
    All,
}

/// One client's answers.
#[derive(Debug, Default)]
pub(crate) struct Lockstep {
    owed: VecDeque<Owed>,
    /// The utterance at hand, as far as it is understood.
    partial: Option<ClientCommand>,
    /// What is final and was not told.
    finals: Option<ClientCommand>,
}

impl Lockstep {
    /// Keeps a transcript; gives back what is none.
    pub(crate) fn keep(&mut self, command: ClientCommand) -> Option<ClientCommand> {
        match command {
            ClientCommand::TranscriptPartial { .. } => self.partial = Some(command),
            ClientCommand::TranscriptFinal { .. } => {
                self.partial = None;
                self.finals = Some(match self.finals.take() {
                    Some(before) => joined(before, command),
                    None => command,
                });
            }
            other => return Some(other),
        }
        None
    }

    /// The client waits for another answer.
    pub(crate) fn owe(&mut self, owed: Owed) {
        if self.owed.len() < MOST_OWED {
            self.owed.push_back(owed);
        }
    }

    /// Whether the client has to wait for what is not final yet.
    pub(crate) fn waits(&self) -> bool {
        self.owed.front() == Some(&Owed::All)
    }

    /// The next answer that can be given; `settled` says that all that came is final.
    pub(crate) fn answer(&mut self, settled: bool) -> Option<ClientCommand> {
        match self.owed.front()? {
            Owed::All if !settled => None,
            Owed::All => {
                self.owed.pop_front();
                self.partial = None;
                Some(self.finals.take().unwrap_or_else(nothing_final))
            }
            Owed::Step => {
                self.owed.pop_front();
                let partial = || self.partial.clone().unwrap_or_else(nothing_yet);
                Some(self.finals.take().unwrap_or_else(partial))
            }
        }
    }
}

/// Two transcripts as one, from the beginning of the first to the end of the second.
fn joined(first: ClientCommand, second: ClientCommand) -> ClientCommand {
    match (first, second) {
        (
            ClientCommand::TranscriptFinal { text: before, from_ms: start_ms, segment_id: first, .. },
            ClientCommand::TranscriptFinal {
                speaker,
                text: after,
                from_ms,
                duration_ms,
                ended,
                finalized,
                language,
                ..
            },
        ) => ClientCommand::TranscriptFinal {
            speaker,
            text: [before.as_str(), after.as_str()].join(" ").trim().to_owned(),
            segment_id: first,
            duration_ms: (from_ms + duration_ms).saturating_sub(start_ms),
            from_ms: start_ms,
            ended,
            finalized,
            language,
        },
        (_, second) => second,
    }
}

const fn nothing_yet() -> ClientCommand {
    ClientCommand::TranscriptPartial {
        speaker: Speaker::User,
        text: String::new(),
        segment_id: 0,
        at_ms: 0,
        from_ms: 0,
    }
}

const fn nothing_final() -> ClientCommand {
    ClientCommand::TranscriptFinal {
        speaker: Speaker::User,
        text: String::new(),
        segment_id: 0,
        duration_ms: 0,
        from_ms: 0,
        ended: false,
        finalized: true,
        language: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn heard(text: &str, is_final: bool) -> ClientCommand {
        let (speaker, text) = (Speaker::User, text.to_owned());
        if is_final {
            let mut words = nothing_final();
            if let ClientCommand::TranscriptFinal { text: said, .. } = &mut words {
                *said = text;
            }
            return words;
        }
        ClientCommand::TranscriptPartial { speaker, text, segment_id: 0, at_ms: 0, from_ms: 0 }
    }

    proptest! {
        #[test]
        fn every_question_has_one_answer_and_every_final_word_is_told_once(
            script in prop::collection::vec((0u8..5, any::<bool>()), 0..60),
        ) {
            let (mut lockstep, mut said, mut told, mut asked, mut answers) =
                (Lockstep::default(), Vec::new(), Vec::new(), 0, 0);
            let mut take = |lockstep: &mut Lockstep, settled| while let Some(answer) = lockstep.answer(settled) {
                answers += 1;
                if let ClientCommand::TranscriptFinal { text, .. } = answer {
                    told.extend(text.split_whitespace().map(str::to_owned));
                }
            };
            for (number, (step, settled)) in script.into_iter().enumerate() {
                match step {
                    0 => drop(lockstep.keep(heard("maybe", false))),
                    1 => {
                        said.push(format!("word{number}"));
                        drop(lockstep.keep(heard(&format!("word{number}"), true)));
                    }
                    2 | 3 => { lockstep.owe(Owed::Step); asked += 1 }
                    _ => { lockstep.owe(Owed::All); asked += 1 }
                }
                take(&mut lockstep, settled);
            }
            lockstep.owe(Owed::All);
            take(&mut lockstep, true);
            prop_assert_eq!(answers, asked + 1);
            prop_assert_eq!(told, said);
            prop_assert!(!lockstep.waits());
        }
    }
}
