//! Sections `assistant` and `tools`: a spoken question to an assistant, and questions that need a function of the client.

use serde_json::{Value, json};

use super::{
    bench::{Bench, sound_file, within},
    realtime::{Answer, Realtime},
};
use crate::{
    cli::{ClientError, demo::openai::at_model_rate, stream_recording::end_of_audible_samples},
    verify::figure::{Expectation, Figure},
};

/// Time limit of a question with its answer.
const QUESTION_MAX: std::time::Duration = std::time::Duration::from_secs(120);
/// From the user's last sound; the server waits for a second of silence.
const FIRST_AUDIO_MAX: Expectation = Expectation::AtMost(4.0);
const WORDS_MIN: Expectation = Expectation::AtLeast(1.0);
const AUDIO_MIN: Expectation = Expectation::AtLeast(0.5);
/// The model is prompted for calls, but not trained for them.
const WELL_FORMED_MIN: Expectation = Expectation::AtLeast(0.8);
const USED_MIN: Expectation = Expectation::AtLeast(1.0);

/// Section `assistant`.
pub(super) async fn run(bench: &mut Bench<'_>) {
    let figures = match within(QUESTION_MAX, ask_aloud(bench)).await {
        Ok(answer) => {
            let sound = sound_file(&answer.speech);
            let (words, seconds) =
                (answer.words.split_whitespace().count(), answer.speech.audible_duration().as_secs_f64());
            let latency = answer.latency.map(|latency| latency.as_secs_f64());
            let first_audio = match latency {
                Some(latency) => Figure::measured("assistant.first_audio", latency, "s", FIRST_AUDIO_MAX)
                    .with_note("from the last sound of the question, with a second of silence"),
                None => Figure::failed("assistant.first_audio", "s", FIRST_AUDIO_MAX, "no audio came"),
            };
            vec![
                first_audio,
                Figure::measured("assistant.words", words as f64, "", WORDS_MIN).with_note(&answer.words),
                Figure::measured("assistant.audio", seconds, "s", AUDIO_MIN).with_sound(sound),
            ]
        }
        Err(error) => {
            vec![Figure::failed("assistant.answers", "", Expectation::Succeeds, &error.to_string())]
        }
    };
    bench.ledger.add(figures);
}

async fn ask_aloud(bench: &Bench<'_>) -> Result<Answer, ClientError> {
    let samples = match bench.plan.recordings.first() {
        Some(recording) => recording.samples().await?,
        None => Vec::new(),
    };
    let question = at_model_rate(&samples[..end_of_audible_samples(&samples)]);
    let detection = json!({"type": "server_vad", "silence_duration_ms": 1000, "interrupt_response": true});
    let settings = json!({
        "instructions": "You are a helpful assistant. Answer in one sentence.",
        "audio": {"input": {"turn_detection": detection}},
    });
    let mut client = Realtime::open(bench, settings).await?;
    let answer = client.ask(&question).await;
    client.hang_up().await;
    answer
}

/// Questions, and the function that each needs.
const QUESTIONS: [(&str, &str); 8] = [
    ("What will the weather be in Rome?", "get_weather"),
    ("Please set a timer for 5 minutes.", "set_timer"),
    ("Do I need an umbrella, or how is the weather in Oslo?", "get_weather"),
    ("Start a timer of 12 minutes for the pasta.", "set_timer"),
    ("How is the weather in Cairo?", "get_weather"),
    ("I want a timer for 3 minutes.", "set_timer"),
    ("Tell me about the weather in Lima.", "get_weather"),
    ("A timer for 45 minutes, please.", "set_timer"),
];
const QUICK_QUESTIONS: usize = 4;
/// Result of the function, and the word that the answer must have.
const RESULT: (&str, &str) = ("sunny", "sunny");

