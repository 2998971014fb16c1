//! What the page offers: the protocols that routes serve, with their profiles, and the voices.

use serde_json::{Value, json};

use crate::server::ServiceConfig;

/// The client protocols that the page speaks, and the path at which it uses each of them.
const PROTOCOLS: [(&str, &str); 5] = [
    ("macaw", "/v1/realtime"),
    ("openai-realtime", "/openai/v1/realtime"),
    ("vosk", "/"),
    ("deepgram-listen", "/v1/listen"),
    ("deepgram-speak", "/v1/speak"),
];

/// Stands for the wildcards of a model in a route.
const MODEL_WORD: &str = "playground";

/// The settings of the page as JSON.
pub(in crate::server) fn describe(config: &ServiceConfig) -> Value {
    let protocols = PROTOCOLS
        .iter()
        .map(|(name, path)| json!({"name": name, "path": path, "profiles": profiles_of(config, name, path)}));
    let voices: Vec<_> = config.voices.voices_and_models().0.keys().collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"), "tls": config.tls.is_some(), "voices": voices,
        "protocols": protocols.collect::<Vec<_>>(),
    })
}

/// The profiles that a client of this protocol can reach, each with a model that leads to it.
fn profiles_of(config: &ServiceConfig, protocol: &str, path: &str) -> Vec<Value> {
    let Ok(client) = config.library.client(protocol) else { return Vec::new() };
    let mut found: Vec<(String, String)> = Vec::new();
    for route in config.routes.iter() {
        let model = match route.model.as_str() {
            "*" => MODEL_WORD.to_owned(),
            glob => glob.replace('*', "").replace('?', "x"),
        };
        let Some(chosen) = config.routes.find(path, &client, &model) else { continue };
        let profile = &chosen.profile.name;
        if found.iter().all(|(known, _)| known != profile) {
            found.push((profile.clone(), model));
        }
    }
    found.into_iter().map(|(profile, model)| json!({"profile": profile, "model": model})).collect()
}
