//! Messages that Twilio would not send, or might.

use super::*;

fn errors(call: &Call) -> Vec<(ErrorKind, String)> {
    let told = call.harness.observations.iter().filter_map(|it| match it {
        Observation::ErrorTold(error) => Some((error.kind, error.detail.clone())),
        _ => None,
    });
    told.collect()
}

#[test]
fn invalid_messages_are_reported_and_the_call_goes_on() {
    let mut call = Call::connect("conversation", &json!({}));
    for (text, kind, words) in [
        (r#"{"event":"media","media":{"payload":"no base64!"}}"#, ErrorKind::Invalid, "not base64"),
        (r#"{"event":"media","media":{}}"#, ErrorKind::Invalid, "payload"),
        (r#"{"event":"media","media":{"payload":5}}"#, ErrorKind::Invalid, "valid string"),
        (r#"{"event":"hello"}"#, ErrorKind::UnknownCommand, "'hello'"),
        (r#"{"event":"start","start":{}}"#, ErrorKind::Invalid, "streamSid"),
        (r#"{"media":{}}"#, ErrorKind::MissingCommand, ""),
        ("{", ErrorKind::MalformedJson, ""),
        ("[]", ErrorKind::NotAnObject, "array"),
    ] {
        call.harness.send_text(text);
        let errors = errors(&call);
        let (found, detail) = errors.last().unwrap();
        assert!(*found == kind && detail.contains(words), "{text}: {found:?} {detail}");
    }
    call.harness.send_binary(&[0; 160]);
    assert!(errors(&call).last().unwrap().1.contains("carries audio in JSON"));
    let count = errors(&call).len();
    call.say(&phone_recording("goforward_16k.wav"));
    call.listen_until(|call| call.marks.len() == 1);
    assert_eq!(errors(&call).len(), count);
}

#[test]
fn audio_longer_than_the_limit_is_refused() {
    let mut call = Call::connect("speech", &json!({}));
    call.send_media(&vec![0xff; 65_537]);
    assert_eq!(errors(&call).last().unwrap().0, ErrorKind::FrameTooLarge);
    assert_eq!(call.harness.bridge().sample_counts().0.received, 0);
    call.send_media(&vec![0xff; 65_536]);
    assert_eq!(call.harness.bridge().sample_counts().0.received, 65_536);
}

#[test]
fn harmless_oddities_are_accepted() {
    let mut call = Call::connect("speech", &json!(null));
    // Without padding, without a track, empty, and of the other track.
    call.harness.send_text(r#"{"event":"media","media":{"payload":"f39/fw"}}"#);
    call.harness.send_text(r#"{"event":"media","media":{"payload":""}}"#);
    call.harness.send_text(r#"{"event":"media","media":{"track":"outbound","payload":"f39/fw=="}}"#);
    call.harness.send_text(r#"{"event":"mark","mark":{"name":"not ours"}}"#);
    call.harness.send_text(r#"{"event":"mark","mark":{"name":"7"}}"#);
    call.harness.send_text(r#"{"event":"dtmf","dtmf":{"track":"inbound_track","digit":"1"}}"#);
    assert_eq!(errors(&call), []);
    assert_eq!(call.harness.bridge().sample_counts().0.received, 4);
}

#[test]
fn last_stream_id_is_echoed() {
    let mut call = Call::before_start(HarnessConfig::of("twilio", "speech", ""));
    call.harness.send_text(r#"{"event":"start","streamSid":"MZold","start":{"customParameters":{}}}"#);
    call.start(&json!({"say": "Hello."}));
    call.listen_until(|call| call.marks.len() == 1);
    assert!(call.harness.texts.iter().all(|text| text.contains(STREAM)), "{:?}", call.harness.texts);
    call.listen(Duration::from_secs(1));
}
