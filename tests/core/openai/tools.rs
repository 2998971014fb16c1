//! Tools of OpenAI's clients: calls and results, choices, mistakes of the model, interruptions, and what is spoken.

use super::*;

const CALL: &str =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";

fn weather() -> Value {
    json!({"type": "function", "name": "get_weather", "description": "Says the weather.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}})
}

fn clock() -> Value {
    json!({"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}})
}

pub(super) fn config_with(answers: &[&str]) -> HarnessConfig {
    config("model=gpt-realtime").answers(answers)
}

/// A client with two tools, whose model gives these answers.
fn connect(answers: &[&str]) -> Realtime {
    connect_with(config_with(answers))
}

fn connect_with(config: HarnessConfig) -> Realtime {
    let mut client = Realtime::with_config(config);
    client.update(&json!({"type": "realtime", "tools": [weather(), clock()], "tool_choice": "auto"}));
    assert_eq!(client.of_type("error").len(), 0);
    client
}

fn give_result(client: &mut Realtime, call_id: &Value, output: &str) {
    client.send(&json!({"type": "conversation.item.create", "item": {
        "type": "function_call_output", "call_id": call_id, "output": output}}));
}

/// The chat turns of a client, without those that speak a given text: their messages, and whether they ask for speech.
pub(super) fn questions(client: &Realtime) -> Vec<(Vec<Value>, bool)> {
    let sent = client.harness.sent_containing("length_penalty").into_iter();
    let sent = sent.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let is_answer = |message: &Value| message["input"]["generation"]["length_penalty"] == 1.1;
    let parts = |message: Value| {
        let speaks = message["input"]["tts"]["enabled"] == true;
        (message["input"]["messages"].as_array().unwrap().clone(), speaks)
    };
    sent.filter(is_answer).map(parts).collect()
}

/// Texts of a message, joined as the server joins them.
pub(super) fn text_of(message: &Value) -> String {
    if let Some(text) = message["content"].as_str() {
        return text.to_owned();
    }
    let parts = message["content"].as_array().unwrap().iter();
    parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Texts that the upstream was asked to read aloud.
pub(super) fn spoken(client: &Realtime) -> Vec<String> {
    let sent = client.harness.sent_containing("请朗读以下内容");
    let text = |message: &&str| {
        let message: Value = serde_json::from_str(message).unwrap();
        let last = message["input"]["messages"].as_array().unwrap().last().unwrap().clone();
        text_of(&last).replace("请朗读以下内容。", "").trim().to_owned()
    };
    sent.iter().map(text).collect()
}

/// Nothing of a call is in the words of any response, nor was it spoken.
fn assert_unheard(client: &Realtime) {
    for (_, event) in &client.events {
        let kind = event["type"].as_str().unwrap();
        if kind.contains("transcript") || kind.contains("output_text") || kind.contains("content_part") {
            let words = event.to_string();
            assert!(!words.contains("tool_call") && !words.contains("get_weather"), "{words}");
        }
    }
    for words in spoken(client) {
        assert!(!words.contains("tool") && !words.contains("get_weather"), "{words}");
    }
}

fn types_from(client: &Realtime, first: &str) -> Vec<String> {
    let types = client.types();
    let at = types.iter().rposition(|kind| *kind == first).unwrap();
    types[at..].iter().map(|kind| (*kind).to_owned()).collect()
}

#[test]
fn call_comes_in_openais_order_and_its_result_is_spoken() {
    let mut client = connect(&[CALL, "It is sunny in Rome. Take a hat."]);
    let done = client.answer("How is it in Rome?");
    assert_eq!(
        types_from(&client, "response.created"),
        [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
            "rate_limits.updated",
        ]
    );
    let item = &done["output"][0];
    assert_eq!((&done["status"], done["output"].as_array().unwrap().len()), (&json!("completed"), 1));
    assert_eq!((&item["type"], &item["name"]), (&json!("function_call"), &json!("get_weather")));
    assert_eq!((&item["arguments"], &item["status"]), (&json!("{\"city\": \"Rome\"}"), &json!("completed")));
    let arguments = &client.of_type("response.function_call_arguments.done")[0];
    assert_eq!((&arguments["call_id"], &arguments["item_id"]), (&item["call_id"], &item["id"]));
    assert_eq!((&arguments["name"], &arguments["output_index"]), (&json!("get_weather"), &json!(0)));
    let added = &client.of_type("response.output_item.added")[0]["item"];
    assert_eq!((&added["status"], &added["arguments"]), (&json!("in_progress"), &json!("")));

    let call_id = item["call_id"].clone();
    give_result(&mut client, &call_id, "{\"sky\": \"clear\"}");
    let done = client.respond();
    client.check();
    assert_unheard(&client);
    assert_eq!(done["output"][0]["content"][0]["transcript"], "It is sunny in Rome. Take a hat.");
    assert_eq!(spoken(&client).concat().replace(' ', ""), "ItissunnyinRome.Takeahat.");
    assert!(client.audio_s() > 1.0, "{} s", client.audio_s());

    let questions = questions(&client);
    assert!(questions.iter().all(|(_, speaks)| !speaks), "the model is asked silently");
    let system = text_of(&questions[0].0[0]);
    let line = "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"Says the weather.\", \"parameters\": {\"properties\": {\"city\"";
    assert!(system.starts_with("You are a helpful assistant.\n\n# Tools\n\nYou may call"), "{system}");
    assert!(system.contains(line) && system.ends_with("</tool_call>"), "{system}");
    let history = &questions[1].0;
    let roles: Vec<_> = history.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert_eq!(text_of(&history[2]), CALL, "as the model wrote it");
    assert_eq!(text_of(&history[3]), "<tool_response>\n{\"sky\": \"clear\"}\n</tool_response>");
}

#[test]
fn long_arguments_are_whole_in_every_event() {
    let city = "Rome and its seven hills, ".repeat(40);
    let call = CALL.replace("Rome", &city);
    let mut client = connect(&[&call]);
    client.ask("How is it there?");
    let arguments = client.wait_for("response.done")["response"]["output"][0]["arguments"].clone();
    let parsed: Value = serde_json::from_str(arguments.as_str().unwrap()).unwrap();
    assert_eq!(parsed, json!({"city": city}));
    let deltas = client.of_type("response.function_call_arguments.delta").into_iter();
    assert_eq!(deltas.map(|event| event["delta"].as_str().unwrap()).collect::<String>(), arguments);
    assert_eq!(client.of_type("response.function_call_arguments.done")[0]["arguments"], arguments);
    assert_eq!(client.of_type("response.output_item.done")[0]["item"]["arguments"], arguments);
    assert_eq!(client.of_type("conversation.item.done").last().unwrap()["item"]["arguments"], arguments);
}

#[test]
fn beta_shape_has_calls_too() {
    let mut config = config_with(&[CALL]);
    config.query = "model=gpt-realtime&shape=beta".to_owned();
    let mut client = Realtime::with_config(config);
    client.update(&json!({"modalities": ["text", "audio"], "tools": [weather()]}));
    client.answer("How is it in Rome?");
    assert_eq!(
        types_from(&client, "response.created")[..6],
        [
            "response.created",
            "response.output_item.added",
            "conversation.item.created",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        ]
    );
}

#[test]
fn spoken_question_is_answered_by_the_simulated_models_own_call() {
    let mut config = config_with(&[]);
    config.simulator.use_engines = true;
    config.engines = Some(|request| match request {
        EngineRequest::Recognise(_) => EngineAnswer::Transcript(Ok("What is the weather in Rome".to_owned())),
        EngineRequest::Speak(text) => EngineAnswer::Speech(Ok(vec![0.1; text.len() * 1500])),
    });
    let mut client = connect_with(config);
    client.say_question();
    let done = client.wait_for("response.done");
    let call = &done["response"]["output"][0];
    assert_eq!((&call["name"], &call["arguments"]), (&json!("get_weather"), &json!("{\"city\":\"Rome\"}")));
    let call_id = call["call_id"].clone();
    give_result(&mut client, &call_id, "sunny");
    client.respond();
    client.check();
    assert_eq!(
        client.of_type("response.output_audio_transcript.done")[0]["transcript"],
        "The tool says sunny."
    );
}

#[test]
fn parallel_calls_are_items_of_their_own_and_only_the_first_is_kept_without() {
    let two = format!("{CALL}\n<tool_call>\n{{\"name\": \"get_time\", \"arguments\": {{}}}}\n</tool_call>");
    for (is_parallel, expected) in [(true, vec!["get_weather", "get_time"]), (false, vec!["get_weather"])] {
        let mut client = connect(&[&two, "Done."]);
        client.update(&json!({"parallel_tool_calls": is_parallel}));
        let done = client.answer("How is it in Rome, and when?");
        client.check();
        let output = done["output"].as_array().unwrap();
        let names: Vec<_> = output.iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!(names, expected);
        let ids: BTreeSet<_> =
            output.iter().flat_map(|item| [item["id"].to_string(), item["call_id"].to_string()]).collect();
        assert_eq!(ids.len(), 2 * expected.len(), "ids are unique");
        let asked = text_of(&questions(&client)[0].0[0]);
        assert_eq!(asked.contains("Call at most one function."), !is_parallel);
        for (at, item) in output.iter().enumerate() {
            assert_eq!(client.of_type("response.output_item.added")[at]["output_index"], at);
            give_result(&mut client, &item["call_id"].clone(), "noon");
        }
        client.respond();
        let history = &questions(&client)[1].0;
        assert_eq!(text_of(&history[2]).matches("<tool_call>").count(), expected.len());
        assert_eq!(text_of(&history[3]).matches("<tool_response>").count(), expected.len());
    }
}

#[test]
fn mistake_in_a_second_call_costs_the_first_nothing() {
    let two = format!("{CALL}\n<tool_call>{{\"name\": \"fly\"}}</tool_call>");
    for (is_parallel, questions_asked) in [(true, 2), (false, 1)] {
        let time = format!("{CALL}\n<tool_call>{{\"name\": \"get_time\"}}</tool_call>");
        let mut client = connect(&[&two, &time]);
        client.update(&json!({"parallel_tool_calls": is_parallel}));
        let done = client.answer("How is it in Rome, and when?");
        client.check();
        let asked = questions(&client);
        assert_eq!(
            (asked.len(), done["output"].as_array().unwrap().len()),
            (questions_asked, questions_asked)
        );
        assert_eq!(done["output"][0]["name"], "get_weather");
        let last = text_of(asked.last().unwrap().0.last().unwrap());
        assert_eq!(last.contains("Answer again, with all function calls."), is_parallel, "{last}");
    }
    let mut client = connect(&[&CALL.repeat(40)]);
    client.update(&json!({"parallel_tool_calls": false}));
    let done = client.answer("How is it in Rome?");
    assert_eq!((&done["status"], done["output"].as_array().unwrap().len()), (&json!("completed"), 1));
}

#[test]
fn words_before_a_call_are_heard_before_it() {
    let answer = format!("Let me look. {CALL}");
    let mut client = connect(&[&answer]);
    let done = client.answer("How is it in Rome?");
    client.check();
    assert_unheard(&client);
    assert_eq!(done["output"][0]["content"][0]["transcript"], "Let me look.");
    assert_eq!((&done["output"][1]["type"], &done["status"]), (&json!("function_call"), &json!("completed")));
    let types = client.types();
    let at = |kind: &str| types.iter().position(|found| *found == kind).unwrap();
    assert!(at("response.output_audio_transcript.done") < at("response.function_call_arguments.delta"));
    assert_eq!(client.of_type("response.function_call_arguments.done")[0]["output_index"], 1);
}

#[test]
fn text_answers_are_text_and_are_not_spoken() {
    let mut client = connect(&["It is sunny.", CALL]);
    client.update(&json!({"output_modalities": ["text"]}));
    client.answer("How is it?");
    assert_eq!(client.of_type("response.output_text.done")[0]["text"], "It is sunny.");
    client.ask("How is it in Rome?");
    let done = client.wait_for("response.done");
    client.check();
    assert_eq!(done["response"]["output"][0]["name"], "get_weather");
    assert!(spoken(&client).is_empty() && client.audio_s() == 0.0);
}

#[test]
fn required_and_named_calls_are_demanded_and_words_are_asked_again() {
    for (choice, demand) in [
        (json!("required"), "Answer with a function call, not with words."),
        (json!({"type": "function", "name": "get_weather"}), "a call of the function get_weather"),
    ] {
        let mut client = connect(&["It is sunny.", CALL]);
        client.send(&json!({"type": "response.create", "response": {"tool_choice": choice}}));
        let done = client.wait_for("response.done")["response"].clone();
        client.check();
        assert_has(&done, json!({"/status": "completed", "/output/0/name": "get_weather"}));
        assert_eq!(done["output"].as_array().unwrap().len(), 1, "words in place of a call are dropped");
        assert!(spoken(&client).is_empty());
        let questions = questions(&client);
        assert!(text_of(&questions[0].0[0]).contains(demand), "{}", questions[0].0[0]);
        let repair = text_of(questions[1].0.last().unwrap());
        assert!(repair.contains("It must call"), "{repair}");
    }
    let time = "<tool_call>{\"name\": \"get_time\"}</tool_call>";
    let mut client = connect(&[time, time]);
    let choice = json!({"type": "function", "name": "get_weather"});
    client.send(&json!({"type": "response.create", "response": {"tool_choice": choice}}));
    let done = client.wait_for("response.done")["response"].clone();
    assert_eq!((&done["status"], &done["output"]), (&json!("failed"), &json!([])));
    let message = done["status_details"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("It must call the function get_weather."), "{message}");
}

#[test]
fn json_that_is_no_call_is_an_answer_in_words() {
    let json = "{\"topic\":\"billing\"}";
    let own_history = json!({"conversation": "none", "output_modalities": ["text"], "tools": [], "input": [
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"}]});
    for response in [
        json!({"conversation": "none", "output_modalities": ["text"], "instructions": "Answer with JSON."}),
        json!({"output_modalities": ["text"], "tool_choice": "none"}),
        own_history,
    ] {
        let mut client = connect(&[json]);
        client.send(&json!({"type": "response.create", "response": response}));
        let done = client.wait_for("response.done")["response"].clone();
        client.check();
        assert_has(&done, json!({"/status": "completed", "/output/0/content/0/text": json}));
    }
}

#[test]
fn no_tool_is_offered_with_choice_none_and_a_call_is_not_heard() {
    let mut client = connect(&["Just words.", &format!("Well. {CALL}"), CALL, "Words again."]);
    client.update(&json!({"tool_choice": "none"}));
    for words in ["Just words.", "Well.", "Words again."] {
        let done = client.answer("How is it in Rome?");
        assert_eq!(done["output"].as_array().unwrap().len(), 1);
        assert_eq!(done["output"][0]["content"][0]["transcript"], words);
    }
    client.check();
    assert_unheard(&client);
    assert!(client.audio_s() > 1.0 && spoken(&client).is_empty(), "text and speech come together");
    for (messages, speaks) in questions(&client).iter().take(2) {
        assert!(*speaks && !text_of(&messages[0]).contains("tools"), "{messages:?}");
    }
}

#[test]
fn mistake_is_repaired_by_a_second_question() {
    let wrong = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"town\": \"Rome\"}}\n</tool_call>";
    let mut client = connect(&[wrong, CALL]);
    let done = client.answer("How is it in Rome?");
    client.check();
    assert_has(&done, json!({"/status": "completed", "/output/0/arguments": "{\"city\": \"Rome\"}"}));
    assert_eq!(client.of_type("response.function_call_arguments.delta").len(), 1);
    let repair = &questions(&client)[1].0;
    let roles: Vec<_> = repair.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert_eq!(text_of(&repair[2]), wrong);
    assert!(text_of(&repair[3]).contains("get_weather: arguments must have \"city\"."), "{}", repair[3]);
}

/// The words of a transcript, without its white space.
fn words_of(done: &Value) -> Vec<String> {
    let words = done["output"][0]["content"][0]["transcript"].as_str().unwrap_or_default();
    words.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn words_in_place_of_a_repaired_call_follow_those_before_the_mistake() {
    let wrong = "Let me check. <tool_call>{bad}</tool_call>";
    let mut client = connect(&[wrong, "I need the day as well. Which day?"]);
    let done = client.answer("How is it in Rome?");
    client.check();
    assert_eq!(done["status"], "completed");
    assert_eq!(words_of(&done).join(" "), "Let me check. I need the day as well. Which day?");
    assert!(spoken(&client).concat().contains("Which day"), "{:?}", spoken(&client));
    let mut client = connect(&[wrong, &format!("Let me check. {CALL}")]);
    let done = client.answer("How is it in Rome?");
    assert_eq!(
        (words_of(&done).join(" "), &done["output"][1]["name"]),
        ("Let me check.".to_owned(), &json!("get_weather"))
    );
}

#[test]
fn lane_that_fails_on_the_second_question_costs_no_words() {
    for modality in ["text", "audio"] {
        let mut config = config_with(&["Let me check. <tool_call>{bad}</tool_call>", CALL, CALL]).workers(3);
        config.simulator.timing.first_delta = Duration::from_secs(1);
        let mut client = connect_with(config);
        client.update(&json!({"output_modalities": [modality]}));
        client.ask("How is it in Rome?");
        while questions(&client).len() < 2 {
            client.pass(100 * MS);
        }
        let lane = asked_lane(&client).unwrap();
        client.harness.break_lane(lane);
        let done = client.wait_for("response.done")["response"].clone();
        client.check();
        assert_eq!((&done["status"], questions(&client).len()), (&json!("completed"), 3), "{done}");
        let content = &done["output"][0]["content"][0];
        let words = content["text"].as_str().or(content["transcript"].as_str()).map(str::trim);
        assert_eq!((words, &done["output"][1]["name"]), (Some("Let me check."), &json!("get_weather")));
    }
}

#[test]
fn second_mistake_is_the_failed_response() {
    let mut client =
        connect(&["<tool_call>{broken", "<tool_call>{\"name\": \"fly\"}</tool_call>", "It is late."]);
    let done = client.answer("How is it in Rome?");
    assert_eq!((&done["status"], &done["output"]), (&json!("failed"), &json!([])));
    let error = &done["status_details"]["error"];
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("twice: There is no function \"fly\", only: get_weather, get_time."),
        "{message}"
    );
    assert!(client.of_type("error").is_empty(), "several clients end at an error");
    for observation in &client.harness.observations {
        let is_quoted = observation.to_string().contains("fly");
        assert!(!is_quoted || matches!(observation, Observation::ModelMistake(_)), "{observation}");
    }
    client.ask("What time is it?");
    let done = client.wait_for("response.done");
    client.check();
    assert_unheard(&client);
    assert_eq!(done["response"]["status"], "completed", "the session goes on");
    let history = questions(&client).last().unwrap().0.clone();
    assert!(!history.iter().any(|message| text_of(message).contains("broken")), "{history:?}");
}

#[test]
fn barge_in_during_the_question_cancels_it_and_its_call_never_comes() {
    let mut config = config_with(&[CALL, "Hello."]);
    config.simulator.timing.first_delta = Duration::from_secs(3);
    let mut client = connect_with(config);
    client.ask("How is it in Rome?");
    client.wait_for("response.created");
    client.say(&speech());
    let done = client.wait_for("response.done")["response"].clone();
    assert_eq!(done["status_details"]["reason"], "turn_detected");
    client.say_silence(900);
    client.wait_for("response.done");
    client.check();
    assert!(client.of_type("response.function_call_arguments.delta").is_empty());
    let history = questions(&client).last().unwrap().0.clone();
    assert!(!history.iter().any(|message| message["role"] == "assistant"), "{history:?}");
}

#[test]
fn barge_in_during_the_spoken_answer_keeps_what_was_heard() {
    let story = "One goes first. Two comes second here. Three is the third of them. Four follows after it. \
                 Five ends this long and winding story.";
    let mut client = connect(&[story, "Yes."]);
    client.ask("Tell me.");
    client.wait_for("response.output_audio.delta");
    client.say_silence(2500);
    client.say(&speech());
    let done = client.wait_for("response.done")["response"].clone();
    let item = &done["output"][0];
    assert_eq!((&done["status"], &item["status"]), (&json!("cancelled"), &json!("incomplete")));
    let stale = client.events.len();
    client.say_silence(900);
    client.wait_for("response.done");
    client.check();
    assert!(
        !client.events[stale..]
            .iter()
            .any(|(_, event)| event["item_id"] == item["id"] && event["delta"].is_string())
    );
    let history = questions(&client).last().unwrap().0.clone();
    let heard = text_of(&history[2]);
    assert!(story.starts_with(&heard) && heard.starts_with("One goes first.") && heard.len() < 70);
}

/// An upstream that speaks in real time has made little of a long sentence when it is interrupted.
#[test]
fn barge_in_within_a_long_sentence_keeps_the_words_that_were_heard() {
    let sentence = "one more of the many words that this sentence has to say ".repeat(5);
    let mut config = config_with(&[&format!("{}.", sentence.trim()), "Yes."]);
    config.simulator.timing.speech_second = Duration::from_secs(1);
    let mut client = connect_with(config);
    client.ask("Tell me.");
    client.wait_for("response.output_audio.delta");
    client.say_silence(2500);
    client.say(&speech());
    let done = client.wait_for("response.done")["response"].clone();
    assert_eq!(done["status"], "cancelled");
    client.say_silence(900);
    client.wait_for("response.done");
    client.check();
    let history = questions(&client).last().unwrap().0.clone();
    let heard = text_of(&history[2]);
    // A letter takes 60 ms at least.
    assert!(sentence.starts_with(&heard) && (20..100).contains(&heard.len()), "{heard:?}");
}

#[test]
fn upstream_failures_are_repeated_until_audio_was_heard() {
    let config = config_with(&["It is sunny in Rome. Take a hat with you."]);
    let mut client = connect_with(config.workers(2).faults(&["drop-mid-answer=1,times=1"]));
    let done = client.answer("How is it in Rome?");
    client.check();
    assert_eq!(done["status"], "completed");
    // The question was asked again, and the script has no second answer.
    assert!(done["output"][0]["content"][0]["transcript"].as_str().unwrap().len() > 5, "{done}");
    let config = config_with(&["It is sunny in Rome. Take a hat with you."]);
    let mut client = connect_with(config.faults(&["no-audio"]));
    let done = client.answer("How is it in Rome?");
    let words = &done["output"][0]["content"][0]["transcript"];
    assert_eq!((words.as_str(), client.audio_s()), (Some("It is sunny in Rome. Take a hat with you."), 0.0));
}

#[test]
fn out_of_band_response_has_tools_and_leaves_no_trace() {
    let mut client = connect(&[CALL, "Nothing special."]);
    client.update(&json!({"tools": []}));
    client.send(&json!({"type": "response.create", "response": {
        "conversation": "none", "tools": [weather()], "tool_choice": "required", "metadata": {"topic": "x"},
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rome?"}]},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{\"city\":\"Oslo\"}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"}]}}));
    let done = client.wait_for("response.done")["response"].clone();
    assert_has(&done, json!({"/metadata/topic": "x", "/output/0/name": "get_weather"}));
    assert!(client.of_type("conversation.item.added").is_empty());
    let asked = &questions(&client)[0].0;
    assert!(
        text_of(&asked[2]).contains(r#"{"city": "Oslo"}"#) && text_of(&asked[3]).contains("rain"),
        "{asked:?}"
    );
    client.answer("Hello.");
    client.check();
    assert!(!questions(&client)[1].0.iter().any(|message| text_of(message).contains("tool")));
}

#[test]
fn unknown_call_and_bad_tools_are_refused_in_openais_form() {
    let mut client = connect(&[]);
    give_result(&mut client, &json!("call_1"), "sunny");
    let error = client.wait_for("error")["error"].clone();
    assert_has(&error, json!({"/code": "invalid_tool_call_id", "/type": "invalid_request_error"}));
    assert_eq!(error["message"], "Tool call ID 'call_1' not found in conversation.");
    assert!(client.of_type("conversation.item.added").is_empty());
    client.send(
        &json!({"type": "conversation.item.create", "item": {"type": "function_call", "call_id": "call_1",
        "name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}}),
    );
    give_result(&mut client, &json!("call_1"), "sunny");
    assert_eq!(client.of_type("conversation.item.added").len(), 2, "a call of the client's own history");
    let many: Vec<_> = (0..129).map(|at| json!({"type": "function", "name": format!("f{at}")})).collect();
    let long = json!([{"type": "function", "name": "f", "description": "x".repeat(70_000)}]);
    for (session, param) in [
        (json!({"tools": many}), "session.tools"),
        (json!({"tools": long}), "session.tools"),
        (json!({"tools": [{"type": "function"}]}), "session.tools[0].name"),
        (json!({"tools": [{"type": "function", "name": "two words"}]}), "session.tools[0].name"),
        (json!({"tools": [weather(), weather()]}), "session.tools[1].name"),
        (
            json!({"tools": [{"type": "function", "name": "f", "parameters": []}]}),
            "session.tools[0].parameters",
        ),
        (json!({"tool_choice": {"type": "function", "name": "fly"}}), "session.tool_choice"),
        (json!({"tool_choice": "sometimes"}), "session.tool_choice"),
        (json!({"parallel_tool_calls": 1}), "session.parallel_tool_calls"),
    ] {
        let before = client.of_type("error").len();
        client.update(&session);
        let errors = client.of_type("error");
        assert_eq!(errors.len(), before + 1, "{session}");
        assert_eq!(errors[before]["error"]["param"], param);
    }
    client.ask("What is the weather in Rome?");
    let done = client.wait_for("response.done");
    assert_eq!(done["response"]["output"][0]["name"], "get_weather", "the tools are as before");
}

/// A profile that asks for calls with speech on.
pub(super) fn aloud(config: HarnessConfig) -> HarnessConfig {
    config.with_profile("aloud", "assistant", "[answer.tools]\nask = \"spoken\"\n")
}

#[test]
fn words_whose_audio_was_dropped_with_a_call_are_cut() {
    let words = "Let me look at the map of the city for a moment.";
    let mut client = connect_with(aloud(config_with(&[&format!("{words} {CALL}"), CALL, "Hello."])));
    let done = client.answer("How is it?");
    let audio_s = client.audio_s();
    client.answer("And now?");
    client.check();
    assert_unheard(&client);
    let history = questions(&client).last().unwrap().0.clone();
    let heard = text_of(&history[2]);
    let heard = heard.split("<tool_call>").next().unwrap().trim();
    assert!(words.starts_with(heard) && heard.len() < words.len(), "{heard:?}");
    let letters = heard.chars().filter(|letter| letter.is_alphanumeric()).count();
    assert!(audio_s >= letters as f64 * 0.06, "{heard:?} in {audio_s} s");
    assert_eq!(done["output"].as_array().unwrap().last().unwrap()["name"], "get_weather");
}

/// The transcript of a response, as its deltas and as its end say it.
fn assert_written(client: &Realtime, done: &Value, words: &str) {
    let deltas = client.of_type("response.output_audio_transcript.delta");
    let deltas: String = deltas.iter().map(|delta| delta["delta"].as_str().unwrap()).collect();
    let spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(spaced(&deltas), words, "the deltas");
    assert_eq!(words_of(done).join(" "), words, "the end");
}

#[test]
fn words_of_the_second_answer_are_written_although_the_first_ones_were_cut() {
    let first = "Let me look at the map of the city for a moment.";
    let second = "It is sunny.";
    let wrong = format!("{first} <tool_call>{{bad}}</tool_call>");
    let mut client = connect_with(aloud(config_with(&[&wrong, second, "Yes."])));
    let done = client.answer("How is it?");
    client.check();
    assert_eq!(done["status"], "completed");
    assert_written(&client, &done, &format!("{first} {second}"));
    client.answer("And now?");
    let history = questions(&client).last().unwrap().0.clone();
    assert!(history.iter().any(|message| text_of(message).contains(second)), "{history:?}");
}

#[test]
fn arguments_whose_check_takes_too_long_are_passed_on_with_a_note() {
    let values: Vec<String> = (0..800).map(|number| format!("{number:x}")).collect();
    let mut options = vec![json!({"enum": values}); 9];
    options.push(json!({"type": "integer"}));
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {"anyOf": options}}}});
    let call = format!(
        "<tool_call>{{\"name\": \"f\", \"arguments\": {{\"a\": [{}]}}}}</tool_call>",
        // The simulated model's answers are not longer.
        vec!["1"; 1900].join(",")
    );
    let mut client = Realtime::with_config(config_with(&[&call]));
    client.update(&json!({"type": "realtime", "output_modalities": ["text"], "tools": [
        {"type": "function", "name": "f", "parameters": schema}]}));
    let done = client.respond();
    assert_eq!((&done["status"], &done["output"][0]["type"]), (&json!("completed"), &json!("function_call")));
    let is_note = |observation: &&Observation| observation.to_string().contains("passed on unchecked");
    assert_eq!(client.harness.observations.iter().filter(is_note).count(), 1);
}

#[test]
fn audio_is_not_held_where_no_tool_is_offered() {
    let story = "one more of the many words that this sentence has to say ".repeat(5);
    let mut config = config_with(&[&story]);
    config.simulator.timing.speech_second = Duration::from_secs(1);
    let mut client = connect_with(config);
    client.update(&json!({"tool_choice": "none"}));
    client.ask("Tell me.");
    client.wait_for("response.output_audio.delta");
    client.pass(12_000 * MS);
    assert!(client.audio_s() > 10.0, "{} s", client.audio_s());
}

#[test]
fn named_choice_ends_with_its_tool() {
    let named = json!({"type": "function", "name": "get_weather"});
    let mut client = connect(&["Hello.", "Hello again."]);
    client.update(&json!({"tool_choice": named}));
    client.send(&json!({"type": "response.create", "response": {"tools": []}}));
    assert_eq!(client.wait_for("response.done")["response"]["status"], "completed");
    client.update(&json!({"tools": [clock()]}));
    let session = &client.of_type("session.updated").last().unwrap()["session"];
    assert_eq!((&session["tool_choice"], &session["tools"][0]["name"]), (&json!("auto"), &json!("get_time")));
    client.ask("Hello?");
    assert_eq!(client.wait_for("response.done")["response"]["status"], "completed");
    client.update(&json!({"tools": [clock()], "tool_choice": named}));
    client.check();
    assert_eq!(client.of_type("error")[0]["error"]["param"], "session.tool_choice");
}

/// Another session has the only worker when the answer's words should be spoken.
#[test]
fn answer_whose_speech_waits_for_a_worker_is_queued() {
    let mut config = config_with(&["It is sunny in Rome."]);
    config.simulator.timing.first_delta = Duration::from_secs(1);
    let mut client = connect_with(config);
    client.ask("How is it in Rome?");
    client.pass(500 * MS);
    assert_eq!(questions(&client).len(), 1);
    client.harness.inject_fault("stuck-queue");
    client.pass(3000 * MS);
    assert_eq!(spoken(&client).len(), 0);
    assert_eq!(client.harness.report().state, SessionState::Queued);
}

#[test]
fn history_without_a_system_message_begins_with_the_user() {
    let mut client = connect(&["Yes."]);
    client.update(&json!({"instructions": "", "tool_choice": "none", "output_modalities": ["text"]}));
    client.send(&json!({"type": "conversation.item.create", "item": {
        "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}}));
    client.answer("How is it?");
    let messages = &questions(&client)[0].0;
    assert_eq!((&messages[0]["role"], messages.len()), (&json!("user"), 1), "{messages:?}");
}

/// With speech on, PyTorch cannot write a call; the second question is silent.
#[test]
fn profile_that_asks_aloud_holds_audio_and_repairs_what_pytorch_suppresses() {
    let mut client = connect_with(aloud(config_with(&["It is sunny in Rome.", CALL, CALL])));
    client.ask("How is it?");
    let done = client.wait_for("response.done");
    assert_eq!(done["response"]["output"][0]["content"][0]["transcript"], "It is sunny in Rome.");
    assert!(client.audio_s() > 1.0 && spoken(&client).is_empty());
    let before = client.audio_s();
    client.ask("And in detail?");
    let done = client.wait_for("response.done");
    client.check();
    assert_unheard(&client);
    assert_eq!(done["response"]["output"][0]["name"], "get_weather");
    assert_eq!(client.audio_s(), before, "nothing of the call is heard");
    let speaks: Vec<_> = questions(&client).iter().map(|(_, speaks)| *speaks).collect();
    assert_eq!(speaks, [true, true, false]);
}

#[test]
fn calls_work_with_the_cpp_back_end() {
    let mut config = config_with(&[]);
    config.simulator.backend = Backend::Cpp;
    let mut client = connect_with(config);
    client.ask("What is the weather in Rome?");
    let done = client.wait_for("response.done");
    assert_eq!(done["response"]["output"][0]["arguments"], "{\"city\":\"Rome\"}");
}

#[test]
fn session_says_once_that_the_model_is_prompted() {
    let client = connect(&[]);
    let notes = client.harness.observations.iter().filter_map(|observation| match observation {
        Observation::Note(words) => Some(words.as_str()),
        _ => None,
    });
    let notes: Vec<_> = notes.collect();
    assert!(notes.len() == 1 && notes[0].contains("prompted, not trained"), "{notes:?}");
}

#[test]
fn deleted_call_is_forgotten_with_its_item() {
    let mut client = connect(&[CALL, "Hello."]);
    client.ask("How is it in Rome?");
    let call = client.wait_for("response.done")["response"]["output"][0].clone();
    client.send(&json!({"type": "conversation.item.retrieve", "item_id": call["id"]}));
    assert_eq!(client.of_type("conversation.item.retrieved")[0]["item"], call);
    client.send(&json!({"type": "conversation.item.delete", "item_id": call["id"]}));
    give_result(&mut client, &call["call_id"].clone(), "sunny");
    assert_eq!(client.of_type("error")[0]["error"]["code"], "invalid_tool_call_id");
    client.respond();
    client.pass(100 * MS);
    let history = questions(&client)[1].0.clone();
    assert!(!history.iter().any(|it| text_of(it).contains("<tool_call>") && it["role"] != "system"));
}
