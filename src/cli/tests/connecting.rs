//! Connecting, and failing to.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::super::client::{Client, Target};
use super::super::error::ClientError;
use super::{fake, quick, target};
use crate::cli::server_events::ClientSeen;

async fn failure(url: &str) -> ClientError {
    Client::connect(&target(url), quick()).await.err().expect("no session")
}

#[tokio::test]
async fn a_session_opens_and_closes_politely() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        (peer.asked.clone(), peer.goodbye().await)
    })
    .await;
    let target = Target { url, model: Some("whisper large".into()), language: Some("de".into()), key: None };
    let (client, created) = Client::connect(&target, quick()).await.unwrap();
    assert_eq!(client.session_id(), "sess_1");
    assert!(matches!(created.seen, ClientSeen::SessionCreated { .. }));
    let mut events = Vec::new();
    assert!(client.close(|event| events.push(event.seen.clone())).await);
    assert_eq!(events, [ClientSeen::SessionClosed { reason: "client_request".into() }]);
    let (asked, polite) = server.await.unwrap();
    assert_eq!(asked, "/v1/realtime?model=whisper+large&language=de");
    assert!(polite);
}

#[tokio::test]
async fn a_real_server_ends_without_a_close_frame() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        peer.hang_up().await
    })
    .await;
    let (client, _) = Client::connect(&target(&url), quick()).await.unwrap();
    assert!(client.close(|_| {}).await);
    assert!(server.await.unwrap());
}

#[tokio::test]
async fn a_server_that_never_says_goodbye_is_left() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.created().await;
        while peer.command().await.is_some() {}
    })
    .await;
    let (client, _) = Client::connect(&target(&url), quick()).await.unwrap();
    assert!(!client.close(|_| {}).await);
    server.await.unwrap();
}

#[tokio::test]
async fn nobody_there_says_what_was_tried_and_what_to_do() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = failure(&url).await;
    assert_eq!(error.exit_code(), 69);
    let words = error.to_string();
    assert!(words.starts_with(&format!("cannot reach {url}: connection refused; start a server")), "{words}");
    assert!(!words.contains('\n') && words.contains("voxbridge serve --upstream"), "{words}");
}

#[tokio::test]
async fn a_refusal_names_its_status() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let _ = tcp.read(&mut [0; 4096]).await;
        tcp.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    });
    let error = failure(&url).await;
    assert!(matches!(error, ClientError::Refused { status: 403, .. }), "{error}");
    assert_eq!(error.exit_code(), 69);
}

#[tokio::test]
async fn a_server_without_tls_is_no_wss_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("wss://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let _ = tcp.read(&mut [0; 4096]).await;
        let _ = tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    });
    let error = failure(&url).await;
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_model_the_server_does_not_have_is_reported_in_its_words() {
    let (url, _server) = fake::serve(|mut peer| async move {
        let words = "Model 'nope' not found in registry";
        peer.say(json!({"type": "error", "code": "model_not_found", "message": words, "recoverable": false}))
            .await;
        peer.close(CloseCode::Policy, "Model not found: nope").await;
        while peer.command().await.is_some() {}
    })
    .await;
    let error = failure(&url).await;
    assert_eq!(error.exit_code(), 1);
    assert_eq!(error.to_string(), "the server reports model_not_found: Model 'nope' not found in registry");
}

#[tokio::test]
async fn no_session_created_is_no_session() {
    let (silent, _server) =
        fake::serve(|mut peer| async move { while peer.command().await.is_some() {} }).await;
    let error = failure(&silent).await;
    assert!(error.to_string().contains("no session.created within"), "{error}");
    assert_eq!(error.exit_code(), 69);

    let (other, _server) = fake::serve(|mut peer| async move {
        peer.say(json!({"type": "hello"})).await;
        while peer.command().await.is_some() {}
    })
    .await;
    let error = failure(&other).await;
    assert!(error.to_string().contains(r#"expected session.created, got {"type":"hello"}"#), "{error}");

    let (gone, _server) =
        fake::serve(|mut peer| async move { peer.close(CloseCode::Again, "later").await }).await;
    let error = failure(&gone).await;
    assert!(
        error.to_string().ends_with("opened no session: the server closed it with 1013 later"),
        "{error}"
    );
}
