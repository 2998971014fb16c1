//! Reads the calls that the model wrote, and checks them against their tools' schemas. Mistakes are sentences for the model,
//! which is asked once more.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::schema::{Budget, STEPS_MAX, Schema, quoted};
use crate::vocabulary::{Tool, ToolChoice, ToolOffer};

/// Most calls of one answer.
pub(in crate::session::assistant) const CALLS_MAX: usize = 32;

/// A call that fits its tool.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session::assistant) struct CheckedCall {
    pub(in crate::session::assistant) name: String,
    /// JSON of an object, as the model wrote it.
    pub(in crate::session::assistant) arguments: String,
}

/// A call as models write it.
#[derive(Deserialize)]
struct WrittenCall<'j> {
    #[serde(borrow)]
    name: Option<Cow<'j, str>>,
    #[serde(borrow, alias = "parameters")]
    arguments: Option<&'j RawValue>,
    /// Some models repeat the form of the offer around the call.
    #[serde(borrow)]
    function: Option<&'j RawValue>,
}

/// Reads the calls of one answer.
#[derive(Debug)]
pub(super) struct CallReader<'o> {
    offer: &'o ToolOffer,
    /// Compiled schemas by their tool's name.
    schemas: BTreeMap<&'o str, Schema>,
    budget: Budget,
}

impl<'o> CallReader<'o> {
    pub(super) const fn new(offer: &'o ToolOffer) -> Self {
        Self { offer, schemas: BTreeMap::new(), budget: Budget { steps: STEPS_MAX } }
    }

    /// True if arguments were not checked completely, because the check would have taken too long.
    pub(super) const fn is_unchecked(&self) -> bool {
        self.budget.is_spent()
    }

    /// Reads the calls between two tags, usually one.
    ///
    /// # Errors
    /// The model's first mistake.
    pub(super) fn read(&mut self, text: &str) -> Result<Vec<CheckedCall>, String> {
        let json = without_fence(text.trim());
        let is_parallel = self.offer.is_parallel;
        let mut calls = Vec::new();
        for value in serde_json::Deserializer::from_str(json).into_iter::<&RawValue>() {
            let value = value.map_err(|error| format!("It is not JSON ({error})."))?;
            match serde_json::from_str::<Vec<&RawValue>>(value.get()) {
                Ok(list) => {
                    // Bounds the work: an answer may not have more calls.
                    let list = list.into_iter().take(if is_parallel { CALLS_MAX + 1 } else { 1 });
                    let list: Result<Vec<_>, _> = list.map(|call| self.read_call(call)).collect();
                    calls.extend(list?);
                }
                Err(_) => calls.push(self.read_call(value)?),
            }
            if !is_parallel && !calls.is_empty() || calls.len() > CALLS_MAX {
                break;
            }
        }
        if calls.is_empty() { Err("It is empty.".to_owned()) } else { Ok(calls) }
    }

    fn read_call(&mut self, json: &RawValue) -> Result<CheckedCall, String> {
        let form = "It must be an object with \"name\" and \"arguments\".";
        let mut call: WrittenCall<'_> = serde_json::from_str(json.get()).map_err(|_| form.to_owned())?;
        if let Some(inner) = call.function.filter(|_| call.name.is_none()) {
            call = serde_json::from_str(inner.get()).map_err(|_| form.to_owned())?;
        }
        let name = call.name.ok_or(form)?;
        let tool = self.find_tool(&name)?;
        let arguments = read_arguments(call.arguments)
            .ok_or_else(|| format!("The arguments of {name} must be an object."))?;
        let value: Value = serde_json::from_str(&arguments)
            .map_err(|error| format!("The arguments of {name} are not JSON ({error})."))?;
        let schema = self.schemas.entry(&tool.name).or_insert_with(|| Schema::read(&tool.parameters));
        let checked = schema.check(&value, &mut self.budget);
        checked.map_err(|mistake| format!("{name}: {mistake}"))?;
        Ok(CheckedCall { name: tool.name.clone(), arguments: arguments.into_owned() })
    }

    /// The tool with this name, if it may be called.
    fn find_tool(&self, name: &str) -> Result<&'o Tool, String> {
        let offer = self.offer;
        let Some(tool) = offer.find(name) else {
            let known: Vec<_> = offer.tools.iter().map(|tool| tool.name.as_str()).collect();
            return Err(format!("There is no function {:?}, only: {}.", quoted(name), known.join(", ")));
        };
        match &offer.choice {
            ToolChoice::Named(wanted) if *wanted != tool.name => {
                Err(format!("It must call the function {wanted}."))
            }
            _ => Ok(tool),
        }
    }
}

/// True if JSON without tags is meant as a call: it names a tool, or has a name and arguments, even if it is not quite JSON.
pub(super) fn is_call(text: &str, offer: &ToolOffer) -> bool {
    let is_meant = |call: WrittenCall<'_>| match (call.name, call.function) {
        (Some(name), _) => call.arguments.is_some() || offer.find(&name).is_some(),
        (None, Some(inner)) => {
            serde_json::from_str::<WrittenCall<'_>>(inner.get()).is_ok_and(|inner| inner.name.is_some())
        }
        (None, None) => false,
    };
    let list = serde_json::from_str::<Vec<WrittenCall<'_>>>(text);
    match list.or_else(|_| serde_json::from_str(text).map(|call| vec![call])) {
        Ok(calls) => calls.into_iter().any(is_meant),
        Err(_) => {
            text.contains("\"name\"")
                && ["\"arguments\"", "\"parameters\""].iter().any(|key| text.contains(key))
        }
    }
}

