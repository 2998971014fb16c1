//! Speech to text: results, optional events, and the commands between audio frames.

use super::*;

fn open_listen_client(query: &str) -> Harness {
    open_client("deepgram-listen", query, &[])
}

fn finals(harness: &Harness) -> Vec<&Value> {
    events(harness, "Results").into_iter().filter(|event| event["is_final"] == true).collect()
}

fn transcript(event: &Value) -> &str {
    event["channel"]["alternatives"][0]["transcript"].as_str().unwrap()
}

#[test]
fn default_query_yields_finals_only() {
    let mut harness = open_listen_client("");
    harness.stream(&[zeros(1000), utterance(), zeros(1500)].concat(), 40);
    assert_eq!(harness.names(), ["Results"]);
    let event = finals(&harness)[0];
    assert!(transcript(event).starts_with("simulated transcript"), "{event}");
    assert_eq!((&event["speech_final"], &event["from_finalize"]), (&json!(true), &json!(false)));
    // The voice is from 1.0 s to 2.2 s. The utterance also holds its pre-roll and the silence after it.
    let (start, length) = (event["start"].as_f64().unwrap(), event["duration"].as_f64().unwrap());
    assert!((0.3..1.1).contains(&start) && (2.2..2.9).contains(&(start + length)), "{start} {length}");
    assert_eq!(event["metadata"]["model_info"]["name"], "nova-3");
    assert_eq!(event["metadata"]["request_id"].as_str().unwrap().len(), 36);
    assert_session_ends(&mut harness);
}

#[test]
fn optional_events_are_sent_when_requested() {
    let mut harness = open_listen_client(
        "model=nova-2&interim_results=true&vad_events=true&utterance_end_ms=1000&endpointing=300",
    );
    harness.stream(&[zeros(500), utterance(), zeros(2500), utterance(), zeros(2500)].concat(), 40);
    let mut names = harness.names();
    names.dedup();
    assert_eq!(names, ["SpeechStarted", "Results", "UtteranceEnd"].repeat(2));
    assert!(events(&harness, "Results").len() > finals(&harness).len(), "no interim results");
    let started = events(&harness, "SpeechStarted")[0]["timestamp"].as_f64().unwrap();
    let ended = events(&harness, "UtteranceEnd")[0]["last_word_end"].as_f64().unwrap();
    assert!((0.5..1.2).contains(&started) && (1.5..2.0).contains(&ended), "{started} {ended}");
    assert_session_ends(&mut harness);
}

#[test]
fn utterance_end_waits_for_continuing_speech() {
    let mut harness = open_listen_client("utterance_end_ms=2000");
    harness.stream(&[utterance(), utterance(), utterance(), zeros(3000)].concat(), 40);
    assert_eq!(
        [finals(&harness).len(), events(&harness, "UtteranceEnd").len()],
        [3, 1],
        "{:?}",
        harness.names()
    );
    assert_session_ends(&mut harness);
}

#[test]
fn each_finalize_yields_exactly_one_final() {
    let mut harness = open_listen_client("");
    send_command(&mut harness, "Finalize");
    assert_eq!(harness.names(), ["Results"], "at once: no audio is pending");
    harness.stream(&voice(1500), 20);
    send_command(&mut harness, "Finalize");
    send_command(&mut harness, "Finalize");
    harness.advance(secs(3));
    let marked: Vec<_> = finals(&harness).iter().map(|event| event["from_finalize"] == true).collect();
    let empty: Vec<_> = finals(&harness).iter().map(|event| transcript(event).is_empty()).collect();
    assert_eq!((marked, empty), (vec![true; 3], vec![true, false, true]));
    let starts: Vec<f64> = finals(&harness).iter().map(|event| event["start"].as_f64().unwrap()).collect();
    assert!(starts.is_sorted() && starts[2] > 1.0, "an empty one is where the audio is: {starts:?}");
    // The next utterance is an ordinary one again.
    harness.stream(&[utterance(), zeros(1000)].concat(), 20);
    assert_eq!(finals(&harness).last().unwrap()["from_finalize"], false);
    assert_session_ends(&mut harness);
}

#[test]
fn finalize_is_answered_when_utterance_fails() {
    let mut harness = open_client("deepgram-listen", "", &["drop-mid-answer=0,times=9"]);
    harness.stream(&voice(1500), 20);
    send_command(&mut harness, "Finalize");
    harness.wait_until(|harness| !finals(harness).is_empty(), secs(60));
    assert_eq!(finals(&harness)[0]["from_finalize"], true);
    assert_eq!(harness.names(), ["Error", "Results"]);
    assert_session_ends(&mut harness);
}

#[test]
fn audio_before_close_stream_is_transcribed_before_metadata() {
    let mut harness = open_listen_client("");
    let file = [utterance(), voice(3000)].concat();
    upload(&mut harness, &file, 8000);
    send_command(&mut harness, "CloseStream");
    harness.send_binary(&[0; 640]);
    harness.run_until(Harness::is_closed, secs(60));
    assert_eq!(harness.names(), ["Results", "Results", "Metadata", "close 1000"]);
    let metadata = events(&harness, "Metadata")[0];
    assert_eq!(metadata["duration"], 5.0);
    assert!(metadata["created"].as_str().unwrap().ends_with('Z'), "{metadata}");
    assert_all_heard(&harness, file.len());
    assert_session_ends(&mut harness);
}

