//! `[answer.tools]` of a profile: the prompts that offer tools to the model, and the form of its calls. The schema is
//! `mappings/reference.md`.
//!
//! The texts of the embedded profile are those of Qwen3's chat template, which MiniCPM-o 4.5 stands on. Only the texts are here;
//! the session reads the calls.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use crate::{
    spelling::{
        check::{self, Document, FileError},
        template::Template,
    },
    vocabulary::SlotValue,
};

/// How the model is asked for an answer that may have calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskTools {
    /// Without speech. An answer in words is then spoken sentence by sentence.
    Silent,
    /// With speech, for servers whose model can write a call beside it. Audio is held until its words are known.
    Spoken,
}

/// `[answer.tools]` as written in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolsFile {
    ask: AskTools,
    prompt: Spanned<String>,
    tool: Spanned<String>,
    call_begin: Spanned<String>,
    call_end: Spanned<String>,
    call: Spanned<String>,
    result: Spanned<String>,
    required: String,
    named: Spanned<String>,
    single: String,
    repair: Spanned<String>,
    #[serde(default)]
    mcp: Vec<String>,
    #[serde(default)]
    waiting_words: String,
    #[serde(default = "default_waiting_ms", deserialize_with = "check::deserialize_ms")]
    waiting_ms: u64,
}

/// A call that takes longer than this is noticed as a pause.
const fn default_waiting_ms() -> u64 {
    700
}

/// How tools are offered to the model.
#[derive(Debug, Clone)]
pub struct ToolRules {
    /// How an answer that may have calls is asked for.
    pub ask: AskTools,
    /// Text before a call.
    pub call_begin: String,
    /// Text behind a call.
    pub call_end: String,
    /// Instruction to call a tool.
    pub required: String,
    /// Instruction to call at most one tool.
    pub single: String,
    /// Names of the tool servers whose tools are offered, too.
    pub mcp: Vec<String>,
    /// Words that the user hears while a tool server works; none if empty.
    pub waiting_words: String,
    /// Time that the tool servers have before these words.
    pub waiting_time: Duration,
    prompt: Template,
    tool: Template,
    call: Template,
    result: Template,
    named: Template,
    repair: Template,
}

impl ToolsFile {
    pub(super) fn compile(self, document: &Document<'_>) -> Result<ToolRules, FileError> {
        for mark in [&self.call_begin, &self.call_end] {
            if !is_tag(mark.get_ref()) {
                let message = "the text around a call must be a tag such as \"<tool_call>\", without spaces, of at most 32 bytes; <think> and </think> are the model's own";
                return Err(document.problem(mark.span().start, message));
            }
        }
        if self.call_begin.get_ref().eq_ignore_ascii_case(self.call_end.get_ref()) {
            let message = "the tag behind a call must differ from the one before it";
            return Err(document.problem(self.call_end.span().start, message));
        }
        Ok(ToolRules {
            ask: self.ask,
            prompt: required_slots(document, &self.prompt, &["tools"])?,
            tool: json_slots(document, &self.tool, &["name", "description", "parameters"])?,
            call: json_slots(document, &self.call, &["name", "arguments"])?,
            result: required_slots(document, &self.result, &["output"])?,
            named: required_slots(document, &self.named, &["name"])?,
            repair: required_slots(document, &self.repair, &["mistake"])?,
            call_begin: self.call_begin.into_inner(),
            call_end: self.call_end.into_inner(),
            required: self.required,
            single: self.single,
            mcp: self.mcp,
            waiting_words: self.waiting_words,
            waiting_time: Duration::from_millis(self.waiting_ms),
        })
    }
}

/// True for a tag that the parser of calls can find.
fn is_tag(text: &str) -> bool {
    let name = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    let is_thought = ["<think>", "</think>"].iter().any(|thought| thought.eq_ignore_ascii_case(text));
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.contains(|letter: char| letter.is_whitespace() || matches!(letter, '<' | '>'))
    };
    text.len() <= 32 && !is_thought && name.is_some_and(is_name)
}

/// A prompt that has all of these slots.
fn required_slots(
    document: &Document<'_>,
    text: &Spanned<String>,
    slots: &[&str],
) -> Result<Template, FileError> {
    let template = document.plain_template(text, slots)?;
    check_slots(document, text, slots, template)
}

/// JSON that has all of these slots.
fn json_slots(
    document: &Document<'_>,
    text: &Spanned<String>,
    slots: &[&str],
) -> Result<Template, FileError> {
    let template = document.template(text, slots)?;
    check_slots(document, text, slots, template)
}

fn check_slots(
    document: &Document<'_>,
    text: &Spanned<String>,
    slots: &[&str],
    template: Template,
) -> Result<Template, FileError> {
    match (0..slots.len()).find(|slot| !template.uses_slot(*slot)) {
        Some(missing) => {
            let message = format!("the text lacks `${{{}}}`", slots[missing]);
            Err(document.problem(text.span().start, message))
        }
        None => Ok(template),
    }
}

impl ToolRules {
    /// The part of the system prompt that offers these tools, each a line of JSON.
    #[must_use]
    pub fn prompt(&self, tools: &str) -> String {
        self.prompt.filled_with(tools)
    }

    /// A tool as JSON. `parameters` is JSON.
    #[must_use]
    pub fn tool(&self, name: &str, description: Option<&str>, parameters: &str) -> String {
        let mut json = String::new();
        self.tool.render(&mut json, |slot| match slot {
            0 => SlotValue::Str(name),
            1 => description.into(),
            _ => SlotValue::Raw(parameters),
        });
        json
    }

    /// An earlier call of the model as JSON. `arguments` is JSON.
    #[must_use]
    pub fn call(&self, name: &str, arguments: &str) -> String {
        let mut json = String::new();
        self.call.render(&mut json, |slot| match slot {
            0 => SlotValue::Str(name),
            _ => SlotValue::Raw(arguments),
        });
        json
    }

    /// The result of a call.
    #[must_use]
    pub fn result(&self, output: &str) -> String {
        self.result.filled_with(output)
    }

    /// Instruction to call the tool with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> String {
        self.named.filled_with(name)
    }

    /// The user's message that asks again after a mistake.
    #[must_use]
    pub fn repair(&self, mistake: &str) -> String {
        self.repair.filled_with(mistake)
    }
}

#[cfg(test)]
mod tests {
    use crate::spelling::Library;

    #[test]
    fn tags_that_never_match_are_refused() {
        for (begin, end, is_good) in [
            ("<call>", "</call>", true),
            ("<tool call>", "</call>", false),
            ("<call>", "<\u{a0}/call>", false),
            ("<<call>", "</call>", false),
            ("<a><b>", "</call>", false),
            ("<>", "</call>", false),
            ("<call>", "<Call>", false),
            ("<think>", "</call>", false),
            ("<call>", "</THINK>", false),
        ] {
            let mut library = Library::embedded().unwrap();
            let file = format!(
                "kind = \"profile\"\nname = \"mine\"\ntitle = \"mine\"\nextends = \"assistant\"\n\n[answer.tools]\ncall_begin = \"{begin}\"\ncall_end = \"{end}\"\n"
            );
            let loaded = library.add("mine.toml", &file).map_err(|error| error.to_string());
            assert_eq!(loaded.is_ok(), is_good, "{begin} {end}: {loaded:?}");
        }
    }
}
