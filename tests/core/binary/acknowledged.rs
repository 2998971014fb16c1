//! Protocols that acknowledge each message with audio.

use super::*;

#[test]
fn each_message_with_audio_is_acknowledged_in_order() {
    let mut harness = open_client("speechmatics", "", &[]);
    harness.send_json(&json!({
        "message": "StartRecognition",
        "audio_format": {"type": "raw", "encoding": "pcm_s16le", "sample_rate": 16000},
        "transcription_config": {
            "language": "en", "additional_vocab": ["Norland", {"content": "Dashwood", "sounds_like": ["x"]}],
            "conversation_config": {"end_of_utterance_silence_trigger": 0.5},
        },
    }));
    for frame in utterance().chunks(320) {
        harness.send_binary(&bytes_of(frame));
        harness.advance(ms(20));
    }
    harness.send_json(&json!({"message": "EndOfStream", "last_seq_no": 100}));
    harness.run_until(Harness::is_closed, secs(30));
    let of_kind = |kind: &str| {
        let all = harness.log.iter().filter_map(|(_, frame)| match frame {
            ClientFrame::Event(event) if event["message"] == kind => Some(event.clone()),
            _ => None,
        });
        all.collect::<Vec<_>>()
    };
    let numbers: Vec<_> = of_kind("AudioAdded").iter().map(|it| it["seq_no"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    let [transcript] = &of_kind("AddTranscript")[..] else { panic!("not one transcript") };
    assert!(transcript["metadata"]["transcript"].as_str().unwrap().ends_with(' '));
    assert_eq!(of_kind("EndOfUtterance").len(), 1);
    assert_eq!((of_kind("EndOfTranscript").len(), close_frame(&harness)), (1, Some((1000, ""))));
    assert!(harness.sent_containing("Dashwood").len() == 1, "the words of the vocabulary are in the prompt");
    assert_session_ends(&mut harness);
}

#[test]
fn acknowledgement_has_bytes_and_times_of_decoded_audio() {
    let query = "encoding=wav/ulaw&sample_rate=8000&acknowledgments=true&lifecycle=false";
    let mut harness = open_client("gladia", query, &[]);
    for bytes in [160, 0, 1, 159] {
        harness.send_binary(&vec![0xff; bytes]);
    }
    harness.advance(ms(100));
    let ranges: Vec<_> = events(&harness, "acknowledged").iter().map(|it| it["data"].clone()).collect();
    let range = |bytes: [u64; 2]| ranges.iter().any(|it| it["byte_range"] == json!(bytes));
    assert!(range([0, 160]) && range([160, 161]) && range([161, 320]), "{ranges:?}");
    assert!(ranges.last().unwrap()["time_range"][1].as_f64() <= Some(0.04), "{ranges:?}");
    assert_session_ends(&mut harness);
}

// LiveKit and Pipecat send all audio so; an empty chunk keeps the connection alive.
#[test]
fn gladia_audio_in_json_is_transcribed_and_acknowledged() {
    let query = "encoding=wav/pcm&sample_rate=16000&acknowledgments=true&partials=true";
    let mut harness = open_client("gladia", query, &[]);
    let samples = utterance();
    let chunk = |audio: &[u8]| json!({"type": "audio_chunk", "data": {"chunk": STANDARD.encode(audio)}});
    for frame in samples.chunks(320) {
        harness.send_json(&chunk(&bytes_of(frame)));
        harness.advance(ms(20));
    }
    harness.send_json(&chunk(&[]));
    harness.send_json(&json!({"type": "stop_recording"}));
    harness.run_until(Harness::is_closed, secs(30));
    let finals = events(&harness, "transcript").into_iter().filter(|it| it["data"]["is_final"] == true);
    assert_eq!(finals.count(), 1, "{:?}", harness.names());
    let acknowledged = events(&harness, "acknowledged");
    let to_byte = |it: &&Value| it["data"]["byte_range"][1].as_u64();
    assert_eq!(acknowledged.iter().filter_map(to_byte).max(), Some(2 * samples.len() as u64));
    assert_all_heard(&harness, samples.len());
    assert_session_ends(&mut harness);
}
