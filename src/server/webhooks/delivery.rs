//! Sends the messages of one URL, some at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use hyper::header::InvalidHeaderValue;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Duration, sleep, timeout},
};
use tracing::{debug, warn};

use super::{SigningKey, message::WebhookMessage};
use crate::{
    net::http_request::{self, RequestTarget},
    server::unix_now,
    telemetry::metrics::Metrics,
};

/// Messages that are sent, or wait to be sent again, at a time.
const AT_ONCE: usize = 16;
/// Longest time of an attempt (Standard Webhooks recommends 15 to 30 s).
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);
/// Pauses before further attempts: 9 of them, 10 min in all.
const PAUSES_S: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0];

/// The messages of one URL.
pub(super) struct Delivery {
    pub(super) target: RequestTarget,
    pub(super) key: SigningKey,
    pub(super) messages: mpsc::Receiver<WebhookMessage>,
    pub(super) outstanding: Arc<AtomicUsize>,
    pub(super) metrics: Metrics,
}

/// Sends one message.
#[derive(Clone)]
struct Sender {
    target: RequestTarget,
    key: SigningKey,
    metrics: Metrics,
}

impl Delivery {
    /// Sends messages until there are no more.
    pub(super) async fn run(mut self) {
        let sender = Sender { target: self.target, key: self.key, metrics: self.metrics };
        let mut sending = JoinSet::new();
        while let Some(message) = self.messages.recv().await {
            if sending.len() >= AT_ONCE {
                sending.join_next().await;
            }
            while sending.try_join_next().is_some() {}
            let (sender, outstanding) = (sender.clone(), self.outstanding.clone());
            sending.spawn(async move {
                sender.deliver(&message).await;
                outstanding.fetch_sub(1, SeqCst);
            });
        }
        sending.join_all().await;
    }
}

impl Sender {
    /// Sends a message until the server has taken it, or has refused it too often.
    async fn deliver(&self, message: &WebhookMessage) {
        let authority = &self.target.endpoint.authority;
        let mut pauses = PAUSES_S.iter();
        loop {
            let problem = match timeout(ATTEMPT_TIMEOUT, self.attempt(message)).await {
                Ok(Ok(())) => return self.metrics.record_webhook("delivered"),
                Ok(Err(problem)) => problem,
                Err(_) => format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs()),
            };
            let Some(pause) = pauses.next() else {
                warn!(server = authority, id = &*message.id, problem, "a webhook was given up");
                return self.metrics.record_webhook("failed");
            };
            debug!(
                server = authority,
                id = &*message.id,
                problem,
                pause_s = pause,
                "a webhook is sent again"
            );
            self.metrics.record_webhook("retried");
            // Receivers that come back are not met by all messages at once.
            sleep(Duration::from_secs_f64(pause * (1.0 + fastrand::f64() / 4.0))).await;
        }
    }

    async fn attempt(&self, message: &WebhookMessage) -> Result<(), String> {
        let unix_s = unix_now().as_secs();
        let mut request = self.target.post("application/json", message.body.clone())?;
        for (name, value) in [
            ("webhook-id", message.id.to_string()),
            ("webhook-timestamp", unix_s.to_string()),
            ("webhook-signature", self.key.signature(message, unix_s)),
        ] {
            let value = value.try_into().map_err(|error: InvalidHeaderValue| error.to_string())?;
            request.headers_mut().insert(name, value);
        }
        let status = http_request::send(&self.target.endpoint, request).await?.status();
        if status.is_success() { Ok(()) } else { Err(format!("HTTP {status}")) }
    }
}
