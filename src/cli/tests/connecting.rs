//! Tests of opening and closing connections.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::super::error::ClientError;
use super::super::{Client, ServerTarget};
use super::{fake, quick_timing, target};
use crate::cli::server_events::MacawEvent;

async fn connect_error(url: &str) -> ClientError {
    Client::connect(&target(url), quick_timing()).await.err().expect("no session")
}

#[tokio::test(start_paused = true)]
async fn session_opens_and_closes_politely() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        (peer.request_uri.clone(), peer.close_with_frame().await)
    })
    .await;
    let target = ServerTarget {
        url,
        model: Some("whisper large".into()),
        language: Some("de".into()),
        ..ServerTarget::default()
    };
    let (client, created) = Client::connect(&target, quick_timing()).await.unwrap();
    assert_eq!(client.session_id(), "sess_1");
    assert!(matches!(created.event, MacawEvent::SessionCreated { .. }));
    let mut events = Vec::new();
    assert!(client.close(|event| events.push(event.event.clone())).await);
    assert_eq!(events, [MacawEvent::SessionClosed { reason: "client_request".into() }]);
    let (request_uri, is_polite) = server.await.unwrap();
    assert_eq!(request_uri, "/v1/realtime?model=whisper+large&language=de");
    assert!(is_polite);
}

#[tokio::test(start_paused = true)]
async fn close_without_close_frame_is_polite() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        peer.close_without_frame().await
    })
    .await;
    let (client, _) = Client::connect(&target(&url), quick_timing()).await.unwrap();
    assert!(client.close(|_| {}).await);
    assert!(server.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn close_gives_up_on_silent_server() {
    let (url, server) = fake::serve(|mut peer| async move {
        peer.send_created().await;
        while peer.next_command().await.is_some() {}
    })
    .await;
    let (client, _) = Client::connect(&target(&url), quick_timing()).await.unwrap();
    assert!(!client.close(|_| {}).await);
    server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_error_names_url_and_remedy() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = connect_error(&url).await;
    assert_eq!(error.exit_code(), 69);
    let message = error.to_string();
    assert!(
        message.starts_with(&format!("cannot reach {url}: connection refused; start a server")),
        "{message}"
    );
    assert!(!message.contains('\n') && message.contains("voxbridge serve --upstream"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn http_rejection_reports_status() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let _ = tcp.read(&mut [0; 4096]).await;
        tcp.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    });
    let error = connect_error(&url).await;
    assert!(matches!(error, ClientError::HttpRejected { status: 403, .. }), "{error}");
    assert_eq!(error.exit_code(), 69);
}

#[tokio::test(start_paused = true)]
async fn wss_url_of_plain_server_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("wss://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let _ = tcp.read(&mut [0; 4096]).await;
        let _ = tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    });
    let error = connect_error(&url).await;
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn unknown_model_error_is_reported_verbatim() {
    let (url, _server) = fake::serve(|mut peer| async move {
        let message = "Model 'nope' not found in registry";
        peer.send_event(
            json!({"type": "error", "code": "model_not_found", "message": message, "recoverable": false}),
        )
        .await;
        peer.send_close_frame(CloseCode::Policy, "Model not found: nope").await;
        while peer.next_command().await.is_some() {}
    })
    .await;
    let error = connect_error(&url).await;
    assert_eq!(error.exit_code(), 1);
    assert_eq!(error.to_string(), "the server reports model_not_found: Model 'nope' not found in registry");
}

#[tokio::test(start_paused = true)]
async fn missing_session_created_is_session_not_opened() {
    let (silent, _server) =
        fake::serve(|mut peer| async move { while peer.next_command().await.is_some() {} }).await;
    let error = connect_error(&silent).await;
    assert!(error.to_string().contains("no session.created within"), "{error}");
    assert_eq!(error.exit_code(), 69);

    let (other, _server) = fake::serve(|mut peer| async move {
        peer.send_event(json!({"type": "hello"})).await;
        while peer.next_command().await.is_some() {}
    })
    .await;
    let error = connect_error(&other).await;
    assert!(error.to_string().contains(r#"expected session.created, got {"type":"hello"}"#), "{error}");

    let (gone, _server) =
        fake::serve(|mut peer| async move { peer.send_close_frame(CloseCode::Again, "later").await }).await;
    let error = connect_error(&gone).await;
    assert!(
        error.to_string().ends_with("opened no session: the server closed it with 1013 later"),
        "{error}"
    );
}
