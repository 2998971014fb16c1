//! Serves: starts what a server needs, accepts clients, and drains sessions in the end.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};
use tracing::{info, warn};

use super::{
    Server,
    access::{client_secrets::ClientSecrets, quota::Quotas},
    context::ServerContext,
    loops::{accept_until, wait_for_sessions},
    process::{
        lifecycle::{DrainPolicy, LifecycleState, ShutdownOutcome},
        workers::Workers,
    },
    webhooks::Webhooks,
    webrtc::Calls,
};
use crate::telemetry::line_writer::FLUSH_TIMEOUT;

/// Orders to all connections, and their end.
struct Orders {
    /// Set to the drain timeout when sessions must finish.
    drain: watch::Sender<Option<Duration>>,
    /// Set when sessions that still run are cut off.
    cut_off: watch::Sender<bool>,
    /// Closes when the last connection has gone.
    all_gone: mpsc::Receiver<()>,
}

impl Server {
    /// Serves until `stop` completes, then drains sessions within the configured time.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let lifecycle = self.lifecycle.clone();
        let stopping = async {
            stop.await;
            lifecycle.start_drain();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = self.serve() => {}
            () = stopping => {}
        }
    }

    /// Serves until the lifecycle drains, then drains sessions within the configured time.
    pub async fn serve(mut self) -> ShutdownOutcome {
        let (webhooks, deliveries) = self.webhooks.take().unzip();
        let delivering = deliveries.map(|deliveries| tokio::spawn(deliveries.run()));
        let (server, orders) = self.start(webhooks.clone());
        let receiving = server.calls.clone().map(|calls| tokio::spawn(calls.run()));
        let tool_servers = tokio::spawn(self.tool_servers.clone().run());
        let exporting = self.exporters.take().map(|exporters| tokio::spawn(exporters.run(self.metrics())));
        let log = server.access_log.clone();
        self.lifecycle.mark_serving();
        self.local_sessions.begin(&server);
        self.accept_until(&server, LifecycleState::Draining, None).await;
        for announcement in self.announcements.drain(..) {
            announcement.end().await;
        }
        let DrainPolicy { grace, timeout: drain_timeout } = self.config.get().drain_policy;
        info!(sessions = self.registry.len(), "draining: new sessions are rejected with HTTP 503");
        if !grace.is_zero() {
            self.accept_until(&server, LifecycleState::Stopped, Some(grace)).await;
        }
        self.listeners.clear();
        info!(
            sessions = self.registry.len(),
            "draining: listener closed, sessions finish what is being said"
        );
        orders.drain.send_replace(Some(drain_timeout));
        server.calls.iter().for_each(Calls::end_waiting);
        drop(server);
        let (registry, lifecycle, pings) = (&self.registry, &self.lifecycle, &mut self.liveness.1);
        let outcome = wait_for_sessions(orders.all_gone, drain_timeout, registry, pings, lifecycle).await;
        orders.cut_off.send_replace(true);
        self.leave_queues().await;
        self.lifecycle.stop();
        if let Some(receiving) = receiving {
            receiving.abort();
        }
        tool_servers.abort();
        // Sessions that were cut off still write their lines.
        let _ = timeout(FLUSH_TIMEOUT, self.session_slots.wait_until_all_free()).await;
        if let Some((webhooks, delivering)) = webhooks.zip(delivering) {
            webhooks.finish().await;
            delivering.abort();
        }
        if let Some(log) = log
            && !log.flush().await
        {
            warn!("access log not written completely within 1 s: some lines are lost");
        }
        if let (Some(otlp), Some(exporting)) = (self.otlp.get(), exporting) {
            otlp.stop();
            if timeout(FLUSH_TIMEOUT, exporting).await.is_err() {
                warn!("the OpenTelemetry collector did not take everything within 1 s: some of it is lost");
            }
        }
        outcome
    }

    /// Makes what the connections share, and the orders to them.
    fn start(&mut self, webhooks: Option<Webhooks>) -> (Arc<ServerContext>, Orders) {
        let ((drain_sender, drain), (cut_off_sender, cut_off)) =
            (watch::channel(None), watch::channel(false));
        let (drain_guard, all_gone) = mpsc::channel(1);
        let server = Arc::new(ServerContext {
            calls: self.calls.take(),
            turn_judge: self.turn_judge.take(),
            tool_servers: self.tool_servers.clone(),
            webhooks,
            session_slots: self.session_slots.semaphore.clone(),
            config: self.config.clone(),
            registry: self.registry.clone(),
            lifecycle: self.lifecycle.clone(),
            metrics: self.metrics.clone(),
            access_log: self.access_log.get().cloned(),
            otlp: self.otlp.get().cloned(),
            workers: self.workers.take().unwrap_or_else(Workers::current_runtime),
            quotas: Quotas::default(),
            client_secrets: ClientSecrets::default(),
            handshakes: self.registry.waiting().connections.clone(),
            codec_threads: Default::default(),
            message_threads: Default::default(),
            bodies: Default::default(),
            jobs: Default::default(),
            watchers: Default::default(),
            memory: Arc::default(),
            drain,
            queue_keeper: self.queue_keeper.clone(),
            cut_off,
            drain_guard,
        });
        (server, Orders { drain: drain_sender, cut_off: cut_off_sender, all_gone })
    }

    /// Accepts clients until the server has come to this state, or for this long.
    async fn accept_until(
        &mut self,
        server: &Arc<ServerContext>,
        state: LifecycleState,
        at_most: Option<Duration>,
    ) {
        let Self { listeners, lifecycle, liveness, .. } = self;
        let over = async {
            tokio::select! {
                () = sleep(at_most.unwrap_or_default()), if at_most.is_some() => {}
                () = lifecycle.wait_for(state) => {}
            }
        };
        accept_until(listeners, server, &mut liveness.1, over).await;
    }

    /// Waits for ended sessions whose lanes are in an upstream's queue, and drops those that still are.
    async fn leave_queues(&self) {
        tokio::select! {
            _ = timeout(self.queue_wait_max, self.queue_keeper.kept().until_none()) => {}
            () = self.lifecycle.wait_for(LifecycleState::Stopped) => {}
        }
        self.queue_keeper.drop_all();
    }
}
