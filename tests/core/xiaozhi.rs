//! A xiaozhi device in virtual time: packets of Opus both ways.

mod tools;

use opus_pure::{Application, OpusEncoder};
use voxbridge::audio::opus::packet_samples;

use super::*;

const PACKET: Duration = Duration::from_millis(60);
/// Packets that a device can hold.
const BUFFER_PACKETS: usize = 40;

struct Device {
    harness: Harness,
    encoder: OpusEncoder,
    version: u8,
}

impl Device {
    fn connect(profile: &'static str, version: u8) -> Self {
        Self::with_config(HarnessConfig { profile, ..HarnessConfig::default() }, version)
    }

    fn with_config(config: HarnessConfig, version: u8) -> Self {
        // As from the header Protocol-Version.
        let query = format!("version={version}");
        let config = HarnessConfig { client: "xiaozhi", query, ..config };
        let encoder = OpusEncoder::new(16_000, 1, Application::Voip).unwrap();
        let mut device = Self { harness: Harness::new(config), encoder, version };
        device.harness.send_json(&json!({
            "type": "hello", "version": version, "features": {"mcp": true}, "transport": "websocket",
            "audio_params": {"format": "opus", "sample_rate": 16000, "channels": 1, "frame_duration": 60},
        }));
        assert_eq!(device.harness.now(), Duration::ZERO, "the hello waits for nothing");
        let hello = device.harness.events("hello")[0].clone();
        assert_eq!(hello["transport"], "websocket");
        assert!(hello["session_id"].as_str().is_some_and(|id| !id.is_empty()), "{hello}");
        assert_eq!(
            hello["audio_params"],
            json!({"format": "opus", "sample_rate": 24000, "channels": 1, "frame_duration": 60})
        );
        device
    }

    fn listen(&mut self, members: &Value) {
        let mut message = json!({"type": "listen"});
        message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        self.harness.send_json(&message);
    }

