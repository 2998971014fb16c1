//! Results of tools in the Model Context Protocol, as the model gets them: texts and pictures. Devices and tool servers give them.

#[cfg(feature = "mcp")]
mod pictures;

use serde_json::{Value, json};

#[cfg(feature = "mcp")]
pub(crate) use self::pictures::pictures;

/// Longest result, bytes: more than the model's context. The rest is cut off.
const OUTPUT_MAX_BYTES: usize = 64 * 1024;

/// The result of a call for the model: the texts of its content, or the error.
pub(crate) fn to_output(answer: &Value) -> String {
    if !answer["error"].is_null() {
        return cut(json!({ "error": answer["error"]["message"] }).to_string());
    }
    let result = &answer["result"];
    let content = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |part: &Value| match part["type"].as_str() {
        Some("text") => part["text"].as_str().map(str::to_owned),
        kind => kind.map(|kind| format!("({kind})")),
    };
    let texts: Vec<String> = content.iter().filter_map(text).collect();
    let output = texts.join("\n");
    cut(match result["isError"] == true {
        true => json!({ "error": output }).to_string(),
        false => output,
    })
}

/// Cuts a long result, and says so.
fn cut(mut output: String) -> String {
    let bytes = output.len();
    if bytes > OUTPUT_MAX_BYTES {
        output.truncate(output.floor_char_boundary(OUTPUT_MAX_BYTES));
        output.push_str(&format!("… (cut: {bytes} bytes)"));
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_texts_or_errors() {
        for (answer, output) in [
            (json!({"result": {"content": [{"type": "text", "text": "true"}], "isError": false}}), "true"),
            (
                json!({"result": {"content": [{"type": "text", "text": "a"}, {"type": "image", "data": "AA=="}]}}),
                "a\n(image)",
            ),
            (
                json!({"result": {"content": [{"type": "text", "text": "no lamp"}], "isError": true}}),
                r#"{"error":"no lamp"}"#,
            ),
            (
                json!({"error": {"code": -32601, "message": "Unknown tool: x"}}),
                r#"{"error":"Unknown tool: x"}"#,
            ),
            (json!({"result": {}}), ""),
            (json!({}), ""),
        ] {
            assert_eq!(to_output(&answer), output, "{answer}");
        }
        let long = json!({"result": {"content": [{"type": "text", "text": "é".repeat(OUTPUT_MAX_BYTES)}]}});
        let output = to_output(&long);
        let (kept, note) = output.split_at(OUTPUT_MAX_BYTES);
        assert!(kept.ends_with('é') && note == "… (cut: 131072 bytes)", "{note}");
    }
}
