use std::{convert::Infallible, fs, net::SocketAddr, path::Path, sync::Mutex, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};

use super::{message::WebhookMessage, *};
use crate::net::{Endpoint, http_request::websocket_uri};

/// Longest wait on a machine that is busy with other tests. The slowest receiver takes an hour.
const PATIENCE: Duration = Duration::from_secs(40);

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Example of the libraries of Standard Webhooks.
#[test]
fn signature_is_that_of_the_published_example() {
    let message = WebhookMessage {
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek".into(),
        body: Bytes::from_static(br#"{"test": 2432232314}"#),
    };
    let key = SigningKey::from_secret(SECRET).unwrap_or_else(|problem| panic!("{problem}"));
    let signature = key.signature(&message, 1_614_265_330);
    assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[test]
fn secrets_of_another_form_are_rejected_and_not_quoted() {
    for secret in
        ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_?MfKQ9r8GKYqrTwjUPD8IL"]
    {
        let problem = SigningKey::from_secret(secret).err().unwrap();
        assert!(problem.contains("whsec_") && (secret.len() < 8 || !problem.contains(secret)), "{problem}");
    }
}

/// A message as a receiver got it.
#[derive(Debug, Clone)]
struct Received {
    id: String,
    is_signed: bool,
    body: Value,
}

/// A receiver that answers with these statuses in turn, and then with 204.
#[derive(Clone)]
struct Receiver {
    received: Arc<Mutex<Vec<Received>>>,
    statuses: Arc<Mutex<Vec<u16>>>,
    delay: Duration,
}

impl Receiver {
    fn new(statuses: &[u16], delay: Duration) -> Self {
        let statuses = statuses.iter().rev().copied().collect();
        Self { received: Arc::default(), statuses: Arc::new(Mutex::new(statuses)), delay }
    }

    async fn serve(self, listener: TcpListener) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let receiver = self.clone();
            let answer = service_fn(move |request| receiver.clone().answer(request));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        let (id, signature) = (header("webhook-id"), header("webhook-signature"));
        let unix_s: u64 = header("webhook-timestamp").parse().unwrap();
        assert_eq!(header("content-type"), "application/json");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let key = SigningKey::from_secret(SECRET).unwrap_or_else(|problem| panic!("{problem}"));
        let message = WebhookMessage { id: id.as_str().into(), body: body.clone() };
        let is_signed = key.signature(&message, unix_s) == signature;
        let body = serde_json::from_slice(&body).unwrap();
        self.received.lock().unwrap().push(Received { id, is_signed, body });
        tokio::time::sleep(self.delay).await;
        let status = self.statuses.lock().unwrap().pop().unwrap_or(204);
        Ok(Response::builder().status(status).body(Full::default()).unwrap())
    }

    /// Waits until so many messages have come.
    async fn wait_for(&self, count: usize) -> Vec<Received> {
        let received = || self.received.lock().unwrap().clone();
        let all_came = async {
            while received().len() < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, all_came).await.unwrap_or_else(|_| panic!("{:?}", received()));
        received()
    }
}

fn webhooks(address: SocketAddr) -> (Webhooks, Metrics) {
    let (webhooks, metrics, deliveries) = webhooks_with(address, None);
    tokio::spawn(deliveries.run());
    (webhooks, metrics)
}

/// Webhooks whose messages are not sent yet.
fn webhooks_with(address: SocketAddr, spool: Option<PathBuf>) -> (Webhooks, Metrics, Deliveries) {
    let metrics = Metrics::new(crate::telemetry::metrics::scrape::ServerSnapshot::default);
    let uri = websocket_uri(&format!("http://{address}/hooks?tenant=1")).unwrap();
    let endpoint = Endpoint::from_uri(&uri, None).unwrap();
    let target = RequestTarget::new(endpoint, &uri, Vec::new());
    let key = SigningKey::from_secret(SECRET).unwrap_or_else(|problem| panic!("{problem}"));
    let settings = WebhookSettings { targets: vec![target], events: WebhookEvent::ALL.to_vec(), key, spool };
    let (webhooks, deliveries) = Webhooks::new(settings, metrics.clone());
    (webhooks, metrics, deliveries)
}

fn count(metrics: &Metrics, result: &str) -> u64 {
    let start = format!("voxbridge_webhooks_total{{result=\"{result}\"}} ");
    let text = metrics.render();
    let count = text.lines().find_map(|line| line.strip_prefix(&start));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn message_is_signed_and_sent_again_until_the_receiver_takes_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let receiver = Receiver::new(&[500, 302], Duration::ZERO);
    let (webhooks, metrics) = webhooks(listener.local_addr().unwrap());
    tokio::spawn(receiver.clone().serve(listener));
    webhooks.send(WebhookEvent::SessionEnded, json!({"session": "sess_1"}));
    let received = receiver.wait_for(3).await;
    assert!(received.iter().all(|message| message.is_signed && message.id == received[0].id), "{received:?}");
    let body = &received[2].body;
    assert_eq!((&body["type"], &body["data"]), (&json!("session.ended"), &json!({"session": "sess_1"})));
    webhooks.finish().await;
    assert_eq!((count(&metrics, "retried"), count(&metrics, "delivered")), (2, 1));
}

#[tokio::test]
async fn receiver_that_is_down_gets_its_messages_when_it_is_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (webhooks, metrics) = webhooks(address);
    for number in 0..40 {
        webhooks.send(WebhookEvent::TurnEnded, json!({"turn": number}));
    }
    while count(&metrics, "retried") < 16 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let receiver = Receiver::new(&[], Duration::ZERO);
    tokio::spawn(receiver.clone().serve(TcpListener::bind(address).await.unwrap()));
    let received = receiver.wait_for(40).await;
    let mut turns: Vec<u64> = received.iter().map(|it| it.body["data"]["turn"].as_u64().unwrap()).collect();
    turns.sort_unstable();
    assert_eq!(turns, (0..40).collect::<Vec<_>>());
}

