//! A field whose value is a list of objects: where its items stand, and what is taken of each. The session reads tools, results
//! of tools, messages, instructions and hot words in this way.
//!
//! A path is a JSON pointer in which `*` stands for every element of an array. Only what a path leads to is kept; the rest of
//! the message takes no memory.

use std::{fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

use super::{FieldRole, ListItem};
use crate::spelling::extract::to_snake_case;

/// Most items of a list without `max`, and most elements of an array that a path leads through.
const ITEMS_MAX: usize = 256;
/// Most bytes of all items together, without their pictures: many times the model's context.
const ITEMS_MAX_BYTES: usize = 256 * 1024;

/// `items` of a field in a file: paths of the items in the field's value, and of their parts in an item.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemsFile {
    /// Where the items stand in the value.
    #[serde(default = "each_element")]
    each: String,
    name: Option<Paths>,
    description: Option<Paths>,
    parameters: Option<Paths>,
    call_id: Option<Paths>,
    output: Option<Paths>,
    role: Option<Paths>,
    text: Option<Paths>,
    image: Option<Paths>,
}

/// One path, or several; the first with a value counts.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a JSON pointer, or a list of JSON pointers")]
enum Paths {
    One(String),
    Several(Vec<String>),
}

/// Compiled paths of a list's items.
#[derive(Debug, Clone, Default)]
pub struct ItemPaths {
    each: ItemPath,
    name: Vec<ItemPath>,
    description: Vec<ItemPath>,
    parameters: Vec<ItemPath>,
    call_id: Vec<ItemPath>,
    output: Vec<ItemPath>,
    role: Vec<ItemPath>,
    text: Vec<ItemPath>,
    image: Vec<ItemPath>,
}

/// The steps of a path.
#[derive(Debug, Clone, Default)]
struct ItemPath(Vec<PathStep>);

#[derive(Debug, Clone)]
enum PathStep {
    /// Every element of an array; another value is its own only element.
    Each,
    /// The member of an object with one of these names, or the element of an array with this index.
    Member(Vec<String>),
}

fn each_element() -> String {
    "/*".to_owned()
}

impl ItemsFile {
    /// Compiles the paths. With `takes_snake_case`, names in camel case are found in snake case too.
    pub(in crate::spelling) fn compile(&self, takes_snake_case: bool) -> ItemPaths {
        let path = |pointer: &String| ItemPath::new(pointer, takes_snake_case);
        let paths = |paths: &Option<Paths>| paths.iter().flat_map(Paths::all).map(path).collect();
        ItemPaths {
            each: path(&self.each),
            name: paths(&self.name),
            description: paths(&self.description),
            parameters: paths(&self.parameters),
            call_id: paths(&self.call_id),
            output: paths(&self.output),
            role: paths(&self.role),
            text: paths(&self.text),
            image: paths(&self.image),
        }
    }

    /// An item with this text, for lists whose items stand in an array.
    pub(in crate::spelling) fn example(&self, text: &str) -> Value {
        let path = self.text.iter().flat_map(Paths::all).next().map_or("", String::as_str);
        let keys: Vec<_> = path.split('/').skip(1).collect();
        keys.into_iter().rfold(text.into(), |value, key| json!({ key: value }))
    }

    /// Describes a mistake: a path that is none, or a part that a list of this role needs.
    pub(super) fn validate(&self, role: Option<FieldRole>) -> Option<String> {
        let parts = [
            ("name", &self.name),
            ("description", &self.description),
            ("parameters", &self.parameters),
            ("call_id", &self.call_id),
            ("output", &self.output),
            ("role", &self.role),
            ("text", &self.text),
            ("image", &self.image),
        ];
        let is_pointer = |path: &String| path.is_empty() || path.starts_with('/');
        let all = parts.iter().filter_map(|(_, paths)| paths.as_ref()).flat_map(Paths::all);
        if let Some(wrong) = all.chain([&self.each]).find(|path| !is_pointer(path)) {
            return Some(format!("has a path {wrong:?} in `items`; a path is empty or begins with `/`"));
        }
        let (needed, known): (&[&str], &[&str]) = match role {
            Some(FieldRole::Tools) => (&["name"], &["name", "description", "parameters"]),
            Some(FieldRole::ToolResults) => (&["call_id", "output"], &["name", "call_id", "output"]),
            Some(FieldRole::Messages) => (&["text"], &["role", "text", "image"]),
            _ => (&["text"], &["text"]),
        };
        let has = |name: &str| parts.iter().any(|(known, paths)| *known == name && paths.is_some());
        if let Some(missing) = needed.iter().find(|name| !has(name)) {
            return Some(format!("needs the path of `{missing}` in `items`"));
        }
        let unknown = parts.iter().find(|(name, paths)| paths.is_some() && !known.contains(name))?;
        Some(format!("has `{}` in `items`, which has no effect with this role", unknown.0))
    }
}

