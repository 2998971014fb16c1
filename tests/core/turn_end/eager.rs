//! Questions to the model in a pause of the user's speech, before the turn is certain to be over.

use voxbridge::session::EarlyQuestionResult::{Used, Withdrawn};

use super::*;

/// Times of the questions that asked for an answer, and their messages.
fn questions(harness: &Harness) -> Vec<(Duration, Value)> {
    let sent = harness.traffic.iter().filter_map(|(at, traffic)| match traffic {
        Traffic::Sent(_, text) => Some((*at, serde_json::from_str::<Value>(text).ok()?)),
        _ => None,
    });
    let is_answer =
        |(_, message): &(Duration, Value)| message["input"]["generation"]["length_penalty"] == 1.1;
    sent.filter(is_answer).map(|(at, message)| (at, message["input"]["messages"].clone())).collect()
}

/// A session in which an utterance of 3 s is over at 3 s.
fn after_speech(config: HarnessConfig) -> Harness {
    let mut harness = Harness::new(config);
    harness.stream(&voice(3000), 20);
    harness
}

/// A session of OpenAI's client that wants text.
fn openai_session(profile: &'static str) -> Harness {
    Harness::new(HarnessConfig {
        client: "openai-realtime",
        query: "model=gpt-realtime&session=%7B%22output_modalities%22%3A%5B%22text%22%5D%7D".to_owned(),
        ..config(profile, None)
    })
}

/// Samples of the audio in the last message of a question.
fn audio_of(messages: &Value) -> usize {
    let parts = messages.as_array().unwrap().last().unwrap()["content"].as_array().unwrap();
    let audio = parts.iter().find(|part| part["type"] == "audio").expect("audio");
    audio["data"].as_str().unwrap().len() * 3 / 4 / 4
}

#[test]
fn answer_is_asked_for_in_the_pause_and_heard_at_the_end_of_the_turn() {
    let mut times = Vec::new();
    for profile in ["assistant", "eager"] {
        let mut harness = after_speech(config(profile, None));
        harness.stream(&zeros(2000), 20);
        harness.next_event("tts.speaking_end");
        let start = harness.log.iter().find(|(_, frame)| frame.name() == "tts.speaking_start").unwrap().0;
        let questions = questions(&harness);
        assert_eq!(questions.len(), 1, "{profile}");
        // Partial and user's transcripts come as they are made.
        let is_ordered = |name: &String| name.starts_with("tts.") || name.starts_with("vad.");
        let names: Vec<String> = harness.names().into_iter().filter(is_ordered).collect();
        assert_eq!(harness.events("transcript.final").len(), 2);
        times.push((questions[0].0, start, audio_of(&questions[0].1), names));
        let expected: &[_] = if profile == "eager" { &[Asked, Used] } else { &[] };
        assert_eq!(early_questions(&harness), expected);
    }
    let [(usual_question, usual_start, usual_audio, usual_names), (question, start, audio, names)] =
        &times[..]
    else {
        unreachable!()
    };
    let earlier = *usual_question - *question;
    assert!((340..=420).contains(&earlier.as_millis()), "{earlier:?}");
    assert_eq!(start, usual_question, "the answer is heard when the turn ends");
    assert!(start < usual_start);
    // The committed audio differs by the silence that ended the turn.
    assert_eq!((usual_audio - audio) as u128 / 16, earlier.as_millis());
    assert_eq!(names, usual_names, "the client gets the same events");
}

#[test]
fn question_is_withdrawn_unheard_when_the_user_goes_on() {
    let mut harness = after_speech(config("judged-eager", Some(0.1)));
    harness.stream(&zeros(900), 20);
    assert_eq!(early_questions(&harness), [Asked]);
    let before = harness.names();
    harness.stream(&voice(1000), 20);
    assert_eq!(early_questions(&harness), [Asked, Withdrawn]);
    harness.stream(&zeros(4000), 20);
    harness.next_event("tts.speaking_end");
    assert!(!before.iter().any(|name| name.starts_with("tts.") || name.starts_with("transcript")));
    assert_eq!(harness.events("tts.speaking_start").len(), 1);
    let questions = questions(&harness);
    let last = &questions.last().unwrap().1;
    assert!(audio_of(last) > 16 * 4700, "the whole utterance is asked about: {} samples", audio_of(last));
    let users = last.as_array().unwrap().iter().filter(|message| message["role"] == "user").count();
    assert_eq!(users, 1, "the withdrawn question is no part of the conversation");
    harness.send_json(&json!({"type": "session.close"}));
    harness.advance(Duration::from_secs(60));
    assert!(harness.finished && harness.connections() == 0 && harness.lost_workers() == 0);
}

