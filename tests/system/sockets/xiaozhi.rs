//! xiaozhi devices over real sockets: the setup page, keys, headers, the three frame versions and the three modes.

use voxbridge_test_support::bench::request;

use super::*;

const PACKET_SAMPLES: usize = 960;
const DEVICE_ID: &str = "aa:bb:cc:dd:ee:ff";

struct Device {
    client: Client,
    encoder: OpusEncoder,
    version: u8,
}

impl Device {
    /// Connects as the firmware does and says hello.
    async fn connect(bench: &Bench, query: &str, version: u8) -> Self {
        let mut device = Self::dial(bench, query, version).await;
        let hello = device.greet("opus").await;
        assert_eq!(
            hello["audio_params"],
            json!({"format": "opus", "sample_rate": 24000, "channels": 1, "frame_duration": 60})
        );
        device
    }

    async fn dial(bench: &Bench, query: &str, version: u8) -> Self {
        let headers = format!(
            "Authorization: Bearer \r\nProtocol-Version: {version}\r\nDevice-Id: {DEVICE_ID}\r\n\
             Client-Id: 7b94d69a-9808-4c59-9c9b-704333b38aff\r\n"
        );
        let (head, client) = bench.open_websocket(&format!("/xiaozhi/v1/{query}"), &headers).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let encoder = OpusEncoder::new(16_000, 1, Application::Voip).unwrap();
        Self { client, encoder, version }
    }

    /// Says hello with audio of this format; returns the answer.
    async fn greet(&mut self, format: &str) -> Value {
        let hello = json!({
            "type": "hello", "version": self.version, "features": {"mcp": true}, "transport": "websocket",
            "audio_params": {"format": format, "sample_rate": 16000, "channels": 1, "frame_duration": 60},
        });
        self.client.send_json(hello).await;
        let answer = self.client.wait_for_event("hello").await;
        assert_eq!(answer["transport"], "websocket");
        answer
    }

    async fn listen(&mut self, members: Value) {
        let mut message = json!({"session_id": "", "type": "listen"});
        message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        self.client.send_json(message).await;
    }

    /// A binary message of this type with the header of the device's version.
    fn framed(&self, kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = payload.len();
        let header = match self.version {
            2 => [&[0, 2, 0, kind, 0, 0, 0, 0, 0, 0, 0, 0][..], &(length as u32).to_be_bytes()].concat(),
            3 => [&[kind, 0][..], &(length as u16).to_be_bytes()].concat(),
            _ => Vec::new(),
        };
        [header.as_slice(), payload].concat()
    }

    fn packet(&mut self, samples: &[i16]) -> Message {
        let mut packet = [0; 1_500];
        let length = self.encoder.encode_s16(samples, samples.len(), &mut packet).unwrap();
        Message::binary(self.framed(0, &packet[..length]))
    }

    /// Sends an utterance and the silence that ends it, faster than real time.
    async fn send_utterance(&mut self) {
        for samples in [recording("goforward"), vec![0; 24_000]].concat().chunks_exact(PACKET_SAMPLES) {
            let packet = self.packet(samples);
            self.client.send(packet).await;
        }
    }

    /// Waits for `tts` with this state.
    async fn wait_for_state(&mut self, state: &str) {
        while self.client.wait_for_event("tts").await["state"] != state {}
    }

    /// The packets of audio that came, without their headers. Each lies between `start` and `stop`, has 60 ms, and the header of
    /// the device's version.
    #[track_caller]
    fn packets(&self) -> Vec<&[u8]> {
        let (mut is_speaking, mut packets) = (false, Vec::new());
        for frame in &self.client.received {
            match frame {
                ClientFrame::Event(event) if event["state"] == "start" => {
                    assert!(!std::mem::replace(&mut is_speaking, true), "a second start");
                }
                ClientFrame::Event(event) if event["state"] == "stop" => {
                    assert!(std::mem::take(&mut is_speaking), "a stop without a start");
                }
                ClientFrame::Audio(bytes) => {
                    assert!(is_speaking, "a packet that the device drops");
                    let header = self.framed(0, &[]).len();
                    let (_, packet) = bytes.split_at(header);
                    let expected = self.framed(0, packet);
                    // The time in the header of version 2 varies.
                    assert_eq!(
                        (&bytes[..8.min(header)], bytes.len()),
                        (&expected[..8.min(header)], expected.len())
                    );
                    assert_eq!(bytes[12.min(header)..], expected[12.min(header)..]);
                    assert_eq!(packet_samples(packet), Ok(2_880), "60 ms");
                    packets.push(packet);
                }
                _ => {}
            }
        }
        packets
    }

