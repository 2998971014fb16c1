//! Sections `assistant` and `tools`: a spoken question to an assistant, and questions that need a function of the client.

use serde_json::{Value, json};

use super::bench::{Bench, EarlyEnd, at_most, sound_file, unmeasured};
use crate::{
    cli::{
        ClientError,
        realtime::{Answer, MODEL, Realtime, at_model_rate},
        stream_recording::end_of_audible_samples,
    },
    verify::figure::{Expectation, Figure},
};

/// Time limit of a question with its answer.
const QUESTION_MAX: std::time::Duration = std::time::Duration::from_secs(120);
/// From the user's last sound, seconds; the server waits for a second of silence, and may have to open a session.
const FIRST_AUDIO_MAX: f64 = 4.0;
const WORDS_MIN: Expectation = Expectation::AtLeast(1.0);
const AUDIO_MIN: Expectation = Expectation::AtLeast(0.5);
const FIRST_AUDIO: &str = "assistant.first_audio";
const WORDS: &str = "assistant.words";
const AUDIO: &str = "assistant.audio";
const WELL_FORMED: &str = "tools.well_formed";
const RESULT_USED: &str = "tools.result_used";
/// The model is prompted for calls, but not trained for them.
const WELL_FORMED_MIN: Expectation = Expectation::AtLeast(0.8);
/// Two results are given. The model may forget one.
const USED_MIN: Expectation = Expectation::AtLeast(0.5);

/// Section `assistant`.
pub(super) async fn run(bench: &mut Bench<'_>) {
    bench.warm_up_transcription().await;
    bench.warm_up_speech().await;
    let before = bench.openings();
    let asked = bench.within(QUESTION_MAX, ask_aloud(bench)).await;
    let openings = bench.openings().since(before);
    // A pause in the question may have begun an answer of its own.
    let limit = at_most(FIRST_AUDIO_MAX, openings.seconds);
    let figures = match asked {
        Ok(answer) => {
            let sound = sound_file(&answer.speech);
            let (words, seconds) =
                (answer.words.split_whitespace().count(), answer.speech.audible_duration().as_secs_f64());
            let note =
                format!("from the last sound of the question, with a second of silence{}", openings.note());
            let first_audio = match answer.latency {
                Some(latency) => {
                    Figure::measured(FIRST_AUDIO, latency.as_secs_f64(), "s", limit).with_note(&note)
                }
                None => Figure::failed(FIRST_AUDIO, "s", limit, "no audio came"),
            };
            vec![
                first_audio,
                Figure::measured(WORDS, words as f64, "", WORDS_MIN).with_note(&answer.words),
                Figure::measured(AUDIO, seconds, "s", AUDIO_MIN).with_sound(sound),
            ]
        }
        Err(error) => {
            let all = [(FIRST_AUDIO, "s", limit), (WORDS, "", WORDS_MIN), (AUDIO, "s", AUDIO_MIN)];
            all.map(|(name, unit, expected)| bench.unmeasured(name, unit, expected, &error)).into()
        }
    };
    bench.ledger.add(figures);
}

/// Opens a session with these settings.
async fn open(bench: &Bench<'_>, settings: Value) -> Result<Realtime, ClientError> {
    Realtime::open(bench.connect("", MODEL).await?, settings).await
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
    let mut client = open(bench, settings).await?;
    let answer = client.ask(&question, &[]).await;
    client.hang_up().await;
    answer
}

/// Questions, and the function that each needs.
const QUESTIONS: [(&str, &str); 8] = [
    ("What will the weather be in Rome?", WEATHER),
    ("Please set a timer for 5 minutes.", "set_timer"),
    ("Do I need an umbrella, or how is the weather in Oslo?", WEATHER),
    ("Start a timer of 12 minutes for the pasta.", "set_timer"),
    ("How is the weather in Cairo?", WEATHER),
    ("I want a timer for 3 minutes.", "set_timer"),
    ("Tell me about the weather in Lima.", WEATHER),
    ("A timer for 45 minutes, please.", "set_timer"),
];
const QUICK_QUESTIONS: usize = 4;
const WEATHER: &str = "get_weather";
/// Calls whose result is given to the model.
const RESULTS: usize = 2;
/// Result of the function. An answer that uses it has its number, whatever its words and its language are.
const RESULT: &str = r#"{"temperature_celsius": 23}"#;
const SPELLINGS_OF_RESULT: [&str; 4] = ["23", "twenty-three", "twenty three", "二十三"];

