//! Whatever clients, upstreams and networks do: nothing panics, nothing hangs, every session ends and leaves nothing behind.

use proptest::prelude::*;
use serde_json::json;
use voxbridge::simulator::{Backend, Dialect};

use crate::{
    pair::{Pair, PairConfig},
    support::{append, base64_of, chat, config, init, ms, second},
};

#[derive(Debug, Clone)]
enum Deed {
    Message(usize),
    Text(String),
    Binary,
    Wait(u64),
    BreakLanes,
    UpstreamSays(String),
    Drain,
    Close,
    RollOver,
}

fn any_deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        12 => (0..12usize).prop_map(Deed::Message),
        1 => ".{0,40}".prop_map(Deed::Text),
        1 => Just(Deed::Binary),
        8 => (0..4000u64).prop_map(Deed::Wait),
        1 => Just(Deed::BreakLanes),
        1 => ".{0,40}".prop_map(Deed::UpstreamSays),
        1 => Just(Deed::Drain),
        1 => Just(Deed::Close),
        1 => Just(Deed::RollOver),
    ]
}

fn message(which: usize, at: usize) -> String {
    let loud = second(at, at.is_multiple_of(3));
    let older = |force: bool| json!({"type": "input_audio_buffer.append", "audio": base64_of(&loud), "force_listen": force});
    let message = match which {
        0 => init(),
        1 => json!({"type": "session.update", "session": {"instructions": "p"}}),
        2 | 3 => append(&loud),
        4 => older(false),
        5 => older(true),
        6 => chat("Hello"),
        7 => json!({"type": "session.init"}),
        8 => json!({"type": "input.append", "input": {"audio": "AAA"}}),
        9 => json!({"type": "session.update", "session": {"ref_audio": base64_of(&loud[..1000])}}),
        10 => json!({"type": "session.close", "reason": "enough"}),
        _ => json!({"type": "what", "x": [1, {"y": null}]}),
    };
    message.to_string()
}

const FAULTS: [&str; 10] = [
    "yields",
    "403-after-queue=2",
    "drop-mid-turn,times=2",
    "die-mid-turn,times=1",
    "drop-mid-answer,times=1",
    "never-answers,times=1",
    "slow-init=3",
    "stuck-queue,times=1",
    "context-full=200",
    "timeout=9",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn every_session_ends(
        deeds in prop::collection::vec(any_deed(), 1..30),
        (clients, server, mode, fault) in (0..3usize, 0..4usize, 0..3usize, 0..FAULTS.len()),
    ) {
        let clients = [&["minicpm-o"][..], &["minicpm-o-legacy"], &["minicpm-o", "minicpm-o-legacy"]][clients];
        let mut settings = config(["mode=audio", "mode=video", "mode=chat"][mode], &[FAULTS[fault]]);
        match server {
            0 => {}
            1 => settings.simulator.backend = Backend::Cpp,
            older => {
                settings = PairConfig { upstream: "minicpm-o-legacy", ..settings };
                settings.simulator.dialect = Dialect::Legacy { documented: older == 2 };
            }
        }
        let mut pair = Pair::relayed(settings, clients);
        for (at, deed) in deeds.iter().enumerate() {
            if pair.closed() {
                break;
            }
            match deed {
                Deed::Message(which) => pair.client_text(&message(*which, at)),
                Deed::Text(text) => pair.client_text(text),
                Deed::Binary => pair.client_binary(&[1, 2, 3]),
                Deed::Wait(time) => pair.advance(ms(*time)),
                Deed::BreakLanes => pair.break_lanes(),
                // Said by nobody's lane it is heard by nobody.
                Deed::UpstreamSays(text) => {
                    if let Some(lane) = pair.lanes().last().copied() {
                        pair.upstream_says(lane, &json!({"type": text}).to_string());
                    }
                }
                Deed::Drain => pair.drain(),
                Deed::Close => pair.operator_closes(),
                Deed::RollOver => pair.operator_rolls_over(),
            }
        }
        let created = pair.events("session.created").len();
        let granted = pair.events("session.queue_done").len();
        prop_assert!(granted <= 1 && (created <= 1 || clients.contains(&"minicpm-o-legacy")));
        let names = pair.names();
        let closed = names.iter().position(|name| name.starts_with("close "));
        prop_assert!(closed.is_none_or(|at| at == names.len() - 1));
        if !pair.closed() {
            pair.close_client();
        }
        pair.advance(ms(120_000));
        prop_assert!(pair.finished, "{:?}", pair.lanes());
    }
}
