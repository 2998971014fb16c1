//! Tools of the operator's servers: the model calls one, and the client hears the answer, whether or not its protocol has tools.

use super::{play::*, *};

const CALL: &str = r#"<tool_call>{"name": "light", "arguments": {"on": true}}</tool_call>"#;
const ANSWER: &str = "The light in the hall is on now, as you wished.";
const PROFILE: &str = "[answer.tools]\nmcp = [\"home\"]\nwaiting_words = \"One moment, please.\"\n";

/// A house whose light is switched on within this time.
fn house(config: &mut HarnessConfig, takes: Duration) {
    let parameters = json!({"type": "object", "properties": {"on": {"type": "boolean"}}}).to_string();
    let light = Tool { name: "light".to_owned(), description: None, parameters: parameters.into() };
    let (name, timeout) = ("home".to_owned(), Duration::from_secs(20));
    let servers = vec![ToolServer { name, timeout, calls_max: 2, tools: vec![light] }];
    let result = ServerCallResult { output: "light: on".to_owned(), pictures: Vec::new(), failure: None };
    config.tools = Some(ScriptedTools {
        servers,
        list: Box::new(|_| Ok(Vec::new())),
        takes,
        answer: Box::new(move |_| Some(result.clone())),
    });
    config.add_profile("served", "assistant", PROFILE);
    config.profile = "served";
    config.simulator.answers = [CALL, ANSWER, CALL, ANSWER].map(str::to_owned).to_vec();
}

#[test]
fn tool_of_a_server_is_called_for_every_client() {
    run(case::in_turns(), |checks| {
        let case = checks.case.clone();
        let Some(request) = Request::of(&case) else { return checks.gate() };
        for (takes, cell) in [(100, "a quick tool"), (2500, "a slow tool")] {
            let mut play = Play::with(&case, |config| house(config, Duration::from_millis(takes)));
            request.make(&mut play, "Switch the light on, please.");
            wait_for_silence(&mut play);
            let called: Vec<_> = play.harness.called.iter().map(|(_, call)| call.tool.as_str()).collect();
            let heard_s = play.heard_s();
            let is_answered = called == ["light"] && heard_s > 1.5;
            checks.that(cell, is_answered, || format!("{called:?}, {heard_s:.3} s heard; {}", play.story()));
        }
    });
}
