//! HTTP pages: readiness, the model, and what the deployment can do.

use serde_json::{Map, Value, json};

use super::input::{MAX_IMAGE_BYTES, MAX_INPUT_BYTES};
use crate::{HttpPage, messages::object};

/// Name of the deployment, which is the model's path.
pub(super) const MODEL: &str = "openbmb/MiniCPM-o-4_5";

/// Sampling parameters of the model.
pub(super) const SAMPLING_PARAMETERS: [&str; 11] = [
    "greedy",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "listen_prob_scale",
    "force_listen_count",
    "max_new_tokens_per_unit",
    "repetition_window_size",
    "talker_temperature",
    "talker_repetition_penalty",
];

/// Slices into which a picture may be cut.
pub(super) const SLICES_MAX: u64 = 9;

/// Pictures that a unit may have: at most 4, and 10 tiles; a cut picture has an overview, too.
pub(super) fn frames_per_unit(slices: u64) -> usize {
    let tiles = if slices == 1 { 1 } else { slices + 1 };
    (10 / tiles).min(4) as usize
}

/// Answers a request; `None` if there is no such page.
pub(crate) fn page(method: &str, path: &str) -> Option<HttpPage> {
    let body = match (method, path) {
        ("GET", "/health") => json!({"status": "healthy", "running": true}),
        ("GET", "/v1/realtime/capabilities") => {
            let mut page = capabilities();
            page.insert("model".to_owned(), MODEL.into());
            page.into()
        }
        ("GET", "/v1/models") => json!({
            "object": "list",
            "data": [{"id": MODEL, "object": "model", "owned_by": "sglang-omni", "root": MODEL}],
        }),
        _ => return None,
    };
    Some(HttpPage { status: 200, json: body.to_string() })
}

/// True if the query of a handshake names no session and no other model.
pub(crate) fn is_own_model(query: Option<&str>) -> bool {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .all(|(key, value)| key != "session_id" && (key != "model" || value == MODEL))
}

/// Answer to a handshake that finds no free session.
pub(crate) fn unavailable() -> HttpPage {
    let error = json!({"error": {"code": "unavailable", "message": "connection capacity exhausted"}});
    HttpPage { status: 503, json: error.to_string() }
}

/// Capabilities of the deployment.
pub(super) fn capabilities() -> Map<String, Value> {
    object(json!({
        "interaction": "native",
        "native_full_duplex": true,
        "proactive_output": false,
        "turn_control": [null],
        "client_commit": false,
        "input_modalities": ["audio", "image"],
        "output_modalities": ["audio", "text"],
        "input_audio_format": {"type": "audio/pcm", "rate": 16_000},
        "output_audio_format": {"type": "audio/pcm", "rate": 24_000},
        "native_unit_ms": 1000,
        "first_unit_ms": 1000,
        "microturn_ms": "variable",
        "tail_policy": "pad",
        "supports_server_interrupt": false,
        "supports_truncate": false,
        "supports_resume": false,
        "partial_style": "append_only",
        "pressure_policy": "reject",
        "strict_order": true,
        "sampling_parameters": SAMPLING_PARAMETERS,
        "supports_reference_audio": true,
        "input_image_format": {
            "types": ["image/jpeg", "image/png"],
            "max_bytes": MAX_IMAGE_BYTES,
            "max_frames_per_unit": frames_per_unit(1),
            "max_slice_nums": SLICES_MAX,
        },
        "limits": {
            "max_input_bytes": MAX_INPUT_BYTES,
            "max_output_bytes": 32 << 20,
            "max_history_chars": 64 << 10,
            "cleanup_timeout_s": 30,
            "session_update_timeout_s": 60,
        },
    }))
}
