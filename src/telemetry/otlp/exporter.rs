//! Exporters: one task for each signal, which collects records into batches and sends them.
//!
//! A request that may succeed later is sent again, with growing pauses; the queue fills meanwhile. The log tells the begin and the
//! end of an outage, and no more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout_at},
};
use tracing::{info, warn};

use super::{
    collector::{Collector, Failure},
    proto,
    settings::{OtlpSettings, Resource, Target},
    signal::Signal,
};
use crate::telemetry::metrics::Metrics;

/// Most records of a request.
const BATCH_MAX: usize = 512;
/// Attempts of a request, and the pause after the first; it doubles each time.
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause, also where the collector asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Makes a request of records.
type Encode<T> = fn(&[T], &Resource) -> Vec<u8>;

/// Sends one signal.
pub(super) struct Exporter {
    signal: Signal,
    collector: Collector,
    settings: Arc<OtlpSettings>,
    lost: Arc<AtomicU64>,
    stop: watch::Receiver<bool>,
    /// The last request failed.
    is_failing: bool,
}

impl Exporter {
    pub(super) fn new(
        signal: Signal,
        target: Target,
        settings: Arc<OtlpSettings>,
        lost: Arc<AtomicU64>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let collector = Collector::new(target, settings.timeout);
        Self { signal, collector, settings, lost, stop, is_failing: false }
    }

    /// Sends the records of a queue, in batches, until everything is sent after the order to stop.
    pub(super) async fn send_records<T>(mut self, mut queue: mpsc::Receiver<T>, encode: Encode<T>) {
        let mut batch = Vec::new();
        loop {
            let mut stop = self.stop.clone();
            tokio::select! {
                count = queue.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
                _ = stop.wait_for(|stops| *stops) => queue.close(),
            }
            self.fill(&mut batch, &mut queue).await;
            if batch.is_empty() {
                return;
            }
            let body = encode(&batch, &self.settings.resource);
            let count = batch.len() as u64;
            batch.clear();
            self.deliver(body, count).await;
        }
    }

    /// Adds records to a batch until it is full, or its time or the program is over.
    async fn fill<T>(&self, batch: &mut Vec<T>, queue: &mut mpsc::Receiver<T>) {
        let due = Instant::now() + self.settings.batch_delay;
        let mut stop = self.stop.clone();
        while batch.len() < BATCH_MAX {
            let room = BATCH_MAX - batch.len();
            tokio::select! {
                biased;
                added = timeout_at(due, queue.recv_many(batch, room)) => {
                    if matches!(added, Ok(0) | Err(_)) {
                        return;
                    }
                }
                _ = stop.wait_for(|stops| *stops) => return,
            }
        }
    }

    /// Sends all metrics, again and again, and a last time after the order to stop.
    pub(super) async fn send_metrics(mut self, metrics: Metrics) {
        let mut stop = self.stop.clone();
        loop {
            let stops = tokio::select! {
                () = sleep(self.settings.metric_interval) => false,
                _ = stop.wait_for(|stops| *stops) => true,
            };
            let body = proto::encode_metrics(&metrics.render(), &self.settings.resource);
            self.deliver(body, 1).await;
            if stops {
                return;
            }
        }
    }

    /// Sends a request, several times if need be. What the collector does not take is lost.
    async fn deliver(&mut self, body: Vec<u8>, records: u64) {
        let (body, mut pause) = (self.collector.pack(body), FIRST_PAUSE);
        for attempt in 1.. {
            let failure = match self.collector.post(body.clone()).await {
                Ok(answer) => return self.note_answer(&answer),
                Err(failure) => failure,
            };
            self.note_failure(&failure);
            if !failure.may_pass
                || attempt == ATTEMPTS
                || !self.wait(failure.retry_after.unwrap_or(pause)).await
            {
                self.lost.fetch_add(records, Relaxed);
                return;
            }
            pause *= 2;
        }
    }

    /// Waits before the next attempt. Returns false if the program stops.
    async fn wait(&self, pause: Duration) -> bool {
        let mut stop = self.stop.clone();
        tokio::select! {
            () = sleep(pause.min(LONGEST_PAUSE)) => true,
            _ = stop.wait_for(|stops| *stops) => false,
        }
    }

    /// The collector has taken the request, or parts of it.
    fn note_answer(&mut self, answer: &[u8]) {
        let (signal, url) = (self.signal.name(), self.collector.url());
        if std::mem::take(&mut self.is_failing) {
            info!(signal, url, "the OpenTelemetry collector takes data again");
        }
        let rejected = proto::rejected_records(self.signal, answer);
        if rejected > 0 {
            let before = self.lost.fetch_add(rejected, Relaxed);
            if before == 0 {
                warn!(signal, url, rejected, "the OpenTelemetry collector has rejected a part of the data");
            }
        }
    }

    fn note_failure(&mut self, failure: &Failure) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let (signal, url) = (self.signal.name(), self.collector.url());
            warn!(
                signal,
                url,
                "the OpenTelemetry collector does not take data: {}; what it does not take in time is lost, and counted in \
                 voxbridge_otlp_lost_total",
                failure.words
            );
        }
    }
}
