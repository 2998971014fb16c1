//! The other providers' media streams: each is one mapping file. The first message chooses the format, a text is spoken, marked and
//! cleared in the provider's words, and an unknown format ends the call.

use super::*;

/// How a provider spells a call.
struct Provider {
    client: &'static str,
    /// The first message, with `FORMAT` and `TEXT` in place of the format and a text to speak.
    start: &'static str,
    formats: [&'static str; 2],
    /// Bytes of a second of audio in each format.
    second_bytes: [usize; 2],
    /// Length of every message's audio in the first format, bytes; `None` for any length.
    frame_bytes: Option<usize>,
    /// Where audio stands in a message of JSON; `None` for binary messages.
    payload: Option<&'static str>,
    mark: &'static str,
    /// The message with which the provider confirms that the mark was reached.
    played: &'static str,
    clear: &'static str,
    last: &'static str,
}

const PROVIDERS: [Provider; 6] = [
    Provider {
        client: "telnyx",
        start: r#"{"event":"start","stream_id":"S","start":{"custom_parameters":{"say":"TEXT"},"media_format":{"encoding":"FORMAT","sample_rate":8000,"channels":1}}}"#,
        formats: ["PCMU", "PCMA"],
        second_bytes: [8000, 8000],
        frame_bytes: Some(800),
        payload: Some("/media/payload"),
        mark: r#"{"event":"mark","mark":{"name":"0"}}"#,
        played: r#"{"event":"mark","stream_id":"S","mark":{"name":"0"}}"#,
        clear: r#"{"event":"clear"}"#,
        last: "",
    },
    Provider {
        client: "vonage",
        start: r#"{"event":"websocket:connected","content-type":"FORMAT","say":"TEXT"}"#,
        formats: ["audio/l16;rate=16000", "audio/l16;rate=8000"],
        second_bytes: [32000, 16000],
        frame_bytes: Some(640),
        payload: None,
        mark: r#"{"action":"notify","payload":{"turn":0}}"#,
        played: r#"{"event":"websocket:notify","payload":{"turn":0}}"#,
        clear: r#"{"action":"clear"}"#,
        last: "",
    },
    Provider {
        client: "exotel",
        start: r#"{"event":"start","stream_sid":"S","start":{"stream_sid":"S","custom_parameters":{"say":"TEXT"},"media_format":{"encoding":"FORMAT","sample_rate":"8000"}}}"#,
        formats: ["audio/x-raw", "audio/x-mulaw"],
        second_bytes: [16000, 8000],
        frame_bytes: Some(3200),
        payload: Some("/media/payload"),
        mark: r#"{"event":"mark","stream_sid":"S","mark":{"name":"0"}}"#,
        played: r#"{"event":"mark","stream_sid":"S","mark":{"name":"0"}}"#,
        clear: r#"{"event":"clear","stream_sid":"S"}"#,
        last: "",
    },
    Provider {
        client: "jambonz",
        start: r#"{"sampleRate":"FORMAT","mixType":"mono","callSid":"C","say":"TEXT"}"#,
        formats: ["16000", "8000"],
        second_bytes: [32000, 16000],
        frame_bytes: Some(3200),
        payload: None,
        mark: r#"{"type":"mark","data":{"name":"0"}}"#,
        played: r#"{"type":"mark","data":{"name":"0","event":"playout"}}"#,
        clear: r#"{"type":"killAudio"}"#,
        last: r#"{"type":"disconnect"}"#,
    },
    Provider {
        client: "freeswitch",
        start: r#"{"type":"start","microphone":"FORMAT","say":"TEXT"}"#,
        formats: ["muted", "open"],
        second_bytes: [16000, 16000],
        frame_bytes: Some(320),
        payload: None,
        mark: "",
        played: "",
        clear: r#"{"type":"killAudio"}"#,
        last: "",
    },
    Provider {
        client: "asterisk",
        start: r#"{"event":"MEDIA_START","format":"FORMAT","optimal_frame_size":640,"channel_variables":{"say":"TEXT"}}"#,
        formats: ["slin16", "alaw"],
        second_bytes: [32000, 8000],
        frame_bytes: None,
        payload: None,
        mark: r#"{"command":"STOP_MEDIA_BUFFERING","correlation_id":"0"}"#,
        played: r#"{"event":"MEDIA_BUFFERING_COMPLETED","correlation_id":"0"}"#,
        clear: r#"{"command":"FLUSH_MEDIA"}"#,
        last: r#"{"command":"HANGUP"}"#,
    },
];

fn open(client: &'static str, query: &str) -> Harness {
    Harness::new(HarnessConfig::of(client, "speech", query))
}

/// The audio of each message so far.
fn audio(harness: &Harness, provider: &Provider) -> Vec<Vec<u8>> {
    let frames = harness.log.iter().filter_map(|(_, frame)| match (frame, provider.payload) {
        (ClientFrame::Binary(bytes), None) => Some(bytes.to_vec()),
        (ClientFrame::Event(message), Some(at)) => {
            Some(STANDARD.decode(message.pointer(at)?.as_str()?).unwrap())
        }
        _ => None,
    });
    frames.collect()
}

fn start(harness: &mut Harness, provider: &Provider, format: &str, text: &str) {
    harness.send_text(&provider.start.replace("FORMAT", format).replace("TEXT", text));
}

fn run(harness: &mut Harness, time_ms: u64) {
    harness.advance(Duration::from_millis(time_ms));
}

#[test]
fn text_is_spoken_in_the_format_of_the_first_message_and_marked() {
    for provider in &PROVIDERS {
        let lengths_ms = [0, 1].map(|which| {
            let mut harness = open(provider.client, "");
            start(&mut harness, provider, provider.formats[which], "Welcome to the mill.");
            run(&mut harness, 20_000);
            let frames = audio(&harness, provider);
            if let Some(bytes) = provider.frame_bytes.filter(|_| which == 0) {
                assert!(frames.iter().all(|frame| frame.len() == bytes), "{}", provider.client);
            }
            if !provider.mark.is_empty() {
                assert!(harness.texts.iter().any(|text| text == provider.mark), "{:?}", harness.texts);
            }
            let bytes = frames.concat().len();
            assert!(bytes > 0 && !harness.is_closed(), "{}", provider.client);
            bytes * 1000 / provider.second_bytes[which]
        });
        // The last message is filled up with silence.
        assert!(lengths_ms[0].abs_diff(lengths_ms[1]) <= 200, "{}: {lengths_ms:?}", provider.client);
    }
}

#[test]
fn caller_is_muted_until_the_provider_confirms_the_mark() {
    for provider in
        PROVIDERS.iter().filter(|provider| !provider.mark.is_empty() && provider.payload.is_none())
    {
        let mut harness = open(provider.client, "?microphone=muted");
        start(&mut harness, provider, provider.formats[0], "Welcome.");
        let is_marked = |harness: &Harness| harness.texts.iter().any(|text| text == provider.mark);
        harness.run_until(is_marked, Duration::from_secs(20));
        let muted = |harness: &Harness| harness.bridge().sample_counts().0.muted;
        harness.send_binary(&[0; 640]);
        let before = muted(&harness);
        assert!(before > 0, "{}", provider.client);
        harness.send_text(provider.played);
        harness.send_binary(&[0; 640]);
        assert_eq!(muted(&harness), before, "{}", provider.client);
    }
}

#[test]
fn another_text_clears_the_providers_buffer() {
    for provider in &PROVIDERS {
        let mut harness = open(provider.client, "");
        start(
            &mut harness,
            provider,
            provider.formats[0],
            "This text is cut by another one, because it is long.",
        );
        harness.run_until(|harness| !audio(harness, provider).is_empty(), Duration::from_secs(20));
        assert!(!harness.texts.iter().any(|text| text == provider.clear), "{}", provider.client);
        start(&mut harness, provider, provider.formats[0], "Stop.");
        run(&mut harness, 100);
        let clears = harness.texts.iter().filter(|text| *text == provider.clear).count();
        assert_eq!(clears, 1, "{}: {:?}", provider.client, harness.texts);
        harness.close_client();
    }
}

#[test]
fn unknown_format_ends_the_call_and_says_why() {
    for provider in &PROVIDERS {
        let mut harness = open(provider.client, "");
        start(&mut harness, provider, "G729", "Hello.");
        let close = harness.log.iter().find_map(|(_, frame)| match frame {
            ClientFrame::Close(code, reason) => Some((*code, reason.clone())),
            _ => None,
        });
        let (code, reason) = close.unwrap_or_else(|| panic!("{}", provider.client));
        assert!(code == 1008 && reason.contains("Input should be"), "{}: {code} {reason}", provider.client);
    }
}

#[test]
fn last_message_ends_the_call() {
    for provider in PROVIDERS.iter().filter(|provider| !provider.last.is_empty()) {
        let mut harness = open(provider.client, "");
        start(&mut harness, provider, provider.formats[0], "Hello.");
        harness.drain();
        run(&mut harness, 60_000);
        assert!(harness.texts.iter().any(|text| text == provider.last), "{:?}", harness.texts);
    }
}

#[test]
fn asterisk_gets_no_audio_while_its_queue_is_full() {
    let asterisk = &PROVIDERS[5];
    let mut harness = open(asterisk.client, "");
    let text = "The queue of a call may be full, and then the rest of a text has to wait for a while.";
    start(&mut harness, asterisk, "slin16", text);
    harness.run_until(|harness| !audio(harness, asterisk).is_empty(), Duration::from_secs(20));
    harness.send_text(r#"{"event":"MEDIA_XOFF"}"#);
    let before = audio(&harness, asterisk).len();
    run(&mut harness, 10_000);
    assert_eq!(audio(&harness, asterisk).len(), before);
    harness.send_text(r#"{"event":"MEDIA_XON"}"#);
    run(&mut harness, 20_000);
    let held = audio(&harness, asterisk).concat();
    let mut harness = open(asterisk.client, "");
    start(&mut harness, asterisk, "slin16", text);
    run(&mut harness, 30_000);
    assert_eq!(audio(&harness, asterisk).concat().len(), held.len(), "nothing is lost");
    let stops = harness.texts.iter().filter(|text| *text == asterisk.mark).count();
    let starts = harness.texts.iter().filter(|text| text.contains("START_MEDIA_BUFFERING")).count();
    assert_eq!((starts, stops), (1, 1), "{:?}", harness.texts);
}

#[test]
fn plivo_names_its_format_in_every_message() {
    for (encoding, rate) in [("audio/x-l16", 16000), ("audio/x-mulaw", 8000)] {
        let mut harness = open("plivo", "");
        harness.send_text(&format!(
            r#"{{"event":"start","start":{{"streamId":"S","mediaFormat":{{"encoding":"{encoding}","sampleRate":{rate}}}}}}}"#
        ));
        assert!(!harness.is_closed(), "{:?}", harness.log);
        harness.send_text(r#"{"event":"dtmf","dtmf":{"digit":"1"}}"#);
        harness.send_text(r#"{"event":"clearedAudio","streamId":"S"}"#);
        harness.send_text(r#"{"event":"playedStream","streamId":"S","name":"0"}"#);
        run(&mut harness, 100);
        assert_eq!(harness.texts, [""; 0]);
        harness.send_text(r#"{"event":"stop"}"#);
        run(&mut harness, 60_000);
        assert!(matches!(harness.log.last(), Some((_, ClientFrame::Close(1000, _)))), "{:?}", harness.log);
    }
    let mut harness = Harness::new(HarnessConfig::of("plivo", "conversation", ""));
    let start = r#"{"event":"start","start":{"streamId":"S","mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000}}}"#;
    harness.send_text(start);
    let say = |audio: &[u8], harness: &mut Harness| {
        for frame in audio.chunks(FRAME_SAMPLES) {
            let payload = STANDARD.encode(frame);
            harness.send_text(&format!(
                r#"{{"event":"media","media":{{"track":"inbound","payload":"{payload}"}}}}"#
            ));
            run(harness, 20);
        }
    };
    say(&silence(Duration::from_secs(2)), &mut harness);
    say(&phone_recording("goforward_16k.wav"), &mut harness);
    say(&silence(Duration::from_secs(8)), &mut harness);
    let messages: Vec<Value> = harness.texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let audio: Vec<&Value> = messages.iter().filter(|message| message["event"] == "playAudio").collect();
    assert!(!audio.is_empty(), "{messages:?}");
    for message in audio {
        assert_has(message, json!({"/streamId": "S", "/media/contentType": "audio/x-mulaw"}));
        assert_eq!(message["media"]["sampleRate"], 8000);
    }
    assert_eq!(messages.last().unwrap(), &json!({"event": "checkpoint", "streamId": "S", "name": "0"}));
}

#[test]
fn keys_are_messages_of_the_caller_and_the_last_one_asks_for_an_answer() {
    for (client, start, key) in [
        (
            PROVIDERS[0].client,
            PROVIDERS[0].start,
            r#"{"event":"dtmf","stream_id":"S","dtmf":{"digit":"KEY"}}"#,
        ),
        (PROVIDERS[3].client, PROVIDERS[3].start, r#"{"event":"dtmf","dtmf":"KEY","duration":"1600"}"#),
    ] {
        let mut harness = Harness::new(HarnessConfig::of(client, "assistant", ""));
        harness.send_text(
            &start.replace("FORMAT", if client == "telnyx" { "PCMU" } else { "8000" }).replace("TEXT", ""),
        );
        for pressed in ["5", "2", "?"] {
            harness.send_text(&key.replace("KEY", pressed));
        }
        run(&mut harness, 5_000);
        assert!(harness.sent_containing("[key 5]").is_empty(), "{client}");
        harness.send_text(&key.replace("KEY", "#"));
        run(&mut harness, 5_000);
        let asked = harness.sent_containing("[key 5]");
        assert!(asked.len() == 1 && asked[0].contains("[key 2]"), "{client}: {asked:?}");
    }
}
