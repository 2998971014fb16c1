//! The user's words: no loss, no repetition, in order, and in time where the upstream permits.

use super::*;

/// Audio the gateway received, as int16.
fn heard_samples(harness: &Harness) -> Vec<i16> {
    harness.question_audio.concat().iter().map(|sample| (sample * 32_768.0) as i16).collect()
}

/// Start of the received audio in the input, if it is one contiguous stretch.
fn position_in(input: &[i16], heard: &[i16]) -> Option<usize> {
    // Digital silence occurs everywhere, so the search starts at the first non-zero sample.
    let lead = heard.iter().take_while(|sample| **sample == 0).count();
    let probe = &heard[lead..(lead + 1600).min(heard.len())];
    let at = input.windows(probe.len()).position(|window| window == probe)?.checked_sub(lead)?;
    (input.get(at..at + heard.len())? == heard).then_some(at)
}

fn segment_ids(harness: &Harness) -> Vec<u64> {
    harness.events("transcript.final").iter().map(|event| event["segment_id"].as_u64().unwrap()).collect()
}

#[test]
fn recording_is_transcribed_from_preroll_to_end() {
    let mut harness = Harness::new(HarnessConfig::default());
    let input = [zeros(1000), recording("librivox_0880_16k.wav"), zeros(1000)].concat();
    harness.stream(&input, 40);
    harness.advance(secs(2));
    let at = position_in(&input, &heard_samples(&harness)).expect("the upstream received other audio");
    // The words are from 0.1 s to 2.9 s of the recording.
    assert!(
        at < 16 * 1100 && at + heard_samples(&harness).len() > 16 * 3900,
        "from {at}, {} samples",
        heard_samples(&harness).len()
    );
    assert_closes_cleanly(harness);
}

#[test]
fn pauseless_minute_is_split_without_loss() {
    let mut harness = Harness::new(HarnessConfig::default());
    let input = [zeros(500), voice(70_000), zeros(1000)].concat();
    harness.stream(&input, 40);
    harness.advance(secs(5));
    assert_eq!(segment_ids(&harness), [0, 1, 2]);
    let lengths: Vec<usize> = harness.question_audio.iter().map(Vec::len).collect();
    assert!(lengths.iter().all(|length| *length <= 16 * 30_000), "above the limit: {lengths:?}");
    // The recording repeats, so its start is found by the audio before it.
    let received = heard_samples(&harness);
    let lead = received.iter().take_while(|sample| **sample == 0).count();
    let onset = 16 * 500;
    assert!(lead > 0, "no audio before the onset");
    let spoken = &input[onset..];
    assert!(received[lead..] == spoken[..received.len() - lead], "the received audio differs from the input");
    assert!(received.len() - lead >= 16 * 70_000, "the end is missing");
    assert_closes_cleanly(harness);
}

#[test]
fn commit_mid_speech_cuts_without_gap() {
    let mut harness = Harness::new(HarnessConfig::default());
    let input = [zeros(500), voice(4000), zeros(1000)].concat();
    let (before, after) = input.split_at(16 * 2515);
    harness.stream(before, 40);
    harness.send_json(&json!({"type": "input_audio_buffer.commit"}));
    harness.stream(after, 40);
    harness.advance(secs(2));
    assert_eq!(segment_ids(&harness), [0, 1]);
    assert_eq!((harness.events("vad.speech_start").len(), harness.events("vad.speech_end").len()), (1, 1));
    assert!(position_in(&input, &heard_samples(&harness)).is_some(), "there is a gap");
    // The first segment was answered while the user continued to speak.
    let committed = 2515 + 1000;
    assert!(harness.log.iter().any(|(at, frame)| frame.name() == "transcript.final" && *at < ms(committed)));
    assert_closes_cleanly(harness);
}

#[test]
fn close_after_speech_still_yields_transcript() {
    for close in ["session.close", "session.cancel"] {
        let mut harness = Harness::new(HarnessConfig::default());
        harness.stream(&[voice(1200), zeros(400)].concat(), 40);
        assert_eq!(harness.names(), ["session.created", "vad.speech_start"], "the question is still open");
        harness.send_json(&json!({"type": close}));
        harness.advance(secs(60));
        let mut names = harness.names();
        names.retain(|name| name != "transcript.partial");
        let expected = ["transcript.final", "vad.speech_end", "session.closed", "close 1000"];
        assert_eq!(names[2..], expected);
        assert!(harness.finished);
    }
}

