//! Client and upstream messages for the fuzzed conversations.

/// Client messages.
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

/// Messages of clients of OpenAI's protocol.
pub(super) const OPENAI_COMMANDS: [&str; 20] = [
    r#"{"type":"session.update","session":{"type":"realtime","instructions":"Be brief.","voice":"alloy"}}"#,
    r#"{"type":"session.update","session":{"output_modalities":["text"]}}"#,
    r#"{"type":"session.update","session":{"modalities":["text","audio"],"input_audio_format":"g711_ulaw"}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":null}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"type":"semantic_vad","interrupt_response":false}}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"turn_detection":{"silence_duration_ms":1e300,"threshold":-1}}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"input":{"transcription":{"model":"whisper-1","prompt":"\""}}}}}"#,
    r#"{"type":"session.update","session":{"audio":{"output":{"format":{"type":"audio/pcm","rate":48000}}}}}"#,
    r#"{"type":"transcription_session.update","session":{"input_audio_transcription":{"model":"x"}}}"#,
    r#"{"type":"input_audio_buffer.commit","event_id":"c"}"#,
    r#"{"type":"input_audio_buffer.clear"}"#,
    r#"{"type":"input_audio_buffer.append","audio":"AAAA="}"#,
    r#"{"type":"conversation.item.create","item":{"id":"a","type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}}"#,
    r#"{"type":"conversation.item.create","previous_item_id":"root","item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes"}]}}"#,
    r#"{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_audio","audio":"AAAAPwA="}]}}"#,
    r#"{"type":"conversation.item.create","previous_item_id":"a","item":{"type":"function_call_output","call_id":"c","output":"1"}}"#,
    r#"{"type":"conversation.item.truncate","item_id":"a","content_index":0,"audio_end_ms":-1e300}"#,
    r#"{"type":"conversation.item.delete","item_id":"a"}"#,
    r#"{"type":"conversation.item.retrieve","item_id":"a"}"#,
    "{",
];

/// Messages of clients of OpenAI's protocol that begin and end responses.
pub(super) const OPENAI_TURNS: [&str; 6] = [
    r#"{"type":"response.create"}"#,
    r#"{"type":"response.create","response":{"conversation":"none","output_modalities":["text"],"metadata":{"a":"b"}}}"#,
    r#"{"type":"response.create","response":{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"?"}]}],"max_output_tokens":0}}"#,
    r#"{"type":"response.cancel"}"#,
    r#"{"type":"response.cancel","response_id":"r"}"#,
    r#"{"type":"output_audio_buffer.clear"}"#,
];

/// Upstream messages.
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

/// Client messages of conversations.
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

/// Upstream messages of conversations.
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

/// Upstream messages of the legacy dialect.
pub(super) const OLDER_REPLIES: [&str; 12] = [
    r#"{"type":"session.created","session_id":"rt_1","prompt_length":58}"#,
    r#"{"type":"response.listen"}"#,
    r#"{"type":"response.listen","kv_cache_length":7500}"#,
    r#"{"type":"response.output_audio.delta","text":"word ","audio":"AAAAPwAAAD8AAAA/","end_of_turn":false,"kv_cache_length":90}"#,
    r#"{"type":"response.output_audio.delta","text":"","audio":null,"end_of_turn":true}"#,
    r#"{"type":"response.output_audio.delta","text":"<think>","audio":"?","end_of_turn":"yes"}"#,
    r#"{"type":"response.output_audio.delta"}"#,
    r#"{"type":"error","error":{"code":"inference_failed","message":"no"}}"#,
    r#"{"type":"error","error":{"code":"not_ready"}}"#,
    r#"{"type":"session.closed","reason":"context_full"}"#,
    r#"{"type":"session.closed","reason":"timeout"}"#,
    r#"{"type":"session.closed","reason":"stopped"}"#,
];

/// Messages of relayed clients in the current dialect.
pub(super) const RELAY_COMMANDS: [&str; 12] = [
    r#"{"type":"session.init","payload":{"system_prompt":"p","config":{"top_k":5}}}"#,
    r#"{"type":"session.init","payload":{"voice":{"ref_audio_base64":"AAAAPwAAAD8=","tts_ref_audio":"UklGRg=="}}}"#,
    r#"{"type":"input.append","input":{"audio":"AAAAPwAAAD8AAAA/"}}"#,
    r#"{"type":"input.append","input":{"audio":"AAAAPwAAAD8=","input_id":"1","force_listen":true}}"#,
    r#"{"type":"input.append","input":{"audio":{"data":"AAAA"},"video_frames":["/9j/"],"response_id":"a"}}"#,
    r#"{"type":"input.append","input":{"messages":[{"role":"user","content":"Hi"}],"streaming":true}}"#,
    r#"{"type":"input.append","input":{}}"#,
    r#"{"type":"input.append"}"#,
    r#"{"type":"session.close","reason":"enough"}"#,
    r#"{"type":"response.cancel"}"#,
    r#"{"type":"session.init"}"#,
    "{",
];

/// Messages of relayed clients in the legacy dialect.
pub(super) const RELAY_OLDER_COMMANDS: [&str; 10] = [
    r#"{"type":"session.update","session":{"instructions":"p","voice_config":{"top_k":5}}}"#,
    r#"{"type":"session.update","session":{"ref_audio":"AAAAPwAAAD8=","tts_ref_audio":"???","max_slice_nums":1}}"#,
    r#"{"type":"session.update","session":[]}"#,
    r#"{"type":"input_audio_buffer.append","audio":"AAAAPwAAAD8AAAA/"}"#,
    r#"{"type":"input_audio_buffer.append","audio":"AAAA","force_listen":true,"video_frames":["/9j/"]}"#,
    r#"{"type":"input_audio_buffer.append"}"#,
    r#"{"type":"input_audio_buffer.commit"}"#,
    r#"{"type":"session.close"}"#,
    r#"{"type":["session.close"]}"#,
    "[]",
];
