//! Random clients, upstreams and networks: nothing panics or hangs, and every session ends without leaks.

use proptest::prelude::*;

use super::{
    harness::{Harness, HarnessConfig},
    *,
};

#[derive(Debug, Clone)]
enum ClientAction {
    Message(usize),
    Text(String),
    Binary,
    Wait(u64),
    BreakLanes,
    UpstreamText(String),
    Drain,
    Close,
    RollOver,
}

fn any_action() -> impl Strategy<Value = ClientAction> {
    prop_oneof![
        12 => (0..12usize).prop_map(ClientAction::Message),
        1 => ".{0,40}".prop_map(ClientAction::Text),
        1 => Just(ClientAction::Binary),
        8 => (0..4000u64).prop_map(ClientAction::Wait),
        1 => Just(ClientAction::BreakLanes),
        1 => ".{0,40}".prop_map(ClientAction::UpstreamText),
        1 => Just(ClientAction::Drain),
        1 => Just(ClientAction::Close),
        1 => Just(ClientAction::RollOver),
    ]
}

fn message(which: usize, at: usize) -> String {
    let loud = unique_second(at, at.is_multiple_of(3));
    let legacy_append = |force: bool| json!({"type": "input_audio_buffer.append", "audio": base64_of(&loud), "force_listen": force});
    let message = match which {
        0 => init_message(),
        1 => json!({"type": "session.update", "session": {"instructions": "p"}}),
        2 | 3 => append_message(&loud),
        4 => legacy_append(false),
        5 => legacy_append(true),
        6 => chat_message("Hello"),
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
        actions in vec(any_action(), 1..30),
        (clients, server, mode, fault) in (0..3usize, 0..4usize, 0..3usize, 0..FAULTS.len()),
    ) {
        let clients = [&["minicpm-o"][..], &["minicpm-o-legacy"], &["minicpm-o", "minicpm-o-legacy"]][clients];
        let mut settings = config(["mode=audio", "mode=video", "mode=chat"][mode], &[FAULTS[fault]]);
        match server {
            0 => {}
            1 => settings.simulator.backend = Backend::Cpp,
            older => {
                settings = HarnessConfig { upstream: "minicpm-o-legacy", ..settings };
                settings.simulator.dialect = SimDialect::Legacy { follows_document: older == 2 };
            }
        }
        let mut harness = Harness::new_relay(settings, clients);
        for (at, action) in actions.iter().enumerate() {
            if harness.is_closed() {
                break;
            }
            match action {
                ClientAction::Message(which) => harness.send_text(&message(*which, at)),
                ClientAction::Text(text) => harness.send_text(text),
                ClientAction::Binary => harness.send_binary(&[1, 2, 3]),
                ClientAction::Wait(time) => harness.advance(ms(*time)),
                ClientAction::BreakLanes => harness.break_lanes(),
                // Without a lane the text is dropped.
                ClientAction::UpstreamText(text) => {
                    if let Some(lane) = harness.lanes().last().copied() {
                        harness.inject_upstream_text(lane, &json!({"type": text}).to_string());
                    }
                }
                ClientAction::Drain => harness.drain(),
                ClientAction::Close => harness.order_close(),
                ClientAction::RollOver => harness.order_rollover(),
            }
        }
        let created = harness.events("session.created").len();
        let granted = harness.events("session.queue_done").len();
        // A server of the other dialect gets a fresh session when the client opens its session again. An append opens one too.
        let openings = actions.iter().filter(|action| matches!(action, ClientAction::Message(0 | 7))).count();
        // A replaced upstream has a new session id.
        let is_loss = |action: &&ClientAction| matches!(action, ClientAction::BreakLanes | ClientAction::UpstreamText(_));
        let losses = actions.iter().filter(is_loss).count();
        // The C++ back-end ends the session over audio that it cannot read. The next session gets it once more.
        let unreadable = actions.iter().filter(|action| matches!(action, ClientAction::Message(8))).count();
        let losses = losses + if server == 1 { 2 * unreadable } else { 0 };
        let created_max = 1 + losses + if server < 2 { 0 } else { openings };
        let names = harness.names();
        prop_assert!(granted <= 1 && (created <= created_max || clients.contains(&"minicpm-o-legacy")), "{names:?}");
        let closed = names.iter().position(|name| name.starts_with("close "));
        prop_assert!(closed.is_none_or(|at| at == names.len() - 1));
        if !harness.is_closed() {
            harness.close_client();
        }
        harness.advance(ms(120_000));
        prop_assert!(harness.is_over(), "{:?}", harness.lanes());
    }
}
