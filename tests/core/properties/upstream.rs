//! One lane's upstream: replies as its [`Upstream`] describes, with audio that identifies its lane.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::script::{Reaction, STRAY_LINES, UnitReply, Upstream};
use voxbridge::event::DisconnectReason;

/// An event that reaches the bridge after this many ms.
#[derive(Debug, Clone)]
pub(crate) enum UpstreamEvent {
    Opened,
    Text(String),
    Closed(DisconnectReason),
}

pub(crate) type UpstreamEvents = Vec<(u64, UpstreamEvent)>;

/// Samples of a delta.
const DELTA_SAMPLES: usize = 480;

/// The constant sample of a lane's voice. It is unique among 200 consecutive lanes.
pub(crate) const fn lane_sample(lane: u32) -> i16 {
    100 * (1 + (lane % 200) as i16)
}

impl Upstream {
    pub(crate) fn replies_to_dial(&self) -> UpstreamEvents {
        match self.dialled {
            Reaction::Correct(ms) | Reaction::NonsenseFirst(ms) | Reaction::EmptyListError(ms) => {
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

    /// Replies to `session.init`, an `input.append` or `session.close` on this lane.
    pub(crate) fn replies_to(&self, lane: u32, kind: &str, wants_audio: bool) -> UpstreamEvents {
        match kind {
            "session.init" => {
                reaction_events(self.init, vec![text(r#"{"type":"session.created","session_id":"s"}"#)])
            }
            "input.append" => {
                let mut replies = reaction_events(self.asked, self.answer(lane, wants_audio));
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
        let audio = |samples| format!(r#","audio":"{}""#, voice_audio(lane, samples));
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
            UnitReply::Silent => vec![],
        };
        reaction_events(self.asked, well)
    }

    fn answer(&self, lane: u32, wants_audio: bool) -> Vec<UpstreamEvent> {
        let audio = voice_audio(lane, DELTA_SAMPLES);
        let delta = |_| {
            if wants_audio {
                text(&format!(r#"{{"type":"response.output.delta","kind":"audio","audio":"{audio}"}}"#))
            } else {
                text(r#"{"type":"response.output.delta","kind":"text","text":" word"}"#)
            }
        };
        (0..self.deltas).map(delta).chain([text(r#"{"type":"response.done","text":"words"}"#)]).collect()
    }
}

fn voice_audio(lane: u32, samples: usize) -> String {
    let sample = (f32::from(lane_sample(lane)) / 32_768.0).to_le_bytes();
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
    }
}

fn text(json: &str) -> UpstreamEvent {
    UpstreamEvent::Text(json.to_owned())
}
