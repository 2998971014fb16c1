//! Sessions as data: the client's steps, and each lane's upstream with its reactions.

use proptest::prelude::*;

use super::*;

/// A planned session.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// The profile's name: `speech`, `conversation` or `video`.
    pub(crate) profile: &'static str,
    /// Transcribe while the user still speaks.
    pub(crate) interim: bool,
    /// Everything above the hiss counts as speech, so that utterances are short and frequent.
    pub(crate) noise_is_speech: bool,
    /// Upstreams of the lanes in order of their dial, repeated.
    pub(crate) upstreams: Vec<Upstream>,
    /// Every server for this purpose is in trouble.
    pub(crate) trouble: Option<Trouble>,
    pub(crate) steps: Vec<Step>,
}

/// The trouble of all servers with one purpose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trouble {
    pub(crate) purpose: LanePurpose,
    pub(crate) stage: Stage,
    pub(crate) reaction: Reaction,
}

/// The stage of a lane at which it has trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Queue,
    Init,
    Question,
}

/// One step of a session.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// The client sends a text frame.
    SendText(String),
    /// The client has a text spoken that needs several parts, with its own voice sample.
    Speak {
        long: bool,
        voice: Option<u8>,
    },
    /// The client sends audio in real time, in frames of this many bytes.
    StreamAudio {
        sound: Sound,
        ms: u64,
        frame_bytes: usize,
    },
    /// The client sends this many bytes at once.
    Burst {
        sound: Sound,
        bytes: usize,
    },
    /// The client reads this many bytes a second from now on; 0 while it pauses.
    Read(u64),
    /// Time passes, and due timers run.
    Advance(Duration),
    /// Time passes without running timers.
    SkipTime(Duration),
    /// The clock is set back.
    SetClockBack(Duration),
    /// A timeout that the bridge did not ask for.
    Timeout,
    /// The lane this many places before the newest sends this text, unprompted.
    UpstreamText(usize, String),
    /// The lane this many places before the newest loses its transport.
    LoseLane(usize),
    /// An event of a lane that never existed.
    StrayLane(u32),
    /// voxbridge stops.
    Drain,
    /// An operator closes the session.
    Close,
    Rollover,
    /// The client's transport is lost.
    Leave,
}

/// Behaviour of one lane's upstream.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub(crate) dialled: Reaction,
    pub(crate) up: Reaction,
    pub(crate) init: Reaction,
    pub(crate) asked: Reaction,
    pub(crate) close: Reaction,
    /// Number of deltas in an answer.
    pub(crate) deltas: u32,
    /// Samples of a delta of speech.
    pub(crate) delta_samples: usize,
    /// Time between deltas, ms.
    pub(crate) pace_ms: u64,
    /// Replies to the units of a conversation, repeated.
    pub(crate) units: Vec<UnitReply>,
    /// Replies name the unit they answer.
    pub(crate) echoes: bool,
}

/// A model's reply to one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitReply {
    /// Listens.
    Listen,
    /// Speaks, as PyTorch does.
    Speak,
    /// Speaks, as PyTorch does, and ends its turn.
    SpeakLast,
    /// Speaks, as C++ does: in pieces followed by `response.done`.
    Pieces,
    /// Listens, as C++ does, with or without a following `response.done`.
    ListenDone,
    /// Text without audio.
    TextOnly,
    /// Every message twice.
    Twice,
    /// The answer to another unit.
    WrongUnit,
    /// Audio that cannot be decoded.
    Broken,
    /// A whole answer in one message without deltas.
    DoneOnly,
    /// An error that does not end the session.
    Refused,
    /// No reply.
    Silent,
}

/// Reaction of an upstream to one message after this many ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// The correct reply.
    Correct(u64),
    /// The correct reply after three nonsense lines.
    NonsenseFirst(u64),
    /// No reply.
    Never,
    /// `session.closed` and a close frame.
    CloseSession(u64),
    /// `session.closed` about an empty answer, without a close frame.
    EmptyListError(u64),
    /// A broken transport; before the transport is up, HTTP 403.
    LoseTransport(u64),
    /// The answer's first half, then a broken transport.
    HalfThenLost(u64),
    /// The answer's first half, then nothing; of a queue only the place in it.
    HalfThenSilent(u64),
    /// `session.closed` with words about the question: the client's fault.
    Refuse(u64),
}

