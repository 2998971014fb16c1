//! The user's words: nothing lost, nothing twice, in order, and in time where the upstream allows it.

use voxbridge::simulator::SimulatorConfig;

use super::*;

/// What the gateway heard, as int16.
fn heard(pair: &Pair) -> Vec<i16> {
    pair.heard.concat().iter().map(|sample| (sample * 32_768.0) as i16).collect()
}

/// Where in the input what was heard stands, as one piece.
fn place_in(input: &[i16], heard: &[i16]) -> Option<usize> {
    // Digital silence stands everywhere, so the search starts at the first sample that says something.
    let lead = heard.iter().take_while(|sample| **sample == 0).count();
    let probe = &heard[lead..(lead + 1600).min(heard.len())];
    let at = input.windows(probe.len()).position(|window| window == probe)?.checked_sub(lead)?;
    (input.get(at..at + heard.len())? == heard).then_some(at)
}

fn segment_ids(pair: &Pair) -> Vec<u64> {
    pair.events("transcript.final").iter().map(|event| event["segment_id"].as_u64().unwrap()).collect()
}

#[test]
fn a_recording_is_heard_from_before_its_onset_to_its_end() {
    let mut pair = Pair::new(PairConfig::default());
    let input = [zeros(1000), recording("librivox_0880_16k.wav"), zeros(1000)].concat();
    pair.stream(&input, 40);
    pair.advance(secs(2));
    let at = place_in(&input, &heard(&pair)).expect("another audio was heard");
    // The words are from 0.1 s to 2.9 s of the recording.
    assert!(
        at < 16 * 1100 && at + heard(&pair).len() > 16 * 3900,
        "from {at}, {} samples",
        heard(&pair).len()
    );
    ends_well(pair);
}

#[test]
fn a_minute_without_a_pause_loses_nothing_at_the_limit() {
    let mut pair = Pair::new(PairConfig::default());
    let input = [zeros(500), voice(70_000), zeros(1000)].concat();
    pair.stream(&input, 40);
    pair.advance(secs(5));
    assert_eq!(segment_ids(&pair), [0, 1, 2]);
    let lengths: Vec<usize> = pair.heard.iter().map(Vec::len).collect();
    assert!(lengths.iter().all(|length| *length <= 16 * 30_000), "longer than the model takes: {lengths:?}");
    // The recording repeats itself, so its place is found by what comes before it.
    let heard = heard(&pair);
    let lead = heard.iter().take_while(|sample| **sample == 0).count();
    let onset = 16 * 500;
    assert!(lead > 0, "it does not begin before the onset");
    let spoken = &input[onset..];
    assert!(heard[lead..] == spoken[..heard.len() - lead], "what was heard is not what was said");
    assert!(heard.len() - lead >= 16 * 70_000, "the end is missing");
    ends_well(pair);
}

#[test]
fn a_commit_in_mid_speech_cuts_without_a_gap() {
    let mut pair = Pair::new(PairConfig::default());
    let input = [zeros(500), voice(4000), zeros(1000)].concat();
    let (before, after) = input.split_at(16 * 2515);
    pair.stream(before, 40);
    pair.client(&json!({"type": "input_audio_buffer.commit"}));
    pair.stream(after, 40);
    pair.advance(secs(2));
    assert_eq!(segment_ids(&pair), [0, 1]);
    assert_eq!((pair.events("vad.speech_start").len(), pair.events("vad.speech_end").len()), (1, 1));
    assert!(place_in(&input, &heard(&pair)).is_some(), "there is a gap");
    // The first piece was answered while the user went on.
    let committed = 2515 + 1000;
    assert!(pair.log.iter().any(|(at, seen)| seen.name() == "transcript.final" && *at < ms(committed)));
    ends_well(pair);
}

#[test]
fn closing_right_after_the_end_of_speech_still_gets_the_words() {
    for close in ["session.close", "session.cancel"] {
        let mut pair = Pair::new(PairConfig::default());
        pair.stream(&[voice(1200), zeros(400)].concat(), 40);
        assert_eq!(pair.names(), ["session.created", "vad.speech_start"], "not asked and answered yet");
        pair.client(&json!({"type": close}));
        pair.advance(secs(60));
        let mut names = pair.names();
        names.retain(|name| name != "transcript.partial");
        let expected = ["transcript.final", "vad.speech_end", "session.closed", "close 1000"];
        assert_eq!(names[2..], expected);
        assert!(pair.finished);
    }
}