/// Section `tools`.
pub(super) async fn run_tools(bench: &mut Bench<'_>) {
    let count = if bench.plan.is_quick { QUICK_QUESTIONS } else { QUESTIONS.len() };
    let (mut well_formed, mut problems, mut used) = (0, Vec::new(), None);
    for (question, function) in QUESTIONS.into_iter().take(count) {
        match within(QUESTION_MAX, call_function(bench, question, function, used.is_none())).await {
            Ok(result) => {
                well_formed += 1;
                used = used.or(result);
            }
            Err(ClientError::ModelFailed(problem)) => problems.push(format!("{question} {problem}")),
            Err(error) => {
                let error = error.to_string();
                bench.ledger.add([Figure::failed("tools.well_formed", "share", WELL_FORMED_MIN, &error)]);
                return;
            }
        }
    }
    let note = match problems.first() {
        None => format!("{well_formed} of {count} calls"),
        Some(first) => format!("{well_formed} of {count} calls; {first}"),
    };
    let share = f64::from(well_formed) / count as f64;
    let mut figures =
        vec![Figure::measured("tools.well_formed", share, "share", WELL_FORMED_MIN).with_note(&note)];
    if let Some(answer) = used {
        let is_used = answer.to_lowercase().contains(RESULT.1);
        let value = if is_used { 1.0 } else { 0.0 };
        figures.push(Figure::measured("tools.result_used", value, "", USED_MIN).with_note(&answer));
    }
    bench.ledger.add(figures);
}

fn functions() -> Value {
    json!([
        {"type": "function", "name": "get_weather", "description": "Says the weather of a city.", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
        {"type": "function", "name": "set_timer", "description": "Sets a timer.", "parameters": {
            "type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]}},
    ])
}

/// Asks a question in a new session. If wanted, answers the call and returns what the model says then.
///
/// # Errors
/// [`ClientError::ModelFailed`] if the call is not well formed.
async fn call_function(
    bench: &Bench<'_>,
    question: &str,
    function: &str,
    wants_answer: bool,
) -> Result<Option<String>, ClientError> {
    let settings = json!({
        "instructions": "You are a helpful assistant. Call a function when one fits.",
        "output_modalities": ["text"], "tools": functions(), "tool_choice": "auto",
    });
    let mut client = Realtime::open(bench, settings).await?;
    let asked = async {
        client.add_message(question).await?;
        let answer = client.request_answer().await?;
        let id = check_call(&answer, function).map_err(ClientError::ModelFailed)?;
        if !wants_answer {
            return Ok(None);
        }
        let (result, _) = RESULT;
        client.add_item(&json!({"type": "function_call_output", "call_id": id, "output": result})).await?;
        Ok(Some(client.request_answer().await?.words))
    };
    let result: Result<Option<String>, ClientError> = asked.await;
    client.hang_up().await;
    // The model's mistake, and not the server's failure.
    result.map_err(|error| match error {
        ClientError::Server { code, message } if code == "response failed" => {
            ClientError::ModelFailed(message)
        }
        error => error,
    })
}

/// Checks the call of an answer, and returns its id.
fn check_call(answer: &Answer, function: &str) -> Result<String, String> {
    let [id, name, arguments] =
        answer.calls.first().ok_or_else(|| format!("was answered without a call: {}", answer.words))?;
    if name != function {
        return Err(format!("called {name}, not {function}"));
    }
    let read: Value = serde_json::from_str(arguments).map_err(|error| format!("{arguments}: {error}"))?;
    let is_right = match function {
        "get_weather" => read["city"].as_str().is_some_and(|city| !city.is_empty()),
        _ => read["minutes"].is_u64(),
    };
    if is_right { Ok(id.clone()) } else { Err(format!("called {name} with {arguments}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_checked_by_name_and_arguments() {
        let check = |calls: &[[&str; 3]]| {
            let calls = calls.iter().map(|call| call.map(str::to_owned)).collect();
            check_call(&Answer { calls, words: "Hm.".to_owned(), ..Answer::default() }, "set_timer")
        };
        assert_eq!(check(&[["a", "set_timer", r#"{"minutes": 5}"#]]), Ok("a".to_owned()));
        for (calls, problem) in [
            (&[][..], "without a call: Hm."),
            (&[["a", "get_weather", "{}"]], "called get_weather, not set_timer"),
            (&[["a", "set_timer", r#"{"minutes": "5"}"#]], "with {\"minutes\""),
            (&[["a", "set_timer", "{"]], "EOF"),
        ] {
            let found = check(calls).unwrap_err();
            assert!(found.contains(problem), "{found}");
        }
    }
}
