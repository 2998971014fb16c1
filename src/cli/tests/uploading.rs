//! Tests of uploads to HTTP servers.

use std::path::PathBuf;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::super::error::ClientError;
use super::super::http::HttpTarget;
use super::super::transcribe::{Transcribed, upload};
use crate::media::transcript::Task;

/// More than the sockets' buffers take.
const RECORDING_BYTES: usize = 16 << 20;

/// Uploads a recording to a server that reads this part of the request before it answers.
async fn upload_to(
    name: &str,
    is_read: impl Fn(&[u8]) -> bool + Send + 'static,
    answer: &'static str,
) -> (Result<Transcribed, ClientError>, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server: JoinHandle<Vec<u8>> = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_until(&mut stream, is_read).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        request
    });
    let file = recording(name);
    let target = HttpTarget::new(&url, Some("whisper-1"), None, None).unwrap();
    let request = upload::Request {
        task: Task::Transcribe,
        language: Some("de".into()),
        needs_times: true,
        needs_word_times: false,
    };
    let result = upload::transcribe(&target, &request, &file, |_| Ok(())).await;
    std::fs::remove_file(file).unwrap();
    (result, server.await.unwrap())
}

async fn read_until(stream: &mut TcpStream, is_read: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut received = Vec::new();
    while !is_read(&received) {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0, "the client hangs up");
    }
    received
}

fn recording(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("voxbridge-{name}-{}.mp3", std::process::id()));
    std::fs::write(&path, vec![7; RECORDING_BYTES]).unwrap();
    path
}

#[tokio::test]
async fn refused_recording_is_not_sent_and_the_answer_is_shown() {
    let answer = "HTTP/1.1 413 Payload Too Large\r\ncontent-length: 36\r\n\r\n{\"error\": {\"message\": \"too large\"}} ";
    let (result, request) = upload_to("refused", |received| received.ends_with(b"\r\n\r\n"), answer).await;
    let error = result.unwrap_err();
    assert!(
        matches!(&error, ClientError::HttpFailed { status: 413, message, .. } if message == "too large"),
        "{error}"
    );
    assert!(String::from_utf8(request).unwrap().to_lowercase().contains("expect: 100-continue"));
}

#[tokio::test]
async fn recording_is_sent_to_a_server_that_gives_no_permission() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 89\r\n\r\n\
        {\"text\": \"Hallo.\", \"duration\": 2, \"segments\": [{\"start\": 1, \"end\": 2, \"text\": \"Hallo.\"}]}";
    let (result, request) = upload_to("sent", |received| received.ends_with(b"--\r\n"), answer).await;
    let transcribed = result.unwrap();
    assert_eq!((transcribed.segments[0].start_ms, transcribed.duration.as_secs()), (1000, 2));
    let (head, body) = request.split_at(request.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4);
    let head = String::from_utf8(head.to_vec()).unwrap().to_lowercase();
    assert!(head.starts_with("post /v1/audio/transcriptions http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
    let fields = String::from_utf8_lossy(&body[..600]);
    for field in
        ["name=\"model\"\r\n\r\nwhisper-1\r\n", "\r\n\r\nverbose_json\r\n", "\r\n\r\nde\r\n", "name=\"file\""]
    {
        assert!(fields.contains(field), "{field}: {fields}");
    }
    assert_eq!(body.iter().filter(|byte| **byte == 7).count(), RECORDING_BYTES);
}
