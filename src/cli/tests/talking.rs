//! `talk` against a server that answers when the test says.

use serde_json::json;

use super::super::client::Client;
use super::super::error::ClientError;
use super::super::talk::{Answer, ask};
use super::fake::{self, Peer};
use super::{quick, target};

async fn asked(url: &str, samples: &[i16]) -> Result<Answer, ClientError> {
    let (mut client, _) = Client::connect(&target(url), quick()).await.unwrap();
    let answer = ask(&mut client, samples).await;
    client.close(|_| {}).await;
    answer
}

async fn answer(peer: &mut Peer, words: &str, sound: u8, cancelled: bool) {
    peer.say(json!({"type": "tts.speaking_start", "request_id": "turn_1"})).await;
    peer.play(&[sound; 4]).await;
    peer.say(json!({"type": "transcript.final", "text": words, "speaker": "assistant"})).await;
    peer.say(json!({"type": "tts.speaking_end", "request_id": "turn_1", "cancelled": cancelled})).await;
}

#[tokio::test]
async fn the_answer_to_the_whole_question_is_the_one_that_counts() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        peer.hear(640).await;
        answer(&mut peer, "What", 1, true).await;
        peer.hear(64_000).await;
        peer.say(json!({"type": "transcript.final", "text": "mine", "speaker": "user"})).await;
        answer(&mut peer, "Forty-two.", 2, false).await;
        peer.goodbye().await
    })
    .await;
    let mut question = vec![0; 16_000];
    question[8000] = 10_000;
    let answer = asked(&url, &question).await.unwrap();
    assert_eq!((answer.words.as_str(), answer.speech.wav()[44..].to_vec()), ("Forty-two.", vec![2; 4]));
    assert!(!answer.latency.is_zero());
    assert!(server.await.unwrap());
}

#[tokio::test]
async fn no_answer_and_an_end_say_so() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.created().await;
        peer.goodbye().await
    })
    .await;
    assert!(matches!(asked(&url, &[0; 640]).await, Err(ClientError::Stalled(_))));
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.created().await;
        let error =
            json!({"type": "error", "code": "worker_unavailable", "message": "gone", "recoverable": false});
        peer.say(error).await;
        peer.goodbye().await
    })
    .await;
    let error = asked(&url, &[0; 640]).await.unwrap_err().to_string();
    assert!(error.contains("worker_unavailable") && error.contains("gone"), "{error}");
}