#[test]
fn late_transcript_follows_speech_end() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["slow-init=12,times=1"]));
    harness.stream(&utterance(), 40);
    harness.next_event("transcript.final");
    let at = |name: &str| harness.log.iter().find(|(_, frame)| frame.name() == name).unwrap().0;
    let waited = at("vad.speech_end") - ms(1500);
    assert!(waited.abs_diff(secs(5)) < ms(100), "speech_end after {waited:?}");
    assert!(at("transcript.final") > secs(12));
    assert_transcribes(&mut harness);
    assert_eq!(segment_ids(&harness), [0, 1]);
    assert_closes_cleanly(harness);
}

#[test]
fn queued_utterances_are_answered_in_order() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["slow-init=10,times=1"]));
    for _ in 0..4 {
        harness.stream(&utterance(), 40);
    }
    harness.advance(secs(15));
    assert_eq!(segment_ids(&harness), [0, 1, 2, 3]);
    assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
    assert_closes_cleanly(harness);
}

#[test]
fn stuck_queue_is_reported_after_fifteen_seconds() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["stuck-queue,times=1"]));
    harness.stream(&utterance(), 40);
    harness.next_event("error");
    let (code, message) = errors(&harness)[0].clone();
    assert_eq!(code, "service_unavailable");
    assert!(message.contains("position 1") && message.contains("15 s"), "{message}");
    let told_at = harness.now() - secs(15);
    assert!(told_at < ms(500), "{told_at:?} after it was dialled at the start of speech");
    // Eventually the lane is given up and its utterance is lost.
    let patience = Duration::from_secs(130);
    while harness.now() < patience {
        harness.send_binary(&[0; 64]);
        harness.advance(secs(10));
    }
    assert_eq!(errors(&harness).len(), 2, "{:?}", errors(&harness));
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn frame_length_does_not_change_audio() {
    let input = [zeros(500), voice(1500), zeros(1000)].concat();
    let bytes = bytes_of(&input);
    let with_frames = |sizes: &[usize]| {
        let mut harness = Harness::new(HarnessConfig::default());
        let (mut rest, mut sizes) = (bytes.as_slice(), sizes.iter().cycle());
        while !rest.is_empty() {
            let (frame, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            harness.send_binary(frame);
            harness.advance(Duration::from_micros(1_000_000 * frame.len() as u64 / 32_000));
            rest = after;
        }
        harness.advance(secs(3));
        assert_eq!(errors(&harness), []);
        heard_samples(&harness)
    };
    let expected = with_frames(&[1280]);
    assert!(!expected.is_empty());
    for sizes in [&[641][..], &[1, 2, 3, 4095], &[8192], &[640, 0, 639]] {
        assert!(with_frames(sizes) == expected, "frames of {sizes:?} bytes change the audio");
    }
}

#[test]
fn minute_without_audio_ends_session() {
    let mut harness = Harness::new(HarnessConfig::default());
    harness.advance(secs(30));
    harness.send_binary(&[]);
    harness.advance(secs(30));
    // Only audio and spoken text count as activity.
    harness.send_json(&json!({"type": "session.configure"}));
    harness.advance(ms(29_999));
    assert_eq!(harness.names(), ["session.created"]);
    harness.advance(ms(1));
    assert_eq!(harness.names(), ["session.created", "session.closed", "close 1000"]);
    assert_eq!(harness.events("session.closed")[0]["reason"], "inactivity_timeout");
    assert!(harness.finished);
}

#[test]
fn listening_client_is_not_idle() {
    let mut harness = Harness::new(HarnessConfig::default());
    let mut config = HarnessConfig::default().simulator;
    config.timing.speech_second = secs(20);
    harness.replace_gateway(config);
    send_speak(&mut harness, LONG, "slow");
    harness.next_event("tts.speaking_start");
    harness.wait_until(|harness| !harness.events("tts.speaking_end").is_empty(), secs(120));
    assert!(harness.now() > secs(80), "this test is too short");
    let ended = harness.now();
    harness.wait_until(|harness| harness.finished, secs(61));
    assert_eq!(harness.now() - ended, secs(60));
}

#[test]
fn two_hundred_chat_sessions_share_one_worker() {
    let mut harness = Harness::new(HarnessConfig { latency: ms(5), ..HarnessConfig::default() }.workers(1));
    for _ in 0..100 {
        assert_transcribes(&mut harness);
        assert_speaks(&mut harness);
    }
    assert!(harness.dial_count() >= 200);
    assert_eq!(harness.received_count("session_failed"), 0, "a worker rejected a session");
    assert_eq!(errors(&harness), []);
    assert_closes_cleanly(harness);
}

#[test]
fn audio_stopping_mid_speech_ends_utterance() {
    let mut harness = Harness::new(HarnessConfig::default());
    harness.stream(&voice(1500), 20);
    harness.advance(ms(2900));
    assert!(harness.events("vad.speech_end").is_empty(), "a short network pause is tolerated");
    harness.advance(secs(2));
    let events: Vec<String> =
        harness.names().into_iter().filter(|name| name != "transcript.partial").collect();
    assert_eq!(events, ["session.created", "vad.speech_start", "transcript.final", "vad.speech_end"]);
    let words = harness.events("transcript.final")[0]["text"].clone();
    assert_eq!(words, "simulated transcript: 1.50 s of speech", "to the last sample");
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn interim_transcripts_come_during_speech_when_enabled() {
    let mut config = HarnessConfig::default();
    config.change_file(MappingKind::Profile, "speech", &[("interim_ms = 0 ", "interim_ms = 1000 ")]);
    let mut harness = Harness::new(config);
    harness.stream(&voice(5000), 20);
    let partials: Vec<u64> = harness
        .events("transcript.partial")
        .iter()
        .map(|event| event["timestamp_ms"].as_u64().unwrap())
        .collect();
    assert!(partials.len() >= 3 && partials.is_sorted(), "{partials:?}");
    assert!(harness.events("transcript.final").is_empty());
    harness.stream(&zeros(1000), 20);
    harness.advance(secs(2));
    assert_eq!(harness.events("transcript.final").len(), 1);
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}

/// Texts of the partial transcripts after the end of an utterance of 2.5 s.
fn late_partials(config: HarnessConfig) -> Vec<String> {
    let mut harness = Harness::new(config);
    harness.stream(&[voice(2500), zeros(200)].concat(), 20);
    let early = harness.events("transcript.partial").len();
    harness.stream(&zeros(1000), 20);
    harness.advance(secs(5));
    assert_eq!(harness.events("transcript.final").len(), 1, "{:?}", harness.names());
    let partials = harness.events("transcript.partial");
    partials[early..].iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn partials_of_the_final_decode_wait_until_they_exceed_the_interim_transcript() {
    let config = || HarnessConfig { latency: ms(20), ..HarnessConfig::default() };
    let all = late_partials(config());
    assert!(all.len() > 2 && all[0] == "simulated", "{all:?}");
    let rest = late_partials(HarnessConfig { profile: "live", ..config() });
    assert!(!rest.is_empty() && all.ends_with(&rest) && rest.len() < all.len(), "{rest:?} of {all:?}");
}

#[test]
fn partials_of_a_second_attempt_wait_until_they_exceed_those_of_the_first() {
    let partials = late_partials(HarnessConfig::with_faults(&["die-mid-answer=3,times=1"]));
    assert!(partials.len() > 2 && partials.is_sorted_by_key(String::len), "{partials:?}");
}

#[test]
fn utterance_keeps_language_of_its_time() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["slow-init=3"]));
    harness.send_json(&json!({"type": "session.configure", "language": "zh", "hot_words": ["Macaw"]}));
    harness.stream(&utterance(), 40);
    harness.send_json(&json!({"type": "session.configure", "language": "en", "hot_words": []}));
    harness.wait_until(|harness| !harness.events("transcript.final").is_empty(), secs(10));
    assert_eq!(harness.events("transcript.final")[0]["language"], "zh");
    let questions = harness.sent_containing("input.append");
    assert!(questions[0].contains("请仔细听") && questions[0].contains("Macaw"));
    assert_closes_cleanly(harness);
}

