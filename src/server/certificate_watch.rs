//! Reloads certificates whose files change, without a reload of the configuration. [`crate::server::tls`] does the reload.

use std::time::Duration;

use tracing::{info, warn};

use crate::{
    server::{ActiveConfig, admin::SharedAdminSecurity, tls::ReloadableAcceptor},
    telemetry::metrics::Metrics,
};

/// Checks the certificate files of the clients' and the admin listener at this interval, for ever.
pub async fn watch_certificates(
    current: ActiveConfig,
    admin: Option<SharedAdminSecurity>,
    metrics: Metrics,
    interval: Duration,
) {
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        if let Some(tls) = current.get().tls.clone() {
            refresh_and_log("clients", &tls).await;
            if let Some(expires) = tls.certificate_expiry() {
                metrics.set_certificate_expiry(expires.as_secs_f64());
            }
        }
        if let Some(tls) = admin.as_ref().and_then(|security| security.get().tls.clone()) {
            refresh_and_log("admin", &tls).await;
        }
    }
}

async fn refresh_and_log(listener: &str, tls: &ReloadableAcceptor) {
    let acceptor = tls.clone();
    match tokio::task::spawn_blocking(move || acceptor.refresh()).await {
        Ok(Ok(true)) => info!(listener, "certificate reloaded for new connections"),
        Ok(Err(error)) => warn!(listener, error, "cannot reload the certificate; the old one stays in use"),
        Ok(Ok(false)) | Err(_) => {}
    }
}
