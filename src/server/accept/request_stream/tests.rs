use futures_util::FutureExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    time::{Instant, timeout},
};

use super::*;

const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
const TIMEOUTS: RequestTimeouts = RequestTimeouts { head: HEAD_TIMEOUT, between: IDLE_TIMEOUT };

const HEAD: &str = "\r\nPOST / HTTP/1.1\r\nHost: x\r\n\r\n";

fn open() -> (DuplexStream, RequestStream<DuplexStream>, Gate) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let gate = Gate::default();
    (near, RequestStream::new(far, gate.clone(), TIMEOUTS), gate)
}

/// Everything that can be read now, in reads of this size, and whether the stream has ended.
fn read_now(stream: &mut RequestStream<DuplexStream>, size: usize) -> (String, bool) {
    let mut all = Vec::new();
    let mut buffer = vec![0; size];
    while let Some(read) = stream.read(&mut buffer).now_or_never() {
        match read.unwrap() {
            0 => return (String::from_utf8(all).unwrap(), true),
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
    (String::from_utf8(all).unwrap(), false)
}

#[tokio::test]
async fn requests_are_given_one_at_a_time() {
    let chunked = "5;x=\"1\"\r\n12\r\n3\r\n00A\r\n0123456789\r\n0\r\nX: y\r\n\r\n";
    for size in [1, 7, 4096] {
        for (body, length) in [("", Some(0)), ("12345", Some(5)), (chunked, None)] {
            let (mut client, mut stream, gate) = open();
            client.write_all(format!("{HEAD}{body}{HEAD}").as_bytes()).await.unwrap();
            assert_eq!(read_now(&mut stream, size), (HEAD.into(), false));
            let answering = gate.answer(BodyFraming::new(length));
            assert_eq!(read_now(&mut stream, size), (body.into(), false), "{length:?}");
            drop(answering);
            assert_eq!(read_now(&mut stream, size), (HEAD.into(), false), "the next request");
            assert!(!gate.has_bare_lf());
        }
    }
}

#[tokio::test]
async fn disconnect_is_found_behind_bytes_of_the_next_request() {
    let (mut client, mut stream, gate) = open();
    client.write_all(format!("{HEAD}{HEAD}").as_bytes()).await.unwrap();
    assert_eq!(read_now(&mut stream, 4096), (HEAD.into(), false));
    let _answering = gate.answer(BodyFraming::new(Some(0)));
    assert_eq!(read_now(&mut stream, 4096), (String::new(), false));
    drop(client);
    assert_eq!(read_now(&mut stream, 4096), (String::new(), true));
}

#[tokio::test]
async fn nothing_is_held_back_after_an_upgrade() {
    let (mut client, mut stream, gate) = open();
    client.write_all(HEAD.as_bytes()).await.unwrap();
    assert_eq!(read_now(&mut stream, 4096).0, HEAD);
    let answering = gate.answer(BodyFraming::new(Some(0)));
    gate.upgrade();
    drop(answering);
    client.write_all(b"x\n\ny\n\nz").await.unwrap();
    assert_eq!(read_now(&mut stream, 4096).0, "x\n\ny\n\nz");
}

#[tokio::test]
async fn bytes_after_a_request_are_bounded() {
    let (mut client, mut stream, gate) = open();
    client.write_all(&[HEAD.as_bytes(), &[b'x'; NEXT_REQUEST_MAX_BYTES + 1]].concat()).await.unwrap();
    assert_eq!(read_now(&mut stream, 4096).0, HEAD);
    let _answering = gate.answer(BodyFraming::new(Some(0)));
    assert!(stream.read(&mut [0; 16]).now_or_never().unwrap().is_err());
}

#[tokio::test]
async fn unread_body_of_an_answered_request_is_not_taken_for_a_head() {
    let (mut client, mut stream, gate) = open();
    client.write_all(format!("{HEAD}a\nb").as_bytes()).await.unwrap();
    assert_eq!(read_now(&mut stream, 4096).0, HEAD);
    drop(gate.answer(BodyFraming::new(Some(3))));
    client.write_all(HEAD.as_bytes()).await.unwrap();
    assert_eq!(read_now(&mut stream, 4096).0, format!("a\nb{HEAD}"));
    assert!(!gate.has_bare_lf());
}

#[tokio::test]
async fn bare_line_feeds_in_a_head_are_found() {
    for head in
        ["GET / HTTP/1.1\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\n\n", "\nGET / HTTP/1.1\r\n\r\n"]
    {
        let (mut client, mut stream, gate) = open();
        client.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(read_now(&mut stream, 4096).0, head);
        assert!(gate.has_bare_lf(), "{head:?}");
    }
}

/// How long the stream waits for bytes that do not come.
async fn time_until_timeout(stream: &mut RequestStream<DuplexStream>) -> Duration {
    let start = Instant::now();
    let error = stream.read(&mut [0; 64]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn silent_strangers_time_out_earlier_than_connections_in_use() {
    let (_silent, mut stream, _) = open();
    assert_eq!(time_until_timeout(&mut stream).await, HEAD_TIMEOUT);
    let (mut client, mut stream, gate) = open();
    client.write_all(HEAD.as_bytes()).await.unwrap();
    assert_eq!(read_now(&mut stream, 4096).0, HEAD);
    let answering = gate.answer(BodyFraming::new(Some(0)));
    assert!(
        timeout(IDLE_TIMEOUT * 10, stream.read(&mut [0; 64])).await.is_err(),
        "a request is being answered"
    );
    drop(answering);
    assert_eq!(time_until_timeout(&mut stream).await, IDLE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn head_that_trickles_times_out() {
    for follows_answer in [false, true] {
        let (mut client, mut stream, gate) = open();
        if follows_answer {
            drop(gate.answer(BodyFraming::new(Some(0))));
        }
        let trickling = async {
            for _ in 0..1000 {
                client.write_all(b"X").await.unwrap();
                sleep(Duration::from_secs(1)).await;
            }
        };
        let start = Instant::now();
        let reading = async { while stream.read(&mut [0; 64]).await.is_ok() {} };
        tokio::select! { () = trickling => {}, () = reading => {} }
        assert!(start.elapsed() <= HEAD_TIMEOUT + Duration::from_secs(1), "{follows_answer}");
    }
}