#[test]
fn words_that_take_long_come_after_the_end_of_speech() {
    let mut pair = Pair::new(PairConfig::with_faults(&["slow-init=12,times=1"]));
    pair.stream(&utterance(), 40);
    pair.next_event("transcript.final");
    let at = |name: &str| pair.log.iter().find(|(_, seen)| seen.name() == name).unwrap().0;
    let waited = at("vad.speech_end") - ms(1500);
    assert!(waited.abs_diff(secs(5)) < ms(100), "speech_end after {waited:?}");
    assert!(at("transcript.final") > secs(12));
    is_understood(&mut pair);
    assert_eq!(segment_ids(&pair), [0, 1]);
    ends_well(pair);
}

#[test]
fn utterances_that_pile_up_are_answered_in_order() {
    let mut pair = Pair::new(PairConfig::with_faults(&["slow-init=10,times=1"]));
    for _ in 0..4 {
        pair.stream(&utterance(), 40);
    }
    pair.advance(secs(15));
    assert_eq!(segment_ids(&pair), [0, 1, 2, 3]);
    assert_eq!(sanity::problems(&pair), [""; 0]);
    ends_well(pair);
}

#[test]
fn a_queue_that_does_not_move_is_told_after_fifteen_seconds() {
    let mut pair = Pair::new(PairConfig::with_faults(&["stuck-queue,times=1"]));
    pair.stream(&utterance(), 40);
    pair.next_event("error");
    let (code, message) = errors(&pair)[0].clone();
    assert_eq!(code, "service_unavailable");
    assert!(message.contains("position 1") && message.contains("15 s"), "{message}");
    let told_at = pair.now() - secs(15);
    assert!(told_at < ms(500), "{told_at:?} after it was dialled at the start of speech");
    // The lane is given up at last, and with it the one utterance.
    let patience = Duration::from_secs(130);
    while pair.now() < patience {
        pair.client_binary(&[0; 64]);
        pair.advance(secs(10));
    }
    assert_eq!(errors(&pair).len(), 2, "{:?}", errors(&pair));
    is_understood(&mut pair);
    ends_well(pair);
}

