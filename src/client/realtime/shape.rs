//! Types and ranges of the client's settings, including those without effect: OpenAI refuses a wrong value, and typed clients
//! parse the echo.

use serde_json::value::RawValue;

use super::fields::{read_array, read_object, wrong_type, wrong_value};
use crate::{
    client::json_text::{JsonKind as _, read_str},
    error::Error,
};

/// Most elements of a list in such a setting.
const LIST_MAX: usize = 1024;

/// Type and range of a setting. Null fits everywhere: it stands for the default.
pub(super) enum Shape {
    Text,
    Flag,
    /// An object of any contents.
    Object,
    Number(f64, f64),
    Integer(f64, f64),
    OneOf(&'static [&'static str]),
    List(&'static Self),
    /// An object. Fields that are not named are not checked.
    Fields(&'static [(&'static str, Self)]),
    Either(&'static [Self]),
}

use Shape::{Either, Fields, Flag, Integer, List, Number, Object, OneOf, Text};

/// Bounds of `idle_timeout_ms`, in ms.
const IDLE_TIMEOUT_MS: (f64, f64) = (5000.0, 30_000.0);

pub(super) const MAX_OUTPUT_TOKENS: Shape = Either(&[Integer(1.0, 4096.0), OneOf(&["inf"])]);
pub(super) const NOISE_REDUCTION: Shape = Fields(&[("type", OneOf(&["near_field", "far_field"]))]);
pub(super) const SPEED: Shape = Number(0.25, 1.5);
pub(super) const TURN_DETECTION: Shape = Fields(&[
    ("type", OneOf(&["server_vad", "semantic_vad"])),
    ("threshold", Number(0.0, 1.0)),
    ("prefix_padding_ms", Number(0.0, 3_600_000.0)),
    ("silence_duration_ms", Number(0.0, 3_600_000.0)),
    ("idle_timeout_ms", Integer(IDLE_TIMEOUT_MS.0, IDLE_TIMEOUT_MS.1)),
    ("create_response", Flag),
    ("interrupt_response", Flag),
    ("eagerness", OneOf(&["low", "medium", "high", "auto"])),
]);

/// Shapes of settings of a session that may have no effect.
const SETTINGS: [(&str, Shape); 7] = [
    ("include", List(&Text)),
    ("parallel_tool_calls", Flag),
    ("prompt", Fields(&[("id", Text), ("version", Text), ("variables", Object)])),
    ("reasoning", Fields(&[("effort", Text)])),
    ("tools", List(&Object)),
    (
        "tracing",
        Either(&[
            OneOf(&["auto"]),
            Fields(&[("workflow_name", Text), ("group_id", Text), ("metadata", Object)]),
        ]),
    ),
    (
        "truncation",
        Either(&[
            OneOf(&["auto", "disabled"]),
            Fields(&[
                ("type", OneOf(&["retention_ratio"])),
                ("retention_ratio", Number(0.0, 1.0)),
                ("token_limits", Fields(&[("post_instructions", Integer(0.0, 1e9))])),
            ]),
        ]),
    ),
];

/// Checks a setting of a session that may have no effect.
///
/// # Errors
/// The setting does not fit.
pub(super) fn check_setting(key: &str, value: &RawValue, path: &str) -> Result<(), Error> {
    match SETTINGS.iter().find(|(known, _)| *known == key) {
        Some((_, shape)) => shape.check(value, path),
        None => Ok(()),
    }
}

impl Shape {
    /// Checks the value at this path of a message.
    ///
    /// # Errors
    /// The value does not fit.
    pub(super) fn check(&self, value: &RawValue, path: &str) -> Result<(), Error> {
        if value.get() == "null" {
            return Ok(());
        }
        if !self.is_of_kind(value) {
            return Err(wrong_type(path, &format!("{} or null", self.describe()), value));
        }
        match self {
            Object | Flag | Text => Ok(()),
            Number(min, max) => self.check_that(in_range(value, *min, *max), path),
            Integer(min, max) => {
                let is_whole = value.get().parse::<i64>().is_ok();
                self.check_that(is_whole && in_range(value, *min, *max), path)
            }
            OneOf(names) => {
                self.check_that(read_str(value).is_some_and(|name| names.contains(&&*name)), path)
            }
            List(shape) => {
                let mut elements = read_array(value, path, LIST_MAX)?.into_iter().enumerate();
                elements.try_for_each(|(at, element)| shape.check(element, &format!("{path}[{at}]")))
            }
            Fields(known) => {
                let fields = read_object(value, path)?;
                let mut given = known.iter().filter_map(|(key, shape)| Some((key, shape, fields.get(key)?)));
                given.try_for_each(|(key, shape, value)| shape.check(value, &format!("{path}.{key}")))
            }
            Either(shapes) => match shapes.iter().find(|shape| shape.is_of_kind(value)) {
                Some(shape) => shape.check(value, path),
                None => Ok(()),
            },
        }
    }

    fn check_that(&self, fits: bool, path: &str) -> Result<(), Error> {
        if fits { Ok(()) } else { Err(wrong_value(path, &self.describe())) }
    }

    /// True if the value has the JSON type of this shape.
    fn is_of_kind(&self, value: &RawValue) -> bool {
        let kind = match self {
            Text | OneOf(_) => "a string",
            Flag => "a boolean",
            Number(..) | Integer(..) => "a number",
            List(_) => "an array",
            Object | Fields(_) => "an object",
            Either(shapes) => return shapes.iter().any(|shape| shape.is_of_kind(value)),
        };
        value.kind() == kind
    }

    /// The accepted values, in words for an error.
    fn describe(&self) -> String {
        match self {
            Text => "a string".to_owned(),
            Flag => "a boolean".to_owned(),
            Object | Fields(_) => "an object".to_owned(),
            List(_) => "an array".to_owned(),
            Number(min, max) => format!("a number from {min} to {max}"),
            Integer(min, max) => format!("an integer from {min} to {max}"),
            OneOf(names) => format!("'{}'", names.join("' or '")),
            Either(shapes) => shapes.iter().map(Self::describe).collect::<Vec<_>>().join(" or "),
        }
    }
}

fn in_range(number: &RawValue, min: f64, max: f64) -> bool {
    number.get().parse::<f64>().is_ok_and(|number| (min..=max).contains(&number))
}
