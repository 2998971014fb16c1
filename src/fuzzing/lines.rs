//! What clients and upstreams say in a conversation that is driven by bytes.

/// Of clients.
pub(super) const COMMANDS: [&str; 16] = [
    r#"{"type":"tts.speak","text":"Hello."}"#,
    r#"{"type":"tts.speak","text":"One sentence. Another: 3 $ & more!","voice":"x","request_id":"r"}"#,
    r#"{"type":"tts.speak","text":"Hi","ref_audio":"AAABAAIA"}"#,
    r#"{"type":"tts.cancel"}"#,
    r#"{"type":"input_audio_buffer.commit"}"#,
    r#"{"type":"session.configure","silence_timeout_ms":100,"vad_sensitivity":"high"}"#,
    r#"{"type":"session.configure","input_sample_rate":48000,"input_channels":2}"#,
    r#"{"type":"session.configure","input_sample_rate":8000,"channels":1,"max_segment_duration_ms":1000}"#,
    r#"{"type":"session.configure","input_sample_rate":16000,"enable_partial_transcripts":false}"#,
    r#"{"type":"session.configure","output_sample_rate":8000}"#,
    r#"{"type":"session.configure","output_sample_rate":9223372036854775807,"input_channels":1e300}"#,
    r#"{"type":"session.configure","language":"zh","hot_words":["a","\""]}"#,
    r#"{"type":"session.close"}"#,
    r#"{"type":"session.cancel"}"#,
    r#"{"type":"tts.speak","text":""}"#,
    "{",
];

/// Of upstreams.
pub(super) const REPLIES: [&str; 16] = [
    r#"{"type":"session.queue_done"}"#,
    r#"{"type":"session.created","session_id":"s"}"#,
    r#"{"type":"session.queued","position":1,"queue_length":2,"estimated_wait_s":-1e308}"#,
    r#"{"type":"session.queue_update","position":0}"#,
    r#"{"type":"response.output.delta","kind":"text","text":" word"}"#,
    r#"{"type":"response.output.delta","kind":"text","text":""}"#,
    r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8AAAA/AAAAPwAAAD8AAAA/AAAAPwAAAD8="}"#,
    r#"{"type":"response.output.delta","kind":"audio","audio":"AADAfwAAgH8="}"#,
    r#"{"type":"response.output.delta","kind":"audio","audio":"?"}"#,
    r#"{"type":"response.done","text":"all words"}"#,
    r#"{"type":"response.done","text":"","audio":"AAAAPwAAAD8="}"#,
    r#"{"type":"session.closed","reason":"turn_done"}"#,
    r#"{"type":"session.closed","reason":"backend_error","diagnostic":{"message":"torch.cat(): expected a non-empty list of Tensors"}}"#,
    r#"{"type":"error","error":{"code":"queue_full","message":"Queue full"}}"#,
    r#"{"type":"error","error":{"code":"x"}}"#,
    "[]",
];

/// What belongs to talk, for clients.
pub(super) const TALK_COMMANDS: [&str; 8] = [
    r#"{"type":"session.configure","microphone":"muted"}"#,
    r#"{"type":"session.configure","microphone":"open","rollover_events":true}"#,
    r#"{"type":"video.frame","image":"/9j/4AAQ"}"#,
    r#"{"type":"video.frame","image":"\"\\\""}"#,
    r#"{"type":"tts.cancel"}"#,
    r#"{"type":"tts.speak","text":"Excuse me. "}"#,
    r#"{"type":"session.configure","output_sample_rate":48000}"#,
    r#"{"type":"input_audio_buffer.commit"}"#,
];

/// What belongs to talk, for upstreams.
pub(super) const TALK_REPLIES: [&str; 16] = [
    r#"{"type":"response.output.delta","kind":"listen"}"#,
    r#"{"type":"response.output.delta","kind":"listen","input_id":"1"}"#,
    r#"{"type":"response.output.delta","kind":"listen","input_id":"2","response_id":"a"}"#,
    r#"{"type":"response.output.delta","kind":"listen","response_id":"b"}"#,
    r#"{"type":"response.output.delta","kind":"listen","metrics":{"kv_cache_length":7500}}"#,
    r#"{"type":"response.output.delta","kind":"listen","metrics":{"kv_cache_length":9000}}"#,
    r#"{"type":"response.output.delta","kind":"text","text":"word ","response_id":"a"}"#,
    r#"{"type":"response.output.delta","kind":"text","text":"<think>no","response_id":"b","input_id":"1"}"#,
    r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8AAAA/","response_id":"a"}"#,
    r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8AAAA/","response_id":"b"}"#,
    r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8AAAA/","input_id":"3"}"#,
    r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8AAAA/"}"#,
    r#"{"type":"response.done","text":"word ","response_id":"a","audio":null,"reason":"turn_end"}"#,
    r#"{"type":"response.done","text":"other","response_id":"b","audio":"AAAAPwAAAD8="}"#,
    r#"{"type":"session.closed","reason":"context_full"}"#,
    r#"{"type":"session.closed","reason":"timeout"}"#,
];