#[test]
fn second_pause_has_no_early_question_while_the_first_is_drained() {
    let mut config = config("judged-eager", Some(0.1));
    config.simulator.timing.speech_second = Duration::from_secs(10);
    let mut harness = after_speech(config);
    harness.stream(&zeros(500), 20);
    harness.stream(&voice(400), 20);
    harness.stream(&zeros(500), 20);
    assert_eq!(early_questions(&harness), [Asked, Withdrawn]);
    assert_eq!(questions(&harness).len(), 1);
}

#[test]
fn no_question_is_asked_early_without_a_free_worker() {
    let mut harness = after_speech(HarnessConfig { has_free_worker: false, ..config("eager", None) });
    harness.stream(&zeros(2000), 20);
    harness.next_event("tts.speaking_end");
    assert_eq!((early_questions(&harness), questions(&harness).len()), (vec![], 1));
}

#[test]
fn conversation_that_changes_in_the_pause_is_asked_about_anew() {
    let mut harness = openai_session("eager");
    say(&mut harness, &voice(3000));
    say(&mut harness, &zeros(300));
    assert_eq!(early_questions(&harness), [Asked]);
    let dials = harness.dial_count();
    harness.send_json(&json!({"type": "conversation.item.create", "item": {
        "type": "message", "role": "user", "content": [{"type": "input_text", "text": "By the way."}],
    }}));
    assert_eq!(early_questions(&harness), [Asked, Withdrawn]);
    assert_eq!(harness.dial_count(), dials + 1, "the lane of the next question is dialled in the pause");
    say(&mut harness, &zeros(1500));
    assert_eq!(harness.events("response.done").len(), 1);
    assert_eq!(early_questions(&harness), [Asked, Withdrawn]);
    let questions = questions(&harness);
    assert_eq!(questions.len(), 2);
    assert!(questions[1].1.to_string().contains("By the way."));
    assert_eq!(harness.events("response.created").len(), 1);
}

#[test]
fn early_question_that_fails_is_replaced_in_the_pause() {
    let mut harness = after_speech(config("judged-eager", Some(0.1)));
    harness.stream(&zeros(300), 20);
    assert_eq!(early_questions(&harness), [Asked]);
    let asked_on = harness.traffic.iter().rev().find_map(|(_, traffic)| match traffic {
        Traffic::Sent(lane, text) if text.contains("length_penalty") => Some(*lane),
        _ => None,
    });
    let dials = harness.dial_count();
    harness.break_lane(asked_on.expect("a question was sent"));
    harness.stream(&zeros(300), 20);
    assert_eq!(early_questions(&harness), [Asked, Withdrawn]);
    // The broken lane's worker may refuse the first attempt.
    assert!(harness.dial_count() > dials, "the lane of the next question is dialled in the pause");
    assert!(harness.events("vad.speech_end").is_empty(), "the turn is not over");
    harness.stream(&zeros(4000), 20);
    harness.next_event("tts.speaking_end");
    assert_eq!((questions(&harness).len(), harness.events("tts.speaking_start").len()), (2, 1));
}

#[test]
fn early_question_drops_the_same_audio_of_the_history_as_the_usual_one() {
    let audio_parts = |(_, messages): &(Duration, Value)| messages.to_string().matches("\"audio\"").count();
    for (profile, utterances) in [("eager", 2), ("eager-forgetful", 1)] {
        let mut harness = openai_session(profile);
        for _ in 0..2 {
            say(&mut harness, &voice(3000));
            say(&mut harness, &zeros(4000));
        }
        assert_eq!(early_questions(&harness), [Asked, Used, Asked, Used]);
        let questions: Vec<_> = questions(&harness).iter().map(audio_parts).collect();
        assert_eq!(questions, [questions[0], utterances * questions[0]], "{profile}");
    }
}

#[test]
fn single_worker_ends_early_questions_after_the_first_was_withdrawn() {
    let single = config("judged-eager", Some(0.1)).workers(1);
    let mut harness = after_speech(single);
    harness.stream(&zeros(500), 20);
    assert_eq!(early_questions(&harness), [Asked]);
    harness.stream(&voice(500), 20);
    harness.stream(&zeros(4000), 20);
    harness.next_event("tts.speaking_end");
    harness.stream(&voice(2000), 20);
    harness.stream(&zeros(4000), 20);
    harness.next_event("tts.speaking_end");
    assert_eq!(early_questions(&harness), [Asked, Withdrawn], "the user's own answer had to queue");
}

#[test]
fn cancelled_and_closed_sessions_give_back_the_worker_of_an_early_question() {
    for command in [json!({"type": "tts.cancel"}), json!({"type": "session.close"})] {
        let mut harness = after_speech(config("eager", None));
        harness.stream(&zeros(200), 20);
        assert_eq!(early_questions(&harness), [Asked]);
        harness.send_json(&command);
        harness.advance(Duration::from_millis(50));
        assert_eq!(early_questions(&harness), [Asked, Withdrawn], "{command}");
        harness.send_json(&json!({"type": "session.close"}));
        harness.advance(Duration::from_secs(60));
        assert!(harness.finished && harness.connections() == 0, "{command}");
    }
}