/// Section `tools`.
pub(super) async fn run_tools(bench: &mut Bench<'_>) {
    let count = if bench.plan.is_quick { QUICK_QUESTIONS } else { QUESTIONS.len() };
    let mut calls = Calls::default();
    for (question, function) in QUESTIONS.into_iter().take(count) {
        let wants_result = function == WEATHER && calls.results.len() < RESULTS;
        let called = bench.within(QUESTION_MAX, call_function(bench, question, function, wants_result)).await;
        match called {
            Ok(result) => {
                calls.well_formed += 1;
                calls.results.extend(result);
            }
            Err(ClientError::ModelFailed(problem)) if bench.early_end().is_none() => {
                calls.problems.push(format!("{question} {problem}"));
            }
            Err(error) => {
                calls.error = Some(error.to_string());
                break;
            }
        }
        calls.asked += 1;
    }
    let figures = calls.figures(bench.early_end());
    bench.ledger.add(figures);
}

/// The calls so far.
#[derive(Default)]
struct Calls {
    asked: usize,
    well_formed: usize,
    problems: Vec<String>,
    /// Answers of the model to the results of its calls.
    results: Vec<String>,
    /// Error that ended the questions early.
    error: Option<String>,
}

impl Calls {
    fn figures(&self, end: Option<EarlyEnd>) -> Vec<Figure> {
        let mut note = format!("{} of {} calls", self.well_formed, self.asked);
        for problem in self.problems.first().into_iter().chain(&self.error) {
            note.push_str(&format!("; {problem}"));
        }
        let well_formed = match self.error {
            Some(_) => unmeasured(end, WELL_FORMED, "share", WELL_FORMED_MIN, &note),
            None => {
                let share = self.well_formed as f64 / self.asked.max(1) as f64;
                Figure::measured(WELL_FORMED, share, "share", WELL_FORMED_MIN).with_note(&note)
            }
        };
        let used = self.results.iter().filter(|answer| uses_result(answer)).count();
        let result_used = match self.results.len() {
            0 => Figure::skipped(RESULT_USED, "no call of get_weather was well formed"),
            count => Figure::measured(RESULT_USED, used as f64 / count as f64, "share", USED_MIN)
                .with_note(&self.results.join(" | ")),
        };
        vec![well_formed, result_used]
    }
}

fn uses_result(answer: &str) -> bool {
    let answer = answer.to_lowercase();
    SPELLINGS_OF_RESULT.iter().any(|spelling| answer.contains(spelling))
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
    let mut client = open(bench, settings).await?;
    let asked = async {
        client.add_message(question).await?;
        let answer = client.request_answer().await?;
        let id = check_call(&answer, function).map_err(ClientError::ModelFailed)?;
        if !wants_answer {
            return Ok(None);
        }
        client.add_item(&json!({"type": "function_call_output", "call_id": id, "output": RESULT})).await?;
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
        WEATHER => read["city"].as_str().is_some_and(|city| !city.is_empty()),
        _ => read["minutes"].is_u64(),
    };
    if is_right { Ok(id.clone()) } else { Err(format!("called {name} with {arguments}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::figure::Verdict;

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

    #[test]
    fn result_counts_in_any_words_and_only_after_a_well_formed_call() {
        let used = |results: &[&str]| {
            let results = results.iter().map(|result| (*result).to_owned()).collect();
            let calls = Calls { asked: 4, well_formed: 3, results, ..Calls::default() };
            calls.figures(None).remove(1).verdict
        };
        assert_eq!(used(&["It is a warm day of 23 °C in Rome."]), Verdict::Pass);
        assert_eq!(used(&["罗马今天二十三度。"]), Verdict::Pass);
        assert_eq!(used(&["I do not know.", "Oslo has twenty-three degrees."]), Verdict::Pass);
        assert_eq!(used(&["It will be sunny.", "I cannot say."]), Verdict::Fail);
        assert_eq!(used(&[]), Verdict::Skipped);
    }

    #[test]
    fn error_after_some_calls_fails_and_keeps_their_count() {
        let error = Some("the connection was lost".to_owned());
        let calls = Calls { asked: 3, well_formed: 2, error, ..Calls::default() };
        let figures = calls.figures(None);
        assert_eq!(figures[0].verdict, Verdict::Fail);
        assert!(figures[0].note.contains("2 of 3 calls; the connection"), "{}", figures[0].note);
        assert_eq!(calls.figures(Some(EarlyEnd::TimeOver))[0].verdict, Verdict::Skipped);
    }
}
