//! Webhooks of a server that is killed.

use std::fs;

use serde_json::Value;
use tokio::net::TcpListener;
use voxbridge_test_support::wait::wait_until;

use super::{
    recordings::connect,
    server_process::{Server, empty_scratch, upstream},
};
use crate::sockets::webhooks::{Received, receive};

#[tokio::test]
async fn messages_of_a_killed_server_are_sent_by_the_next() {
    let (url, _simulator) = upstream().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let receiver = listener.local_addr().unwrap();
    drop(listener);
    let dir = empty_scratch("webhooks-killed");
    fs::write(dir.join("secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let config = format!(
        "[webhooks]\nurls = [\"http://{receiver}/hooks\"]\nsecret_file = \"secret\"\nspool = \"spool\"\n"
    );
    let file = dir.join("voxbridge.toml");
    fs::write(&file, config).unwrap();
    let options = ["--config", file.to_str().unwrap()];

    let server = Server::start(&url, &options).await;
    let mut client = connect(&server).await;
    let spooled = || {
        let folders = fs::read_dir(dir.join("spool")).into_iter().flatten().flatten();
        let files = folders.flat_map(|folder| fs::read_dir(folder.path()).unwrap().flatten());
        files.filter(|file| file.path().extension().is_some_and(|end| end == "json")).count()
    };
    wait_until("a message in the spool", || spooled() == 1).await;
    server.signal("-KILL").await;
    client.read_to_end().await;

    let received = Received::default();
    tokio::spawn(receive(TcpListener::bind(receiver).await.unwrap(), received.clone()));
    let server = Server::start(&url, &options).await;
    wait_until("the message", || !received.lock().unwrap().is_empty() && spooled() == 0).await;
    let told: Vec<Value> = received.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0]["type"] == "session.started", "{told:?}");
    server.signal("-TERM").await;
    assert_eq!(server.wait_for_end().await, 0);
}
