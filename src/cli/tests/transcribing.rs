//! Tests of `transcribe`.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::super::error::ClientError;
use super::super::output::printable;
use super::super::recording::{FRAME_SAMPLES, Recording};
use super::super::transcribe::{Transcribed, live};
use super::super::view::{Printed, Progress, Terminal};
use super::fake::{self, FakePeer};
use super::{quick_timing, target};
use crate::audio::wav;

/// Half a second of audible samples; not a whole number of frames.
const RECORDING: [i16; 8001] = [4000; 8001];

/// Bytes of the recording, padded to whole frames.
const RECORDING_BYTES: usize = RECORDING.len().div_ceil(FRAME_SAMPLES) * FRAME_SAMPLES * 2;

async fn transcribe_recording(url: &str, json: bool) -> (String, Result<(), ClientError>) {
    let printed = if json { Printed::Events } else { Printed::Nothing };
    let (out, result) = transcribe(url, printed).await;
    (out, result.and_then(|transcribed| transcribed.problem.map_or(Ok(()), Err)))
}

/// Transcribes the recording. Returns what is printed: the events, or the texts of the segments as they come.
async fn transcribe(url: &str, printed: Printed) -> (String, Result<Transcribed, ClientError>) {
    let recording = Recording::decode(wav::write_s16(&RECORDING, 16_000), "x.wav").unwrap();
    let (mut out, mut texts) = (Vec::new(), String::new());
    let mut view = Terminal::hidden().file("x.wav", None, printed, &mut out);
    let on_progress = |progress: Progress<'_>| {
        if let (Progress::Transcribed(segment), Printed::Nothing) = (&progress, printed) {
            texts += &format!("{}\n", printable(&segment.text));
        }
        view.show(&progress)
    };
    let result = live::transcribe(&target(url), quick_timing(), recording, on_progress).await;
    drop(view);
    (texts + &String::from_utf8(out).unwrap(), result)
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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
        assert_eq!(error.exit_code(), if with_words { 75 } else { 1 });
        assert!(error.to_string().contains("worker_crash"));
        assert_eq!(matches!(error, ClientError::IncompleteTranscript { count: 1, .. }), with_words);
        assert_eq!(out, if with_words { "one\n" } else { "" });
    }
}

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
async fn subtitles_have_the_times_of_the_server() {
    let (url, _server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        for (number, start_ms) in [(0, 100), (1, 300)] {
            peer.send_event(json!({"type": "vad.speech_start", "timestamp_ms": start_ms})).await;
            peer.send_event(final_event("words", number)).await;
            peer.send_event(json!({"type": "vad.speech_end", "timestamp_ms": start_ms + 150})).await;
        }
        // A server that sends no times.
        peer.send_event(json!({"type": "vad.speech_start"})).await;
        peer.send_event(json!({"type": "vad.speech_end"})).await;
        peer.send_event(final_event("words", 2)).await;
        peer.close_with_frame().await
    })
    .await;
    let (out, result) = transcribe(&url, Printed::Nothing).await;
    let transcribed = result.unwrap();
    let times: Vec<_> =
        transcribed.segments.iter().map(|segment| (segment.start_ms, segment.end_ms)).collect();
    assert_eq!((times, out.as_str()), (vec![(100, 250), (300, 450), (0, 500)], "words\nwords\nwords\n"));
}
