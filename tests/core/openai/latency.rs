//! Time that voxbridge itself adds between the end of speech and the first audio: none, in virtual time.

use super::*;

/// Times of one spoken question and its answer.
#[derive(Debug)]
struct Answer {
    speech_stopped: Duration,
    requested: Duration,
    model_audio: Duration,
    first_delta: Duration,
}

fn answer(latency: Duration) -> Answer {
    let mut config = config("model=gpt-realtime");
    config.latency = latency;
    let mut client = Realtime::with_config(config);
    client.say_question();
    client.wait_for("response.output_audio.delta");
    let event_time = |kind: &str| client.events.iter().find(|(_, event)| event["type"] == kind).unwrap().0;
    let traffic_time = |is_it: &dyn Fn(&Traffic) -> bool| {
        client.harness.traffic.iter().find(|(_, traffic)| is_it(traffic)).unwrap().0
    };
    let is_request = |traffic: &Traffic| matches!(traffic, Traffic::Sent(_, text) if text.contains(r#""length_penalty":1.1"#));
    let is_audio = |traffic: &Traffic| matches!(traffic, Traffic::Received(_, text) if text.contains(r#""kind":"audio""#));
    Answer {
        speech_stopped: event_time("input_audio_buffer.speech_stopped"),
        requested: traffic_time(&is_request),
        model_audio: traffic_time(&is_audio),
        first_delta: event_time("response.output_audio.delta"),
    }
}

#[test]
fn answer_is_requested_at_the_end_of_speech_and_played_as_it_arrives() {
    for latency_ms in [0, 40] {
        let times = answer(Duration::from_millis(latency_ms));
        assert_eq!(times.requested, times.speech_stopped, "the connection was dialled during the speech");
        assert_eq!(times.first_delta, times.model_audio, "{times:?}");
        assert!(times.model_audio >= times.requested + Duration::from_millis(2 * latency_ms), "{times:?}");
    }
}

/// Time between the end of a question and the first audio of its answer, with one bridge or two.
fn answer_time(is_spoken: bool, has_second_bridge: bool) -> Duration {
    let config = config("model=gpt-realtime").chained(has_second_bridge).workers(4);
    let mut client = Realtime::with_config(config);
    if is_spoken {
        client.say_question();
    } else {
        client.ask("Hello?");
    }
    client.wait_for("response.output_audio.delta");
    let time = |kind: &str| client.events.iter().find(|(_, event)| event["type"] == kind).unwrap().0;
    let asked = time(if is_spoken { "input_audio_buffer.speech_stopped" } else { "conversation.item.added" });
    time("response.output_audio.delta") - asked
}

#[test]
fn second_bridge_does_not_delay_an_answer() {
    for is_spoken in [false, true] {
        let [one, two] = [false, true].map(|has_second| answer_time(is_spoken, has_second));
        assert_eq!(two, one, "is_spoken: {is_spoken}");
    }
}
