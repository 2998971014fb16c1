//! The turns of a recording, and those of two recordings of the same user side by side.

use serde::Serialize;

use super::document::{RecordedEvent, TimedEvent};

/// Utterances of two recordings that are this far apart may be the same one.
const APART_MAX_MS: i64 = 500;

/// An utterance of the user and what followed it, or words of the model that no utterance came before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RecordedTurn {
    /// Start of the utterance in the recording.
    pub from_ms: u64,
    /// Its end.
    pub to_ms: u64,
    /// The user's words.
    pub user: String,
    /// The model's words.
    pub model: String,
    /// Calls of tools, with their arguments.
    pub tools: Vec<String>,
    /// The user cut the model short.
    pub interrupted: bool,
    /// From the end of the utterance to its first words.
    pub first_transcript_ms: Option<u64>,
    /// From the question to the first audio.
    pub first_audio_ms: Option<u64>,
    /// Errors that the client got.
    pub errors: Vec<String>,
}

/// A turn in two recordings of the same user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TurnPair {
    /// In the earlier one.
    pub then: Option<RecordedTurn>,
    /// In the later one.
    pub now: Option<RecordedTurn>,
}

/// Turns, while their events are read.
#[derive(Debug, Default)]
struct Turns(Vec<NumberedTurn>);

#[derive(Debug, Default)]
struct NumberedTurn {
    turn: RecordedTurn,
    utterance: Option<u32>,
    answers: Vec<u32>,
}

