//! The device's own tools: listed by the Model Context Protocol, called by the model, and what a device may do wrong.

use super::*;

/// Pages of tools, as firmware lists them.
fn pages() -> Value {
    let number =
        json!({"type": "object", "properties": {"volume": {"type": "integer"}}, "required": ["volume"]});
    json!([
        {
            "tools": [{
                "name": "self.audio_speaker.set_volume", "description": "Sets the volume, 0 to 100.", "inputSchema": number,
            }],
            "nextCursor": "self.lamp.turn_on",
        },
        // A name that no model writes without mistakes is left out, and a name is offered once.
        {"tools": [{"name": "self.lamp.turn_on"}, {"name": "öffne die Tür"}, {"name": "self.lamp.turn_on"}]},
    ])
}

/// A device that answers as `main/mcp_server.cc` does.
struct Firmware {
    device: Device,
    pages: Value,
    answered: usize,
    /// Requests to the device.
    requests: Vec<Value>,
}

impl Firmware {
    fn start(pages: Value) -> Self {
        Self::with_config(HarnessConfig { profile: "assistant", ..HarnessConfig::default() }, pages)
    }

    fn with_config(config: HarnessConfig, pages: Value) -> Self {
        let mut firmware =
            Self { device: Device::with_config(config, 1), pages, answered: 0, requests: Vec::new() };
        firmware.answer_all(&json!({"content": [{"type": "text", "text": "true"}], "isError": false}));
        firmware
    }

    /// Answers what came since the last call. A call of a tool gets this result.
    fn answer_all(&mut self, called: &Value) {
        loop {
            let came: Vec<Value> =
                self.device.harness.events("mcp").into_iter().skip(self.answered).cloned().collect();
            if came.is_empty() {
                return;
            }
            for message in came {
                self.answered += 1;
                self.answer(&message["payload"], called);
            }
        }
    }

    fn answer(&mut self, request: &Value, called: &Value) {
        self.requests.push(request.clone());
        let result = match request["method"].as_str().unwrap() {
            "initialize" => json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}}),
            "tools/list" => {
                let cursor = request["params"]["cursor"].as_str().unwrap();
                self.pages[usize::from(!cursor.is_empty())].clone()
            }
            "tools/call" => called.clone(),
            _ => return,
        };
        // Firmware drops a request without a number.
        assert!(request["id"].is_u64(), "{request}");
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    fn send(&mut self, payload: &Value) {
        self.device.harness.send_json(&json!({"session_id": "", "type": "mcp", "payload": payload}));
    }

    fn ask(&mut self, text: &str) {
        self.device.listen(&json!({"state": "detect", "text": text}));
    }

    fn wait_for_requests(&mut self, count: usize) {
        let seen = self
            .device
            .harness
            .run_until(|harness| harness.events("mcp").len() >= count, Duration::from_secs(60));
        assert!(seen.is_some(), "{count} requests: {:?}", self.requests);
    }

    fn methods(&self) -> Vec<&str> {
        self.requests.iter().map(|request| request["method"].as_str().unwrap()).collect()
    }

    /// What the model says.
    fn sentences(&self) -> String {
        let said = self.device.harness.events("tts").into_iter().filter_map(|event| event["text"].as_str());
        said.collect::<Vec<_>>().join(" ")
    }
}

const LISTED: [&str; 4] = ["initialize", "notifications/initialized", "tools/list", "tools/list"];

#[test]
fn model_calls_a_tool_of_the_device_and_speaks_its_result() {
    for (result, spoken) in [
        (json!({"content": [{"type": "text", "text": "true"}], "isError": false}), "The tool says true."),
        (json!({"content": [{"type": "text", "text": "no lamp"}], "isError": true}), "no lamp"),
    ] {
        let mut firmware = Firmware::start(pages());
        assert_eq!(firmware.methods(), LISTED);
        assert_eq!(firmware.requests[3]["params"]["cursor"], "self.lamp.turn_on");

        firmware.ask("Set the volume to 30.");
        firmware.wait_for_requests(5);
        firmware.answer_all(&result);
        let call = &firmware.requests[4];
        assert_eq!(call["method"], "tools/call");
        let expected = json!({"name": "self.audio_speaker.set_volume", "arguments": {"volume": 30}});
        assert_eq!(call["params"], expected);
        firmware.device.wait_for_state("stop", 1);
        assert!(firmware.sentences().contains(spoken), "{}", firmware.sentences());
    }
}

#[test]
fn only_tools_that_the_model_can_write_are_offered_and_each_once() {
    let config = HarnessConfig { profile: "assistant", ..HarnessConfig::default() };
    let mut firmware = Firmware::with_config(config, pages());
    firmware.ask("Hello.");
    firmware.device.wait_for_state("stop", 1);
    let asked = firmware.device.harness.sent_containing("<tools>");
    assert_eq!(asked[0].matches("self.lamp.turn_on").count(), 1, "{}", asked[0]);
    assert!(!asked[0].contains("öffne"), "{}", asked[0]);
}

#[test]
fn profiles_without_tools_list_none() {
    let config = HarnessConfig { profile: "conversation", ..HarnessConfig::default() };
    assert_eq!(Firmware::with_config(config, pages()).requests, [] as [Value; 0]);
}

#[test]
fn mistakes_of_a_device_end_no_conversation() {
    for payload in [
        json!(null),
        json!("text"),
        json!({"id": 99, "result": {}}),
        json!({"id": 1, "error": {"code": -32601, "message": "no"}}),
        json!({"id": "1", "result": {"tools": 5}}),
        json!({"id": 3, "result": {"tools": [{"name": 5}, {}, 7], "nextCursor": 9}}),
    ] {
        let mut firmware = Firmware::start(json!([{"tools": []}]));
        firmware.send(&payload);
        firmware.ask("Set the volume to 30.");
        firmware.device.wait_for_state("stop", 1);
        assert_eq!(firmware.methods().last(), Some(&"tools/list"), "{payload}");
    }
}

#[test]
fn a_list_without_an_end_is_cut_off() {
    let page = json!({"tools": [{"name": "lamp"}], "nextCursor": "again"});
    let firmware = Firmware::start(json!([page, page]));
    assert_eq!(firmware.methods().iter().filter(|method| **method == "tools/list").count(), 32);
}

#[test]
fn user_who_speaks_again_is_answered_without_the_result() {
    let mut firmware = Firmware::start(pages());
    firmware.ask("Set the volume to 30.");
    firmware.wait_for_requests(5);
    firmware.ask("What is your name?");
    firmware.device.wait_for_state("stop", 1);
    let said = firmware.sentences();
    // The late result changes nothing.
    firmware.answer_all(&json!({"content": [{"type": "text", "text": "late"}]}));
    firmware.device.harness.advance(Duration::from_secs(20));
    assert_eq!(firmware.sentences(), said);
}
