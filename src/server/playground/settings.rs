//! Settings of the page: the protocols that routes serve, with their profiles, and the voices.

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

/// A model that no route names, which leads to the profile of most clients.
const ANY_MODEL: &str = "playground";

/// The settings of the page as JSON. `has_calls` if the server takes calls by WebRTC.
pub(in crate::server) fn describe(config: &ServiceConfig, has_calls: bool) -> Value {
    let protocols = PROTOCOLS
        .iter()
        .map(|(name, path)| json!({"name": name, "path": path, "profiles": profiles_of(config, name, path)}));
    let voices: Vec<_> = config.voices.voices_and_models().0.keys().collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"), "tls": config.tls.is_some(), "voices": voices,
        "simulated": config.simulated, "calls": has_calls,
        "protocols": protocols.collect::<Vec<_>>(),
    })
}

/// The profiles that a client of this protocol can reach, each with a model that leads to it; first the usual one.
fn profiles_of(config: &ServiceConfig, protocol: &str, path: &str) -> Vec<Value> {
    let Ok(client) = config.library.client(protocol) else { return Vec::new() };
    let named = config.routes.iter().map(|route| route.model.replace('*', "").replace('?', "x"));
    let mut found: Vec<(&str, String)> = Vec::new();
    for model in std::iter::once(ANY_MODEL.to_owned()).chain(named) {
        let Some(route) = config.routes.find(path, &client, &model) else { continue };
        let profile = route.profile.name.as_str();
        if !model.is_empty() && found.iter().all(|(known, _)| *known != profile) {
            found.push((profile, model));
        }
    }
    found.into_iter().map(|(profile, model)| json!({"profile": profile, "model": model})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn profiles_of_routes_are_offered_with_their_models() {
        let settings = |toml: &str| {
            let toml = format!("{toml}\n[[upstream]]\nurl = \"ws://gpu/v1/realtime\"");
            describe(&toml::from_str::<Config>(&toml).unwrap().build_service().unwrap(), false)
        };
        let profiles = |settings: &Value, name: &str| {
            let protocols = settings["protocols"].as_array().unwrap();
            protocols.iter().find(|protocol| protocol["name"] == name).unwrap()["profiles"].clone()
        };
        let usual = |profile| json!({"profile": profile, "model": ANY_MODEL});
        let plain = settings("");
        assert_eq!(profiles(&plain, "macaw"), json!([usual("speech")]));
        assert_eq!(profiles(&plain, "openai-realtime"), json!([usual("assistant")]));
        assert_eq!((&plain["tls"], &plain["voices"]), (&json!(false), &json!([])));
        assert_eq!(plain["simulated"], json!(false));
        let routed =
            settings("profile = \"speech\"\n[[route]]\nmodel = \"talk-*\"\nprofile = \"conversation\"");
        let talk = json!({"profile": "conversation", "model": "talk-"});
        assert_eq!(profiles(&routed, "macaw"), json!([usual("speech"), talk]));
        assert_eq!(profiles(&routed, "deepgram-speak"), json!([usual("speech")]), "it cannot converse");
    }
}