#[tokio::test]
async fn slow_receiver_delays_no_sender_and_what_it_cannot_take_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let receiver = Receiver::new(&[], Duration::from_secs(3_600));
    let (webhooks, metrics) = webhooks(listener.local_addr().unwrap());
    tokio::spawn(receiver.clone().serve(listener));
    for number in 0..3 * WAITING_MAX {
        webhooks.send(WebhookEvent::TurnEnded, json!({"turn": number}));
    }
    let dropped = count(&metrics, "dropped");
    assert!(dropped >= WAITING_MAX as u64, "{dropped}");
    timeout(PATIENCE, webhooks.finish()).await.expect("the end does not wait for it");
}

/// An empty directory.
pub(super) fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("voxbridge-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Files of messages in a spool.
fn spooled(dir: &Path) -> usize {
    let folders = fs::read_dir(dir).into_iter().flatten().flatten();
    let of_folder = |folder: fs::DirEntry| fs::read_dir(folder.path()).into_iter().flatten().flatten();
    folders
        .flat_map(of_folder)
        .filter(|file| file.path().extension().is_some_and(|end| end == "json"))
        .count()
}

async fn wait_for_spooled(dir: &Path, count: usize) {
    let has_come = async {
        while spooled(dir) != count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, has_come).await.unwrap_or_else(|_| panic!("{} files", spooled(dir)));
}

#[tokio::test]
async fn messages_in_the_spool_are_sent_after_a_restart() {
    let dir = scratch("webhook-spool");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (first, _, deliveries) = webhooks_with(address, Some(dir.clone()));
    let delivering = tokio::spawn(deliveries.run());
    for number in 0..100 {
        first.send(WebhookEvent::TurnEnded, json!({"turn": number}));
    }
    wait_for_spooled(&dir, 100).await;
    delivering.abort();
    let receiver = Receiver::new(&[], Duration::ZERO);
    tokio::spawn(receiver.clone().serve(TcpListener::bind(address).await.unwrap()));
    let (_second, metrics, deliveries) = webhooks_with(address, Some(dir.clone()));
    tokio::spawn(deliveries.run());
    let received = receiver.wait_for(100).await;
    wait_for_spooled(&dir, 0).await;
    let mut turns: Vec<u64> = received.iter().map(|it| it.body["data"]["turn"].as_u64().unwrap()).collect();
    turns.sort_unstable();
    assert_eq!(turns, (0..100).collect::<Vec<_>>());
    assert!(received.iter().all(|message| message.is_signed));
    assert_eq!(count(&metrics, "delivered"), 100);
}

#[tokio::test]
async fn spool_that_cannot_be_used_delays_no_message() {
    let dir = scratch("webhook-spool-unusable");
    let file = dir.join("file");
    fs::write(&file, "").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let receiver = Receiver::new(&[], Duration::ZERO);
    let (webhooks, _, deliveries) = webhooks_with(listener.local_addr().unwrap(), Some(file));
    tokio::spawn(deliveries.run());
    tokio::spawn(receiver.clone().serve(listener));
    webhooks.send(WebhookEvent::SessionEnded, json!({"session": "sess_1"}));
    receiver.wait_for(1).await;
}
