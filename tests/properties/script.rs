//! What may happen in a session, as data: the client's steps, and how each lane's upstream takes what it is told.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::select};

use super::sound::Sound;

/// A session to be.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// Decodes while the user still speaks.
    pub(crate) interim: bool,
    /// Everything above the hiss is speech, so that utterances are short and many.
    pub(crate) noise_is_speech: bool,
    /// For the first lane, the second and so on, over and over.
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) steps: Vec<Step>,
}

/// What happens next.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// The client sends a text frame.
    Say(String),
    /// The client has a text spoken: long enough for more than one part, with a voice sample of its own.
    Speak { long: bool, voice: Option<u8> },
    /// The client sends audio at the speed of speech, in frames of so many bytes.
    Talk { sound: Sound, ms: u64, frame_bytes: usize },
    /// The client sends so many bytes at once.
    Burst { sound: Sound, bytes: usize },
    /// Time passes, and what is due happens when it is due.
    Pass(Duration),
    /// Time passes unnoticed.
    Oversleep(Duration),
    /// The clock is set back.
    Backwards(Duration),
    /// A timeout that nobody asked for.
    Timeout,
    /// The newest lane but so many says this, whatever it was told.
    Says(usize, String),
    /// The newest lane but so many loses its transport.
    Loses(usize),
    /// A lane that never was.
    Stray(u32),
    /// voxbridge stops.
    Drain,
    /// The client's transport is gone.
    Leave,
}

/// How one lane's upstream takes what it is told.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub(crate) dialled: Reaction,
    pub(crate) up: Reaction,
    pub(crate) init: Reaction,
    pub(crate) asked: Reaction,
    pub(crate) close: Reaction,
    /// Deltas of an answer.
    pub(crate) deltas: u32,
    /// Between them, ms.
    pub(crate) pace_ms: u64,
}

/// How an upstream takes one message, after so many ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// As it should.
    Well(u64),
    /// As it should, after three lines of nonsense.
    Muddled(u64),
    /// Not at all.
    Never,
    /// By `session.closed` and a close frame.
    Ends(u64),
    /// By `session.closed` about an empty answer, and no close frame.
    Empty(u64),
    /// By a broken transport; before it is up, by HTTP 403.
    Breaks(u64),
    /// The answer's first half, then a broken transport.
    Half(u64),
}

/// Lines that mean something, in any order.
pub(crate) const LINES: [&str; 14] = [
    r#"{"type":"session.queued","position":2,"queue_length":3,"estimated_wait_s":1.5}"#,
    r#"{"type":"session.queue_update"}"#,
    r#"{"type":"session.queue_done"}"#,
    r#"{"type":"session.created","session_id":"s"}"#,
    r#"{"type":"response.output.delta","kind":"listen"}"#,
    r#"{"type":"response.output.delta","kind":"text","text":" stray"}"#,
    r#"{"type":"response.done","text":"stray"}"#,
    r#"{"type":"session.closed","reason":"timeout"}"#,
    r#"{"type":"error","error":{"code":"queue_full","message":"Queue full"}}"#,
    r#"{"type":"response.output.delta","kind":"audio","audio":"AAA"}"#,
    r#"{"type":"session.resume"}"#,
    "[]",
    "{",
    "",
];

pub(crate) fn script(formats: bool) -> impl Strategy<Value = Script> {
    let steps = vec(step(formats), 1..60);
    (any::<bool>(), prop::bool::weighted(0.7), vec(upstream(), 1..6), steps).prop_map(
        |(interim, noise_is_speech, upstreams, steps)| Script { interim, noise_is_speech, upstreams, steps },
    )
}

fn step(formats: bool) -> impl Strategy<Value = Step> {
    let ms = |range: std::ops::Range<u64>| range.prop_map(Duration::from_millis);
    prop_oneof![
        12 => talk(),
        1 => (sound(), 100_000usize..400_000).prop_map(|(sound, bytes)| Step::Burst { sound, bytes }),
        4 => (sound(), 0usize..40_000).prop_map(|(sound, bytes)| Step::Burst { sound, bytes }),
        6 => (prop::bool::weighted(0.2), prop::option::of(0u8..2)).prop_map(|(long, voice)| Step::Speak { long, voice }),
        6 => command(formats).prop_map(Step::Say),
        4 => ms(0..3_000).prop_map(Step::Pass),
        2 => ms(3_000..100_000).prop_map(Step::Pass),
        1 => ms(0..40_000).prop_map(Step::Oversleep),
        1 => ms(0..2_000).prop_map(Step::Backwards),
        1 => Just(Step::Timeout),
        2 => (0usize..4, select(&LINES[..])).prop_map(|(back, line)| Step::Says(back, line.to_owned())),
        1 => (0usize..4, ".{0,30}").prop_map(|(back, line)| Step::Says(back, line)),
        1 => (0usize..4).prop_map(Step::Loses),
        1 => (0u32..100).prop_map(Step::Stray),
        // Most sessions go on to the end of their script.
        1 => prop_oneof![8 => Just(Step::Timeout), 1 => Just(Step::Drain), 1 => Just(Step::Leave)],
    ]
}

