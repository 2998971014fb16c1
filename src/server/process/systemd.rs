//! Notifications to the service manager: ready, reloading, stopping, watchdog (sd_notify(3)).
//!
//! Without `NOTIFY_SOCKET` in the environment nothing is sent. The watchdog proves that the accept loop runs; if the
//! runtime or that loop hangs, the service manager restarts the program.

#[cfg(target_os = "linux")]
use std::os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr};
use std::{
    io,
    os::unix::{ffi::OsStrExt as _, net::UnixDatagram},
    sync::Arc,
    time::Duration,
};

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::lifecycle::{DrainPolicy, Lifecycle, LifecycleState};
use crate::server::{ActiveConfig, LivenessProbe, registry::SessionRegistry};

/// Time to close connections after the drain timeout.
const CLOSE_ALLOWANCE: Duration = Duration::from_secs(10);

/// Connection to the service manager, if there is one.
#[derive(Debug, Clone, Default)]
pub struct ServiceManager(Option<Arc<UnixDatagram>>);

impl ServiceManager {
    /// Connects to the socket that the environment names. A socket that cannot be reached counts as none.
    pub fn from_env() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        match connect(name.as_bytes()) {
            Ok(socket) => Self(Some(Arc::new(socket))),
            Err(error) => {
                warn!(%error, "cannot connect to NOTIFY_SOCKET; the service manager gets no notifications");
                Self::default()
            }
        }
    }

    /// Reports that the configuration is being reloaded.
    pub fn notify_reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now]),
            Err(error) => {
                debug!(%error, "cannot read the monotonic clock; reload not reported to the service manager");
            }
        }
    }

    /// Reports that a reload has ended, successful or not.
    pub fn notify_ready(&self) {
        self.notify(&[NotifyState::Ready]);
    }

    fn notify(&self, states: &[NotifyState<'_>]) {
        let Some(socket) = &self.0 else { return };
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        if let Err(error) = socket.send(message.as_bytes()) {
            debug!(%error, "cannot notify the service manager");
        }
    }

    /// Reports the lifecycle of a server that listens at `address`, from start to stop.
    pub async fn report_lifecycle(
        self,
        address: String,
        lifecycle: Lifecycle,
        probe: LivenessProbe,
        registry: SessionRegistry,
        config: ActiveConfig,
    ) {
        if self.0.is_none() {
            return;
        }
        let states = async {
            lifecycle.wait_for(LifecycleState::Serving).await;
            let serving = format!("Serving at {address}");
            self.notify(&[NotifyState::Ready, NotifyState::Status(&serving)]);
            lifecycle.wait_for(LifecycleState::Draining).await;
            let draining = format!("Draining: {} live sessions", registry.len());
            let DrainPolicy { grace, timeout } = config.get().drain_policy;
            let stop_time = grace + timeout + CLOSE_ALLOWANCE;
            let stop_time_us = u32::try_from(stop_time.as_micros()).unwrap_or(u32::MAX);
            let status = NotifyState::Status(&draining);
            self.notify(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(stop_time_us), status]);
            lifecycle.wait_for(LifecycleState::Stopped).await;
        };
        tokio::select! {
            () = states => {}
            () = self.feed_watchdog(&probe) => {}
        }
    }

    /// Notifies the watchdog twice per expected interval, each time after the accept loop has answered.
    async fn feed_watchdog(&self, probe: &LivenessProbe) {
        let Some(expected) = sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero()) else {
            return std::future::pending().await;
        };
        let mut ticks = interval(expected / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            probe.ping().await;
            self.notify(&[NotifyState::Watchdog]);
        }
    }
}

/// Connects to a path, or to an abstract name, which begins with `@`.
fn connect(name: &[u8]) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not block the server.
    socket.set_nonblocking(true)?;
    match name.strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(std::ffi::OsStr::from_bytes(name))?,
    }
    Ok(socket)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn notify_socket_may_be_path_or_abstract_name() {
        let dir = std::env::temp_dir().join(format!("voxbridge-notify-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("socket");
        let abstract_name = format!("voxbridge-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let sockets = [
            (path.display().to_string(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{abstract_name}"), UnixDatagram::bind_addr(&address).unwrap()),
        ];
        for (name, receiver) in sockets {
            let manager = ServiceManager(Some(Arc::new(connect(name.as_bytes()).unwrap())));
            manager.notify_reloading();
            manager.notify_ready();
            let mut words = [0; 200];
            let mut next = || {
                let length = receiver.recv(&mut words).unwrap();
                String::from_utf8_lossy(&words[..length]).into_owned()
            };
            let first = next();
            let time = first.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().trim_end();
            assert!(time.parse::<u64>().unwrap() > 0, "{first}");
            assert_eq!(next(), "READY=1\n");
        }
        std::fs::remove_dir_all(dir).unwrap();
        ServiceManager::default().notify_ready();
    }
}