    /// Sends speech in real time.
    fn say(&mut self, samples: &[i16]) {
        for frame in samples.chunks_exact(960) {
            let mut packet = [0; 1500];
            let length = self.encoder.encode_s16(frame, frame.len(), &mut packet).unwrap();
            let header = match self.version {
                2 => [&[0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &(length as u32).to_be_bytes()].concat(),
                3 => [&[0, 0][..], &(length as u16).to_be_bytes()].concat(),
                _ => Vec::new(),
            };
            self.harness.send_binary(&[&header, &packet[..length]].concat());
            self.harness.advance(PACKET);
        }
    }

    fn states(&self) -> Vec<&str> {
        let states = self.harness.events("tts").into_iter().map(|event| event["state"].as_str().unwrap());
        states.filter(|state| *state != "sentence_start").collect()
    }

    fn wait_for_state(&mut self, state: &str, count: usize) {
        let seen = self.harness.run_until(
            |harness| harness.events("tts").iter().filter(|event| event["state"] == state).count() >= count,
            Duration::from_secs(60),
        );
        assert!(seen.is_some(), "no {state}: {:?}", self.harness.names());
    }

    /// Checks that audio came between start and stop only, and plays it as a device does: it begins with the first packet of a
    /// turn and takes one each 60 ms. Returns the packets of each turn, how often none was left before the turn's last, and how
    /// often more than [`BUFFER_PACKETS`] were held.
    fn play(&self) -> (Vec<usize>, usize, usize) {
        let (mut is_speaking, mut ends, mut turns, mut dry, mut over) = (false, None, Vec::new(), 0, 0);
        for (at, frame) in &self.harness.log {
            match frame {
                ClientFrame::Event(event) if event["type"] == "tts" && event["state"] == "start" => {
                    assert!(!std::mem::replace(&mut is_speaking, true), "a second start");
                    ends = None;
                    turns.push(0);
                }
                ClientFrame::Event(event) if event["type"] == "tts" && event["state"] == "stop" => {
                    assert!(std::mem::take(&mut is_speaking), "a stop without a start");
                    assert!(ends.is_none_or(|end| end <= *at), "a stop before the end of playback");
                }
                ClientFrame::Binary(bytes) => {
                    assert!(is_speaking, "a packet that the device drops");
                    let header = [0, 16, 4][usize::from(self.version) - 1];
                    assert_eq!(packet_samples(&bytes[header..]), Ok(2_880), "60 ms at 48 kHz");
                    dry += usize::from(ends.is_some_and(|end| end <= *at));
                    let end = ends.map_or(*at, |end: Duration| end.max(*at)) + PACKET;
                    over += usize::from(end - *at > PACKET * BUFFER_PACKETS as u32);
                    ends = Some(end);
                    *turns.last_mut().unwrap() += 1;
                }
                _ => {}
            }
        }
        (turns, dry, over)
    }
}

#[test]
fn auto_mode_is_answered_with_every_frame_version() {
    for version in 1..=3 {
        let mut device = Device::connect("assistant", version);
        device.listen(&json!({"state": "start", "mode": "auto"}));
        device.say(&two_seconds());
        device.say(&zeros(1200));
        device.wait_for_state("stop", 1);
        assert_eq!(device.states(), ["start", "stop"]);
        let (packets, dry, over) = device.play();
        assert!(packets[0] > 3 && (dry, over) == (0, 0), "version {version}: {packets:?} {dry} {over}");
        assert_eq!(device.harness.events("stt").len(), 1, "{:?}", device.harness.names());
        assert!(device.harness.events("tts").iter().any(|event| event["state"] == "sentence_start"));
        assert_eq!(device.harness.events("hello").len(), 1);
        let frame = device.harness.log.iter().find_map(|(_, frame)| match frame {
            ClientFrame::Binary(bytes) => Some(bytes.clone()),
            _ => None,
        });
        let frame = frame.unwrap();
        match version {
            2 => assert_eq!(u32::from_be_bytes(frame[12..16].try_into().unwrap()) as usize, frame.len() - 16),
            3 => assert_eq!(u16::from_be_bytes(frame[2..4].try_into().unwrap()) as usize, frame.len() - 4),
            _ => {}
        }
    }
}

#[test]
fn words_of_the_user_come_in_full_duplex_if_the_route_asks_for_them() {
    let mut device = Device::with_config(HarnessConfig::transcribed_conversation(), 1);
    device.listen(&json!({"state": "start", "mode": "realtime"}));
    device.say(&zeros(3000));
    for _ in 0..2 {
        device.say(&two_seconds());
        device.say(&zeros(8000));
    }
    let words = device.harness.events("stt");
    assert_eq!(words.len(), 2, "{:?}", device.harness.names());
    assert!(words.iter().all(|event| event["text"].as_str().unwrap().starts_with("simulated transcript")));
    let order =
        ["stt", "tts"].map(|kind| device.harness.names().iter().position(|name| name == kind).unwrap());
    assert!(order.is_sorted(), "{:?}", device.harness.names());
}

#[test]
fn manual_mode_is_answered_when_the_button_is_released() {
    let mut device = Device::connect("assistant", 1);
    device.listen(&json!({"state": "start", "mode": "manual"}));
    device.say(&two_seconds());
    // A pause with the button held is part of the utterance.
    device.say(&zeros(2400));
    assert_eq!(device.states(), Vec::<&str>::new());
    device.listen(&json!({"state": "stop"}));
    device.wait_for_state("stop", 1);
    assert_eq!(device.states(), ["start", "stop"]);
}

#[test]
fn typed_text_is_answered_and_abort_stops_the_answer() {
    let mut device = Device::connect("assistant", 1);
    device.listen(&json!({"state": "detect", "text": "Tell me a story."}));
    device.wait_for_state("start", 1);
    device.harness.send_json(&json!({"type": "abort", "reason": "wake_word_detected"}));
    device.wait_for_state("stop", 1);
    device.harness.advance(Duration::from_secs(5));
    assert_eq!(device.states(), ["start", "stop"]);
    assert!(
        matches!(device.harness.log.last(), Some((_, ClientFrame::Event(event))) if event["state"] == "stop")
    );
    // Nothing of the first answer comes with the next one.
    device.listen(&json!({"state": "detect", "text": "And now?"}));
    device.wait_for_state("stop", 2);
    assert_eq!(device.states(), ["start", "stop"].repeat(2));
    let mut is_speaking = false;
    for (_, frame) in &device.harness.log {
        match frame {
            ClientFrame::Event(event) if event["state"] == "start" => is_speaking = true,
            ClientFrame::Event(event) if event["state"] == "stop" => is_speaking = false,
            ClientFrame::Binary(_) => assert!(is_speaking, "a packet that the device drops"),
            ClientFrame::Event(_) | ClientFrame::Close(..) => {}
        }
    }
}

#[test]
fn wake_word_that_comes_as_audio_and_as_text_is_answered_once() {
    let mut device = Device::connect("assistant", 1);
    device.say(&two_seconds());
    device.listen(&json!({"state": "detect", "text": "Hello there."}));
    device.listen(&json!({"state": "start", "mode": "auto"}));
    device.say(&zeros(3000));
    device.wait_for_state("stop", 1);
    device.harness.advance(Duration::from_secs(20));
    assert_eq!(device.states(), ["start", "stop"]);
}

#[test]
fn errors_that_a_device_never_sees_do_not_put_off_the_message_that_keeps_it() {
    let mut device = Device::connect("assistant", 1);
    for _ in 0..9 {
        device.harness.send_binary(&[3, 0]);
        device.harness.advance(Duration::from_secs(28));
    }
    assert_eq!(device.harness.events("llm").len(), 4);
}

#[test]
fn hello_with_a_wrong_value_is_answered() {
    let config = HarnessConfig { client: "xiaozhi", profile: "assistant", ..HarnessConfig::default() };
    let mut harness = Harness::new(config);
    harness.send_json(&json!({"type": "hello", "audio_params": {"sample_rate": "x", "channels": 0}}));
    assert_eq!(harness.events("hello").len(), 1);
}

#[test]
fn silent_device_gets_a_message_before_it_gives_up() {
    let mut device = Device::connect("assistant", 1);
    device.harness.advance(Duration::from_secs(250));
    let mut last = Duration::ZERO;
    for (at, _) in &device.harness.log {
        assert!(*at - last < Duration::from_secs(120));
        last = *at;
    }
    let messages = device.harness.events("llm");
    assert_eq!(messages.len(), 4);
    // A page shows this message's text, and a device its face.
    assert_eq!((&messages[0]["emotion"], &messages[0]["text"]), (&json!("neutral"), &json!("")));
}

#[test]
fn ten_minutes_of_turns_never_empty_or_fill_the_devices_buffer() {
    let mut device = Device::connect("assistant", 1);
    let mut turns = 0;
    while device.harness.now() < Duration::from_secs(600) {
        device.listen(&json!({"state": "start", "mode": "auto"}));
        device.say(&two_seconds());
        device.say(&zeros(1200));
        device.wait_for_state("stop", turns + 1);
        // A longer answer, so that a device's buffer could overflow.
        device.listen(&json!({"state": "detect", "text": "A question of as many letters as count."}));
        turns += 2;
        device.wait_for_state("stop", turns);
        device.harness.advance(Duration::from_millis(137));
    }
    let (packets, dry, over) = device.play();
    assert!(packets.len() == turns && turns > 40, "{turns} turns");
    let longer = packets.iter().filter(|packets| **packets > BUFFER_PACKETS * 3 / 2).count();
    assert_eq!(longer, turns / 2, "{packets:?}");
    assert_eq!((dry, over), (0, 0), "underruns and overruns in {packets:?}");
}

#[test]
fn sentences_come_between_start_and_stop() {
    for (profile, mode) in [("assistant", "auto"), ("assistant", "manual"), ("conversation", "realtime")] {
        let mut device = Device::connect(profile, 1);
        device.listen(&json!({"state": "start", "mode": mode}));
        device.say(&zeros(3000));
        device.say(&two_seconds());
        device.say(&zeros(2400));
        device.listen(&json!({"state": "stop"}));
        device.say(&zeros(6000));
        device.wait_for_state("stop", 1);
        let mut is_speaking = false;
        let mut sentences = 0;
        for event in device.harness.events("tts") {
            match event["state"].as_str() {
                Some("start") => is_speaking = true,
                Some("stop") => is_speaking = false,
                _ => {
                    sentences += 1;
                    assert!(is_speaking, "{profile}, {mode}: a sentence outside of playback: {event}");
                }
            }
        }
        assert!(sentences > 0, "{profile}, {mode}");
    }
}

/// The model says only with its next answer that a turn has ended.
#[test]
fn last_packet_of_a_turn_does_not_wait_for_the_end_of_the_turn() {
    let mut device = Device::connect("conversation", 1);
    device.listen(&json!({"state": "start", "mode": "realtime"}));
    device.say(&zeros(3000));
    for _ in 0..3 {
        device.say(&two_seconds());
        device.say(&zeros(8000));
    }
    let (turns, dry, over) = device.play();
    assert!(turns.len() >= 3, "{turns:?}");
    assert_eq!((dry, over), (0, 0), "a device ran dry within a turn: {turns:?}");
}