impl Paths {
    fn all(&self) -> &[String] {
        match self {
            Self::One(path) => std::slice::from_ref(path),
            Self::Several(paths) => paths,
        }
    }
}

impl ItemPath {
    fn new(pointer: &str, takes_snake_case: bool) -> Self {
        let step = |part: &str| match part {
            "*" => PathStep::Each,
            part => {
                let name = part.replace("~1", "/").replace("~0", "~");
                let other = Some(to_snake_case(&name)).filter(|other| takes_snake_case && *other != name);
                PathStep::Member([name].into_iter().chain(other).collect())
            }
        };
        Self(pointer.split('/').skip(1).map(step).collect())
    }

    /// The values that the path leads to; an error if they are more than this.
    fn find<'j>(&self, json: &'j RawValue, max: usize) -> Result<Vec<&'j RawValue>, String> {
        let mut found = vec![json];
        for (at, step) in self.0.iter().enumerate() {
            let is_last = at + 1 == self.0.len();
            let max = if is_last { max } else { ITEMS_MAX };
            let (mut next, mut count) = (Vec::new(), 0);
            for value in found {
                count += step.follow(value, max, &mut next)?;
            }
            if count > max {
                return Err(format!("List should have at most {max} items, got {count}"));
            }
            found = next;
        }
        found.retain(|value| value.get() != "null");
        Ok(found)
    }
}

impl PathStep {
    /// Adds the values behind this step to `found`, which takes `max`, and returns their number.
    fn follow<'j>(
        &self,
        json: &'j RawValue,
        max: usize,
        found: &mut Vec<&'j RawValue>,
    ) -> Result<usize, String> {
        let mut value = serde_json::Deserializer::from_str(json.get());
        let read = match (self, json.get().as_bytes().first()) {
            (Self::Each, Some(b'[')) => value.deserialize_seq(Elements { index: None, max, found }),
            (Self::Each, _) => {
                found.push(json);
                Ok(1)
            }
            (Self::Member(names), Some(b'{')) => value.deserialize_map(Member { names, found }),
            (Self::Member(names), Some(b'[')) => match names.first().and_then(|name| name.parse().ok()) {
                Some(index) => value.deserialize_seq(Elements { index: Some(index), max, found }),
                None => Ok(0),
            },
            (Self::Member(_), _) => Ok(0),
        };
        read.map_err(|error| error.to_string())
    }
}

/// Takes every element of an array, or the one with an index, and counts them. Only `max` are kept.
struct Elements<'f, 'j> {
    index: Option<usize>,
    max: usize,
    found: &'f mut Vec<&'j RawValue>,
}

impl<'j> Visitor<'j> for Elements<'_, 'j> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut elements: A) -> Result<usize, A::Error> {
        let (mut at, mut count) = (0, 0);
        while let Some(element) = elements.next_element()? {
            if self.index.is_none_or(|index| index == at) {
                count += 1;
                if self.found.len() < self.max {
                    self.found.push(element);
                }
            }
            at += 1;
        }
        Ok(count)
    }
}

/// Takes the member of an object with one of these names; the last of repeated ones.
struct Member<'f, 'j> {
    names: &'f [String],
    found: &'f mut Vec<&'j RawValue>,
}

