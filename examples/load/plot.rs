//! The results as a picture.

use crate::run::Outcome;

pub(crate) fn svg(_outcomes: &[Outcome]) -> String {
    String::new()
}
