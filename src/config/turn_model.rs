//! `turn_model`: the weights of the model that judges the ends of turns, or in their place `[turn_judge]`, a server that judges
//! them. Only the start of the process loads and reads them.

use std::path::{Path, PathBuf};

use super::{Config, problems::ConfigProblems};
use crate::{
    server::{
        Server,
        route::{Route, Routes},
        turn_judge::{self, FETCHED_WEIGHTS},
    },
    vocabulary::TurnEndRule,
};

/// The first route whose profile needs a model.
fn route_with_model(routes: &Routes) -> Option<&Route> {
    routes.iter().find(|route| route.profile.listen.turn_end == TurnEndRule::Semantic)
}

/// True if a profile needs a model, whether or not the key is set.
pub(super) fn is_needed(routes: &Routes) -> bool {
    route_with_model(routes).is_some()
}

impl Config {
    /// Checks the weights that the start loads, with a message that says what to do.
    pub(super) fn check_turn_model(&self, routes: &Routes, problems: &mut ConfigProblems) {
        if let Some(section) = &self.turn_judge {
            if let Err((key, problem)) = section.server() {
                problems.push(&["turn_judge", key], format!("turn_judge.{key}: {problem}"));
            }
            if self.turn_model.is_some() {
                let problem = "turn_model and [turn_judge] are both set; set only one";
                problems.push(&["turn_judge"], problem.to_owned());
            }
            return;
        }
        let found = match (self.turn_weights(routes), route_with_model(routes)) {
            (None, _) => return,
            (Some(weights), Some(route)) if self.turn_model.is_none() && !weights.exists() => Err(format!(
                "profile {:?} has turn_end = \"semantic\", which needs the weights of an end-of-turn model; fetch them with \
                 examples/engines/setup, and name the file smart-turn-v3.2-cpu.onnx here or with --turn-model",
                route.profile.name
            )),
            (Some(weights), _) => turn_judge::check(weights),
        };
        problems.take(&["turn_model"], found.map_err(|problem| format!("turn_model: {problem}")));
    }

    /// Loads the model into a server, if the key is set or a profile needs it. Returns the file of its weights. `[turn_judge]`
    /// takes its place.
    ///
    /// # Errors
    /// A message that names the key and says what is wrong with the file, or that this program cannot run a model.
    pub fn load_turn_model(&self, server: &mut Server) -> Result<Option<PathBuf>, String> {
        if let Some(section) = &self.turn_judge {
            let judge = section.server().map_err(|(key, problem)| format!("turn_judge.{key}: {problem}"))?;
            server.use_turn_judge(&judge).map_err(|problem| format!("turn_judge: {problem}"))?;
            return Ok(None);
        }
        let weights = self.turn_weights(&server.active_config().get().routes).map(Path::to_owned);
        if let Some(weights) = &weights {
            server.load_turn_model(weights).map_err(|problem| format!("turn_model: {problem}"))?;
        }
        Ok(weights)
    }

    /// The weights to load: those of the configuration. Without them, those that `examples/engines/setup` has fetched, if a
    /// route's profile needs a model.
    fn turn_weights(&self, routes: &Routes) -> Option<&Path> {
        self.turn_model.as_deref().or_else(|| is_needed(routes).then_some(Path::new(FETCHED_WEIGHTS)))
    }
}
