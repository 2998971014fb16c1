//! Tests of `transcribe`.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::super::error::ClientError;
use super::super::transcribe::transcribe;
use super::super::view::TranscriptView;
use super::fake::{self, FakePeer};
use super::{quick_timing, target};
use crate::audio::wav;
use crate::cli::stream_recording::{self, FRAME_SAMPLES};

/// Half a second of audible samples; not a whole number of frames.
const RECORDING: [i16; 8001] = [4000; 8001];

/// Bytes of the recording, padded to whole frames.
const RECORDING_BYTES: usize = RECORDING.len().div_ceil(FRAME_SAMPLES) * FRAME_SAMPLES * 2;

async fn transcribe_recording(url: &str, json: bool) -> (String, Result<(), ClientError>) {
    let mut out = Vec::new();
    let result = transcribe(
        &target(url),
        quick_timing(),
        &RECORDING,
        TranscriptView::without_terminal(&mut out, json),
    )
    .await;
    (String::from_utf8(out).unwrap(), result)
}

fn final_event(text: &str, segment_id: u32) -> Value {
    json!({"type": "transcript.final", "text": text, "segment_id": segment_id})
}

/// Sends the events of one utterance in the order of a real server.
async fn send_utterance(peer: &mut FakePeer, text: &str, segment_id: u32) {
    peer.send_event(json!({"type": "vad.speech_start", "timestamp_ms": 1})).await;
    peer.send_event(json!({"type": "transcript.partial", "text": "h", "segment_id": segment_id})).await;
    peer.send_event(final_event(text, segment_id)).await;
    peer.send_event(json!({"type": "vad.speech_end", "timestamp_ms": 2})).await;
}

#[tokio::test]
async fn transcripts_are_lines_and_silence_follows_recording() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        send_utterance(&mut peer, "hello\nthere", 0).await;
        // The second utterance ends only because 1.5 s of silence follow.
        peer.wait_for_audio(RECORDING_BYTES).await;
        peer.send_event(json!({"type": "vad.speech_start"})).await;
        peer.wait_for_audio(RECORDING_BYTES + 48_000).await;
        peer.send_event(final_event("you", 1)).await;
        peer.send_event(json!({"type": "vad.speech_end"})).await;
        peer.close_with_frame().await
    })
    .await;
    let (out, result) = transcribe_recording(&url, false).await;
    result.unwrap();
    assert_eq!(out, "hello there\nyou\n");
    assert!(server.await.unwrap(), "session.close was received");
}

#[tokio::test]
async fn json_output_has_every_event() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        send_utterance(&mut peer, "hello", 0).await;
        peer.close_without_frame().await
    })
    .await;
    let (out, result) = transcribe_recording(&url, true).await;
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
async fn transcript_after_its_speech_end_is_printed() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.send_event(json!({"type": "vad.speech_start"})).await;
        peer.send_event(json!({"type": "vad.speech_end"})).await;
        // Later than `quiet_timeout` and earlier than `late_transcript_timeout`, both counted from the end of the audio.
        peer.wait_for_audio(RECORDING_BYTES + 48_000 + 250 * 1280).await;
        peer.send_event(final_event("late", 0)).await;
        peer.close_with_frame().await
    })
    .await;
    let (out, result) = transcribe_recording(&url, false).await;
    result.unwrap();
    assert_eq!(out, "late\n");
}

#[tokio::test]
async fn recording_without_speech_succeeds() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.close_with_frame().await
    })
    .await;
    let (out, result) = transcribe_recording(&url, false).await;
    result.unwrap();
    assert_eq!(out, "");
    assert!(server.await.unwrap());
}

#[tokio::test]
async fn unrecoverable_error_fails_command() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        send_utterance(&mut peer, "kept", 0).await;
        let error =
            json!({"type": "error", "code": "internal_error", "message": "boom", "recoverable": false});
        peer.send_event(error).await;
        peer.close_with_frame().await
    })
    .await;
    let (out, result) = transcribe_recording(&url, false).await;
    assert_eq!(out, "kept\n", "transcripts before the error are printed");
    let error = result.unwrap_err();
    assert_eq!(
        (error.exit_code(), error.to_string().as_str()),
        (1, "the server reports internal_error: boom")
    );
}

#[tokio::test]
async fn failed_utterance_makes_transcript_incomplete() {
    for with_words in [true, false] {
        let (url, _server) = fake::serve(move |mut peer| async move {
            peer.send_created().await;
            if with_words {
                send_utterance(&mut peer, "one", 0).await;
            }
            peer.send_event(json!({"type": "vad.speech_start"})).await;
            peer.send_event(
                json!({"type": "error", "code": "worker_crash", "message": "m", "recoverable": true}),
            )
            .await;
            peer.send_event(json!({"type": "vad.speech_end"})).await;
            peer.close_with_frame().await
        })
        .await;
        let (out, result) = transcribe_recording(&url, false).await;
        let error = result.unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("worker_crash"));
        assert_eq!(matches!(error, ClientError::IncompleteTranscript { count: 1, .. }), with_words);
        assert_eq!(out, if with_words { "one\n" } else { "" });
    }
}

#[tokio::test]
async fn connection_lost_midway_fails() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.wait_for_audio(4 * 1280).await;
        peer.send_close_frame(CloseCode::Away, "server_shutdown").await;
        while peer.next_command().await.is_some() {}
    })
    .await;
    let (_, result) = transcribe_recording(&url, false).await;
    let message = result.unwrap_err().to_string();
    assert_eq!(message, "the connection was lost: the server closed it with 1001 server_shutdown");

    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.wait_for_audio(4 * 1280).await;
    })
    .await;
    let (_, result) = transcribe_recording(&url, false).await;
    assert_eq!(result.unwrap_err().exit_code(), 1);
}

#[tokio::test]
async fn endless_utterance_is_given_up() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.send_event(json!({"type": "vad.speech_start"})).await;
        peer.close_with_frame().await
    })
    .await;
    let (_, result) = transcribe_recording(&url, false).await;
    assert!(matches!(result, Err(ClientError::Stalled(_))), "{result:?}");
    assert!(server.await.unwrap(), "the session is closed cleanly");
}

#[test]
fn wav_is_resampled_to_16_khz_and_other_formats_are_rejected() {
    let second = wav::write_s16(&vec![1000; 44_100], 44_100);
    let samples = stream_recording::decode_wav(&second, "x.wav").unwrap();
    assert!(samples.len().abs_diff(16_000) < 50, "{}", samples.len());
    let error = stream_recording::decode_wav(b"ID3 this is an mp3", "x.mp3").unwrap_err();
    assert_eq!(error.exit_code(), 65);
    assert!(error.to_string().starts_with("x.mp3: not a readable WAV file"), "{error}");
}