#[test]
fn frames_of_any_length_say_the_same() {
    let input = [zeros(500), voice(1500), zeros(1000)].concat();
    let bytes = pair::bytes_of(&input);
    let with_frames = |sizes: &[usize]| {
        let mut pair = Pair::new(PairConfig::default());
        let (mut rest, mut sizes) = (bytes.as_slice(), sizes.iter().cycle());
        while !rest.is_empty() {
            let (frame, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            pair.client_binary(frame);
            pair.advance(Duration::from_micros(1_000_000 * frame.len() as u64 / 32_000));
            rest = after;
        }
        pair.advance(secs(3));
        assert_eq!(errors(&pair), []);
        heard(&pair)
    };
    let expected = with_frames(&[1280]);
    assert!(!expected.is_empty());
    for sizes in [&[641][..], &[1, 2, 3, 4095], &[8192], &[640, 0, 639]] {
        assert!(with_frames(sizes) == expected, "frames of {sizes:?} bytes are heard otherwise");
    }
}

#[test]
fn a_minute_without_audio_ends_the_session() {
    let mut pair = Pair::new(PairConfig::default());
    pair.advance(secs(30));
    pair.client_binary(&[]);
    pair.advance(secs(30));
    // Only audio counts, and a text that is spoken.
    pair.client(&json!({"type": "session.configure"}));
    pair.advance(ms(29_999));
    assert_eq!(pair.names(), ["session.created"]);
    pair.advance(ms(1));
    assert_eq!(pair.names(), ["session.created", "session.closed", "close 1000"]);
    assert_eq!(pair.events("session.closed")[0]["reason"], "inactivity_timeout");
    assert!(pair.finished);
}

#[test]
fn a_client_that_only_listens_is_not_idle() {
    let mut pair = Pair::new(PairConfig::default());
    let mut config = PairConfig::default().simulator;
    config.timing.speech_second = secs(20);
    pair.replace_gateway(config);
    say(&mut pair, LONG, "slow");
    pair.next_event("tts.speaking_start");
    assert!(pair.run_until(|pair| !pair.events("tts.speaking_end").is_empty(), secs(120)).is_some());
    assert!(pair.now() > secs(80), "this test is too short");
    let ended = pair.now();
    assert!(pair.run_until(|pair| pair.finished, secs(61)).is_some());
    assert_eq!(pair.now() - ended, secs(60));
}

#[test]
fn two_hundred_chat_sessions_in_a_row_on_one_worker() {
    let mut pair = Pair::new(PairConfig {
        simulator: SimulatorConfig { workers: 1, ..SimulatorConfig::default() },
        latency: ms(5),
        ..PairConfig::default()
    });
    for _ in 0..100 {
        is_understood(&mut pair);
        is_spoken(&mut pair);
    }
    assert!(pair.traffic.iter().filter(|(_, traffic)| matches!(traffic, Traffic::Dialled(_))).count() >= 200);
    assert_eq!(pair.received_count("session_failed"), 0, "a worker refused");
    assert_eq!(errors(&pair), []);
    ends_well(pair);
}

#[test]
fn who_stops_sending_in_mid_speech_has_said_all() {
    let mut pair = Pair::new(PairConfig::default());
    pair.stream(&voice(1500), 20);
    pair.advance(ms(2900));
    assert!(pair.events("vad.speech_end").is_empty(), "a network may pause");
    pair.advance(secs(2));
    let told: Vec<String> = pair.names().into_iter().filter(|name| name != "transcript.partial").collect();
    assert_eq!(told, ["session.created", "vad.speech_start", "transcript.final", "vad.speech_end"]);
    let words = pair.events("transcript.final")[0]["text"].clone();
    assert_eq!(words, "simulated transcript: 1.50 s of speech", "to the last sample");
    is_understood(&mut pair);
    ends_well(pair);
}

#[test]
fn words_come_while_the_user_still_speaks_where_that_is_wanted() {
    let mut config = PairConfig::default();
    let speech = include_str!("../../../mappings/profile/speech.toml");
    config.library.add("speech.toml", &speech.replace("interim_ms = 0 ", "interim_ms = 1000 ")).unwrap();
    let mut pair = Pair::new(config);
    pair.stream(&voice(5000), 20);
    let partials: Vec<u64> = pair
        .events("transcript.partial")
        .iter()
        .map(|event| event["timestamp_ms"].as_u64().unwrap())
        .collect();
    assert!(partials.len() >= 3 && partials.is_sorted(), "{partials:?}");
    assert!(pair.events("transcript.final").is_empty());
    pair.stream(&zeros(1000), 20);
    pair.advance(secs(2));
    assert_eq!(pair.events("transcript.final").len(), 1);
    is_understood(&mut pair);
    ends_well(pair);
}

#[test]
fn what_was_said_is_asked_in_the_language_it_was_said_in() {
    let mut pair = Pair::new(PairConfig::with_faults(&["slow-init=3"]));
    pair.client(&json!({"type": "session.configure", "language": "zh", "hot_words": ["Macaw"]}));
    pair.stream(&utterance(), 40);
    pair.client(&json!({"type": "session.configure", "language": "en", "hot_words": []}));
    let heard = pair.run_until(|pair| !pair.events("transcript.final").is_empty(), secs(10));
    assert!(heard.is_some(), "{:?}", pair.names());
    assert_eq!(pair.events("transcript.final")[0]["language"], "zh");
    let asked = pair.sent("input.append");
    assert!(asked[0].contains("请仔细听") && asked[0].contains("Macaw"), "the prompt is the one of then");
    ends_well(pair);
}

#[test]
fn an_answer_nobody_waits_for_is_waited_out_before_the_goodbye() {
    let mut pair = Pair::new(PairConfig::default());
    pair.stream(&[voice(1200), zeros(400)].concat(), 20);
    let asked = pair.run_until(|pair| !pair.sent("input.append").is_empty(), secs(5));
    assert!(asked.is_some() && pair.events("transcript.final").is_empty(), "{:?}", pair.names());
    pair.close_client();
    pair.advance(secs(10));
    assert!(pair.finished);
    let order: Vec<&str> = pair
        .traffic
        .iter()
        .filter_map(|(_, traffic)| match traffic {
            Traffic::Received(_, json) if json.contains("response.done") => Some("done"),
            Traffic::Sent(_, json) if json.contains("session.close") => Some("goodbye"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["done", "goodbye"]);
}

#[test]
fn a_client_that_waits_for_its_words_is_not_idle() {
    let mut pair = Pair::new(PairConfig::with_faults(&["slow-init=58,times=2"]));
    pair.stream(&voice(1500), 20);
    pair.advance(secs(70));
    assert_eq!(pair.events("transcript.final").len(), 1, "{:?}", pair.names());
    assert!(pair.events("session.closed").is_empty());
    pair.advance(secs(70));
    assert_eq!(pair.events("session.closed")[0]["reason"], "inactivity_timeout");
}
