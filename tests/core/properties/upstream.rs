//! One lane's upstream: answers what it is told as its [`Upstream`] says, well or badly, with audio that can be told
//! from every other lane's.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::script::{LINES, Reaction, Say, Upstream};
use voxbridge::event::Why;

/// What reaches the bridge, after so many ms.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Opened,
    Text(String),
    Closed(Why),
}

pub(crate) type Replies = Vec<(u64, Reply)>;

/// Samples of a delta.
const DELTA_SAMPLES: usize = 480;

/// The sample that a lane's voice consists of; two hundred lanes in a row can be told apart.
pub(crate) const fn voice_of(lane: u32) -> i16 {
    100 * (1 + (lane % 200) as i16)
}

impl Upstream {
    pub(crate) fn dialled(&self) -> Replies {
        match self.dialled {
            Reaction::Well(ms) | Reaction::Muddled(ms) | Reaction::Empty(ms) => {
                let mut replies = vec![(ms, Reply::Opened)];
                let queue = vec![
                    text(r#"{"type":"session.queued","position":1}"#),
                    text(r#"{"type":"session.queue_done"}"#),
                ];
                replies.extend(react(self.up, queue).into_iter().map(|(after, reply)| (ms + after, reply)));
                replies
            }
            Reaction::Never => vec![],
            Reaction::Ends(ms) => vec![(ms, Reply::Closed(Why::Unreachable("no route".into())))],
            Reaction::Breaks(ms) | Reaction::Half(ms) => vec![(ms, Reply::Closed(Why::Refused(403)))],
        }
    }

    /// What it says to `session.init`, an `input.append` or `session.close` on that lane.
    pub(crate) fn told(&self, lane: u32, kind: &str, wants_audio: bool) -> Replies {
        match kind {
            "session.init" => react(self.init, vec![text(r#"{"type":"session.created","session_id":"s"}"#)]),
            "input.append" => {
                let mut replies = react(self.asked, self.answer(lane, wants_audio));
                for (place, (after, _)) in replies.iter_mut().enumerate() {
                    *after += self.pace_ms * place as u64;
                }
                replies
            }
            "session.close" => react(
                self.close,
                vec![
                    text(r#"{"type":"session.closed","reason":"turn_done"}"#),
                    Reply::Closed(Why::Closed(1000, String::new())),
                ],
            ),
            other => panic!("unknown message of type {other:?}"),
        }
    }

    /// What it says to the unit of that number.
    pub(crate) fn talked(&self, lane: u32, number: u64) -> Replies {
        let say = self.units[number as usize % self.units.len()];
        let unit = if say == Say::WrongUnit { number + 1 } else { number };
        let input = if self.echoes { format!(r#","input_id":"{unit}""#) } else { String::new() };
        let (turn, own) = (format!("l{lane}_t{}", number / 8), format!("l{lane}_u{number}"));
        let delta = |kind: &str, id: &str, more: &str| {
            let id = if id.is_empty() { String::new() } else { format!(r#","response_id":"{id}""#) };
            text(&format!(r#"{{"type":"response.output.delta","kind":"{kind}"{id}{input}{more}}}"#))
        };
        let audio = |samples| format!(r#","audio":"{}""#, voice_audio(lane, samples));
        let words = r#","text":"word ""#;
        let done = |text_: &str, more: &str| {
            text(&format!(
                r#"{{"type":"response.done","response_id":"{own}"{input},"text":"{text_}"{more}}}"#
            ))
        };
        let well = match say {
            Say::Listen | Say::WrongUnit => vec![delta("listen", "", "")],
            Say::Speak => vec![delta("text", &turn, words), delta("audio", &turn, &audio(24_000))],
            Say::SpeakLast => vec![
                delta("text", &turn, words),
                delta("audio", &turn, &audio(14_400)),
                delta("listen", &turn, ""),
            ],
            Say::Pieces => vec![
                delta("audio", &own, &audio(5_000)),
                delta("text", &own, words),
                delta("audio", &own, &audio(480)),
                done("word ", ""),
            ],
            Say::ListenDone => vec![delta("listen", &own, ""), done("", "")],
            Say::TextOnly => vec![delta("text", &turn, words)],
            Say::Twice => vec![
                delta("listen", &own, ""),
                delta("listen", &own, ""),
                done("word ", ""),
                done("word ", ""),
            ],
            Say::Broken => vec![delta("audio", &turn, r#","audio":"???""#), delta("listen", &turn, "")],
            Say::DoneOnly => vec![done("words", &audio(2_400))],
            Say::Silent => vec![],
        };
        react(self.asked, well)
    }

    fn answer(&self, lane: u32, wants_audio: bool) -> Vec<Reply> {
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
    let sample = (f32::from(voice_of(lane)) / 32_768.0).to_le_bytes();
    let samples: Vec<u8> = std::iter::repeat_n(sample, samples).flatten().collect();
    STANDARD.encode(samples)
}

fn react(reaction: Reaction, well: Vec<Reply>) -> Replies {
    let lost = || Reply::Closed(Why::Lost("reset by peer".into()));
    let at = |ms: u64, replies: Vec<Reply>| replies.into_iter().map(|reply| (ms, reply)).collect();
    match reaction {
        Reaction::Well(ms) => at(ms, well),
        Reaction::Muddled(ms) => {
            let nonsense = LINES[9..12].iter().map(|line| text(line));
            at(ms, nonsense.chain(well).collect())
        }
        Reaction::Never => vec![],
        Reaction::Ends(ms) => at(
            ms,
            vec![
                text(r#"{"type":"session.closed","reason":"timeout"}"#),
                Reply::Closed(Why::Closed(1000, "timeout".into())),
            ],
        ),
        Reaction::Empty(ms) => at(
            ms,
            vec![text(
                r#"{"type":"session.closed","reason":"backend_error","diagnostic":{"message":"torch.cat(): expected a non-empty list of Tensors"}}"#,
            )],
        ),
        Reaction::Breaks(ms) => at(ms, vec![lost()]),
        Reaction::Half(ms) => {
            let half = well.len() / 2;
            at(ms, well.into_iter().take(half).chain([lost()]).collect())
        }
    }
}

fn text(json: &str) -> Reply {
    Reply::Text(json.to_owned())
}