/// The text within a code fence.
fn without_fence(text: &str) -> &str {
    let Some(inside) = text.strip_prefix("```") else { return text };
    let inside = inside.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
    inside.trim_end().trim_end_matches('`')
}

/// The arguments as the text of an object. Some models write that text as a string, and leave out arguments that are empty.
fn read_arguments(given: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let arguments = match given.map(RawValue::get) {
        None | Some("null") => Cow::Borrowed("{}"),
        Some(text) if text.starts_with('"') => {
            let inner = serde_json::from_str::<String>(text).ok()?;
            if inner.trim().is_empty() { Cow::Borrowed("{}") } else { Cow::Owned(inner.trim().to_owned()) }
        }
        Some(text) => Cow::Borrowed(text),
    };
    arguments.starts_with('{').then_some(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::Tool;

    fn offer() -> ToolOffer {
        let schema = r#"{"type": "object", "required": ["city"], "additionalProperties": false, "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": ["string", "null"]}}, "at": {"anyOf": [{"type": "number"}, {"const": "now"}]}}}"#;
        let tool = |name: &str, parameters: &str| Tool {
            name: name.to_owned(),
            description: None,
            parameters: parameters.into(),
        };
        ToolOffer { tools: [tool("weather", schema), tool("stop", "{}")].into(), ..ToolOffer::default() }
    }

    fn arguments(text: &str) -> Result<String, String> {
        CallReader::new(&offer())
            .read(text)
            .map(|calls| calls.into_iter().map(|call| call.arguments).collect())
    }

    #[test]
    fn calls_are_read_in_all_usual_forms() {
        for text in [
            r#"{"name": "weather", "arguments": {"city": "Rome"}}"#,
            r#" {"name": "weather", "parameters": {"city": "Rome"}} "#,
            r#"{"name": "weather", "arguments": "{\"city\": \"Rome\"}"}"#,
            r#"{"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}"#,
            "```json\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n```",
            r#"[{"name": "weather", "arguments": {"city": "Rome"}}]"#,
        ] {
            assert_eq!(arguments(text).as_deref(), Ok(r#"{"city": "Rome"}"#), "{text}");
        }
        assert_eq!(arguments(r#"{"name": "stop"} {"name": "stop", "arguments": ""}"#).as_deref(), Ok("{}{}"));
    }

    #[test]
    fn only_the_first_of_single_calls_is_read_and_lists_are_bounded() {
        let single = ToolOffer { is_parallel: false, ..offer() };
        for text in [r#"{"name": "stop"} {broken"#, r#"[{"name": "stop"}, {"name": "fly"}]"#] {
            assert_eq!(CallReader::new(&single).read(text).map(|calls| calls.len()), Ok(1), "{text}");
            assert!(CallReader::new(&offer()).read(text).is_err(), "{text}");
        }
        let many = format!("[{}]", vec![r#"{"name": "stop"}"#; 4000].join(","));
        assert_eq!(CallReader::new(&offer()).read(&many).map(|calls| calls.len()), Ok(CALLS_MAX + 1));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, mistake) in [
            ("", "It is empty."),
            ("{'name'}", "It is not JSON"),
            ("[1]", "It must be an object"),
            (r#"{"arguments": {}}"#, "It must be an object"),
            (r#"{"name": "whether"}"#, r#"There is no function "whether", only: weather, stop."#),
            (r#"{"name": "weather"}"#, r#"weather: arguments must have "city"."#),
            (r#"{"name": "weather", "arguments": [1]}"#, "The arguments of weather must be an object."),
            (r#"{"name": "weather", "arguments": "{1"}"#, "The arguments of weather are not JSON"),
        ] {
            let found = arguments(text).unwrap_err();
            assert!(found.starts_with(mistake), "{text}: {found}");
        }
        for (extra, mistake) in [
            (r#""days": 1.5"#, "arguments.days must be of type integer."),
            (r#""unit": "K""#, r#"arguments.unit must be one of "C", "F"."#),
            (r#""tags": ["a", 1]"#, "arguments.tags[1] must be of type string or null."),
            (r#""at": "later""#, "arguments.at fits none of its schemas."),
            (r#""town": 1"#, r#"arguments must not have "town"."#),
        ] {
            let text = format!(r#"{{"name": "weather", "arguments": {{"city": "Rome", {extra}}}}}"#);
            assert_eq!(arguments(&text).unwrap_err(), format!("weather: {mistake}"));
        }
        let good = r#"{"name": "weather", "arguments": {"city": "Rome", "days": 2.0, "unit": "C", "tags": [null], "at": "now"}}"#;
        assert!(arguments(good).is_ok());
    }
}