/// Valid messages in random order.
pub(crate) const STRAY_LINES: [&str; 14] = [
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

pub(crate) fn any_script(formats: bool) -> impl Strategy<Value = Script> {
    let steps = vec(any_step(formats), 1..60);
    (any::<bool>(), prop::bool::weighted(0.7), vec(any_upstream(), 1..6), any_trouble(), steps).prop_map(
        |(interim, noise_is_speech, upstreams, trouble, steps)| Script {
            profile: "speech",
            interim,
            noise_is_speech,
            upstreams,
            trouble,
            steps,
        },
    )
}

/// Servers that do all that they are asked to, at any speed, but for those in trouble; and clients that do anything.
pub(crate) fn any_script_of_good_upstreams() -> impl Strategy<Value = Script> {
    let (upstreams, steps) = (vec(good_upstream(), 1..4), vec(any_client_step(false), 1..50));
    (any::<bool>(), upstreams, any_trouble(), steps).prop_map(
        |(noise_is_speech, upstreams, trouble, steps)| Script {
            profile: "speech",
            interim: false,
            noise_is_speech,
            upstreams,
            trouble,
            steps,
        },
    )
}

/// A random conversation with a model.
pub(crate) fn any_conversation_script() -> impl Strategy<Value = Script> {
    let step = prop_oneof![
        5 => any_step(false),
        2 => any_audio_step(),
        1 => select(&CONVERSATION_COMMANDS[..]).prop_map(|command| Step::SendText(command.to_owned())),
        1 => (0usize..4, select(&CONVERSATION_LINES[..])).prop_map(|(back, line)| Step::UpstreamText(back, line.to_owned())),
    ];
    let profile = select(vec!["conversation", "video"]);
    let upstreams = vec(any_upstream(), 1..6);
    (profile, prop::bool::weighted(0.5), upstreams, any_trouble(), vec(step, 1..60)).prop_map(
        |(profile, noise_is_speech, upstreams, trouble, steps)| Script {
            profile,
            interim: false,
            noise_is_speech,
            upstreams,
            trouble,
            steps,
        },
    )
}

/// Commands that matter only in a conversation.
const CONVERSATION_COMMANDS: [&str; 6] = [
    r#"{"type":"session.configure","microphone":"muted"}"#,
    r#"{"type":"session.configure","microphone":"open"}"#,
    r#"{"type":"session.configure","rollover_events":true}"#,
    r#"{"type":"video.frame","image":"/9j/4AAQ"}"#,
    r#"{"type":"video.frame","image":"\""}"#,
    CANCELS,
];

/// Deltas at the wrong time.
const CONVERSATION_LINES: [&str; 10] = [
    r#"{"type":"response.output.delta","kind":"listen","response_id":"r1"}"#,
    r#"{"type":"response.output.delta","kind":"listen","input_id":"1"}"#,
    r#"{"type":"response.output.delta","kind":"listen","input_id":"999999999999999999999","response_id":""}"#,
    r#"{"type":"response.output.delta","kind":"text","text":"<think>","response_id":"r1"}"#,
    r#"{"type":"response.output.delta","kind":"text","text":"late","response_id":"r2","input_id":"3"}"#,
    r#"{"type":"response.done","text":"","response_id":"r1","reason":"turn_end"}"#,
    r#"{"type":"response.done","text":"late","response_id":"r2","metrics":{"kv_cache_length":7999}}"#,
    r#"{"type":"response.output.delta","kind":"listen","metrics":{"kv_cache_length":7300}}"#,
    r#"{"type":"response.output.delta","kind":"listen","metrics":{"kv_cache_length":-1}}"#,
    r#"{"type":"session.closed","reason":"context_full"}"#,
];

/// Bytes a second of a client that reads: at 0, 0.1, 0.5, 1 and 1.05 times playback, and as fast as it comes.
const READING_RATES: [u64; 7] = [0, 4_800, 24_000, 48_000, 50_400, READS_ALL, READS_ALL];
pub(crate) const READS_ALL: u64 = 1 << 30;
/// Ends the text before it.
pub(crate) const CANCELS: &str = r#"{"type":"tts.cancel"}"#;
/// A text without words, which replaces the text before it.
pub(crate) const SPEAKS_NOTHING: &str = r#"{"type":"tts.speak","text":"***"}"#;

fn any_step(formats: bool) -> impl Strategy<Value = Step> {
    let ms = |range: std::ops::Range<u64>| range.prop_map(Duration::from_millis);
    prop_oneof![
        38 => any_client_step(formats),
        1 => ms(0..40_000).prop_map(Step::SkipTime),
        1 => ms(0..2_000).prop_map(Step::SetClockBack),
        2 => (0usize..4, select(&STRAY_LINES[..])).prop_map(|(back, line)| Step::UpstreamText(back, line.to_owned())),
        1 => (0usize..4, ".{0,30}").prop_map(|(back, line)| Step::UpstreamText(back, line)),
        1 => (0usize..4).prop_map(Step::LoseLane),
        1 => (0u32..100).prop_map(Step::StrayLane),
    ]
}

/// A step of the client or of an operator, or some time.
fn any_client_step(formats: bool) -> impl Strategy<Value = Step> {
    let ms = |range: std::ops::Range<u64>| range.prop_map(Duration::from_millis);
    prop_oneof![
        12 => any_audio_step(),
        1 => (any_sound(), 100_000usize..400_000).prop_map(|(sound, bytes)| Step::Burst { sound, bytes }),
        4 => (any_sound(), 0usize..40_000).prop_map(|(sound, bytes)| Step::Burst { sound, bytes }),
        6 => (prop::bool::weighted(0.2), prop::option::of(0u8..2)).prop_map(|(long, voice)| Step::Speak { long, voice }),
        6 => any_command(formats).prop_map(Step::SendText),
        4 => ms(0..3_000).prop_map(Step::Advance),
        2 => ms(3_000..100_000).prop_map(Step::Advance),
        2 => select(&READING_RATES[..]).prop_map(Step::Read),
        1 => Just(Step::Timeout),
        // Most sessions continue to the end of their script.
        1 => prop_oneof![8 => Just(Step::Timeout), 1 => Just(Step::Drain), 1 => Just(Step::Close), 1 => Just(Step::Rollover), 1 => Just(Step::Leave)],
    ]
}

fn any_audio_step() -> impl Strategy<Value = Step> {
    let frame_bytes = prop_oneof![Just(640), Just(3_200), 1usize..5_000];
    (any_sound(), 100u64..3_000, frame_bytes).prop_map(|(sound, ms, frame_bytes)| Step::StreamAudio {
        sound,
        ms,
        frame_bytes: frame_bytes.max(64),
    })
}

fn any_sound() -> impl Strategy<Value = Sound> {
    prop_oneof![
        3 => (0usize..300_000).prop_map(Sound::Speech),
        1 => Just(Sound::Noise),
        2 => Just(Sound::Hiss),
    ]
}

fn any_command(formats: bool) -> impl Strategy<Value = String> {
    let mut known = vec![
        CANCELS,
        CANCELS,
        r#"{"type":"input_audio_buffer.commit"}"#,
        r#"{"type":"input_audio_buffer.commit"}"#,
        r#"{"type":"session.configure","silence_timeout_ms":100,"max_segment_duration_ms":1000}"#,
        r#"{"type":"session.configure","silence_timeout_ms":2000,"max_segment_duration_ms":30000}"#,
        r#"{"type":"session.configure","silence_timeout_ms":9223372036854775807,"max_segment_duration_ms":1e18}"#,
        r#"{"type":"session.configure","vad_sensitivity":"low","language":"zh","hot_words":["\"",""]}"#,
        r#"{"type":"session.configure","enable_partial_transcripts":false,"tts_voice":"nobody"}"#,
        SPEAKS_NOTHING,
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

fn any_trouble() -> impl Strategy<Value = Option<Trouble>> {
    let purpose = select(vec![LanePurpose::Transcribe, LanePurpose::Speak, LanePurpose::Converse]);
    let stage = select(vec![Stage::Queue, Stage::Init, Stage::Question]);
    let trouble = (purpose, stage, any_fault()).prop_map(|(purpose, stage, reaction)| Trouble {
        purpose,
        stage,
        reaction,
    });
    prop::option::weighted(0.25, trouble)
}

fn any_upstream() -> impl Strategy<Value = Upstream> {
    let stage = (any_reaction(1), any_reaction(1), any_reaction(2), any_reaction(4), any_reaction(2));
    (stage, any_answer(), vec(any_unit_reply(), 1..12), any::<bool>()).prop_map(
        |((dialled, up, init, asked, close), (deltas, delta_samples, pace_ms), units, echoes)| Upstream {
            dialled,
            up,
            init,
            asked,
            close,
            deltas,
            delta_samples,
            pace_ms,
            units,
            echoes,
        },
    )
}

fn good_upstream() -> impl Strategy<Value = Upstream> {
    let units = vec(select(&GOOD_UNITS[..]), 1..12);
    (any_answer(), units, any::<bool>(), 0u64..200).prop_map(
        |((deltas, delta_samples, pace_ms), units, echoes, ms)| Upstream {
            dialled: Reaction::Correct(ms),
            up: Reaction::Correct(ms),
            init: Reaction::Correct(ms),
            asked: Reaction::Correct(ms),
            close: Reaction::Correct(ms),
            deltas: deltas.max(1),
            delta_samples,
            pace_ms,
            units,
            echoes,
        },
    )
}

/// Number of deltas, their samples, and the time between them in ms, from 100 times faster than playback to a trickle.
fn any_answer() -> impl Strategy<Value = (u32, usize, u64)> {
    prop_oneof![
        6 => (0u32..6, Just(480), prop_oneof![8 => 0u64..300, 1 => 300u64..20_000]),
        1 => (1u32..20, Just(24_000), select(vec![0u64, 10, 300, 1_000])),
        1 => (1u32..20, Just(480), 300u64..14_000),
    ]
}

const GOOD_UNITS: [UnitReply; 5] =
    [UnitReply::Listen, UnitReply::Speak, UnitReply::SpeakLast, UnitReply::Pieces, UnitReply::ListenDone];

fn any_unit_reply() -> impl Strategy<Value = UnitReply> {
    prop_oneof![
        20 => select(&GOOD_UNITS[..]),
        6 => select(vec![UnitReply::TextOnly, UnitReply::Twice, UnitReply::WrongUnit, UnitReply::Broken, UnitReply::DoneOnly, UnitReply::Refused]),
        1 => Just(UnitReply::Silent),
    ]
}

/// Twenty correct reactions for every `trouble` faulty ones.
fn any_reaction(trouble: u32) -> impl Strategy<Value = Reaction> {
    prop_oneof![20 => any_ms().prop_map(Reaction::Correct), trouble => any_fault()]
}

fn any_fault() -> impl Strategy<Value = Reaction> {
    prop_oneof![
        3 => any_ms().prop_map(Reaction::NonsenseFirst),
        2 => Just(Reaction::Never),
        2 => any_ms().prop_map(Reaction::CloseSession),
        2 => any_ms().prop_map(Reaction::EmptyListError),
        2 => any_ms().prop_map(Reaction::LoseTransport),
        2 => any_ms().prop_map(Reaction::HalfThenLost),
        2 => any_ms().prop_map(Reaction::HalfThenSilent),
        2 => any_ms().prop_map(Reaction::Refuse),
    ]
}

fn any_ms() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..200, 1 => 200u64..20_000]
}
