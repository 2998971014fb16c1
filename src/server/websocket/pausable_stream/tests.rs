//! Tests on real sockets: which events wake a reader, and that no byte is lost between paused and resumed reading.

use std::{future::poll_fn, sync::Arc, time::Duration};

use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{PrivateKeyDer, ServerName},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, server::TlsStream};

use super::*;

/// Longer than any step takes on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Both ends of a connection; ours has a small send buffer.
async fn connected_pair() -> (PausableStream, TcpStream) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(16 * 1024).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let (near, far) = tokio::join!(listener.accept(), TcpStream::connect(listener.local_addr().unwrap()));
    (PausableStream::from(near.unwrap().0), far.unwrap())
}

/// The result of one read that does not wait.
async fn read_now(stream: &mut (impl AsyncRead + Unpin), capacity: usize) -> Option<io::Result<Vec<u8>>> {
    let mut bytes = vec![0; capacity];
    let mut buf = ReadBuf::new(&mut bytes);
    let read = poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_read(cx, &mut buf))).await;
    let Poll::Ready(read) = read else { return None };
    Some(read.map(|()| buf.filled().to_vec()))
}

/// Waits, without reading, until `bytes` lie in the socket buffer.
async fn wait_until_buffered(stream: &PausableStream, bytes: usize) {
    let TcpRegistration::Unregistered(stream) = &stream.tcp else { panic!("the stream is not paused") };
    let mut buffered = vec![0; bytes];
    let waiting = async {
        while stream.peek(&mut buffered).ok() != Some(bytes) {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, waiting).await.expect("the bytes do not arrive");
}

/// All bytes that an allowed read finds.
async fn read_available(stream: &mut PausableStream, capacity: usize) -> Vec<u8> {
    stream.is_exhausted = false;
    let mut all = Vec::new();
    while let Some(read) = read_now(stream, capacity).await {
        let read = read.unwrap();
        assert!(!read.is_empty(), "the end");
        all.extend(read);
    }
    all
}

/// Allows reads until one finds something.
async fn read_next(stream: &mut PausableStream) -> io::Result<Vec<u8>> {
    let reading = async {
        loop {
            stream.is_exhausted = false;
            if let Some(read) = read_now(stream, 64).await {
                return read;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, reading).await.expect("no allowed read finds data")
}

#[tokio::test]
async fn paused_stream_never_wakes_its_reader() {
    let (mut near, mut far) = connected_pair().await;
    near.pause();
    assert!(near.is_paused());
    // No event wakes the reader, although all data is there.
    let woken = {
        let waiting = async {
            let mut byte = [0];
            near.read(&mut byte).await
        };
        tokio::pin!(waiting);
        assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
        far.write_all(&[1; 1000]).await.unwrap();
        timeout(Duration::from_millis(20), waiting).await
    };
    assert!(woken.is_err());
    wait_until_buffered(&near, 1000).await;
    assert!(read_now(&mut near, 4096).await.is_none(), "a second read finds nothing either");
    assert_eq!(read_available(&mut near, 4096).await, [1; 1000]);
    assert!(read_now(&mut near, 4096).await.is_none());
    assert!(read_available(&mut near, 4096).await.is_empty(), "an allowed read without data is no error");
}

#[tokio::test]
async fn allowed_read_returns_all_buffered_bytes_for_any_buffer_size() {
    for capacity in [1, 7, 500, 1000, 4096] {
        let (mut near, mut far) = connected_pair().await;
        near.pause();
        let sent: Vec<u8> = (0..1000).map(|at| (at % 251) as u8).collect();
        far.write_all(&sent).await.unwrap();
        wait_until_buffered(&near, 1000).await;
        assert_eq!(read_available(&mut near, capacity).await, sent, "{capacity}");
    }
}

#[tokio::test]
async fn bytes_received_while_paused_are_readable_after_resume() {
    let (mut near, mut far) = connected_pair().await;
    for round in 0..20 {
        near.pause();
        far.write_all(&[round; 100]).await.unwrap();
        wait_until_buffered(&near, 100).await;
        let read_before_resume = round % 2 == 0;
        let mut read = if read_before_resume { read_available(&mut near, 64).await } else { Vec::new() };
        near.resume();
        assert!(!near.is_paused());
        far.write_all(&[round; 50]).await.unwrap();
        let mut rest = vec![0; 150 - read.len()];
        timeout(TEST_TIMEOUT, near.read_exact(&mut rest)).await.expect("the reader is not woken").unwrap();
        read.extend(rest);
        assert_eq!(read, [round; 150]);
    }
}

#[tokio::test]
async fn paused_stream_reports_end_and_reset() {
    let (mut near, mut far) = connected_pair().await;
    near.pause();
    far.write_all(b"last").await.unwrap();
    drop(far);
    wait_until_buffered(&near, 4).await;
    assert!(read_now(&mut near, 64).await.is_none());
    near.is_exhausted = false;
    assert_eq!(read_now(&mut near, 64).await.unwrap().unwrap(), b"last");
    // The end may come with the last bytes or after them.
    assert!(read_next(&mut near).await.unwrap().is_empty());

    let (mut near, far) = connected_pair().await;
    near.pause();
    far.set_zero_linger().unwrap();
    drop(far);
    assert!(read_now(&mut near, 64).await.is_none());
    let reset = read_next(&mut near).await.unwrap_err();
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn full_send_buffer_resumes_reading_without_loss() {
    let (mut near, mut far) = connected_pair().await;
    near.pause();
    near.write_all(b"small").await.unwrap();
    assert!(near.is_paused(), "a write that fits needs no events");
    let sent: Vec<u8> = (0..2 << 20).map(|at: u32| (at % 251) as u8).collect();
    let more = [b'm'; 100];
    far.write_all(&more).await.unwrap();
    wait_until_buffered(&near, 100).await;
    let writing = async {
        near.write_all(&sent).await.unwrap();
        near
    };
    let mut received = vec![0; 5 + sent.len()];
    let reading = async {
        far.read_exact(&mut received).await.unwrap();
    };
    let (mut near, ()) =
        timeout(TEST_TIMEOUT, async { tokio::join!(writing, reading) }).await.expect("stuck");
    assert!(received[..5] == *b"small" && received[5..] == sent);
    assert!(!near.is_paused(), "a write that waits for room resumes events");
    // Bytes that came in the meantime are still there.
    let mut read = [0; 100];
    timeout(TEST_TIMEOUT, near.read_exact(&mut read)).await.expect("the bytes are lost").unwrap();
    assert_eq!(read, more);
    near.shutdown().await.unwrap();
    assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn paused_stream_can_shut_down() {
    let (mut near, mut far) = connected_pair().await;
    near.pause();
    near.shutdown().await.unwrap();
    assert_eq!(timeout(TEST_TIMEOUT, far.read(&mut [0; 1])).await.expect("no end").unwrap(), 0);
}

/// Both ends of a TLS connection.
async fn tls_pair() -> (TlsStream<PausableStream>, tokio_rustls::client::TlsStream<TcpStream>) {
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let provider = || Arc::new(default_provider());
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let server =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let server = server.with_no_client_auth().with_single_cert(vec![cert.der().clone()], private).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let (near, far) = connected_pair().await;
    let name = ServerName::try_from("localhost").unwrap();
    let (acceptor, connector) = (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)));
    let (near, far) = tokio::join!(acceptor.accept(near), connector.connect(name, far));
    (near.unwrap(), far.unwrap())
}

#[tokio::test]
async fn tls_stream_can_be_paused() {
    let (mut near, mut far) = tls_pair().await;
    near.get_mut().0.pause();
    let mut read = Vec::new();
    // Records of any size, and reads that split them.
    for (round, size) in [10, 1000, 20_000].into_iter().enumerate() {
        let sent = vec![round as u8; size];
        far.write_all(&sent).await.unwrap();
        far.flush().await.unwrap();
        assert!(read_now(&mut near, 4096).await.is_none(), "no read was allowed");
        let reading = async {
            while read.len() < size {
                near.get_mut().0.is_exhausted = false;
                while let Some(some) = read_now(&mut near, 777).await {
                    read.extend(some.unwrap());
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(TEST_TIMEOUT, reading).await.expect("the bytes do not arrive");
        assert_eq!(std::mem::take(&mut read), sent);
    }
    near.write_all(b"answer").await.unwrap();
    near.flush().await.unwrap();
    let mut answer = [0; 6];
    timeout(TEST_TIMEOUT, far.read_exact(&mut answer)).await.expect("no answer").unwrap();
    assert_eq!((&answer, near.get_ref().0.is_paused()), (b"answer", true));
    near.get_mut().0.resume();
    far.write_all(b"again").await.unwrap();
    let mut again = [0; 5];
    timeout(TEST_TIMEOUT, near.read_exact(&mut again)).await.expect("nobody is woken up").unwrap();
    assert_eq!(&again, b"again");
}