fn talk() -> impl Strategy<Value = Step> {
    let frame_bytes = prop_oneof![Just(640), Just(3_200), 1usize..5_000];
    (sound(), 100u64..3_000, frame_bytes).prop_map(|(sound, ms, frame_bytes)| Step::Talk {
        sound,
        ms,
        frame_bytes: frame_bytes.max(64),
    })
}

fn sound() -> impl Strategy<Value = Sound> {
    prop_oneof![
        3 => (0usize..300_000).prop_map(Sound::Speech),
        1 => Just(Sound::Noise),
        2 => Just(Sound::Hiss),
    ]
}

fn command(formats: bool) -> impl Strategy<Value = String> {
    let mut known = vec![
        r#"{"type":"tts.cancel"}"#,
        r#"{"type":"tts.cancel"}"#,
        r#"{"type":"input_audio_buffer.commit"}"#,
        r#"{"type":"input_audio_buffer.commit"}"#,
        r#"{"type":"session.configure","silence_timeout_ms":100,"max_segment_duration_ms":1000}"#,
        r#"{"type":"session.configure","silence_timeout_ms":2000,"max_segment_duration_ms":30000}"#,
        r#"{"type":"session.configure","silence_timeout_ms":9223372036854775807,"max_segment_duration_ms":1e18}"#,
        r#"{"type":"session.configure","vad_sensitivity":"low","language":"zh","hot_words":["\"",""]}"#,
        r#"{"type":"session.configure","enable_partial_transcripts":false,"tts_voice":"nobody"}"#,
        r#"{"type":"tts.speak","text":"***"}"#,
        r#"{"type":"tts.speak","text":""}"#,
        "{}",
        "[",
    ];
    if formats {
        known.extend([
            r#"{"type":"session.configure","input_sample_rate":48000}"#,
            r#"{"type":"session.configure","input_sample_rate":8000,"input_channels":2}"#,
            r#"{"type":"session.configure","input_sample_rate":44100,"channels":1}"#,
            r#"{"type":"session.configure","input_sample_rate":12345,"channels":8}"#,
            r#"{"type":"session.configure","input_sample_rate":99999999999,"input_channels":65536}"#,
            r#"{"type":"session.configure","output_sample_rate":8000}"#,
            r#"{"type":"session.configure","output_sample_rate":44100}"#,
            r#"{"type":"session.configure","output_sample_rate":1}"#,
        ]);
    }
    let ends = select(vec![r#"{"type":"session.close"}"#, r#"{"type":"session.cancel"}"#]);
    prop_oneof![
        20 => select(known).prop_map(str::to_owned),
        1 => ends.prop_map(str::to_owned),
        1 => ".{0,40}",
    ]
}

fn upstream() -> impl Strategy<Value = Upstream> {
    let stage = (reaction(1), reaction(1), reaction(2), reaction(4), reaction(2));
    (stage, 0u32..6, prop_oneof![0u64..300, 300u64..20_000]).prop_map(
        |((dialled, up, init, asked, close), deltas, pace_ms)| Upstream {
            dialled,
            up,
            init,
            asked,
            close,
            deltas,
            pace_ms,
        },
    )
}

/// For every twenty that go well, `trouble` do not.
fn reaction(trouble: u32) -> impl Strategy<Value = Reaction> {
    let ms = || prop_oneof![4 => 0u64..200, 1 => 200u64..20_000];
    let wrong = prop_oneof![
        3 => ms().prop_map(Reaction::Muddled),
        2 => Just(Reaction::Never),
        2 => ms().prop_map(Reaction::Ends),
        2 => ms().prop_map(Reaction::Empty),
        2 => ms().prop_map(Reaction::Breaks),
        2 => ms().prop_map(Reaction::Half),
    ];
    prop_oneof![20 => ms().prop_map(Reaction::Well), trouble => wrong]
}
