//! Connections over memory, in virtual time.

use std::pin::pin;

use futures_util::future::poll_fn;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, split};

use super::*;

/// A server that agrees on a version, and then says nothing. Returns its end of the connection.
async fn agree(stream: DuplexStream) -> DuplexStream {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let request: Value = serde_json::from_str(&line).unwrap();
    let result = json!({
        "protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {"listChanged": true}},
        "serverInfo": {"name": "quiet", "version": "1"},
    });
    let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    stream.get_mut().write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    line.clear();
    stream.read_line(&mut line).await.unwrap();
    assert!(line.contains("notifications/initialized"), "{line}");
    stream.into_inner()
}

async fn connected() -> (Connected, DuplexStream) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let handler = Handler { list_changed: Arc::default() };
    let (service, far) = tokio::join!(handler.serve(split(near)), agree(far));
    (Connected::new(service.unwrap(), None, Arc::default()), far)
}

#[tokio::test(start_paused = true)]
async fn quiet_connection_wakes_nobody_and_its_changes_and_end_are_noticed() {
    let (connected, mut far) = connected().await;
    let mut polls = 0;
    {
        let mut waiting = pin!(connected.wait_for_change());
        let mut counted = pin!(poll_fn(|cx| {
            polls += 1;
            waiting.as_mut().poll(cx)
        }));
        tokio::select! {
            _ = &mut counted => panic!("nothing has changed"),
            () = tokio::time::sleep(Duration::from_secs(3_600)) => {}
        }
    }
    assert!(polls <= 2, "{polls} wake-ups in an hour");
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    far.write_all(format!("{changed}\n").as_bytes()).await.unwrap();
    assert_eq!(connected.wait_for_change().await, Ok(()));
    drop(far);
    assert!(connected.wait_for_change().await.unwrap_err().contains("closed"));
}

#[tokio::test(start_paused = true)]
async fn dropped_connection_is_closed() {
    let (connected, far) = connected().await;
    drop(connected);
    let mut line = String::new();
    assert_eq!(BufReader::new(far).read_line(&mut line).await.unwrap(), 0, "{line}");
}