    fn states(&self) -> Vec<&str> {
        let states =
            events(&self.client.received, "tts").into_iter().map(|event| event["state"].as_str().unwrap());
        states.filter(|state| *state != "sentence_start").collect()
    }
}

async fn set_up(bench: &Bench, line: &str, headers: &str, body: &str) -> Value {
    let (head, answer) = request(bench, line, headers, body).await;
    assert!(head.starts_with("http/1.1 200 ") && head.contains("content-type: application/json"), "{head}");
    serde_json::from_str(&answer).unwrap()
}

#[tokio::test]
async fn setup_page_names_the_socket_and_echoes_the_version() {
    let bench = Bench::start().await;
    let device = format!("Device-Id: {DEVICE_ID}\r\nClient-Id: c\r\nActivation-Version: 1\r\n");
    let body = r#"{"version": 2, "application": {"name": "xiaozhi", "version": "1.8.2"}, "board": {"type": "bread"}}"#;
    let answer = set_up(&bench, "POST /xiaozhi/ota/", &device, body).await;
    assert_eq!(answer["firmware"], json!({"version": "1.8.2", "url": ""}));
    let url = "ws://voice.local:8000/xiaozhi/v1";
    assert_eq!(answer["websocket"], json!({"url": url, "token": "", "version": 1}));
    assert!(answer["server_time"]["timestamp"].as_u64() > Some(1_700_000_000_000), "milliseconds");
    assert_eq!(answer["server_time"]["timezone_offset"], 0);
    assert_eq!(answer.as_object().unwrap().len(), 3, "neither mqtt nor activation");

    let proxied =
        set_up(&bench, "POST /xiaozhi/ota?model=realtime", "X-Forwarded-Proto: https\r\n", "{}").await;
    assert_eq!(proxied["websocket"]["url"], "wss://voice.local:8000/xiaozhi/v1?model=realtime");
    for body in ["", "no json", r#"{"application": 5}"#] {
        let answer = set_up(&bench, "POST /xiaozhi/ota/", "", body).await;
        assert_eq!(answer["firmware"], json!({"version": "0.0.0", "url": ""}), "{body}");
    }
    let (head, text) = request(&bench, "GET /xiaozhi/ota/", "", "").await;
    assert!(head.starts_with("http/1.1 200 ") && text.contains(url), "{head} {text}");
    let (head, _) = request(&bench, "PUT /xiaozhi/ota/", "", "").await;
    assert!(head.starts_with("http/1.1 405 ") && head.contains("allow: get, post"), "{head}");
    let (head, _) = request(&bench, "POST /xiaozhi/ota/", "", &" ".repeat(70_000)).await;
    assert!(head.starts_with("http/1.1 413 "), "{head}");
}

#[tokio::test]
async fn allowed_pages_may_read_the_setup_page() {
    let config = configuration("[access]\norigins = [\"https://toy.example\"]\n");
    let bench = Bench::of(config).await;
    let asks = "Origin: https://toy.example\r\nAccess-Control-Request-Method: POST\r\n\
                Access-Control-Request-Headers: client-id,content-type,device-id\r\n";
    let (head, _) = request(&bench, "OPTIONS /xiaozhi/ota/", asks, "").await;
    assert!(head.starts_with("http/1.1 204 "), "{head}");
    let line = |head: &str, name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned).unwrap_or_default()
    };
    let allowed = line(&head, "access-control-allow-headers: ");
    for name in ["client-id", "content-type", "device-id"] {
        assert!(allowed.split(", ").any(|known| known == name), "{allowed}");
    }
    assert!(line(&head, "access-control-allow-methods: ").contains("post"), "{head}");
    let (answered, _) = request(&bench, "POST /xiaozhi/ota/", "Origin: https://toy.example\r\n", "{}").await;
    for head in [head, answered] {
        assert_eq!(line(&head, "access-control-allow-origin: "), "https://toy.example");
    }
    let (head, _) = request(&bench, "POST /xiaozhi/ota/", "Origin: https://else.example\r\n", "{}").await;
    assert!(head.starts_with("http/1.1 403 ") && !head.contains("access-control-allow-origin"), "{head}");
}

