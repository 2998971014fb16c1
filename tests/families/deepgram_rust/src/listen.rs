//! Speech to text as the user speaks: the older API and Flux.

use deepgram::{
    common::{
        flux_response::{FluxResponse, TurnEvent},
        options::{Encoding, Model, Options},
        stream_response::StreamResponse,
    },
    listen::{flux::FluxHandle, websocket::WebsocketHandle},
};
use serde_json::json;

use super::{IN_HZ, Outcome, PIECE_BYTES, Task, pace};

pub async fn run(task: &Task) -> Outcome {
    let options = Options::builder().model(Model::Nova3).build();
    let request = task.client.transcription().stream_request_with_options(options);
    let encoding = if task.cell == "error" { Encoding::Speex } else { Encoding::Linear16 };
    let request = request.encoding(encoding).sample_rate(IN_HZ).channels(1).interim_results(true);
    let opened = request.handle().await;
    if task.cell == "error" {
        return Ok(json!({"error": opened.err().map(|error| format!("{error:?}"))}));
    }
    let mut handle = opened?;
    assert!(handle.request_id().is_some(), "no request id");
    if task.cell == "transcription" {
        return transcribe(task, handle).await;
    }
    handle.keep_alive().await?;
    handle.close_stream().await?;
    let mut is_whole = false;
    while let Some(event) = handle.receive().await {
        is_whole |= matches!(event?, StreamResponse::TerminalResponse { .. });
    }
    Ok(json!({"clean": is_whole}))
}

async fn transcribe(task: &Task, mut handle: WebsocketHandle) -> Outcome {
    let mut pace = pace();
    for piece in task.pieces() {
        handle.send_data(piece).await?;
        pace.tick().await;
    }
    handle.finalize().await?;
    handle.close_stream().await?;
    let mut words = Vec::new();
    while let Some(event) = handle.receive().await {
        if let StreamResponse::TranscriptResponse { is_final: true, channel, .. } = event? {
            words.extend(channel.alternatives.into_iter().map(|found| found.transcript));
        }
    }
    words.retain(|found| !found.is_empty());
    Ok(json!({"text": words.join(" ")}))
}

pub async fn flux(task: &Task) -> Outcome {
    let threshold = if task.cell == "error" { 2.0 } else { 0.7 };
    let options = Options::builder().model(Model::FluxGeneralEn).eot_threshold(threshold).build();
    let listen = task.client.transcription();
    let request = listen.flux_request_with_options(options).encoding(Encoding::Linear16).sample_rate(IN_HZ);
    if task.cell == "error" {
        return Ok(json!({"error": request.handle().await.err().map(|error| format!("{error:?}"))}));
    }
    let mut handle = request.handle().await?;
    let Some(FluxResponse::Connected { request_id, .. }) = handle.receive().await.transpose()? else {
        return Err("not connected".into());
    };
    assert_eq!(handle.request_id(), Some(request_id));
    if task.cell == "transcription" {
        return take_turn(task, handle).await;
    }
    handle.close_stream().await?;
    while let Some(event) = handle.receive().await {
        event?;
    }
    Ok(json!({"clean": true}))
}

/// Speaks and is silent until the turn ends.
async fn take_turn(task: &Task, mut handle: FluxHandle) -> Outcome {
    let (mut pieces, mut pace) = (task.pieces(), pace());
    loop {
        tokio::select! {
            _ = pace.tick() => handle.send_data(pieces.next().unwrap_or_else(|| vec![0; PIECE_BYTES])).await?,
            event = handle.receive() => match event.ok_or("the connection closed")?? {
                FluxResponse::TurnInfo { event: TurnEvent::EndOfTurn, transcript, words, .. } => {
                    handle.close_stream().await?;
                    return Ok(json!({"text": transcript, "words": words.len()}));
                }
                FluxResponse::FatalError { description, .. } => return Err(description.into()),
                _ => {}
            },
        }
    }
}