impl<'j> Visitor<'j> for Member<'_, 'j> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'j>>(self, mut members: A) -> Result<usize, A::Error> {
        let mut last: Option<&RawValue> = None;
        while let Some(is_it) = members.next_key_seed(IsNamed(self.names))? {
            if is_it {
                last = Some(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        self.found.extend(last);
        Ok(usize::from(last.is_some()))
    }
}

/// Whether a key is one of these names.
struct IsNamed<'n>(&'n [String]);

impl<'j> DeserializeSeed<'j> for IsNamed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'j>>(self, key: D) -> Result<bool, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for IsNamed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<bool, E> {
        Ok(self.0.iter().any(|name| name == key))
    }
}

impl ItemPaths {
    /// Reads the items of a value, given as its text.
    ///
    /// # Errors
    /// Description of the mistake, without the field's name.
    pub(super) fn read(&self, json: &str, max: Option<f64>) -> Result<Arc<[ListItem]>, String> {
        let value: &RawValue = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let found = self.each.find(value, max.map_or(ITEMS_MAX, |max| max as usize))?;
        let mut budget = ITEMS_MAX_BYTES;
        let items = found.into_iter().enumerate().map(|(at, item)| {
            self.read_item(item, &mut budget).map_err(|problem| format!("item {}: {problem}", at + 1))
        });
        items.collect()
    }

    fn read_item(&self, item: &RawValue, budget: &mut usize) -> Result<ListItem, String> {
        if !matches!(item.get().as_bytes().first(), Some(b'{' | b'"')) {
            return Err("Input should be an object".to_owned());
        }
        // The longest message bounds pictures.
        let mut picture_budget = usize::MAX;
        Ok(ListItem {
            name: first(&self.name, item, "name", budget, as_text)?,
            description: first(&self.description, item, "description", budget, as_text)?,
            parameters: first(&self.parameters, item, "parameters", budget, as_object)?,
            call_id: first(&self.call_id, item, "call_id", budget, as_text)?,
            output: first(&self.output, item, "output", budget, as_any)?,
            role: first(&self.role, item, "role", budget, as_text)?,
            texts: all(&self.text, item, "text", budget)?,
            images: all(&self.image, item, "image", &mut picture_budget)?,
        })
    }
}

/// The first value of these paths.
fn first(
    paths: &[ItemPath],
    item: &RawValue,
    name: &str,
    budget: &mut usize,
    read: impl Fn(&RawValue) -> Option<String>,
) -> Result<Option<String>, String> {
    for path in paths {
        if let Some(value) = path.find(item, ITEMS_MAX)?.first() {
            spend(budget, value)?;
            return read(value).map(Some).ok_or_else(|| wrong_part(name));
        }
    }
    Ok(None)
}

/// All texts of the first path that leads to some. An empty path leads to an item that is a text itself.
fn all(paths: &[ItemPath], item: &RawValue, name: &str, budget: &mut usize) -> Result<Vec<String>, String> {
    let is_text = item.get().starts_with('"');
    for path in paths.iter().filter(|path| is_text || !path.0.is_empty()) {
        let found = path.find(item, ITEMS_MAX)?;
        if found.is_empty() {
            continue;
        }
        let texts = found.into_iter().map(|value| {
            spend(budget, value)?;
            as_text(value).ok_or_else(|| wrong_part(name))
        });
        return texts.collect();
    }
    Ok(Vec::new())
}

fn spend(budget: &mut usize, value: &RawValue) -> Result<(), String> {
    let left = budget.checked_sub(value.get().len());
    *budget = left.ok_or_else(|| format!("All items should have at most {ITEMS_MAX_BYTES} bytes"))?;
    Ok(())
}

fn as_text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn as_object(value: &RawValue) -> Option<String> {
    value.get().starts_with('{').then(|| value.get().to_owned())
}

fn as_any(value: &RawValue) -> Option<String> {
    Some(as_text(value).unwrap_or_else(|| value.get().to_owned()))
}