#[test]
fn disconnect_waits_for_answer_before_session_close() {
    let mut harness = Harness::new(HarnessConfig::default());
    harness.stream(&[voice(1200), zeros(400)].concat(), 20);
    let question_sent =
        harness.run_until(|harness| !harness.sent_containing("input.append").is_empty(), secs(5));
    assert!(question_sent.is_some() && harness.events("transcript.final").is_empty());
    harness.close_client();
    harness.advance(secs(10));
    assert!(harness.finished);
    let order: Vec<&str> = harness
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
fn client_waiting_for_transcript_is_not_idle() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["slow-init=58,times=2"]));
    harness.stream(&voice(1500), 20);
    harness.advance(secs(70));
    assert_eq!(harness.events("transcript.final").len(), 1, "{:?}", harness.names());
    assert!(harness.events("session.closed").is_empty());
    harness.advance(secs(70));
    assert_eq!(harness.events("session.closed")[0]["reason"], "inactivity_timeout");
}

#[test]
fn transcript_that_never_ends_is_an_error_and_its_partials_are_bounded() {
    let mut harness = Harness::new(HarnessConfig { latency: ms(500), ..HarnessConfig::with_faults(&[]) });
    harness.stream(&utterance(), 40);
    let is_requested = |harness: &Harness| harness.sent_containing("input.append").len() == 1;
    harness.run_until(|harness| is_requested(harness), secs(20)).unwrap();
    let lane = harness.lanes()[0];
    let piece = json!({"type": "response.output.delta", "kind": "text", "text": "and so on "}).to_string();
    for _ in 0..20_000 {
        harness.inject_upstream_text(lane, &piece);
    }
    let partial_bytes: usize = harness.texts.iter().map(String::len).sum();
    assert!(partial_bytes < 5_000_000, "{partial_bytes} bytes");
    harness.run_until(|harness| !harness.events("vad.speech_end").is_empty(), secs(20)).unwrap();
    let errors = errors(&harness);
    assert!(errors.len() == 1 && errors[0].1.contains("more than 65536 bytes"), "{errors:?}");
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn language_without_prompt_is_noted_once() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&[]));
    let notes = |harness: &Harness| {
        let notes = harness.observations.iter().filter_map(|it| match it {
            Observation::NoEffect(note) if note.contains("no transcription prompt") => Some(note.clone()),
            _ => None,
        });
        notes.collect::<Vec<_>>()
    };
    for (language, expected) in [("zh", 0), ("en-GB", 0), ("de", 1), ("de", 1), ("fr", 2)] {
        harness.send_json(&json!({"type": "session.configure", "language": language}));
        assert_eq!(notes(&harness).len(), expected, "{language}");
    }
    assert!(notes(&harness)[0].contains(r#"language "de""#) && notes(&harness)[0].contains(r#"for "en""#));
    assert_transcribes(&mut harness);
}

/// Frames of an eighth of a millisecond: rounded one by one, they would count as eight times as much.
#[test]
fn dropped_audio_is_reported_once_a_second_without_rounding_errors() {
    let mut harness = Harness::new(HarnessConfig::default());
    harness.send_binary(&bytes_of(&zeros(10_000)));
    for _ in 0..8_000 {
        harness.send_binary(&[0; 4]);
    }
    assert_eq!(harness.events("session.frames_dropped").len(), 1, "the others wait for a second");
    harness.advance(secs(2));
    let reported = harness.events("session.frames_dropped").into_iter();
    let reported: Vec<u64> = reported.map(|event| event["dropped_ms"].as_u64().unwrap()).collect();
    assert_eq!(reported, [1, 999]);
    // The second one waits for a second, which the session does not last.
    for samples in [3_000, 4_000] {
        harness.send_binary(&bytes_of(&zeros(samples)));
    }
    harness.send_json(&json!({"type": "session.close"}));
    let reported = harness.events("session.frames_dropped").into_iter();
    let reported: Vec<u64> = reported.map(|event| event["dropped_ms"].as_u64().unwrap()).collect();
    assert_eq!(reported, [1, 999, 3_000, 4_000], "before the session closes: {:?}", harness.names());
}

#[test]
fn audio_instead_of_a_transcript_does_not_put_off_the_error() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["never-answers,times=2"]));
    harness.stream(&utterance(), 40);
    let audio = base64::Engine::encode(&STANDARD, [0; 64]);
    let audio = json!({"type": "response.output.delta", "kind": "audio", "audio": audio}).to_string();
    let from = harness.now();
    while errors(&harness).is_empty() && harness.now() < from + secs(170) {
        harness.advance(secs(5));
        harness.lanes().into_iter().for_each(|lane| harness.inject_upstream_text(lane, &audio));
    }
    assert!(harness.now() < from + secs(90), "{:?}", harness.now() - from);
    assert!(
        errors(&harness)[0].1.contains("did not answer within 15000 ms (2 attempts"),
        "{:?}",
        errors(&harness)
    );
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}
