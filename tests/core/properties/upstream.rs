//! One lane's upstream: replies as its [`Upstream`] describes, with audio that identifies its lane.

use super::{
    script::{Reaction, STRAY_LINES, Stage},
    *,
};

/// An event that reaches the bridge after this many ms.
#[derive(Debug, Clone)]
pub(crate) enum UpstreamEvent {
    Opened,
    Text(String),
    Closed(DisconnectReason),
}

pub(crate) type UpstreamEvents = Vec<(u64, UpstreamEvent)>;

/// Number of samples' levels of a lane. Each delta has its own, in order.
pub(crate) const LEVELS: i16 = 100;

/// Voices of lanes. Lanes with the same voice have the same upstream, as there are one to six upstreams.
const VOICES: u32 = 180;

/// The lowest sample of a lane's voice. The levels are unique among `VOICES` consecutive lanes.
pub(crate) const fn lane_sample(lane: u32) -> i16 {
    LEVELS * (1 + (lane % VOICES) as i16)
}

impl Upstream {
    /// The same server with this trouble.
    pub(crate) fn in_trouble(&self, stage: Stage, reaction: Reaction) -> Self {
        let mut troubled = self.clone();
        *match stage {
            Stage::Queue => &mut troubled.up,
            Stage::Init => &mut troubled.init,
            Stage::Question => &mut troubled.asked,
        } = reaction;
        troubled
    }

