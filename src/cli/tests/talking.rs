//! Tests of `talk`.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::super::client::{Client, ClientTiming};
use super::super::error::ClientError;
use super::super::talk::{SpokenAnswer, ask_question};
use super::fake::{self, FakePeer};
use super::{quick_timing, target};

async fn ask_server(url: &str, samples: &[i16]) -> Result<SpokenAnswer, ClientError> {
    let (mut client, _) = Client::connect(&target(url), quick_timing()).await.unwrap();
    let answer = ask_question(&mut client, samples).await;
    client.close(|_| {}).await;
    answer
}

async fn send_answer(peer: &mut FakePeer, words: &str, sample_byte: u8, cancelled: bool) {
    peer.send_event(json!({"type": "tts.speaking_start", "request_id": "turn_1"})).await;
    peer.send_audio(&[sample_byte; 4]).await;
    peer.send_event(json!({"type": "transcript.final", "text": words, "speaker": "assistant"})).await;
    peer.send_event(json!({"type": "tts.speaking_end", "request_id": "turn_1", "cancelled": cancelled}))
        .await;
}

#[tokio::test(start_paused = true)]
async fn interrupted_answer_is_replaced_by_answer_to_whole_question() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.wait_for_audio(640).await;
        send_answer(&mut peer, "What", 1, true).await;
        peer.wait_for_audio(64_000).await;
        peer.send_event(json!({"type": "transcript.final", "text": "mine", "speaker": "user"})).await;
        send_answer(&mut peer, "Forty-two.", 2, false).await;
        peer.close_with_frame().await
    })
    .await;
    let mut question = vec![0; 16_000];
    question[8000] = 10_000;
    let answer = ask_server(&url, &question).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.speech.to_wav()[44..].to_vec()), ("Forty-two.", vec![2; 4]));
    assert!(!answer.latency.is_zero());
    assert!(server.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn transcript_without_a_speaker_ends_the_wait_for_an_answer() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        for event in ["vad.speech_start", "vad.speech_end"] {
            peer.send_event(json!({"type": event})).await;
        }
        // Longer than the question.
        peer.wait_for_audio(2 * 640).await;
        peer.send_event(json!({"type": "transcript.final", "text": "mine"})).await;
        peer.close_with_frame().await
    })
    .await;
    // A fixed time would be over only after an hour.
    let timing = ClientTiming { transcript_only_timeout: Duration::from_secs(3600), ..quick_timing() };
    let (mut client, _) = Client::connect(&target(&url), timing).await.unwrap();
    let error = ask_question(&mut client, &[0; 640]).await.unwrap_err();
    assert!(matches!(error, ClientError::NoConversation), "{error}");
}

#[tokio::test(start_paused = true)]
async fn server_that_only_transcribes_is_reported_at_once() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.wait_for_audio(640).await;
        peer.send_event(json!({"type": "transcript.final", "text": "mine", "speaker": "user"})).await;
        peer.close_with_frame().await
    })
    .await;
    let error = ask_server(&url, &[0; 640]).await.unwrap_err();
    assert!(matches!(error, ClientError::NoConversation), "{error}");
}

#[tokio::test(start_paused = true)]
async fn missing_answer_and_server_error_are_reported() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.close_with_frame().await
    })
    .await;
    let (mut client, _) = Client::connect(&target(&url), quick_timing()).await.unwrap();
    let started = Instant::now();
    let error = ask_question(&mut client, &[0; 640]).await.unwrap_err();
    assert!(matches!(error, ClientError::NotHeard(_)), "{error}");
    assert!(started.elapsed() < quick_timing().answer_timeout, "the client waits for an answer");
    client.close(|_| {}).await;
    for sign in [json!({"type": "vad.speech_start"}), json!({"type": "session.hold", "queue_position": 2})] {
        let (url, _server) = fake::serve(|mut peer| async move {
            peer.send_created().await;
            peer.send_event(sign).await;
            peer.close_with_frame().await
        })
        .await;
        assert!(matches!(ask_server(&url, &[0; 640]).await, Err(ClientError::Stalled(_))));
    }
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        let error =
            json!({"type": "error", "code": "worker_unavailable", "message": "gone", "recoverable": false});
        peer.send_event(error).await;
        peer.close_with_frame().await
    })
    .await;
    let error = ask_server(&url, &[0; 640]).await.unwrap_err().to_string();
    assert!(error.contains("worker_unavailable") && error.contains("gone"), "{error}");
}
