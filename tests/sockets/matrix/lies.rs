//! What servers may say of which nothing is true: no client waits for ever, or hears what its protocol does not have.

use futures_util::future::join_all;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{
    liar::{Lie, MEETINGS, Meeting, When},
    relayed::Tongue,
    spoil::{Spoil, any_spoil},
};

/// Messages of a good server, of either dialect.
fn valid(tongue: Tongue) -> Vec<String> {
    let (audio, metrics) = ("AAAAAAAAAD8AAAC/AACAPw==", json!({"kv_cache_length": 100}));
    let delta = |kind: &str, key: &str, value: &str| {
        json!({"type": "response.output.delta", "kind": kind, "session_id": "sess_1", "response_id": "resp_1",
            "input_id": "1", key: value, "metrics": metrics, "server_send_ts": 1.5})
    };
    let output = |text: &str, end: bool| {
        json!({"type": "response.output_audio.delta", "text": text, "audio": audio, "end_of_turn": end,
            "kv_cache_length": 100})
    };
    let mut messages = vec![
        json!({"type": "session.queued", "position": 1, "estimated_wait_s": 2.5, "ticket_id": "t", "queue_length": 2}),
        json!({"type": "session.queue_update", "position": 1, "queue_length": 2}),
        json!({"type": "session.queue_done"}),
        json!({"type": "session.created", "session_id": "s", "mode": "full_duplex", "prompt_length": 5, "metrics": metrics}),
        json!({"type": "error", "error": {"code": "inference_failed", "message": "m", "type": "server_error"}}),
        json!({"type": "error", "error": {"code": "queue_full", "message": "Queue full"}}),
        json!({"type": "session.closed", "session_id": "s", "reason": "backend_error", "diagnostic": {"message": "d"}}),
        json!({"type": "session.closed", "reason": "timeout"}),
        json!({"type": "session.closed", "reason": "context_full"}),
    ];
    messages.extend(match tongue {
        Tongue::Current => vec![
            delta("listen", "x", ""),
            delta("text", "text", "word <think>"),
            delta("audio", "audio", audio),
            json!({"type": "response.done", "text": "word", "audio": audio, "reason": "turn_end", "metrics": metrics}),
        ],
        Tongue::Older => vec![
            json!({"type": "response.listen", "kv_cache_length": 100}),
            output("word ", false),
            output("", true),
        ],
    });
    messages.iter().map(Value::to_string).collect()
}

/// What nobody would say.
fn lies() -> Vec<Vec<Lie>> {
    let say = |text: &str| vec![Lie::Say(text.to_owned())];
    let mut lies = vec![
        Vec::new(),
        say(""),
        say("{"),
        say("[1]"),
        say("null"),
        say(r#"{"type": 5}"#),
        say(r#"{"type": "response.what"}"#),
        say(&"[".repeat(100_000)),
        say(&format!("{{\"type\": {:?}}}", "x".repeat(1 << 20))),
        say(r#"{"type": "response.output.delta", "kind": "audio", "audio": {"data": 5}}"#),
        say(r#"{"type": "response.output.delta", "kind": "smell", "smell": "AAAA"}"#),
        say(r#"{"type": "response.output_audio.delta", "text": [], "audio": "???", "end_of_turn": "yes"}"#),
        say(r#"{"type": "session.closed", "reason": {"why": []}, "diagnostic": 7}"#),
        say(r#"{"type": "error", "error": "no"}"#),
        say(r#"{"type": "error"}"#),
        vec![Lie::Binary(0)],
        vec![Lie::Binary(1 << 20)],
        vec![Lie::Close(1000)],
        vec![Lie::Close(1008)],
        vec![Lie::Close(4999)],
        vec![Lie::Drop],
        vec![Lie::Raw(b"\x83\0".to_vec())],
        vec![Lie::Raw(b"\x81\x02\xff\xfe".to_vec())],
        vec![Lie::Raw(b"\x81\x7f\x00\x00\x00\x01\x00\x00\x00\x00".to_vec())],
        // Nothing but beginnings: of a frame, and of a message.
        vec![Lie::Half(b"\x81\x10{\"type\"".to_vec())],
        vec![Lie::Half(b"\x01\x01{".to_vec())],
    ];
    for tongue in [Tongue::Current, Tongue::Older] {
        let messages = valid(tongue);
        lies.extend(messages.iter().map(|text| say(text)));
        // All of it, and of what the model says far too much.
        lies.push(messages.iter().cloned().map(Lie::Say).collect());
        let last = messages[9].clone();
        lies.push(vec![Lie::Say(last); 2000]);
    }
    lies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_says_every_client_has_its_end() {
    let mut meetings = Vec::new();
    for meeting in MEETINGS {
        for when in [When::Opening, When::Answering] {
            meetings.extend(lies().into_iter().map(|lies| tokio::spawn(meeting.take_place(when, lies))));
        }
    }
    let failed: Vec<_> = join_all(meetings).await.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

fn any_meeting() -> impl Strategy<Value = (Meeting, When, Vec<(usize, Spoil)>)> {
    let when = prop::sample::select(vec![When::Opening, When::Answering, When::Answering]);
    let lies = prop::collection::vec((0..100usize, any_spoil()), 1..8);
    (prop::sample::select(&MEETINGS[..]), when, lies)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_almost_true_every_client_has_its_end(meetings in prop::collection::vec(any_meeting(), 40)) {
        Runtime::new().unwrap().block_on(async {
            let meetings = meetings.into_iter().map(|(meeting, when, lies)| {
                let valid = valid(meeting.liar);
                let lies = lies.iter().map(|(which, spoil)| Lie::Say(spoil.apply(&valid[which % valid.len()])));
                meeting.take_place(when, lies.collect())
            });
            join_all(meetings).await;
        });
    }
}
