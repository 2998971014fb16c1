//! Announces listeners on the local network by multicast DNS (RFC 6762) and DNS-SD (RFC 6763), which Home Assistant calls zeroconf.
//!
//! The library answers queries in a thread of its own, which runs only if a listener is announced.

use std::{io, net::SocketAddr, time::Duration};

use mdns_sd::{ServiceDaemon, ServiceInfo};
use tracing::{debug, info};

/// Longest wait for the goodbye to leave.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Name and kind of an announced service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedService {
    /// Name that people see, unique in the network.
    pub name: String,
    /// Kind of service, such as `_wyoming._tcp`.
    pub kind: String,
}

/// A service that is announced until this is ended.
pub(super) struct Announcement {
    daemon: ServiceDaemon,
    full_name: String,
}

impl Announcement {
    /// Announces a service at this address: at all of the machine's, if it listens on all.
    ///
    /// # Errors
    /// The name is none, or the system gives no socket.
    pub(super) fn start(service: &AnnouncedService, listen: SocketAddr) -> io::Result<Self> {
        let AnnouncedService { name, kind } = service;
        let (kind, host) = (format!("{kind}.local."), format!("{}.local.", host_name(name)));
        let address = Some(listen.ip()).filter(|ip| !ip.is_unspecified());
        let address = address.map_or_else(String::new, |ip| ip.to_string());
        let found = ServiceInfo::new(&kind, name, &host, address.as_str(), listen.port(), None);
        let found = found.map(|found| if address.is_empty() { found.enable_addr_auto() } else { found });
        let found = found.map_err(io::Error::other)?;
        let full_name = found.get_fullname().to_owned();
        let daemon = ServiceDaemon::new().map_err(io::Error::other)?;
        daemon.register(found).map_err(io::Error::other)?;
        info!(service = full_name, port = listen.port(), "announced on the local network");
        Ok(Self { daemon, full_name })
    }

    /// Says goodbye: clients stop connecting.
    pub(super) async fn end(self) {
        if let Ok(ended) = self.daemon.unregister(&self.full_name) {
            let _ = tokio::time::timeout(GOODBYE_MAX, ended.recv_async()).await;
        }
        if let Err(error) = self.daemon.shutdown() {
            debug!(%error, "the announcement could not be ended");
        }
    }
}

/// A host name made of the service's name: letters, digits and hyphens.
fn host_name(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let joined = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    if joined.is_empty() { "voxbridge".to_owned() } else { joined.chars().take(63).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_has_letters_digits_and_hyphens() {
        for (name, expected) in
            [("voxbridge", "voxbridge"), ("Vox in the Kitchen!", "vox-in-the-kitchen"), ("语音", "voxbridge")]
        {
            assert_eq!(host_name(name), expected);
        }
        assert_eq!(host_name(&"a".repeat(99)).len(), 63);
    }
}