#[tokio::test]
async fn known_device_gets_its_key_and_strangers_get_none() {
    let dir = scratch("xiaozhi-keys");
    fs::write(dir.join("keys.toml"), "[[key]]\nname = \"kitchen\"\nkey = \"kitchen-k3y\"\n").unwrap();
    fs::write(dir.join("devices.toml"), "\"AA:BB:CC:DD:EE:FF\" = \"kitchen-k3y\"\n").unwrap();
    let (keys, devices) = (dir.join("keys.toml"), dir.join("devices.toml"));
    let toml = format!(
        "[access]\nkeys = {keys:?}\ndevice_keys = {devices:?}\nquery_parameter = \"authorization\"\n"
    );
    let bench = Bench::of(configuration(&toml)).await;
    let token = async |id: &str| {
        let answer = set_up(&bench, "POST /xiaozhi/ota/", &format!("Device-Id: {id}\r\n"), "{}").await;
        answer["websocket"]["token"].as_str().unwrap().to_owned()
    };
    assert_eq!(token(DEVICE_ID).await, "kitchen-k3y");
    assert_eq!(token("11:22:33:44:55:66").await, "");
    assert_eq!(set_up(&bench, "POST /xiaozhi/ota/", "", "{}").await["websocket"]["token"], "");
    let page = format!("Origin: https://evil.example\r\nDevice-Id: {DEVICE_ID}\r\n");
    assert_eq!(set_up(&bench, "POST /xiaozhi/ota/", &page, "{}").await["websocket"]["token"], "");
    for headers in ["", "Authorization: Bearer \r\n", "Authorization: Bearer wrong\r\n"] {
        let (head, _) = bench.open_websocket("/xiaozhi/v1/", headers).await;
        assert!(head.starts_with("HTTP/1.1 401 "), "{headers}: {head}");
    }
    // Browsers put the header into the query.
    let in_query = "/xiaozhi/v1/?authorization=Bearer+kitchen-k3y&device-id=a&client-id=b";
    for (path, headers) in [("/xiaozhi/v1/", "Authorization: Bearer kitchen-k3y\r\n"), (in_query, "")] {
        let (head, mut client) = bench.open_websocket(path, headers).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{path}: {head}");
        client.send_json(json!({"type": "hello"})).await;
        client.wait_for_event("hello").await;
    }
}

#[tokio::test]
async fn auto_mode_is_answered_in_every_frame_version() {
    let bench = Bench::start().await;
    let talk = async |version| {
        let mut device = Device::connect(&bench, "", version).await;
        device.listen(json!({"state": "start", "mode": "auto"})).await;
        device.send_utterance().await;
        device.wait_for_state("stop").await;
        assert_eq!(device.states(), ["start", "stop"]);
        assert!(device.packets().len() > 3, "version {version}");
        assert_eq!(events(&device.client.received, "stt").len(), 1, "version {version}");
        let is_sentence = |event: &&Value| event["state"] == "sentence_start" && event["text"] != "";
        assert!(events(&device.client.received, "tts").iter().any(is_sentence), "version {version}");
        // A device that closes says no goodbye.
        device.client.socket.close(None).await.unwrap();
        device.client.read_to_end().await;
    };
    tokio::join!(talk(1), talk(2), talk(3));
}

#[tokio::test]
async fn client_of_samples_gets_packets() {
    let bench = Bench::start().await;
    let mut device = Device::dial(&bench, "", 1).await;
    let hello = device.greet("pcm").await;
    assert_eq!(hello["audio_params"]["format"], "opus");
    device.listen(json!({"state": "start", "mode": "auto"})).await;
    device.client.send_utterance(&recording("goforward")).await;
    device.client.send_audio(&[0; 48_000], 1_920).await;
    device.wait_for_state("stop").await;
    assert!(device.packets().len() > 3);
}

#[tokio::test]
async fn malformed_messages_do_not_end_the_session() {
    let bench = Bench::start().await;
    let talk = async |version: u8| {
        let mut device = Device::connect(&bench, "", version).await;
        device.listen(json!({"state": "start", "mode": "auto"})).await;
        let whole = device.framed(0, &[1, 2, 3, 4]);
        let mut too_long = whole.clone();
        let at = if version == 2 { 15 } else { 3 };
        too_long[at] = 99;
        let wrong = [
            Vec::new(),
            whole[..3].to_vec(),
            too_long,
            device.framed(7, &[1, 2, 3]),
            device.framed(0, &[0x02, 252]),
            device.framed(0, &[]),
            device.framed(1, b"\xff"),
            device.framed(1, b"{"),
        ];
        for message in wrong {
            device.client.send(Message::binary(message)).await;
        }
        for text in [
            "no json",
            "[]",
            "{}",
            r#"{"type": "dance"}"#,
            r#"{"type": "listen"}"#,
            r#"{"type": "listen", "state": 5}"#,
        ] {
            device.client.send(Message::text(text)).await;
        }
        // JSON may come in a binary message.
        device.client.send(Message::binary(device.framed(1, br#"{"type": "hello"}"#))).await;
        device.client.wait_for_event("hello").await;
        device.send_utterance().await;
        device.wait_for_state("stop").await;
        assert!(device.packets().len() > 3, "version {version}");
    };
    tokio::join!(talk(2), talk(3));
}
