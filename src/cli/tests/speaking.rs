//! Tests of `speak` and of the client of the demo.

use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::super::client::Client;
use super::super::demo::RECORDING;
use super::super::error::ClientError;
use super::super::speak::{CHUNK_MAX_CHARS, Speech, live};
use super::super::speech_audio::SpeechAudio;
use super::fake::{self, FakePeer};
use super::{quick_timing, target};
use crate::cli::demo;
use crate::session::tts::text_normalization::split_parts;

async fn speak_text(url: &str, text: &str) -> (SpeechAudio, Result<(), ClientError>) {
    let mut speech = SpeechAudio::default();
    let parts = split_parts(text, CHUNK_MAX_CHARS);
    let on_speech = |part: Speech<'_>| match part {
        Speech::Audio(audio) => speech.push(audio),
        Speech::Part(_) => Ok(()),
    };
    let result = live::speak(&target(url), quick_timing(), &parts, Some("anna"), on_speech).await;
    (speech, result)
}

/// Receives `tts.speak` and sends `tts.speaking_start`.
async fn begin_speaking(peer: &mut FakePeer) -> Value {
    let command = peer.next_command().await.unwrap();
    assert_eq!(command["type"], "tts.speak");
    peer.send_event(json!({"type": "tts.speaking_start", "request_id": command["request_id"]})).await;
    command
}

async fn end_speaking(peer: &mut FakePeer, command: &Value, cancelled: bool) {
    let id = &command["request_id"];
    peer.send_event(json!({"type": "tts.speaking_end", "request_id": id, "cancelled": cancelled})).await;
}

#[tokio::test(start_paused = true)]
async fn frames_split_within_samples_become_one_wav() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        let command = begin_speaking(&mut peer).await;
        peer.send_audio(&[1, 0, 2]).await;
        peer.send_audio(&[0, 3, 0]).await;
        // The end of another request does not end this one.
        end_speaking(&mut peer, &json!({"request_id": "other"}), true).await;
        peer.send_audio(&[0; 48_000]).await;
        end_speaking(&mut peer, &command, false).await;
        (command, peer.close_with_frame().await)
    })
    .await;
    let (speech, result) = speak_text(&url, " Good morning. ").await;
    result.unwrap();
    let wav = speech.to_wav();
    assert_eq!(wav.len(), 44 + 48_006);
    assert_eq!(&wav[44..50], [1, 0, 2, 0, 3, 0]);
    assert_eq!(speech.duration().as_millis(), 1000);
    let (command, is_polite) = server.await.unwrap();
    assert_eq!(command["text"], "Good morning.");
    assert_eq!(command["voice"], "anna");
    assert!(is_polite);
}

#[tokio::test(start_paused = true)]
async fn long_text_is_spoken_in_chunks() {
    let text = "This sentence has forty-two characters ok. ".repeat(200);
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        let mut lengths = Vec::new();
        loop {
            let command = peer.next_command().await.unwrap();
            if command["type"] == "session.close" {
                return lengths;
            }
            lengths.push(command["text"].as_str().unwrap().chars().count());
            // Servers that follow the protocol page send no request ids.
            peer.send_event(json!({"type": "tts.speaking_start"})).await;
            peer.send_audio(&[lengths.len() as u8, 0]).await;
            peer.send_event(json!({"type": "tts.speaking_end"})).await;
        }
    })
    .await;
    let (speech, result) = speak_text(&url, &text).await;
    result.unwrap();
    assert_eq!(&speech.to_wav()[44..], [1, 0, 2, 0, 3, 0]);
    let lengths = server.await.unwrap();
    assert!(
        lengths.iter().all(|length| *length <= 4096) && lengths.iter().sum::<usize>() > 8500,
        "{lengths:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn empty_frames_keep_slow_session_alive() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        let command = begin_speaking(&mut peer).await;
        // Several keep-alive intervals, which are what is tested.
        sleep(Duration::from_millis(150)).await;
        peer.send_audio(&[0, 0]).await;
        end_speaking(&mut peer, &command, false).await;
        peer.next_command().await;
        (peer.keep_alives, peer.received_bytes)
    })
    .await;
    speak_text(&url, "slow").await.1.unwrap();
    let (keep_alives, bytes) = server.await.unwrap();
    assert!(keep_alives >= 2 && bytes == 0, "{keep_alives} keep-alives, {bytes} bytes");
}

