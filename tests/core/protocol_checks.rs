//! Rules for everything a client sees: pairs alternate and close, audio stays inside them, times agree.

use super::*;

/// All violations in the client's messages.
pub(crate) fn find_violations(harness: &Harness) -> Vec<String> {
    let mut problems = Vec::new();
    let mut open = BTreeMap::new();
    for (at, frame) in &harness.log {
        let problem = match frame {
            ClientFrame::Event(event) => event_violation(*at, event, &mut open),
            ClientFrame::Binary(bytes)
                if bytes.is_empty() || bytes.len() % 2 != 0 || bytes.len() > 65_536 =>
            {
                Some(format!("a frame of {} bytes", bytes.len()))
            }
            ClientFrame::Binary(_) if !open.contains_key("tts.speaking") => {
                Some("audio outside its pair".to_owned())
            }
            ClientFrame::Close(..) if !open.is_empty() => Some(format!("never ended: {open:?}")),
            ClientFrame::Binary(_) | ClientFrame::Close(..) => None,
        };
        problems.extend(problem.map(|problem| format!("at {at:?}: {problem}")));
    }
    problems
}

fn event_violation(at: Duration, event: &Value, open: &mut BTreeMap<String, u64>) -> Option<String> {
    let number = |field: &str| event[field].as_u64().unwrap_or(u64::MAX);
    let name = event["type"].as_str().unwrap_or_default();
    let is_violation = if let Some(pair) = name.strip_suffix("_start") {
        open.insert(pair.to_owned(), number("timestamp_ms")).is_some()
    } else if let Some(pair) = name.strip_suffix("_end") {
        let ordered = open.remove(pair).is_some_and(|start| start <= number("timestamp_ms"));
        !ordered || (name.starts_with("tts") && number("timestamp_ms") != number("duration_ms"))
    } else {
        match name {
            "session.closed" => u128::from(number("total_duration_ms")) != at.as_millis() || !open.is_empty(),
            // The model's transcript may come without sound.
            "transcript.final" if event["speaker"] == "assistant" => number("start_ms") > number("end_ms"),
            "transcript.final" => number("start_ms") >= number("end_ms"),
            _ => name.is_empty(),
        }
    };
    is_violation.then(|| event.to_string())
}
