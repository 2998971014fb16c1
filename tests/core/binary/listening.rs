//! Results as they come, events for those who ask, and the verbs between the audio.

use voxbridge::audio::{encoding::Encoding, pcm};

use super::*;

fn listen(query: &str) -> Pair {
    client("deepgram-listen", query, &[])
}

fn say(pair: &mut Pair, kind: &str) {
    pair.client(&json!({ "type": kind }));
}

fn finals(pair: &Pair) -> Vec<&Value> {
    events(pair, "Results").into_iter().filter(|event| event["is_final"] == true).collect()
}

fn transcript(event: &Value) -> &str {
    event["channel"]["alternatives"][0]["transcript"].as_str().unwrap()
}

#[test]
fn a_client_that_asks_for_nothing_gets_finals_alone() {
    let mut pair = listen("");
    pair.stream(&[zeros(1000), utterance(), zeros(1500)].concat(), 40);
    assert_eq!(pair.names(), ["Results"]);
    let event = finals(&pair)[0];
    assert!(transcript(event).starts_with("simulated transcript"), "{event}");
    assert_eq!((&event["speech_final"], &event["from_finalize"]), (&json!(true), &json!(false)));
    // The voice begins at 1.0 s and ends at 2.2 s; what leads up to it and the silence after it belong to it.
    let (start, length) = (event["start"].as_f64().unwrap(), event["duration"].as_f64().unwrap());
    assert!((0.3..1.1).contains(&start) && (2.2..2.9).contains(&(start + length)), "{start} {length}");
    assert_eq!(event["metadata"]["model_info"]["name"], "nova-3");
    assert!(event["metadata"]["request_id"].as_str().unwrap().starts_with("sess_"));
    ends(&mut pair);
}

#[test]
fn a_client_that_asks_is_told_more() {
    let mut pair =
        listen("model=nova-2&interim_results=true&vad_events=true&utterance_end_ms=1000&endpointing=300");
    pair.stream(&[zeros(500), utterance(), zeros(2500), utterance(), zeros(2500)].concat(), 40);
    let mut names = pair.names();
    names.dedup();
    assert_eq!(names, ["SpeechStarted", "Results", "UtteranceEnd"].repeat(2));
    assert!(events(&pair, "Results").len() > finals(&pair).len(), "no interim results");
    let started = events(&pair, "SpeechStarted")[0]["timestamp"].as_f64().unwrap();
    let ended = events(&pair, "UtteranceEnd")[0]["last_word_end"].as_f64().unwrap();
    assert!((0.5..1.2).contains(&started) && (1.5..2.0).contains(&ended), "{started} {ended}");
    ends(&mut pair);
}

#[test]
fn an_utterance_that_goes_on_has_not_ended() {
    let mut pair = listen("utterance_end_ms=2000");
    pair.stream(&[utterance(), utterance(), utterance(), zeros(3000)].concat(), 40);
    assert_eq!((finals(&pair).len(), events(&pair, "UtteranceEnd").len()), (3, 1), "{:?}", pair.names());
    ends(&mut pair);
}

#[test]
fn every_finalize_has_its_final_and_only_that_one() {
    let mut pair = listen("");
    say(&mut pair, "Finalize");
    assert_eq!(pair.names(), ["Results"], "at once, as nothing is left");
    pair.stream(&voice(1500), 20);
    say(&mut pair, "Finalize");
    say(&mut pair, "Finalize");
    pair.advance(secs(3));
    let marked: Vec<_> = finals(&pair).iter().map(|event| event["from_finalize"] == true).collect();
    let empty: Vec<_> = finals(&pair).iter().map(|event| transcript(event).is_empty()).collect();
    assert_eq!((marked, empty), (vec![true; 3], vec![true, false, true]));
    // The next utterance is its own again.
    pair.stream(&[utterance(), zeros(1000)].concat(), 20);
    assert_eq!(finals(&pair).last().unwrap()["from_finalize"], false);
    ends(&mut pair);
}