#[tokio::test(start_paused = true)]
async fn errors_before_and_after_first_audio_fail() {
    for after_first_audio in [false, true] {
        let (url, server) = fake::serve(move |mut peer| async move {
            peer.send_created().await;
            let command = peer.next_command().await.unwrap();
            if after_first_audio {
                peer.send_event(json!({"type": "tts.speaking_start", "request_id": command["request_id"]}))
                    .await;
                peer.send_audio(&[5, 0]).await;
            }
            peer.send_event(
                json!({"type": "error", "code": "tts_worker_error", "message": "m", "recoverable": true}),
            )
            .await;
            if after_first_audio {
                end_speaking(&mut peer, &command, false).await;
            }
            peer.close_with_frame().await
        })
        .await;
        let (speech, result) = speak_text(&url, "hello").await;
        assert_eq!(result.unwrap_err().to_string(), "the server reports tts_worker_error: m");
        assert_eq!(
            speech.to_wav().len(),
            44 + if after_first_audio { 2 } else { 0 },
            "audio before the error is kept"
        );
        assert!(server.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn missing_audio_stall_and_lost_connection_fail() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        let command = begin_speaking(&mut peer).await;
        end_speaking(&mut peer, &command, false).await;
        peer.close_with_frame().await
    })
    .await;
    let error = speak_text(&url, "hello").await.1.unwrap_err();
    assert!(matches!(error, ClientError::NoAudio) && error.exit_code() == 1);

    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.next_command().await;
        peer.close_with_frame().await
    })
    .await;
    let error = speak_text(&url, "hello").await.1.unwrap_err();
    assert!(matches!(error, ClientError::Stalled(_)), "{error}");

    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        begin_speaking(&mut peer).await;
    })
    .await;
    let error = speak_text(&url, "hello").await.1.unwrap_err();
    assert!(matches!(error, ClientError::ConnectionLost(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn speech_demo_transcribes_recording_and_saves_reply() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.send_event(json!({"type": "vad.speech_start"})).await;
        peer.wait_for_audio(RECORDING.len() - 44 + 30_000).await;
        peer.send_event(json!({"type": "transcript.final", "text": "ask not", "segment_id": 0})).await;
        peer.send_event(json!({"type": "vad.speech_end"})).await;
        let command = begin_speaking(&mut peer).await;
        peer.send_audio(&[0; 24_000]).await;
        end_speaking(&mut peer, &command, false).await;
        (command, peer.close_with_frame().await)
    })
    .await;
    let directory = std::env::temp_dir().join(format!("voxbridge-demo-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let out = directory.join("out.wav");
    let result = demo::run_speech_demo(&url, RECORDING.to_vec(), &out, quick_timing()).await.unwrap();
    assert_eq!(result.transcripts, ["ask not"]);
    assert!(result.final_latency.unwrap() > Duration::ZERO);
    let reply = result.reply;
    assert_eq!((reply.text.as_str(), reply.duration.as_millis()), ("You said: ask not", 500));
    assert_eq!(std::fs::read(&out).unwrap().len(), 44 + 24_000);
    std::fs::remove_dir_all(directory).unwrap();
    let (command, is_polite) = server.await.unwrap();
    assert_eq!(command["text"], "You said: ask not");
    assert!(is_polite);
}

#[tokio::test(start_paused = true)]
async fn client_futures_are_send() {
    fn assert_send<T: Send>(it: T) -> T {
        it
    }
    let target = target("http://no");
    drop(assert_send(Client::connect(&target, quick_timing())));
    drop(assert_send(demo::run_speech_demo("", Vec::new(), std::path::Path::new(""), quick_timing())));
}
