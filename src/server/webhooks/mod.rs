//! Webhooks: tells servers of the operator about sessions, such as those that bill them or keep customers.
//!
//! Messages and their signatures are those of [Standard Webhooks](https://www.standardwebhooks.com). They wait in a bounded queue for
//! each URL, so that a slow or dead server never delays a session, and are sent again with growing pauses. They may come twice or
//! in another order; their ids and times tell. What waits when the process ends is lost, unless there is a spool.
//!
//! [`message`] is one message, [`delivery`] sends those of one URL, and [`spool`] keeps them on disk until then.

mod delivery;
mod message;
mod spool;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use tokio::{sync::mpsc, task::JoinSet, time::Duration};
use tracing::{info, warn};

use self::{delivery::Delivery, message::WebhookMessage};
use crate::{named_enum::named_enum, net::http_request::RequestTarget, telemetry::metrics::Metrics};

pub use self::message::SigningKey;

/// Messages that wait for one URL.
const WAITING_MAX: usize = 1024;
/// Time in which messages are sent when the process ends.
const FINISH_TIME: Duration = Duration::from_secs(3);

named_enum! {
    /// What webhooks tell about.
    pub enum WebhookEvent {
        /// A session has begun.
        SessionStarted = "session.started",
        /// An answer of the model has ended.
        TurnEnded = "turn.ended",
        /// A session has ended.
        SessionEnded = "session.ended",
    }
}

/// Where and what webhooks tell.
#[derive(Clone)]
pub struct WebhookSettings {
    pub(crate) targets: Vec<RequestTarget>,
    pub(crate) events: Vec<WebhookEvent>,
    pub(crate) key: SigningKey,
    /// Directory where messages survive the process.
    pub(crate) spool: Option<PathBuf>,
}

/// The webhooks of a server. Clones share them.
#[derive(Clone)]
pub(crate) struct Webhooks(Arc<Shared>);

struct Shared {
    settings: WebhookSettings,
    queues: Vec<mpsc::Sender<WebhookMessage>>,
    /// Messages that are not delivered and not given up.
    outstanding: Arc<AtomicUsize>,
    metrics: Metrics,
}

/// The tasks that send messages.
pub(crate) struct Deliveries(Vec<Delivery>);

impl Webhooks {
    /// Webhooks, and what sends their messages.
    pub(crate) fn new(settings: WebhookSettings, metrics: Metrics) -> (Self, Deliveries) {
        let outstanding = Arc::<AtomicUsize>::default();
        let (mut queues, mut deliveries) = (Vec::new(), Vec::new());
        for target in &settings.targets {
            let (queue, messages) = mpsc::channel(WAITING_MAX);
            queues.push(queue);
            deliveries.push(Delivery {
                target: target.clone(),
                key: settings.key.clone(),
                messages,
                outstanding: outstanding.clone(),
                metrics: metrics.clone(),
                spool: settings.spool.clone(),
            });
        }
        (Self(Arc::new(Shared { settings, queues, outstanding, metrics })), Deliveries(deliveries))
    }

    /// True if this event is told.
    pub(crate) fn tells(&self, event: WebhookEvent) -> bool {
        self.0.settings.events.contains(&event)
    }

    /// Queues a message about an event for every URL, if the event is told. It is lost where too many wait.
    pub(crate) fn send(&self, event: WebhookEvent, data: serde_json::Value) {
        if !self.tells(event) {
            return;
        }
        let message = WebhookMessage::new(event, data);
        for queue in &self.0.queues {
            self.0.outstanding.fetch_add(1, SeqCst);
            if queue.try_send(message.clone()).is_err() {
                self.0.outstanding.fetch_sub(1, SeqCst);
                self.0.metrics.record_webhook("dropped");
            }
        }
    }

    /// Waits until every message is delivered or given up, for a short time.
    pub(crate) async fn finish(&self) {
        let outstanding = &self.0.outstanding;
        let all_sent = async {
            while outstanding.load(SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(FINISH_TIME, all_sent).await.is_err() {
            let messages = outstanding.load(SeqCst);
            match self.0.settings.spool {
                None => warn!(messages, "webhooks were not delivered before the end"),
                Some(_) => info!(messages, "webhooks wait in the spool for the next start"),
            }
        }
    }
}

impl Deliveries {
    /// Sends messages until the future is dropped.
    pub(crate) async fn run(self) {
        let targets: Vec<RequestTarget> = self.0.iter().map(|delivery| delivery.target.clone()).collect();
        if let Some(dir) = self.0.first().and_then(|delivery| delivery.spool.clone()) {
            tokio::task::spawn_blocking(move || spool::warn_of_unknown_urls(&dir, &targets));
        }
        let mut deliveries = JoinSet::new();
        for delivery in self.0 {
            deliveries.spawn(delivery.run());
        }
        deliveries.join_all().await;
    }
}

#[cfg(test)]
mod tests;
