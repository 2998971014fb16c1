//! `turn_model`: the weights of the model that judges the ends of turns.

use std::path::{Path, PathBuf};

use super::Config;
use crate::{
    server::{route::Routes, turn_judge},
    vocabulary::TurnEndRule,
};

/// Where `examples/engines/setup` puts the weights.
const FETCHED_WEIGHTS: &str = "target/engines/smart-turn/smart-turn-v3.2-cpu.onnx";

impl Config {
    /// The weights to load: those of the configuration. Without them, those that `examples/engines/setup` has fetched, if a
    /// route's profile needs a model.
    ///
    /// # Errors
    /// A message that names the key and says what to do.
    pub(super) fn turn_model(&self, routes: &Routes) -> Result<Option<PathBuf>, String> {
        let needs_model = routes.iter().find(|route| route.profile.listen.turn_end == TurnEndRule::Semantic);
        let weights = match (&self.turn_model, needs_model) {
            (Some(weights), _) => weights.as_path(),
            (None, Some(route)) if !Path::new(FETCHED_WEIGHTS).exists() => {
                return Err(format!(
                    "turn_model: profile {:?} has turn_end = \"semantic\", which needs the weights of an end-of-turn model; fetch \
                     them with examples/engines/setup, and name the file smart-turn-v3.2-cpu.onnx here or with --turn-model",
                    route.profile.name
                ));
            }
            (None, Some(_)) => Path::new(FETCHED_WEIGHTS),
            (None, None) => return Ok(None),
        };
        turn_judge::check(weights).map_err(|problem| format!("turn_model: {problem}"))?;
        Ok(Some(weights.to_owned()))
    }
}