#[test]
fn assemblyais_times_are_whole_seconds() {
    let mut harness = open_client("assemblyai", "sample_rate=16000", &[]);
    harness.stream(&utterance(), 50);
    send_command(&mut harness, "Terminate");
    harness.wait_until(Harness::is_closed, secs(60));
    let begin = events(&harness, "Begin")[0];
    let termination = events(&harness, "Termination")[0];
    for (name, seconds) in [
        ("expires_at", &begin["expires_at"]),
        ("audio_duration_seconds", &termination["audio_duration_seconds"]),
        ("session_duration_seconds", &termination["session_duration_seconds"]),
    ] {
        assert!(seconds.is_u64(), "{name}: {seconds}");
    }
    assert!(termination["session_duration_seconds"].as_u64() >= Some(1), "{termination}");
}

#[test]
fn languages_are_recognised_in_every_spelling() {
    for (tag, prompt) in [
        ("zh", "请"),
        ("ZH-cn", "请"),
        ("cmn", "请"),
        ("cmn-Hans-CN", "请"),
        ("zho", "请"),
        ("eng", "Please"),
        ("EN", "Please"),
        ("en-GB", "Please"),
    ] {
        let mut harness = open_listen_client(&format!("language={tag}"));
        upload(&mut harness, &[utterance(), voice(500)].concat(), 8000);
        send_command(&mut harness, "CloseStream");
        harness.run_until(Harness::is_closed, secs(60));
        assert!(!harness.sent_containing(prompt).is_empty(), "{tag}");
        let ignored = harness.observations.iter().filter(|it| matches!(it, Observation::NoEffect(_))).count();
        assert_eq!(ignored, 0, "{tag}: {:?}", harness.observations);
    }
}

#[test]
fn empty_message_ends_the_stream_where_the_protocol_says_so() {
    for (client, first, last) in [
        ("deepgram-listen", None, "/type"),
        (
            "soniox",
            Some(r#"{"audio_format": "pcm_s16le", "sample_rate": 16000, "num_channels": 1}"#),
            "/finished",
        ),
    ] {
        let mut harness = open_client(client, "", &[]);
        first.into_iter().for_each(|first| harness.send_text(first));
        let file = [utterance(), voice(1000)].concat();
        upload(&mut harness, &file, 1600);
        harness.send_binary(b"");
        assert!(harness.run_until(Harness::is_closed, secs(60)).is_some(), "{client}: {:?}", harness.names());
        let sent = harness.all_events();
        let sent: Vec<&Value> = sent.collect();
        let end = sent.last().and_then(|event| event.pointer(last)).cloned();
        assert!(end == Some(json!("Metadata")) || end == Some(json!(true)), "{client}: {sent:?}");
        assert_all_heard(&harness, file.len());
        assert_session_ends(&mut harness);
    }
}

#[test]
fn ten_minute_upload_is_held_back_without_loss() {
    let mut harness = open_client("deepgram-listen", "", &["slow-init=1"]);
    let part = [voice(20_000), zeros(1000)].concat();
    let file: Vec<i16> = part.iter().copied().cycle().take(part.len() * 30).collect();
    upload(&mut harness, &file, 64_000);
    send_command(&mut harness, "CloseStream");
    harness.run_until(Harness::is_closed, secs(600));
    assert_eq!(finals(&harness).len(), 30);
    assert_all_heard(&harness, file.len());
    assert_session_ends(&mut harness);
}

#[test]
fn ten_seconds_without_audio_or_keepalive_end_session() {
    let mut harness = open_listen_client("");
    for _ in 0..10 {
        harness.advance(secs(8));
        send_command(&mut harness, "KeepAlive");
    }
    harness.advance(ms(9999));
    assert_eq!(harness.names(), [""; 0]);
    harness.advance(ms(1));
    assert_eq!(harness.names(), ["Error", "close 1011"]);
    assert_eq!(events(&harness, "Error")[0]["variant"], "NET-0001");
    assert!(close_frame(&harness).unwrap().1.starts_with("NET-0001"));
    assert_session_ends(&mut harness);
}

#[test]
fn input_encodings_are_decoded() {
    for (query, encoding) in [
        ("mulaw", Encoding::Mulaw),
        ("alaw&sample_rate=8000", Encoding::Alaw),
        ("linear32&sample_rate=8000", Encoding::F32le),
        ("linear16&sample_rate=8000", Encoding::S16le),
    ] {
        let mut harness = open_listen_client(&format!("encoding={query}"));
        let floats: Vec<f32> = voice(3000).into_iter().step_by(2).map(pcm::to_f32).collect();
        let mut bytes = Vec::new();
        encoding.encode(&floats, &mut bytes);
        for frame in bytes.chunks(333) {
            harness.send_binary(frame);
        }
        send_command(&mut harness, "CloseStream");
        harness.run_until(Harness::is_closed, secs(20));
        let (account, _) = harness.bridge().sample_counts();
        assert_eq!((account.received, finals(&harness).len()), (24_000, 1), "{query}");
        // Quantised to eight bits, the sound keeps its energy.
        let received_energy: f32 = harness.question_audio[0].iter().map(|sample| sample * sample).sum();
        let sent_energy: f32 = floats.iter().map(|sample| sample * sample * 2.0).sum();
        assert!((0.7..1.3).contains(&(received_energy / sent_energy)), "{query}: {received_energy}");
        assert_session_ends(&mut harness);
    }
}

#[test]
fn configure_changes_keyterms_mid_session() {
    let mut harness = open_listen_client("keyterm=Macaw&keyterm=Ara");
    harness.stream(&utterance(), 40);
    harness.send_json(&json!({"type": "Configure", "keyterms": ["Kea"], "features": {"numerals": true}}));
    harness.stream(&utterance(), 40);
    harness.advance(secs(3));
    let questions = harness.sent_containing("input.append");
    assert!(
        questions[0].contains("Macaw, Ara") && questions[1].contains("Kea") && !questions[1].contains("Ara")
    );
    assert_eq!(events(&harness, "ConfigureSuccess").len(), 1);
    assert_session_ends(&mut harness);
}
