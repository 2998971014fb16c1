//! Rewrites the messages of the TOML reader in plain words, with the nearest valid key or value.

use super::renamed_keys::present_name;
use crate::suggestion::{did_you_mean, quoted_list};

/// Rewrites a message. Messages that are no reader's, such as those of our own checks, stay as they are.
pub(super) fn plain_message(message: &str) -> String {
    let message = message.trim_end();
    None.or_else(|| unknown_name(message, "unknown field ", "key"))
        .or_else(|| unknown_name(message, "unknown variant ", "value"))
        .or_else(|| message.strip_prefix("missing field ").map(|name| format!("{name} is missing")))
        .or_else(|| wrong_value(message))
        .unwrap_or_else(|| message.trim_end_matches(", expected literal string").to_owned())
}

/// "unknown field `lisen`, expected one of `listen`, `mode`" names the wrong word, then the known ones.
fn unknown_name(message: &str, start: &str, what: &str) -> Option<String> {
    let quoted: Vec<&str> = message.strip_prefix(start)?.split('`').skip(1).step_by(2).collect();
    let (wrong, known) = quoted.split_first()?;
    if let Some(name) = present_name(wrong, known) {
        return Some(format!("unknown {what} `{wrong}`: it was renamed, did you mean `{name}`?"));
    }
    let hint = did_you_mean(wrong, known.iter().copied());
    let hint = match (hint.as_str(), known) {
        ("", []) => String::new(),
        ("", known) => format!("; known are {}", quoted_list(known.iter().copied())),
        (hint, _) => hint.to_owned(),
    };
    Some(format!("unknown {what} `{wrong}`{hint}"))
}

/// "invalid type: string "7", expected u16" names the value found, then the type.
fn wrong_value(message: &str) -> Option<String> {
    let rest = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let (found, wanted) = (found_value(found), wanted_value(expected));
    let hint = correction(&found, &wanted).unwrap_or_default();
    Some(format!("expected {wanted}, not {found}{hint}"))
}

/// The value as the file spells it.
fn found_value(found: &str) -> String {
    match found {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        _ => match found.split_once('`') {
            // "integer `5`", "boolean `true`", "floating point `1.5`"
            Some((_, value)) if !found.starts_with("string") => value.trim_end_matches('`').to_owned(),
            _ => found.strip_prefix("string ").unwrap_or(found).to_owned(),
        },
    }
}

/// The type in words.
fn wanted_value(expected: &str) -> String {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "a nonzero usize" | "a nonzero u32" | "a nonzero u64" => "a whole number, 1 or more",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" => "text in quotes",
        "a sequence" => "a list in brackets",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
    .to_owned()
}

/// Advice for mistakes with an obvious correction.
fn correction(found: &str, wanted: &str) -> Option<String> {
    let unquoted = found.strip_prefix('"').and_then(|found| found.strip_suffix('"'));
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    match (wanted, unquoted) {
        ("true or false", Some("true" | "false")) => Some(": remove the quotes".to_owned()),
        (wanted, Some(text)) if wanted.contains("number") && is_number(text) => {
            Some(": remove the quotes".to_owned())
        }
        ("text in quotes", None) if found != "a table" && found != "a list" => {
            Some(format!(": write \"{found}\""))
        }
        ("a list in brackets", Some(text)) => Some(format!(": write [\"{text}\"]")),
        ("a list in brackets", None) if found == "a table" => {
            Some(": write the header in double brackets, [[…]]".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_plain_and_say_what_to_change() {
        for (from, to) in [
            (
                "unknown field `lisen`, expected `listen` or `mode`",
                "unknown key `lisen`, did you mean `listen`?",
            ),
            (
                "unknown field `x`, expected `listen` or `mode`",
                "unknown key `x`; known are `listen` and `mode`",
            ),
            ("unknown field `x`, there are no fields", "unknown key `x`"),
            (
                "unknown field `connections_max`, expected `handshakes_max` or `memory_max_bytes`",
                "unknown key `connections_max`: it was renamed, did you mean `handshakes_max`?",
            ),
            (
                "unknown field `connections_max`, expected `listen` or `profile`",
                "unknown key `connections_max`; known are `listen` and `profile`",
            ),
            (
                "unknown variant `comit`, expected one of `commit`, `close`",
                "unknown value `comit`, did you mean `commit`?",
            ),
            ("missing field `paths`", "`paths` is missing"),
            (
                "invalid type: string \"7\", expected usize",
                "expected a whole number, 0 or more, not \"7\": remove the quotes",
            ),
            (
                "invalid type: string \"true\", expected a boolean",
                "expected true or false, not \"true\": remove the quotes",
            ),
            (
                "invalid type: string \"long\", expected u16",
                "expected a whole number from 0 to 65535, not \"long\"",
            ),
            ("invalid value: integer `-1`, expected u32", "expected a whole number, 0 or more, not -1"),
            ("invalid type: integer `5`, expected a string", "expected text in quotes, not 5: write \"5\""),
            (
                "invalid type: map, expected a sequence",
                "expected a list in brackets, not a table: write the header in double brackets, [[…]]",
            ),
            (
                "invalid type: string \"/a\", expected a sequence",
                "expected a list in brackets, not \"/a\": write [\"/a\"]",
            ),
            ("invalid type: integer `5`, expected struct DrainConfig", "expected a table, not 5"),
            ("5 ms is too long", "5 ms is too long"),
        ] {
            assert_eq!(plain_message(from), to);
        }
    }
}