fn wrong_part(name: &str) -> String {
    format!("`{name}` is of the wrong type")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(toml: &str) -> ItemPaths {
        toml::from_str::<ItemsFile>(toml).unwrap().compile(true)
    }

    #[test]
    fn nested_lists_and_both_spellings_are_read() {
        let tools = paths(
            "each = \"/*/functionDeclarations/*\"\nname = \"/name\"\nparameters = [\"/parametersJsonSchema\", \"/parameters\"]",
        );
        let json = r#"[{"googleSearch": {}}, {"function_declarations": [
            {"name": "a", "parameters": {"type": "OBJECT"}, "x": [1, {"name": "no"}]},
            {"name": "b", "parameters": {}, "parameters_json_schema": {"type": "object"}}]}]"#;
        let read = tools.read(json, None).unwrap();
        let found: Vec<_> =
            read.iter().map(|item| (item.name.as_deref(), item.parameters.as_deref())).collect();
        assert_eq!(
            found,
            [(Some("a"), Some(r#"{"type": "OBJECT"}"#)), (Some("b"), Some(r#"{"type": "object"}"#)),]
        );
    }

    #[test]
    fn texts_pictures_and_results_of_any_type_are_read() {
        let turns = paths("role = \"/role\"\ntext = \"/parts/*/text\"\nimage = \"/parts/*/inlineData/data\"");
        let json = r#"[{"role": "user", "parts": [{"text": "a"}, {"inline_data": {"data": "AA=="}}, {"text": "b"}]},
            {"parts": {"text": "single"}}]"#;
        let read = turns.read(json, None).unwrap();
        assert_eq!(
            (read[0].texts.as_slice(), read[0].images.len()),
            (&["a".to_owned(), "b".to_owned()][..], 1)
        );
        assert_eq!((read[1].texts.as_slice(), &read[1].role), (&["single".to_owned()][..], &None));
        let results = paths("each = \"/*\"\ncall_id = \"/id\"\noutput = \"/response\"");
        let read = results.read(r#"{"id": "x", "response": {"ok": [true]}}"#, None).unwrap();
        assert_eq!(read[0].output.as_deref(), Some(r#"{"ok": [true]}"#));
        let read = results.read(r#"[{"id": "x", "response": "fine"}]"#, None).unwrap();
        assert_eq!(read[0].output.as_deref(), Some("fine"));
    }

    #[test]
    fn wrong_and_huge_lists_are_refused() {
        let tools = paths("name = \"/name\"");
        for (json, problem) in [
            ("[1]", "item 1: Input should be an object"),
            (r#"[{"name": 5}]"#, "item 1: `name` is of the wrong type"),
            ("7", "item 1: Input should be an object"),
        ] {
            assert_eq!(tools.read(json, None), Err(problem.to_owned()), "{json}");
        }
        let many = format!("[{}{{}}]", "{},".repeat(300));
        assert!(tools.read(&many, None).is_err() && tools.read("[{}, {}]", Some(1.0)).is_err());
        let long = format!(r#"[{{"name": "{}"}}]"#, "a".repeat(300_000));
        assert!(tools.read(&long, None).unwrap_err().contains("bytes"));
        assert_eq!(tools.read("[]", None).map(|items| items.len()), Ok(0));
    }

    #[test]
    fn items_that_do_not_fit_the_role_are_mistakes() {
        for (toml, role, words) in [
            ("name = \"/name\"", FieldRole::Tools, None),
            ("description = \"/d\"", FieldRole::Tools, Some("`name`")),
            ("name = \"name\"", FieldRole::Tools, Some("begins with `/`")),
            ("call_id = \"/id\"\noutput = \"/o\"\nimage = \"/i\"", FieldRole::ToolResults, Some("`image`")),
            ("text = \"\"", FieldRole::Messages, None),
            ("name = \"/n\"\ntext = \"\"", FieldRole::HotWords, Some("`name`")),
        ] {
            let problem = toml::from_str::<ItemsFile>(toml).unwrap().validate(Some(role));
            assert_eq!(problem.is_some(), words.is_some(), "{toml}: {problem:?}");
            assert!(problem.unwrap_or_default().contains(words.unwrap_or_default()), "{toml}");
        }
    }
}