/// The turns of these events.
#[must_use]
pub fn turns_of(events: &[TimedEvent<'_>]) -> Vec<RecordedTurn> {
    let mut turns = Turns::default();
    for TimedEvent { at_ms, event } in events {
        turns.take(*at_ms, event);
    }
    turns.0.into_iter().map(|numbered| numbered.turn).collect()
}

impl Turns {
    fn take(&mut self, at_ms: u64, event: &RecordedEvent<'_>) {
        match event {
            RecordedEvent::SpeechStarted { utterance, from_ms } => {
                self.of_utterance(*utterance, *from_ms);
            }
            RecordedEvent::SpeechEnded { utterance } => {
                let turn = self.of_utterance(*utterance, at_ms);
                turn.to_ms = turn.to_ms.max(at_ms);
            }
            RecordedEvent::UserTranscript { utterance, from_ms, to_ms, text, .. } => {
                let turn = self.of_utterance(*utterance, *from_ms);
                turn.to_ms = turn.to_ms.max(*to_ms);
                append(&mut turn.user, text);
            }
            RecordedEvent::FirstTranscript { after_ms } => self.note_first_transcript(*after_ms),
            RecordedEvent::FirstAudio { after_ms } => {
                self.newest(at_ms).first_audio_ms.get_or_insert(*after_ms);
            }
            RecordedEvent::Error { error } => self.newest(at_ms).errors.push(error.to_string()),
            event => self.take_of_model(at_ms, event),
        }
    }

    fn take_of_model(&mut self, at_ms: u64, event: &RecordedEvent<'_>) {
        match event {
            RecordedEvent::AnswerStarted { answer } => {
                self.of_answer(*answer, at_ms);
            }
            RecordedEvent::ModelTranscript { answer, text } => {
                append(&mut self.of_answer(*answer, at_ms).model, text);
            }
            RecordedEvent::AnswerEnded { answer, interrupted, .. } => {
                self.of_answer(*answer, at_ms).interrupted |= interrupted;
            }
            RecordedEvent::ToolCalled { answer, tool, arguments, .. } => {
                self.of_answer(*answer, at_ms).tools.push(format!("{tool} {arguments}"));
            }
            RecordedEvent::ServerToolCalled { tool, arguments, .. } => {
                self.newest(at_ms).tools.push(format!("{tool} {arguments}"));
            }
            RecordedEvent::Interrupted | RecordedEvent::SpeakingEnded { interrupted: true, .. } => {
                if let Some(answered) = self.0.iter_mut().rfind(|numbered| !numbered.answers.is_empty()) {
                    answered.turn.interrupted = true;
                }
            }
            _ => {}
        }
    }

    /// The turn that begins with this utterance.
    fn of_utterance(&mut self, utterance: u32, from_ms: u64) -> &mut RecordedTurn {
        let known = self.0.iter().rposition(|numbered| numbered.utterance == Some(utterance));
        let at = known.unwrap_or_else(|| self.begin(from_ms));
        self.0[at].utterance = Some(utterance);
        &mut self.0[at].turn
    }

    /// The turn that has this answer: the newest one, unless that is an answer without an utterance.
    fn of_answer(&mut self, answer: u32, at_ms: u64) -> &mut RecordedTurn {
        let known = self.0.iter().rposition(|numbered| numbered.answers.contains(&answer));
        let takes_it = |numbered: &NumberedTurn| numbered.utterance.is_some() || numbered.answers.is_empty();
        let newest = || self.0.len().checked_sub(1).filter(|at| takes_it(&self.0[*at]));
        let at = known.or_else(newest).unwrap_or_else(|| self.begin(at_ms));
        let numbered = &mut self.0[at];
        if known.is_none() {
            numbered.answers.push(answer);
        }
        if numbered.utterance.is_none() {
            numbered.turn.to_ms = at_ms;
        }
        &mut numbered.turn
    }

    fn newest(&mut self, at_ms: u64) -> &mut RecordedTurn {
        let at = self.0.len().checked_sub(1).unwrap_or_else(|| self.begin(at_ms));
        &mut self.0[at].turn
    }

    fn begin(&mut self, from_ms: u64) -> usize {
        let turn = RecordedTurn { from_ms, to_ms: from_ms, ..RecordedTurn::default() };
        self.0.push(NumberedTurn { turn, ..NumberedTurn::default() });
        self.0.len() - 1
    }

    /// The first words of an utterance may come after the next one has begun.
    fn note_first_transcript(&mut self, after_ms: u64) {
        let awaits = |numbered: &&mut NumberedTurn| {
            numbered.utterance.is_some() && numbered.turn.first_transcript_ms.is_none()
        };
        if let Some(numbered) = self.0.iter_mut().find(awaits) {
            numbered.turn.first_transcript_ms = Some(after_ms);
        }
    }
}

fn append(words: &mut String, text: &str) {
    let text = text.trim();
    if !words.is_empty() && !text.is_empty() {
        words.push(' ');
    }
    words.push_str(text);
}

/// Puts turns beside each other whose utterances are the same stretch of the user's audio.
#[must_use]
pub fn pair_turns(mut then: Vec<RecordedTurn>, mut now: Vec<RecordedTurn>) -> Vec<TurnPair> {
    let mut pairs = Vec::new();
    let (mut left, mut right) = (0, 0);
    while left < then.len() || right < now.len() {
        let overlap_of = |left: usize, right: usize| Some(overlap_ms(then.get(left)?, now.get(right)?));
        let here = overlap_of(left, right).filter(|overlap| *overlap > -APART_MAX_MS);
        let are_together =
            here.is_some() && here >= overlap_of(left + 1, right) && here >= overlap_of(left, right + 1);
        let is_then_first = match (then.get(left), now.get(right)) {
            (Some(earlier), Some(later)) => earlier.from_ms <= later.from_ms,
            (earlier, _) => earlier.is_some(),
        };
        let take = |turns: &mut Vec<RecordedTurn>, at: &mut usize| {
            *at += 1;
            Some(std::mem::take(&mut turns[*at - 1]))
        };
        pairs.push(TurnPair {
            then: if are_together || is_then_first { take(&mut then, &mut left) } else { None },
            now: if are_together || !is_then_first { take(&mut now, &mut right) } else { None },
        });
    }
    pairs
}

/// Time in which both utterances are heard; negative for the time between them.
fn overlap_ms(one: &RecordedTurn, other: &RecordedTurn) -> i64 {
    one.to_ms.min(other.to_ms) as i64 - one.from_ms.max(other.from_ms) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_ms: u64, event: RecordedEvent<'static>) -> TimedEvent<'static> {
        TimedEvent { at_ms, event }
    }

    fn turn(from_ms: u64, to_ms: u64) -> RecordedTurn {
        RecordedTurn { from_ms, to_ms, ..RecordedTurn::default() }
    }

    /// A greeting; a question whose transcript comes late, with a call; the user interrupts its answer.
    #[test]
    fn events_belong_to_the_utterance_or_answer_that_they_name() {
        let text = |text: &'static str| text.into();
        let words = |utterance, from_ms, to_ms, words| RecordedEvent::UserTranscript {
            utterance,
            from_ms,
            to_ms,
            text: text(words),
            language: None,
        };
        let events = [
            event(100, RecordedEvent::AnswerStarted { answer: 1 }),
            event(110, RecordedEvent::FirstAudio { after_ms: 50 }),
            event(900, RecordedEvent::ModelTranscript { answer: 1, text: text("Hello.") }),
            event(2_100, RecordedEvent::SpeechStarted { utterance: 2, from_ms: 2_000 }),
            event(3_500, RecordedEvent::SpeechEnded { utterance: 2 }),
            event(3_600, RecordedEvent::AnswerStarted { answer: 3 }),
            event(
                3_700,
                RecordedEvent::ServerToolCalled {
                    call: 1,
                    server: text("home"),
                    tool: text("lamp"),
                    arguments: text("{}"),
                },
            ),
            event(3_800, RecordedEvent::FirstAudio { after_ms: 300 }),
            event(4_100, RecordedEvent::SpeechStarted { utterance: 4, from_ms: 4_000 }),
            event(4_200, RecordedEvent::Interrupted),
            event(4_300, words(2, 2_000, 3_000, "Lamp on.")),
            event(4_310, RecordedEvent::FirstTranscript { after_ms: 800 }),
            event(4_400, RecordedEvent::ModelTranscript { answer: 3, text: text("It is") }),
            event(4_400, RecordedEvent::Unknown),
            event(5_000, words(4, 4_000, 4_600, "Wait.")),
        ];
        let turns = turns_of(&events);
        let expected = [
            RecordedTurn { model: "Hello.".to_owned(), first_audio_ms: Some(50), ..turn(100, 900) },
            RecordedTurn {
                user: "Lamp on.".to_owned(),
                model: "It is".to_owned(),
                tools: vec!["lamp {}".to_owned()],
                interrupted: true,
                first_transcript_ms: Some(800),
                first_audio_ms: Some(300),
                ..turn(2_000, 3_500)
            },
            RecordedTurn { user: "Wait.".to_owned(), ..turn(4_000, 4_600) },
        ];
        assert_eq!(turns, expected);
    }

    #[test]
    fn turns_of_the_same_speech_stand_side_by_side() {
        let then = vec![turn(0, 1_000), turn(2_000, 3_000), turn(9_000, 9_500)];
        let now = vec![turn(1_200, 3_100), turn(5_000, 6_000), turn(9_900, 9_950)];
        let starts: Vec<_> = pair_turns(then, now)
            .into_iter()
            .map(|pair| (pair.then.map(|turn| turn.from_ms), pair.now.map(|turn| turn.from_ms)))
            .collect();
        let expected =
            [(Some(0), None), (Some(2_000), Some(1_200)), (None, Some(5_000)), (Some(9_000), Some(9_900))];
        assert_eq!(starts, expected);
        assert!(pair_turns(Vec::new(), Vec::new()).is_empty());
    }
}
