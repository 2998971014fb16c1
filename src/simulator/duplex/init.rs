//! Full-duplex parameters of `session.init` and their effect (mappings/notes/minicpm-o.md#commands,
//! mappings/notes/minicpm-o-duplex.md#settings).

use serde_json::{Map, Value};

use super::super::{Backend, chat::decode_init_voice, python, script};
use crate::session_context::InitRejected;

/// Parameters of a full-duplex session.
#[derive(Debug, Clone, PartialEq)]
pub struct DuplexOpening {
    /// True for `mode=video`: video frames are validated.
    pub has_video: bool,
    /// System prompt, if given.
    pub prompt: Option<String>,
    /// Effective configuration; PyTorch reuses the worker's previous one if none is given
    /// (mappings/notes/minicpm-o-duplex.md#settings).
    pub config: Map<String, Value>,
    /// First voice reference given, decoded.
    pub voice: Option<Vec<f32>>,
}

/// Context positions of the prompt template and the default voice (mappings/notes/minicpm-o.md#exchanges: 75 with the
/// default prompt).
const TEMPLATE_TOKENS: u64 = 12;
const DEFAULT_VOICE_TOKENS: u64 = 56;

/// System prompt of a session that gives none.
pub(in super::super) const DEFAULT_PROMPT: &str = "You are a helpful assistant.";

/// Voice reference samples per context position.
const SAMPLES_PER_TOKEN: u64 = 1_600;

/// Value ranges enforced by PyTorch (mappings/notes/minicpm-o-duplex.md#settings).
const RANGES: [(&str, f64, f64); 2] = [("temperature", 0.0, 2.0), ("length_penalty", 0.1, 5.0)];

impl DuplexOpening {
    /// Parses the payload. `worker_config` is the configuration of the worker's previous session.
    pub(super) fn from_payload(
        backend: Backend,
        has_video: bool,
        payload: &Map<String, Value>,
        worker_config: &mut Map<String, Value>,
    ) -> Result<Self, InitRejected> {
        let voice = decode_init_voice(backend, payload).map_err(|_| InitRejected)?;
        let prompt = ["system_prompt", "instructions"].iter().find_map(|key| payload.get(*key)?.as_str());
        let given = ["config", "duplex"].iter().find_map(|key| payload.get(*key));
        let config = match (backend, given) {
            (Backend::Pytorch, Some(Value::Object(config))) if has_valid_ranges(config) => {
                worker_config.clone_from(config);
                config.clone()
            }
            (Backend::Pytorch, Some(value)) if python::is_truthy(value) => return Err(InitRejected),
            (Backend::Pytorch, _) => worker_config.clone(),
            (Backend::Cpp, given) => given.and_then(Value::as_object).cloned().unwrap_or_default(),
        };
        Ok(Self { has_video, prompt: prompt.map(str::to_owned), config, voice })
    }

    /// Context positions used by the initialisation.
    pub(super) fn context_tokens(&self) -> u64 {
        let prompt = script::estimate_tokens(self.prompt.as_deref().unwrap_or(DEFAULT_PROMPT)) as u64;
        let voice =
            self.voice.as_ref().map_or(DEFAULT_VOICE_TOKENS, |voice| voice.len() as u64 / SAMPLES_PER_TOKEN);
        TEMPLATE_TOKENS + prompt + voice
    }

    /// The client's `force_listen_count`, which only C++ honours (mappings/notes/minicpm-o-duplex.md#turns).
    pub(super) fn force_listen_count(&self, backend: Backend) -> Option<u32> {
        let given = self.config.get("force_listen_count").filter(|_| backend == Backend::Cpp)?;
        u32::try_from(given.as_u64()?).ok()
    }
}

fn has_valid_ranges(config: &Map<String, Value>) -> bool {
    RANGES.iter().all(|(key, least, most)| {
        config
            .get(*key)
            .is_none_or(|value| as_number(value).is_some_and(|number| (*least..=*most).contains(&number)))
    })
}

/// Converts a number or numeric text.
fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}
