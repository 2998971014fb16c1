//! Invalid server messages: no client waits forever or receives an event its protocol does not have.

use futures_util::stream;
use proptest::prelude::*;

use super::faulty_server::{FAULT_CASES, FaultCase, FaultPoint, FaultyOutput};
use super::*;

/// Each has a bridge of its own. On a busy machine, hundreds at once would keep no handshake's time limit.
const CASES_AT_ONCE: usize = 32;

/// Valid server messages of this dialect.
fn valid_messages(dialect: RelayDialect) -> Vec<String> {
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
    messages.extend(match dialect {
        RelayDialect::Current => vec![
            delta("listen", "x", ""),
            delta("text", "text", "word <think>"),
            delta("audio", "audio", audio),
            json!({"type": "response.done", "text": "word", "audio": audio, "reason": "turn_end", "metrics": metrics}),
        ],
        RelayDialect::Legacy => vec![
            json!({"type": "response.listen", "kv_cache_length": 100}),
            output("word ", false),
            output("", true),
        ],
    });
    messages.iter().map(Value::to_string).collect()
}

/// Invalid outputs.
fn outputs() -> Vec<Vec<FaultyOutput>> {
    let say = |text: &str| vec![FaultyOutput::Say(text.to_owned())];
    let mut outputs = vec![
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
        vec![FaultyOutput::Binary(0)],
        vec![FaultyOutput::Binary(1 << 20)],
        vec![FaultyOutput::Close(1000)],
        vec![FaultyOutput::Close(1008)],
        vec![FaultyOutput::Close(4999)],
        vec![FaultyOutput::Drop],
        vec![FaultyOutput::Raw(b"\x83\0".to_vec())],
        vec![FaultyOutput::Raw(b"\x81\x02\xff\xfe".to_vec())],
        vec![FaultyOutput::Raw(b"\x81\x7f\x00\x00\x00\x01\x00\x00\x00\x00".to_vec())],
        // An incomplete frame and an incomplete message.
        vec![FaultyOutput::Half(b"\x81\x10{\"type\"".to_vec())],
        vec![FaultyOutput::Half(b"\x01\x01{".to_vec())],
    ];
    for dialect in [RelayDialect::Current, RelayDialect::Legacy] {
        let messages = valid_messages(dialect);
        outputs.extend(messages.iter().map(|text| say(text)));
        // All messages at once, and far too much model output.
        outputs.push(messages.iter().cloned().map(FaultyOutput::Say).collect());
        let last = messages[9].clone();
        outputs.push(vec![FaultyOutput::Say(last); 2000]);
    }
    outputs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_session_ends_for_every_server_misbehaviour() {
    let mut cases = Vec::new();
    for case in FAULT_CASES {
        for point in [FaultPoint::Opening, FaultPoint::Answering] {
            cases.extend(outputs().into_iter().map(|outputs| (case, point, outputs)));
        }
    }
    let ended = stream::iter(cases)
        .map(|(case, point, outputs)| tokio::spawn(case.run(point, outputs)))
        .buffer_unordered(CASES_AT_ONCE);
    let failed: Vec<_> = ended.filter_map(async |ended| ended.err()).collect().await;
    assert!(failed.is_empty(), "{failed:#?}");
}

fn any_fault_case() -> impl Strategy<Value = (FaultCase, FaultPoint, Vec<(usize, Mutation)>)> {
    let point = prop::sample::select(vec![FaultPoint::Opening, FaultPoint::Answering, FaultPoint::Answering]);
    let outputs = prop::collection::vec((0..100usize, any_mutation()), 1..8);
    (prop::sample::select(&FAULT_CASES[..]), point, outputs)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn client_session_ends_for_mutated_server_messages(cases in prop::collection::vec(any_fault_case(), 40)) {
        Runtime::new().unwrap().block_on(async {
            let cases = cases.into_iter().map(|(case, point, outputs)| {
                let valid = valid_messages(case.server_dialect);
                let outputs = outputs.iter().map(|(which, mutation)| FaultyOutput::Say(mutation.apply(&valid[which % valid.len()])));
                case.run(point, outputs.collect())
            });
            join_all(cases).await;
        });
    }
}