#[test]
fn a_finalize_is_answered_though_its_utterance_fails() {
    let mut pair = client("deepgram-listen", "", &["drop-mid-answer=0,times=9"]);
    pair.stream(&voice(1500), 20);
    say(&mut pair, "Finalize");
    let answered = pair.run_until(|pair| !finals(pair).is_empty(), secs(60));
    assert!(answered.is_some(), "{:?}", pair.names());
    assert_eq!(finals(&pair)[0]["from_finalize"], true);
    assert_eq!(pair.names(), ["Error", "Results"]);
    ends(&mut pair);
}

#[test]
fn what_came_before_the_close_is_transcribed_then_accounted_for() {
    let mut pair = listen("");
    let file = [utterance(), voice(3000)].concat();
    upload(&mut pair, &file, 8000);
    say(&mut pair, "CloseStream");
    pair.client_binary(&[0; 640]);
    pair.run_until(Pair::closed, secs(60));
    assert_eq!(pair.names(), ["Results", "Results", "Metadata", "close 1000"]);
    let metadata = events(&pair, "Metadata")[0];
    assert_eq!(metadata["duration"], 5.0);
    assert!(metadata["created"].as_str().unwrap().ends_with('Z'), "{metadata}");
    assert_all_heard(&pair, file.len());
    ends(&mut pair);
}

#[test]
fn ten_minutes_of_audio_at_once_are_held_back_and_not_dropped() {
    let mut pair = client("deepgram-listen", "", &["slow-init=1"]);
    let part = [voice(20_000), zeros(1000)].concat();
    let file: Vec<i16> = part.iter().copied().cycle().take(part.len() * 30).collect();
    upload(&mut pair, &file, 64_000);
    say(&mut pair, "CloseStream");
    pair.run_until(Pair::closed, secs(600));
    assert_eq!(finals(&pair).len(), 30);
    assert_all_heard(&pair, file.len());
    ends(&mut pair);
}

#[test]
fn ten_seconds_without_audio_or_a_sign_of_life_end_the_session() {
    let mut pair = listen("");
    for _ in 0..10 {
        pair.advance(secs(8));
        say(&mut pair, "KeepAlive");
    }
    pair.advance(ms(9999));
    assert_eq!(pair.names(), [""; 0]);
    pair.advance(ms(1));
    assert_eq!(pair.names(), ["Error", "close 1011"]);
    assert_eq!(events(&pair, "Error")[0]["variant"], "NET-0001");
    assert!(closed(&pair).unwrap().1.starts_with("NET-0001"));
    ends(&mut pair);
}

#[test]
fn other_encodings_are_understood_as_well() {
    for (query, encoding) in [
        ("mulaw", Encoding::Mulaw),
        ("alaw&sample_rate=8000", Encoding::Alaw),
        ("linear32&sample_rate=8000", Encoding::F32le),
        ("linear16&sample_rate=8000", Encoding::S16le),
    ] {
        let mut pair = listen(&format!("encoding={query}"));
        let floats: Vec<f32> = voice(3000).into_iter().step_by(2).map(pcm::to_f32).collect();
        let mut bytes = Vec::new();
        encoding.push(&floats, &mut bytes);
        for frame in bytes.chunks(333) {
            pair.client_binary(frame);
        }
        say(&mut pair, "CloseStream");
        pair.run_until(Pair::closed, secs(20));
        let (account, _) = pair.bridge().account();
        assert_eq!((account.taken, finals(&pair).len()), (24_000, 1), "{query}");
        // Quantised to eight bits it is still the same sound.
        let heard: f32 = pair.heard[0].iter().map(|sample| sample * sample).sum();
        let said: f32 = floats.iter().map(|sample| sample * sample * 2.0).sum();
        assert!((0.7..1.3).contains(&(heard / said)), "{query}: {heard} {said}");
        ends(&mut pair);
    }
}

#[test]
fn settings_are_changed_while_it_runs() {
    let mut pair = listen("keyterm=Macaw&keyterm=Ara");
    pair.stream(&utterance(), 40);
    pair.client(&json!({"type": "Configure", "keyterms": ["Kea"], "features": {"numerals": true}}));
    pair.stream(&utterance(), 40);
    pair.advance(secs(3));
    let asked = pair.sent("input.append");
    assert!(asked[0].contains("Macaw, Ara") && asked[1].contains("Kea") && !asked[1].contains("Ara"));
    assert_eq!(events(&pair, "ConfigureSuccess").len(), 1);
    ends(&mut pair);
}
