//! vLLM-Omni's own turn handler, and speech-to-speech's server, as upstreams of the profile `assistant`.

use super::*;

/// Every sample of the scripted answer, once and in order.
#[track_caller]
pub(super) fn assert_whole(audio: &[i16], samples: usize) {
    let spoken: Vec<usize> =
        audio.iter().filter_map(|sample| read_watermark(*sample)).map(|(_, at)| at).collect();
    assert_eq!(spoken.len(), samples);
    assert!(spoken.iter().enumerate().all(|(at, index)| at % 8190 == *index), "samples moved");
}

/// Roles and texts of the messages of a question, and the calls as the model sees them.
fn conversation(asked: &Value) -> Vec<String> {
    let text = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        content => content[0]["text"].as_str().unwrap_or("audio").to_owned(),
    };
    let messages = asked["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system");
    messages
        .map(|message| match &message["tool_calls"][0]["function"]["arguments"] {
            Value::String(arguments) => format!("call {arguments}"),
            _ => format!("{} {}", message["role"].as_str().unwrap(), text(message)),
        })
        .collect()
}

#[tokio::test]
async fn written_questions_are_answered_with_the_conversation_so_far() {
    let Some(server) = PackageServer::vllm_omni_turns(&[]) else { return };
    let bench = bench_at(server.address()).await;
    let mut client = openai_client(&bench, json!({"instructions": "Be brief."})).await;
    for question in ["First?", "Second?"] {
        let Answered { status, text, audio, calls } = ask(&mut client, question).await;
        assert_eq!((&*status, text.trim(), calls.len()), ("completed", "Part 1. Part 2. Part 3.", 0));
        assert_whole(&audio, 72_000);
    }
    let asked = server.record().await;
    assert_eq!(conversation(&asked[1]), ["user First?", "assistant Part 1. Part 2. Part 3.", "user Second?"]);
    let system = asked[1]["messages"][0].to_string();
    assert!(system.contains("Be brief.") && !system.contains("tool_call"), "{system}");
}

#[tokio::test]
async fn spoken_question_reaches_the_model_whole() {
    let Some(server) = PackageServer::vllm_omni_turns(&[]) else { return };
    let bench = bench_at(server.address()).await;
    let mut client = openai_client(&bench, json!({})).await;
    let said = recording("goforward");
    let answered = say(&mut client, &said).await;
    assert_eq!(answered.status, "completed");
    assert_whole(&answered.audio, 72_000);
    let heard = recorded_samples(&server.record().await[0]);
    let loud = heard.iter().filter(|sample| sample.unsigned_abs() > 500).count();
    let expected = said.iter().filter(|sample| sample.unsigned_abs() > 500).count() * 3 / 2;
    assert!(loud.abs_diff(expected) < expected / 10, "{loud} loud samples of {expected}");
}

#[tokio::test]
async fn tools_are_offered_and_called_natively_byte_for_byte() {
    const ARGUMENTS: &str = r#"{"city": "Z\u00fcrich",  "days":1.0}"#;
    let Some(server) = PackageServer::vllm_omni_turns(&[]) else { return };
    let call = json!({"name": "get_weather", "arguments": ARGUMENTS});
    server.script(json!({"answers": [{"text": "", "call": call, "audio_ms": 0}]})).await;
    let bench = bench_at(server.address()).await;
    let mut client = openai_client(&bench, weather_tools()).await;
    let answered = ask(&mut client, "What is the weather in Zurich?").await;
    let [(call_id, arguments)] = &answered.calls[..] else { panic!("{answered:?}") };
    assert_eq!((&**arguments, &*answered.text, answered.audio.len()), (ARGUMENTS, "", 0));
    let result = r#"{"sky":  "clear"}"#;
    add_item(&mut client, &json!({"type": "function_call_output", "call_id": call_id, "output": result}))
        .await;
    assert_eq!(respond(&mut client).await.text.trim(), "Part 1. Part 2. Part 3.");
    let asked = server.record().await;
    assert_eq!(
        conversation(&asked[1]),
        ["user What is the weather in Zurich?".into(), format!("call {ARGUMENTS}"), format!("tool {result}")],
    );
    for question in &asked {
        assert_eq!(question["tools"][0]["function"]["name"], "get_weather");
        assert!(!question["messages"].to_string().contains("<tool_call>"), "the model is prompted, too");
    }
}

