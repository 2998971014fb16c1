//! Keys that had another name in an earlier version.

/// Old and new names. Where a name occurs twice, the valid keys at its place decide.
const RENAMED: [(&str, &str); 33] = [
    // Configuration and key file.
    ("connections_max", "handshakes_max"),
    ("new_per_minute", "sessions_per_minute"),
    ("session_max_ms", "session_duration_max_ms"),
    ("session_max_bytes", "file_max_bytes"),
    ("within_ms", "timeout_ms"),
    ("header", "token_header"),
    // Mapping files.
    ("ahead_max_ms", "max_ahead_ms"),
    ("asked", "client_close"),
    ("audio_rate_hz", "input_rate_hz"),
    ("voice_rate_hz", "output_rate_hz"),
    ("eager", "append_before_open"),
    ("empty", "exactly"),
    ("ended_because", "ended_with_detail"),
    ("gap_max_ms", "outage_audio_max_ms"),
    ("goes_on", "non_fatal"),
    ("granted_max_ms", "open_wait_max_ms"),
    ("heard_ms", "playing_ms"),
    ("hold_back_ms", "backpressure_ms"),
    ("hold_ms", "audio_hold_ms"),
    ("item", "items"),
    ("kept_max_bytes", "buffer_max_bytes"),
    ("linger_ms", "trailing_silence_ms"),
    ("memory", "history"),
    ("memory_max_chars", "history_max_chars"),
    ("queue_moved", "queue_update"),
    ("refused", "reject_status"),
    ("step_max_ms", "unit_reply_max_ms"),
    ("told", "reported_as"),
    ("text_list", "list"),
    ("used_up", "limit_reached"),
    ("word_list", "list"),
    ("means", "value_map"),
    ("own", "use_client_reason"),
];

/// The present name of a key, if it is valid at the same place.
pub(super) fn present_name<'k>(old: &str, valid: &[&'k str]) -> Option<&'k str> {
    let new = RENAMED.iter().filter(|(name, _)| *name == old).map(|(_, new)| *new);
    new.flat_map(|new| valid.iter().find(|valid| **valid == new)).copied().next()
}
