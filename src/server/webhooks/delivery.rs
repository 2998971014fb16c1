//! Sends the messages of one URL, some at a time.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use hyper::header::InvalidHeaderValue;
use tokio::{
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::{Duration, sleep, timeout},
};
use tracing::{debug, error, info, warn};

use super::{
    SigningKey,
    message::WebhookMessage,
    spool::{Spool, SpoolError, SpooledMessage},
};
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

/// Messages that are written to the spool at a time.
const BATCH: usize = 64;
/// Messages that wait for a spool that cannot be written.
const UNWRITTEN_MAX: usize = super::WAITING_MAX;

/// The messages of one URL.
pub(super) struct Delivery {
    pub(super) target: RequestTarget,
    pub(super) key: SigningKey,
    pub(super) messages: mpsc::Receiver<WebhookMessage>,
    pub(super) outstanding: Arc<AtomicUsize>,
    pub(super) metrics: Metrics,
    /// Where messages survive the process.
    pub(super) spool: Option<PathBuf>,
}

/// A message that waits.
#[derive(Debug)]
enum Waiting {
    InMemory(WebhookMessage),
    Spooled(SpooledMessage),
}

/// Sends one message.
#[derive(Clone)]
struct Sender {
    target: RequestTarget,
    key: SigningKey,
    metrics: Metrics,
    spool: Option<Arc<Spool>>,
}

impl Delivery {
    /// Sends messages until there are no more.
    pub(super) async fn run(mut self) {
        let (spool, mut waiting) = self.open_spool().await;
        let spool = spool.map(Arc::new);
        let sender = Sender {
            target: self.target,
            key: self.key,
            metrics: self.metrics.clone(),
            spool: spool.clone(),
        };
        let (mut batch, mut sending, mut is_over) = (Vec::new(), JoinSet::new(), false);
        let mut was_full = false;
        while !is_over || !waiting.is_empty() || !sending.is_empty() {
            while sending.len() < AT_ONCE
                && let Some(next) = waiting.pop_front()
            {
                let (sender, outstanding) = (sender.clone(), self.outstanding.clone());
                sending.spawn(async move {
                    sender.deliver_waiting(next).await;
                    outstanding.fetch_sub(1, SeqCst);
                });
            }
            // Without a spool, messages wait in the channel, which bounds them.
            let has_room = !is_over && (spool.is_some() || waiting.is_empty());
            tokio::select! {
                count = self.messages.recv_many(&mut batch, BATCH), if has_room => is_over = count == 0,
                Some(_) = sending.join_next(), if !sending.is_empty() => {}
            }
            if !batch.is_empty() {
                let messages = std::mem::take(&mut batch);
                let dropped = store(spool.as_ref(), messages, &mut waiting).await;
                if dropped > 0 && !was_full {
                    warn!(
                        server = sender.target.endpoint.authority,
                        "webhooks are dropped: their spool is full"
                    );
                }
                was_full = dropped > 0;
                (0..dropped).for_each(|_| self.metrics.record_webhook("dropped"));
                self.outstanding.fetch_sub(dropped, SeqCst);
            }
        }
    }

    /// Opens the spool, if there is one. Gives the messages of an earlier process.
    async fn open_spool(&self) -> (Option<Spool>, VecDeque<Waiting>) {
        let Some(dir) = self.spool.clone() else { return Default::default() };
        let (server, target) = (self.target.endpoint.authority.clone(), self.target.clone());
        let shown = dir.display().to_string();
        let opened = spawn_blocking(move || Spool::open(&dir, &target)).await;
        match opened.map_err(io::Error::from).and_then(|opened| opened) {
            Ok((spool, messages)) => {
                if !messages.is_empty() {
                    info!(server, messages = messages.len(), "webhooks of an earlier process are sent");
                }
                self.outstanding.fetch_add(messages.len(), SeqCst);
                (Some(spool), messages.into_iter().map(Waiting::Spooled).collect())
            }
            Err(error) => {
                error!(server, %error, "webhooks.spool: {shown} cannot be used, so that messages do not survive a restart");
                Default::default()
            }
        }
    }
}

/// Writes messages to the spool and lets them wait for their turn. Without a spool, or one that cannot be written, they wait in
/// memory. Returns how many find no room.
async fn store(
    spool: Option<&Arc<Spool>>,
    messages: Vec<WebhookMessage>,
    waiting: &mut VecDeque<Waiting>,
) -> usize {
    let Some(spool) = spool.cloned() else {
        waiting.extend(messages.into_iter().map(Waiting::InMemory));
        return 0;
    };
    let writing = spawn_blocking(move || {
        let written = spool.write(&messages);
        (messages, written)
    });
    // Writing does not panic.
    let Ok((messages, written)) = writing.await else { return 0 };
    let mut dropped = 0;
    for (message, written) in messages.into_iter().zip(written) {
        match written {
            Ok(spooled) => waiting.push_back(Waiting::Spooled(spooled)),
            Err(SpoolError::Io(error)) if waiting.len() < UNWRITTEN_MAX => {
                warn!(%error, id = &*message.id, "webhooks.spool cannot be written: the message is sent, but does not survive a restart");
                waiting.push_back(Waiting::InMemory(message));
            }
            Err(_) => dropped += 1,
        }
    }
    dropped
}

impl Sender {
    /// Sends a message that waited, and removes it from the spool.
    async fn deliver_waiting(&self, waiting: Waiting) {
        let spooled = match waiting {
            Waiting::InMemory(message) => return self.deliver(&message).await,
            Waiting::Spooled(spooled) => spooled,
        };
        let Some(spool) = self.spool.clone() else { return };
        let (read, reader) = (spooled.clone(), spool.clone());
        let message = spawn_blocking(move || reader.read(&read)).await;
        match message.map_err(io::Error::from).and_then(|read| read) {
            Ok(message) => self.deliver(&message).await,
            Err(error) => {
                warn!(%error, id = spooled.id(), "a webhook was given up: its file cannot be read");
                self.metrics.record_webhook("failed");
            }
        }
        // A panic would leave the file, which is sent again after a restart.
        let _ = spawn_blocking(move || spool.remove(&spooled)).await;
    }

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