#[tokio::test]
async fn interrupted_answer_is_stopped_at_the_server_and_the_next_one_is_whole() {
    let Some(server) = PackageServer::vllm_omni_turns(&[]) else { return };
    server.script(json!({"pace_ms": 100})).await;
    let bench = bench_at(server.address()).await;
    let mut client = openai_client(&bench, json!({})).await;
    client
        .send_json(json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": "Tell me a story."}]}}))
        .await;
    client.send_json(json!({"type": "response.create"})).await;
    client.wait_for_event("response.output_audio.delta").await;
    client.send_json(json!({"type": "response.cancel"})).await;
    let done = client.wait_for_event("response.done").await;
    assert_eq!(done["response"]["status"], "cancelled");
    server.script(json!({"pace_ms": 1})).await;
    let answered = ask(&mut client, "And now?").await;
    assert_eq!(answered.status, "completed");
    assert_whole(&answered.audio, 72_000);
    let asked = server.record().await;
    assert_eq!((&asked[0]["is_aborted"], &asked[1]["is_aborted"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn interrupted_answer_stays_in_the_history_as_far_as_the_client_heard_it() {
    const STORY: &str = "One two three four five six seven eight nine ten eleven twelve.";
    let Some(server) = PackageServer::vllm_omni_turns(&[]) else { return };
    server.script(json!({"answers": [{"text": STORY}]})).await;
    let bench = bench_at(server.address()).await;
    let mut client = openai_client(&bench, json!({})).await;
    let question = json!({"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "Tell me a story."}]});
    add_item(&mut client, &question).await;
    client.send_json(json!({"type": "response.create"})).await;
    let delta = client.wait_for_event("response.output_audio.delta").await;
    let truncate = json!({"type": "conversation.item.truncate", "item_id": delta["item_id"], "content_index": 0,
        "audio_end_ms": 100});
    client.send_json(truncate).await;
    client.wait_for_event("conversation.item.truncated").await;
    client.send_json(json!({"type": "response.cancel"})).await;
    client.wait_for_event("response.done").await;
    assert_eq!(ask(&mut client, "And now?").await.status, "completed");
    let asked = conversation(server.record().await.last().unwrap());
    let heard = asked.iter().find_map(|line| line.strip_prefix("assistant ")).unwrap_or_default();
    assert!(STORY.starts_with(heard) && heard.len() < "One two three".len(), "{asked:?}");
    assert!(events(&client.received, "error").is_empty(), "{}", client.describe_received());
}

#[tokio::test]
async fn failed_answer_is_told_and_the_next_question_has_the_conversation() {
    let Some(server) = PackageServer::vllm_omni_turns(&[]) else { return };
    for fault in [json!({"fails_after": 2}), json!({"breaks_after": 2})] {
        let bench = bench_at(server.address()).await;
        let mut client = openai_client(&bench, json!({})).await;
        server.script(json!({"answers": [{"text": "One."}]})).await;
        ask(&mut client, "First?").await;
        server.script(json!({"answers": [fault]})).await;
        let broken = ask(&mut client, "Second?").await;
        let is_told = !events(&client.received, "error").is_empty();
        assert!(broken.status != "completed" || broken.audio.len() >= 72_000 || is_told, "{fault}");
        let answered = ask(&mut client, "Third?").await;
        assert_eq!(answered.status, "completed", "{fault}: {}", client.describe_received());
        assert_whole(&answered.audio, 72_000);
        let asked = server.record().await;
        let last = conversation(asked.last().unwrap());
        assert_eq!((&*last[0], &*last[1]), ("user First?", "assistant One."), "{fault}");
        assert_eq!(last.last().unwrap(), "user Third?", "{fault}");
    }
}

#[tokio::test]
async fn missing_tool_parser_is_told_to_the_client() {
    let Some(server) = PackageServer::vllm_omni_turns(&["--no-tools"]) else { return };
    let bench = bench_at(server.address()).await;
    let mut client = openai_client(&bench, weather_tools()).await;
    ask(&mut client, "Weather?").await;
    let told =
        format!("{:?} {:?}", events(&client.received, "error"), events(&client.received, "response.done"));
    assert!(told.contains("failed") || told.contains("error"), "{told}");
}

#[tokio::test]
async fn speech_to_speech_answers_written_questions_and_calls_tools() {
    const ARGUMENTS: &str = r#"{"city":  "Rome"}"#;
    let Some(server) = PackageServer::speech_to_speech() else { return };
    let bench = bench_at(server.address()).await;
    let mut client = openai_client(&bench, weather_tools()).await;
    let answered = ask(&mut client, "First?").await;
    assert_eq!((&*answered.status, answered.text.trim()), ("completed", "Part 1. Part 2. Part 3."));
    assert!(answered.audio.len().abs_diff(72_000) < 480, "{}", answered.audio.len());
    let call = json!({"name": "get_weather", "arguments": ARGUMENTS});
    server.script(json!({"answers": [{"text": "", "call": call}]})).await;
    let answered = ask(&mut client, "What is the weather in Rome?").await;
    let [(call_id, arguments)] = &answered.calls[..] else { panic!("{answered:?}") };
    assert_eq!(arguments, ARGUMENTS);
    add_item(&mut client, &json!({"type": "function_call_output", "call_id": call_id, "output": "sunny"}))
        .await;
    assert_eq!(respond(&mut client).await.status, "completed");
}

#[tokio::test]
async fn speech_to_speech_gets_a_spoken_question_as_an_item() {
    let Some(server) = PackageServer::speech_to_speech() else { return };
    let bench = bench_at(server.address()).await;
    let mut client = openai_client(&bench, json!({})).await;
    let said = recording("goforward");
    let answered = say(&mut client, &said).await;
    assert_eq!((&*answered.status, answered.text.trim()), ("completed", "Part 1. Part 2. Part 3."));
    let asked = server.record().await;
    let part = &asked[0]["items"][0]["content"][0];
    assert_eq!(part["type"], "input_audio", "{}", asked[0]["items"][0]["content"]);
    let heard_s = part["audio"].as_str().unwrap().len() as f64 * 3.0 / 4.0 / 48_000.0;
    let said_s = said.len() as f64 / 16_000.0;
    assert!((said_s - 1.5..said_s + 1.5).contains(&heard_s), "{heard_s} s of {said_s} s");
}

#[tokio::test]
async fn turn_deployment_transcribes_and_speaks_by_answers() {
    let Some(server) = PackageServer::vllm_omni_turns(&[]) else { return };
    let bench = bench_at(server.address()).await;
    let mut client = bench.client("model=x").await;
    for _ in 0..2 {
        client.send_json(json!({"type": "tts.speak", "text": "This is spoken. And more."})).await;
        client.wait_for_event("tts.speaking_end").await;
        client.send_utterance(&recording("goforward")).await;
        let words = client.wait_for_event("transcript.final").await;
        assert_eq!(words["text"].as_str().unwrap().trim(), "Part 1. Part 2. Part 3.");
    }
    let frames = client.close().await;
    assert!(events(&frames, "error").is_empty(), "{frames:?}");
    let asked: Vec<_> = server.record().await.iter().map(conversation).collect();
    for asked in &asked {
        assert_eq!(asked.len(), 1, "a transcript or a text has no conversation: {asked:?}");
    }
    assert!(asked.iter().any(|asked| asked[0] == "user audio"), "{asked:?}");
    assert!(asked.iter().any(|asked| asked[0].contains("This is spoken.")), "{asked:?}");
}

/// The server has four places, and keeps those of sessions without a goodbye for 30 s.
#[tokio::test]
async fn qwen3_omni_on_the_duplex_endpoint_answers_committed_turns() {
    let Some(server) = PackageServer::vllm_omni_plugin("qwen3") else { return };
    let bench = bench_at(server.address()).await;
    let mut client = openai_client(&bench, json!({})).await;
    let said = recording("goforward");
    for number in 0..6 {
        let answered = match number % 2 {
            0 => ask(&mut client, "And now?").await,
            _ => say(&mut client, &said).await,
        };
        assert_eq!(answered.status, "completed", "{number}: {}", client.describe_received());
        assert_eq!(answered.text.trim(), "Part 1. Part 2. Part 3.", "{number}");
        assert_eq!(answered.audio.len(), 72_000, "{number}");
    }
    assert!(events(&client.received, "error").is_empty(), "{}", client.describe_received());
    let heard = recorded_samples(&server.record().await[1]);
    assert!(heard.len() > said.len() / 2, "{} of {} samples", heard.len(), said.len());
}

#[tokio::test]
async fn models_of_the_duplex_endpoint_that_answer_turns_are_found() {
    let qwen = PackageServer::vllm_omni_plugin("qwen3");
    let [Some(qwen), Some(personaplex), Some(minicpm)] =
        [qwen, PackageServer::vllm_omni_plugin("personaplex"), PackageServer::vllm_omni_next(&[])]
    else {
        return;
    };
    for (server, model, dialect) in [
        (&qwen, None, "openai-realtime"),
        (&qwen, Some("Qwen/Qwen3-Omni"), "openai-realtime"),
        (&personaplex, None, "vllm-omni"),
        (&minicpm, None, "vllm-omni"),
    ] {
        let url = format!("ws://{}", server.address());
        let model = model.map(str::to_owned);
        let upstream = vec![UpstreamConfig { url, model, ..UpstreamConfig::with_default_dialect() }];
        let mut config = Config { upstream, ..Config::default() };
        config.detect_dialects().await;
        assert_eq!(config.upstream[0].dialect, dialect, "{:?}", config.upstream[0].model);
    }
    // The sessions of the trials keep no place: the server has four. The URL's model opens a session before its settings are read.
    let model = Some("Qwen/Qwen3-Omni".to_owned());
    let upstream = vec![UpstreamConfig { model, ..realtime_upstream(qwen.address()) }];
    let bench = Bench::of(Config { upstream, ..Config::default() }).await;
    let mut client = openai_client(&bench, json!({})).await;
    for _ in 0..3 {
        assert_eq!(ask(&mut client, "And now?").await.status, "completed", "{}", client.describe_received());
    }
    let said = recording("goforward");
    assert_eq!(say(&mut client, &said).await.status, "completed", "{}", client.describe_received());
    let record = qwen.record().await;
    let heard = recorded_samples(record.last().unwrap()).len();
    assert!(heard > said.len() * 9 / 10, "{heard} of {} samples", said.len());
}

#[tokio::test]
async fn conversation_goes_on_with_its_history_when_the_servers_session_breaks() {
    let Some(server) = PackageServer::vllm_omni_turns(&[]) else { return };
    let upstream = vec![realtime_upstream(server.address())];
    let config = Config { profile: Some("conversation".into()), upstream, ..Config::default() };
    let bench = Bench::of(config).await;
    let mut client = bench.client("model=x").await;
    let question = recording("goforward");
    let ends_speech = |frame: &ClientFrame| frame.kind() == "tts.speaking_end";
    for (answer, errors) in [(json!("One."), 0), (json!({"breaks_after": 2}), 1), (json!("Three."), 1)] {
        server.script(json!({"answers": [answer]})).await;
        client.stream_until(&question, ends_speech).await;
        assert_eq!(events(&client.received, "error").len(), errors, "{answer}");
    }
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    let told = events(&frames, "error")[0].to_string();
    assert!(told.contains("it continues with the next upstream session"), "{told}");
    let asked = server.record().await;
    let system = asked.last().unwrap()["messages"][0].to_string();
    assert!(system.contains("The conversation so far") && system.contains("One."), "{system}");
}
