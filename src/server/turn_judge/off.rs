//! Stands for [`super::model`] in a program that was built without it: there is no model.

use std::path::Path;

use super::Judge;

/// Why this program has no model.
const OFF: &str = "this program was built without the end-of-turn model (cargo feature `turn-model`)";

/// Checks that a file can be used.
pub(crate) fn check(_: &Path) -> Result<(), String> {
    Err(OFF.to_owned())
}

/// Loads the weights.
pub(crate) fn load(_: &Path) -> Result<fn() -> Judge, String> {
    Err(OFF.to_owned())
}
