//! `speak` and the demo's client against a server that speaks what the test says.

use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::super::client::Client;
use super::super::demo::RECORDING;
use super::super::error::ClientError;
use super::super::speak::{Speech, speak};
use super::fake::{self, Peer};
use super::{quick, target};
use crate::cli::demo;

async fn spoken(url: &str, text: &str) -> (Speech, Result<(), ClientError>) {
    let mut speech = Speech::default();
    let result = speak(&target(url), quick(), text, Some("anna"), &mut speech).await;
    (speech, result)
}

/// Takes a `tts.speak` and begins to answer it.
async fn begin(peer: &mut Peer) -> Value {
    let command = peer.command().await.unwrap();
    assert_eq!(command["type"], "tts.speak");
    peer.say(json!({"type": "tts.speaking_start", "request_id": command["request_id"]})).await;
    command
}

async fn end(peer: &mut Peer, command: &Value, cancelled: bool) {
    let id = &command["request_id"];
    peer.say(json!({"type": "tts.speaking_end", "request_id": id, "cancelled": cancelled})).await;
}

#[tokio::test]
async fn frames_cut_anywhere_become_one_wav() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        let command = begin(&mut peer).await;
        peer.play(&[1, 0, 2]).await;
        peer.play(&[0, 3, 0]).await;
        // Somebody else's end is not ours.
        end(&mut peer, &json!({"request_id": "other"}), true).await;
        peer.play(&[0; 48_000]).await;
        end(&mut peer, &command, false).await;
        (command, peer.goodbye().await)
    })
    .await;
    let (speech, result) = spoken(&url, " Good morning. ").await;
    result.unwrap();
    let wav = speech.wav();
    assert_eq!(wav.len(), 44 + 48_006);
    assert_eq!(&wav[44..50], [1, 0, 2, 0, 3, 0]);
    assert_eq!(speech.duration().as_millis(), 1000);
    let (command, polite) = server.await.unwrap();
    assert_eq!(command["text"], "Good morning.");
    assert_eq!(command["voice"], "anna");
    assert!(polite);
}

#[tokio::test]
async fn a_long_text_is_spoken_piece_by_piece() {
    let text = "This sentence has forty-two characters ok. ".repeat(200);
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        let mut lengths = Vec::new();
        loop {
            let command = peer.command().await.unwrap();
            if command["type"] == "session.close" {
                return lengths;
            }
            lengths.push(command["text"].as_str().unwrap().chars().count());
            // A server of the protocol page: no request ids.
            peer.say(json!({"type": "tts.speaking_start"})).await;
            peer.play(&[lengths.len() as u8, 0]).await;
            peer.say(json!({"type": "tts.speaking_end"})).await;
        }
    })
    .await;
    let (speech, result) = spoken(&url, &text).await;
    result.unwrap();
    assert_eq!(&speech.wav()[44..], [1, 0, 2, 0, 3, 0]);
    let lengths = server.await.unwrap();
    assert!(
        lengths.iter().all(|length| *length <= 4096) && lengths.iter().sum::<usize>() > 8500,
        "{lengths:?}"
    );
}

#[tokio::test]
async fn empty_frames_keep_a_slow_session_alive() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        let command = begin(&mut peer).await;
        sleep(Duration::from_millis(150)).await;
        peer.play(&[0, 0]).await;
        end(&mut peer, &command, false).await;
        peer.command().await;
        (peer.beats, peer.heard_bytes)
    })
    .await;
    spoken(&url, "slow").await.1.unwrap();
    let (beats, bytes) = server.await.unwrap();
    assert!(beats >= 2 && bytes == 0, "{beats} beats, {bytes} bytes");
}

#[tokio::test]
async fn errors_before_and_after_the_first_sound_are_failures() {
    for late in [false, true] {
        let (url, server) = fake::serve(move |mut peer| async move {
            peer.created().await;
            let command = peer.command().await.unwrap();
            if late {
                peer.say(json!({"type": "tts.speaking_start", "request_id": command["request_id"]})).await;
                peer.play(&[5, 0]).await;
            }
            peer.say(
                json!({"type": "error", "code": "tts_worker_error", "message": "m", "recoverable": true}),
            )
            .await;
            if late {
                end(&mut peer, &command, false).await;
            }
            peer.goodbye().await
        })
        .await;
        let (speech, result) = spoken(&url, "hello").await;
        assert_eq!(result.unwrap_err().to_string(), "the server reports tts_worker_error: m");
        assert_eq!(speech.wav().len(), 44 + if late { 2 } else { 0 }, "what was heard is kept");
        assert!(server.await.unwrap());
    }
}

#[tokio::test]
async fn no_sound_no_answer_and_a_lost_connection_are_failures() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.created().await;
        let command = begin(&mut peer).await;
        end(&mut peer, &command, false).await;
        peer.goodbye().await
    })
    .await;
    let error = spoken(&url, "hello").await.1.unwrap_err();
    assert!(matches!(error, ClientError::NoAudio) && error.exit_code() == 1);

    let (url, _server) = fake::serve(|mut peer| async move {
        peer.created().await;
        peer.command().await;
        peer.goodbye().await
    })
    .await;
    let error = spoken(&url, "hello").await.1.unwrap_err();
    assert!(matches!(error, ClientError::Stalled(_)), "{error}");

    let (url, _server) = fake::serve(|mut peer| async move {
        peer.created().await;
        begin(&mut peer).await;
    })
    .await;
    let error = spoken(&url, "hello").await.1.unwrap_err();
    assert!(matches!(error, ClientError::Lost(_)), "{error}");
}

#[tokio::test]
async fn no_text_asks_no_server() {
    let error = spoken("ws://127.0.0.1:1", " \n ").await.1.unwrap_err();
    assert_eq!(error.exit_code(), 65);
}

#[tokio::test]
async fn the_demo_hears_its_recording_and_has_an_answer_spoken() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        peer.say(json!({"type": "vad.speech_start"})).await;
        peer.hear(RECORDING.len() - 44 + 30_000).await;
        peer.say(json!({"type": "transcript.final", "text": "ask not", "segment_id": 0})).await;
        peer.say(json!({"type": "vad.speech_end"})).await;
        let command = begin(&mut peer).await;
        peer.play(&[0; 24_000]).await;
        end(&mut peer, &command, false).await;
        (command, peer.goodbye().await)
    })
    .await;
    let directory = std::env::temp_dir().join(format!("voxbridge-demo-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let out = directory.join("out.wav");
    let heard = demo::run_client_timed(&url, RECORDING.to_vec(), true, &out, quick()).await.unwrap();
    assert_eq!(heard.transcripts, ["ask not"]);
    assert!(heard.final_latency.unwrap() > Duration::ZERO);
    let reply = heard.reply.unwrap();
    assert_eq!((reply.text.as_str(), reply.duration.as_millis()), ("You said: ask not", 500));
    assert_eq!(std::fs::read(&out).unwrap().len(), 44 + 24_000);
    std::fs::remove_dir_all(directory).unwrap();
    let (command, polite) = server.await.unwrap();
    assert_eq!(command["text"], "You said: ask not");
    assert!(polite);
}

#[tokio::test]
async fn the_client_can_run_on_any_thread() {
    fn is_send<T: Send>(it: T) -> T {
        it
    }
    let target = target("http://no");
    drop(is_send(Client::connect(&target, quick())));
    drop(is_send(demo::run_client("", Vec::new(), false, std::path::Path::new(""))));
}
