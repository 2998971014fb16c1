//! `transcribe` against a server that hears what the test says.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::super::error::ClientError;
use super::super::transcribe::transcribe;
use super::super::view::View;
use super::fake::{self, Peer};
use super::{quick, target};
use crate::audio::wav;
use crate::cli::stream_recording::{self, FRAME_SAMPLES};

/// Half a second of something to hear; no whole number of frames.
const RECORDING: [i16; 8001] = [4000; 8001];

/// Bytes of a recording in whole frames.
const RECORDING_BYTES: usize = RECORDING.len().div_ceil(FRAME_SAMPLES) * FRAME_SAMPLES * 2;

async fn transcribed(url: &str, json: bool) -> (String, Result<(), ClientError>) {
    let mut out = Vec::new();
    let result = transcribe(&target(url), quick(), &RECORDING, View::plain(&mut out, json)).await;
    (String::from_utf8(out).unwrap(), result)
}

fn finished(text: &str, segment_id: u32) -> Value {
    json!({"type": "transcript.final", "text": text, "segment_id": segment_id})
}

/// One utterance with its transcript, as every server sends it.
async fn utterance(peer: &mut Peer, text: &str, segment_id: u32) {
    peer.say(json!({"type": "vad.speech_start", "timestamp_ms": 1})).await;
    peer.say(json!({"type": "transcript.partial", "text": "h", "segment_id": segment_id})).await;
    peer.say(finished(text, segment_id)).await;
    peer.say(json!({"type": "vad.speech_end", "timestamp_ms": 2})).await;
}

#[tokio::test]
async fn every_transcript_is_a_line_and_silence_follows_the_recording() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        utterance(&mut peer, "hello\nthere", 0).await;
        // The second utterance ends only because 1.5 s of silence follow.
        peer.hear(RECORDING_BYTES).await;
        peer.say(json!({"type": "vad.speech_start"})).await;
        peer.hear(RECORDING_BYTES + 48_000).await;
        peer.say(finished("you", 1)).await;
        peer.say(json!({"type": "vad.speech_end"})).await;
        peer.goodbye().await
    })
    .await;
    let (out, result) = transcribed(&url, false).await;
    result.unwrap();
    assert_eq!(out, "hello there\nyou\n");
    assert!(server.await.unwrap(), "session.close came");
}

#[tokio::test]
async fn json_prints_every_event_as_it_came() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        utterance(&mut peer, "hello", 0).await;
        peer.hang_up().await
    })
    .await;
    let (out, result) = transcribed(&url, true).await;
    result.unwrap();
    let types: Vec<String> = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        types,
        [
            "session.created",
            "vad.speech_start",
            "transcript.partial",
            "transcript.final",
            "vad.speech_end",
            "session.closed"
        ]
    );
    assert!(server.await.unwrap());
}

#[tokio::test]
async fn a_transcript_later_than_its_speech_end_is_not_missed() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.created().await;
        peer.say(json!({"type": "vad.speech_start"})).await;
        peer.say(json!({"type": "vad.speech_end"})).await;
        // Later than `quiet`, sooner than `late`, counted from when the client is only waiting.
        peer.hear(RECORDING_BYTES + 48_000 + 250 * 1280).await;
        peer.say(finished("late", 0)).await;
        peer.goodbye().await
    })
    .await;
    let (out, result) = transcribed(&url, false).await;
    result.unwrap();
    assert_eq!(out, "late\n");
}

#[tokio::test]
async fn no_speech_is_no_failure() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        peer.goodbye().await
    })
    .await;
    let (out, result) = transcribed(&url, false).await;
    result.unwrap();
    assert_eq!(out, "");
    assert!(server.await.unwrap());
}

#[tokio::test]
async fn an_error_that_ends_the_session_ends_the_command() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.created().await;
        utterance(&mut peer, "kept", 0).await;
        let error =
            json!({"type": "error", "code": "internal_error", "message": "boom", "recoverable": false});
        peer.say(error).await;
        peer.goodbye().await
    })
    .await;
    let (out, result) = transcribed(&url, false).await;
    assert_eq!(out, "kept\n", "what was understood is printed all the same");
    let error = result.unwrap_err();
    assert_eq!(
        (error.exit_code(), error.to_string().as_str()),
        (1, "the server reports internal_error: boom")
    );
}

#[tokio::test]
async fn an_utterance_that_failed_makes_the_transcript_incomplete() {
    for with_words in [true, false] {
        let (url, _server) = fake::serve(move |mut peer| async move {
            peer.created().await;
            if with_words {
                utterance(&mut peer, "one", 0).await;
            }
            peer.say(json!({"type": "vad.speech_start"})).await;
            peer.say(json!({"type": "error", "code": "worker_crash", "message": "m", "recoverable": true}))
                .await;
            peer.say(json!({"type": "vad.speech_end"})).await;
            peer.goodbye().await
        })
        .await;
        let (out, result) = transcribed(&url, false).await;
        let error = result.unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("worker_crash"));
        assert_eq!(matches!(error, ClientError::Incomplete { count: 1, .. }), with_words);
        assert_eq!(out, if with_words { "one\n" } else { "" });
    }
}

#[tokio::test]
async fn a_connection_that_ends_midway_is_a_failure() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.created().await;
        peer.hear(4 * 1280).await;
        peer.close(CloseCode::Away, "server_shutdown").await;
        while peer.command().await.is_some() {}
    })
    .await;
    let (_, result) = transcribed(&url, false).await;
    let words = result.unwrap_err().to_string();
    assert_eq!(words, "the connection was lost: the server closed it with 1001 server_shutdown");

    let (url, _server) = fake::serve(|mut peer| async move {
        peer.created().await;
        peer.hear(4 * 1280).await;
    })
    .await;
    let (_, result) = transcribed(&url, false).await;
    assert_eq!(result.unwrap_err().exit_code(), 1);
}

#[tokio::test]
async fn an_utterance_that_never_ends_is_given_up() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        peer.say(json!({"type": "vad.speech_start"})).await;
        peer.goodbye().await
    })
    .await;
    let (_, result) = transcribed(&url, false).await;
    assert!(matches!(result, Err(ClientError::Stalled(_))), "{result:?}");
    assert!(server.await.unwrap(), "polite all the same");
}

#[test]
fn any_wav_becomes_16_khz_and_nothing_else_does() {
    let second = wav::write_s16(&vec![1000; 44_100], 44_100);
    let samples = stream_recording::samples_of(&second, "x.wav").unwrap();
    assert!(samples.len().abs_diff(16_000) < 50, "{}", samples.len());
    let error = stream_recording::samples_of(b"ID3 this is an mp3", "x.mp3").unwrap_err();
    assert_eq!(error.exit_code(), 65);
    assert!(error.to_string().starts_with("x.mp3: not a readable WAV file"), "{error}");
}
