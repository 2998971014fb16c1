//! Estimated word times: off by default, in seconds of the client's audio, for clients that want them.

use super::*;

/// Opens a client of this protocol with a profile that estimates word times.
fn open_estimating(protocol: &'static str, query: &str) -> Harness {
    let config = HarnessConfig::of(protocol, "speech", query);
    Harness::new(config.with_profile("word-times", "speech", "[hear]\nestimated_word_times = true\n"))
}

/// Checks that the words are those of the text, in order of time and inside of this range of seconds.
fn assert_words(words: &Value, key: &str, text: &str, range: std::ops::Range<f64>) {
    let words = words.as_array().unwrap();
    let joined: Vec<&str> = words.iter().map(|word| word[key].as_str().unwrap()).collect();
    assert_eq!(joined.join(" "), text);
    let times: Vec<f64> =
        words.iter().flat_map(|word| [&word["start"], &word["end"]]).map(|at| at.as_f64().unwrap()).collect();
    assert!(times.is_sorted() && times.iter().all(|at| range.contains(at)), "{times:?} not in {range:?}");
    assert!(words.iter().all(|word| word["estimated"] == true), "{words:?}");
}

#[test]
fn vosk_client_gets_words_in_seconds_of_its_audio() {
    let mut harness = open_estimating("vosk", "");
    harness.send_text(r#"{"config": {"words": true}}"#);
    // The default rate is 8 kHz, so that a second of the client's audio has 8000 samples.
    let audio = [zeros(3000), voice(1500), zeros(1000)].concat();
    let half: Vec<i16> = audio.into_iter().step_by(2).collect();
    harness.stream(&half, 100);
    harness.send_text(r#"{"eof": 1}"#);
    harness.run_until(Harness::is_closed, secs(20));
    let finals = events(&harness, "result");
    let [last] = finals.as_slice() else { panic!("{finals:?}") };
    let text = last["text"].as_str().unwrap();
    assert!(text.starts_with("simulated transcript"), "{text}");
    // The voice begins after 3 s. A detector may find the first and last hops of speech a little late or early.
    assert_words(&last["result"], "word", text, 2.9..4.7);
    assert!(last["result"].as_array().unwrap().iter().all(|word| word["conf"] == 1.0));
}

#[test]
fn joined_vosk_results_have_the_words_of_all_utterances() {
    let mut harness = open_estimating("vosk", "");
    harness.send_text(r#"{"config": {"words": true, "sample_rate": 16000}}"#);
    upload(&mut harness, &[utterance(), utterance(), utterance()].concat(), 3200);
    harness.send_text(r#"{"eof": 1}"#);
    harness.run_until(Harness::is_closed, secs(20));
    let finals = events(&harness, "result");
    let [last] = finals.as_slice() else { panic!("{finals:?}") };
    let text = last["text"].as_str().unwrap();
    assert_eq!(text.matches("simulated transcript").count(), 3);
    assert_words(&last["result"], "word", text, 0.0..6.0);
}

#[test]
fn word_times_need_both_the_profile_and_the_client() {
    let mut unasked = open_estimating("vosk", "");
    let mut off_in_profile = open_client("vosk", "", &[]);
    off_in_profile.send_text(r#"{"config": {"words": true, "sample_rate": 16000}}"#);
    unasked.send_text(r#"{"config": {"sample_rate": 16000}}"#);
    for mut harness in [unasked, off_in_profile] {
        upload(&mut harness, &utterance(), 3200);
        harness.send_text(r#"{"eof": 1}"#);
        harness.run_until(Harness::is_closed, secs(20));
        let finals = events(&harness, "text");
        let [last] = finals.as_slice() else { panic!("{finals:?}") };
        assert_eq!(last.as_object().unwrap().keys().collect::<Vec<_>>(), ["text"]);
    }
}

#[test]
fn deepgram_client_gets_words_inside_each_utterance() {
    let mut harness = open_estimating("deepgram-listen", "model=nova-3");
    harness.stream(&[zeros(1000), utterance(), utterance(), zeros(500)].concat(), 40);
    harness.advance(secs(2));
    let finals = events(&harness, "Results");
    assert_eq!(finals.len(), 2, "{finals:?}");
    for (last, range) in finals.into_iter().zip([0.9..2.6, 2.9..4.6]) {
        let heard = &last["channel"]["alternatives"][0];
        assert_words(&heard["words"], "punctuated_word", heard["transcript"].as_str().unwrap(), range);
        assert_eq!(heard["words"][1]["word"], "transcript", "without its colon");
        assert_eq!(heard["words"][1]["confidence"], 1.0);
    }
    assert_session_ends(&mut harness);
}

#[test]
fn deepgram_words_are_an_empty_list_without_estimates() {
    let mut harness = open_client("deepgram-listen", "model=nova-3", &[]);
    harness.stream(&[utterance(), zeros(500)].concat(), 40);
    harness.advance(secs(2));
    let finals = events(&harness, "Results");
    assert_eq!(finals.last().unwrap()["channel"]["alternatives"][0]["words"], json!([]));
}

// LiveKit makes its interim transcripts of the words of a turn.
#[test]
fn assemblyai_words_have_the_times_of_their_turn_without_estimates() {
    let mut harness = open_client("assemblyai", "sample_rate=16000&encoding=pcm_s16le", &[]);
    harness.stream(&[zeros(1000), voice(1500), zeros(1500)].concat(), 100);
    let has_ended = |harness: &Harness| events(harness, "Turn").iter().any(|it| it["end_of_turn"] == true);
    harness.run_until(has_ended, secs(20));
    let turns = events(&harness, "Turn");
    assert!(turns.len() > 1, "no interim words: {turns:?}");
    for turn in turns {
        let words = turn["words"].as_array().unwrap();
        let joined: Vec<_> = words.iter().map(|word| word["text"].as_str().unwrap()).collect();
        assert_eq!(joined.join(" "), turn["transcript"].as_str().unwrap(), "{turn}");
        let is_within = |word: &Value| {
            let [start, end] = ["start", "end"].map(|key| word[key].as_u64().unwrap());
            500 < start && start < end && end < 3700
        };
        assert!(!words.is_empty() && words.iter().all(is_within), "{turn}");
    }
}

// With either of them, LiveKit takes the second message as the final one.
#[test]
fn elevenlabs_commits_are_repeated_with_words_or_the_language_where_one_is_wanted() {
    for (wanted, repeated) in [
        ("", 0),
        ("&include_language_detection=false", 0),
        ("&include_language_detection=true", 1),
        ("&include_timestamps=true", 1),
        ("&include_timestamps=true&include_language_detection=true", 1),
    ] {
        let query = format!("model_id=scribe_v2_realtime&audio_format=pcm_16000&language_code=en{wanted}");
        let mut harness = open_client("elevenlabs-listen", &query, &[]);
        let audio = STANDARD.encode(bytes_of(&voice(1200)));
        harness
            .send_json(&json!({"message_type": "input_audio_chunk", "audio_base_64": audio, "commit": true}));
        harness.advance(secs(15));
        let of_kind = |kind: &str| {
            let events = events(&harness, "message_type").into_iter();
            events.filter(|it| it["message_type"] == kind).cloned().collect::<Vec<_>>()
        };
        let committed = of_kind("committed_transcript");
        let again = of_kind("committed_transcript_with_timestamps");
        assert_eq!((committed.len(), again.len()), (1, repeated), "{wanted}");
        assert!(again.iter().all(|it| it["text"] == committed[0]["text"] && it["language_code"] == "en"));
    }
}