    pub(crate) fn replies_to_dial(&self) -> UpstreamEvents {
        match self.dialled {
            Reaction::Correct(ms)
            | Reaction::NonsenseFirst(ms)
            | Reaction::EmptyListError(ms)
            | Reaction::HalfThenSilent(ms)
            | Reaction::Refuse(ms) => {
                let mut replies = vec![(ms, UpstreamEvent::Opened)];
                let queue = vec![
                    text(r#"{"type":"session.queued","position":1}"#),
                    text(r#"{"type":"session.queue_done"}"#),
                ];
                replies.extend(
                    reaction_events(self.up, queue).into_iter().map(|(after, reply)| (ms + after, reply)),
                );
                replies
            }
            Reaction::Never => vec![],
            Reaction::CloseSession(ms) => {
                vec![(ms, UpstreamEvent::Closed(DisconnectReason::Unreachable("no route".into())))]
            }
            Reaction::LoseTransport(ms) | Reaction::HalfThenLost(ms) => {
                vec![(ms, UpstreamEvent::Closed(DisconnectReason::HttpRejected(403)))]
            }
        }
    }

    /// Replies to `session.init`, an `input.append` or `session.close` on this lane. `earlier` questions came before.
    pub(crate) fn replies_to(
        &self,
        lane: u32,
        kind: &str,
        wants_audio: bool,
        earlier: u32,
    ) -> UpstreamEvents {
        match kind {
            "session.init" => {
                reaction_events(self.init, vec![text(r#"{"type":"session.created","session_id":"s"}"#)])
            }
            "input.append" => {
                let mut replies = reaction_events(self.asked, self.answer(lane, wants_audio, earlier));
                for (place, (after, _)) in replies.iter_mut().enumerate() {
                    *after += self.pace_ms * place as u64;
                }
                replies
            }
            "session.close" => reaction_events(
                self.close,
                vec![
                    text(r#"{"type":"session.closed","reason":"turn_done"}"#),
                    UpstreamEvent::Closed(DisconnectReason::Closed(1000, String::new())),
                ],
            ),
            other => panic!("unknown message of type {other:?}"),
        }
    }

    /// Replies to the unit with this number.
    pub(crate) fn replies_to_unit(&self, lane: u32, number: u64) -> UpstreamEvents {
        let say = self.units[number as usize % self.units.len()];
        let unit = if say == UnitReply::WrongUnit { number + 1 } else { number };
        let input = if self.echoes { format!(r#","input_id":"{unit}""#) } else { String::new() };
        let (turn, own) = (format!("l{lane}_t{}", number / 8), format!("l{lane}_u{number}"));
        let delta = |kind: &str, id: &str, more: &str| {
            let id = if id.is_empty() { String::new() } else { format!(r#","response_id":"{id}""#) };
            text(&format!(r#"{{"type":"response.output.delta","kind":"{kind}"{id}{input}{more}}}"#))
        };
        let audio = |samples| format!(r#","audio":"{}""#, voice_audio(lane, number, samples));
        let words = r#","text":"word ""#;
        let done = |reply_text: &str, more: &str| {
            text(&format!(
                r#"{{"type":"response.done","response_id":"{own}"{input},"text":"{reply_text}"{more}}}"#
            ))
        };
        let well = match say {
            UnitReply::Listen | UnitReply::WrongUnit => vec![delta("listen", "", "")],
            UnitReply::Speak => vec![delta("text", &turn, words), delta("audio", &turn, &audio(24_000))],
            UnitReply::SpeakLast => vec![
                delta("text", &turn, words),
                delta("audio", &turn, &audio(14_400)),
                delta("listen", &turn, ""),
            ],
            UnitReply::Pieces => vec![
                delta("audio", &own, &audio(5_000)),
                delta("text", &own, words),
                delta("audio", &own, &audio(480)),
                done("word ", ""),
            ],
            UnitReply::ListenDone => vec![delta("listen", &own, ""), done("", "")],
            UnitReply::TextOnly => vec![delta("text", &turn, words)],
            UnitReply::Twice => vec![
                delta("listen", &own, ""),
                delta("listen", &own, ""),
                done("word ", ""),
                done("word ", ""),
            ],
            UnitReply::Broken => vec![delta("audio", &turn, r#","audio":"???""#), delta("listen", &turn, "")],
            UnitReply::DoneOnly => vec![done("words", &audio(2_400))],
            UnitReply::Refused => {
                vec![text(r#"{"type":"error","error":{"code":"invalid_input","message":"not understood"}}"#)]
            }
            UnitReply::Silent => vec![],
        };
        reaction_events(self.asked, well)
    }

    /// An answer, whose deltas continue to count, with the first at a multiple of their number.
    fn answer(&self, lane: u32, wants_audio: bool, earlier: u32) -> Vec<UpstreamEvent> {
        let first = self.deltas * (earlier % (LEVELS as u32 / self.deltas.max(1)));
        let delta = |number: u32| {
            if wants_audio {
                let audio = voice_audio(lane, (first + number).into(), self.delta_samples);
                text(&format!(r#"{{"type":"response.output.delta","kind":"audio","audio":"{audio}"}}"#))
            } else {
                text(r#"{"type":"response.output.delta","kind":"text","text":" word"}"#)
            }
        };
        (0..self.deltas).map(delta).chain([text(r#"{"type":"response.done","text":"words"}"#)]).collect()
    }
}

/// Audio of the delta or unit with this number.
fn voice_audio(lane: u32, number: u64, samples: usize) -> String {
    let level = lane_sample(lane) + (number % LEVELS as u64) as i16;
    let sample = (f32::from(level) / 32_768.0).to_le_bytes();
    let samples: Vec<u8> = std::iter::repeat_n(sample, samples).flatten().collect();
    STANDARD.encode(samples)
}

fn reaction_events(reaction: Reaction, well: Vec<UpstreamEvent>) -> UpstreamEvents {
    let lost = || UpstreamEvent::Closed(DisconnectReason::Lost("reset by peer".into()));
    let at = |ms: u64, replies: Vec<UpstreamEvent>| replies.into_iter().map(|reply| (ms, reply)).collect();
    match reaction {
        Reaction::Correct(ms) => at(ms, well),
        Reaction::NonsenseFirst(ms) => {
            let nonsense = STRAY_LINES[9..12].iter().map(|line| text(line));
            at(ms, nonsense.chain(well).collect())
        }
        Reaction::Never => vec![],
        Reaction::CloseSession(ms) => at(
            ms,
            vec![
                text(r#"{"type":"session.closed","reason":"timeout"}"#),
                UpstreamEvent::Closed(DisconnectReason::Closed(1000, "timeout".into())),
            ],
        ),
        Reaction::EmptyListError(ms) => at(
            ms,
            vec![text(
                r#"{"type":"session.closed","reason":"backend_error","diagnostic":{"message":"torch.cat(): expected a non-empty list of Tensors"}}"#,
            )],
        ),
        Reaction::LoseTransport(ms) => at(ms, vec![lost()]),
        Reaction::HalfThenLost(ms) => {
            let half = well.len() / 2;
            at(ms, well.into_iter().take(half).chain([lost()]).collect())
        }
        Reaction::HalfThenSilent(ms) => {
            let half = well.len() / 2;
            at(ms, well.into_iter().take(half).collect())
        }
        Reaction::Refuse(ms) => at(
            ms,
            vec![
                text(
                    r#"{"type":"session.closed","reason":"backend_error","diagnostic":{"message":"list index out of range"}}"#,
                ),
                UpstreamEvent::Closed(DisconnectReason::Closed(1000, String::new())),
            ],
        ),
    }
}

fn text(json: &str) -> UpstreamEvent {
    UpstreamEvent::Text(json.to_owned())
}
