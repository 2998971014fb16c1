//! `[[tcp]]`: listeners for protocols on bare TCP.

use std::{collections::BTreeSet, net::SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{listen, problems::ConfigProblems};
use crate::{
    server::{AnnouncedService, TcpService},
    spelling::Library,
    suggestion::suggest_known,
};

/// Longest name of a service, bytes (RFC 6763, section 4.1.1).
const ANNOUNCED_NAME_MAX_BYTES: usize = 63;

/// Networks of this machine.
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];

/// `[[tcp]]`: one listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TcpConfig {
    /// Client protocol.
    pub protocol: String,
    /// Address and port to listen on.
    #[serde(deserialize_with = "listen::deserialize_address")]
    pub listen: Option<String>,
    /// Networks whose clients are admitted; this machine by default, if the address is this machine's own.
    pub allow: Option<Vec<String>>,
    /// Parameters of every session, as in a WebSocket's URL.
    pub query: Option<String>,
    /// Name by which the listener is announced on the local network (zeroconf); not announced by default.
    pub announce: Option<String>,
}

impl TcpConfig {
    fn build(&self, library: &Library) -> Result<(SocketAddr, TcpService), (&'static str, String)> {
        let protocols = library.clients().filter_map(|client| client.tcp.as_ref());
        let listeners: BTreeSet<&str> = protocols.map(|tcp| tcp.listener.as_str()).collect();
        if !listeners.contains(self.protocol.as_str()) {
            let known = suggest_known(&self.protocol, || listeners.iter().copied());
            return Err((
                "protocol",
                format!("no protocol on bare TCP is called {:?}{known}", self.protocol),
            ));
        }
        let address = listen::resolve_address(self.listen.as_deref().unwrap_or_default());
        let address = address.map_err(|problem| ("listen", problem))?;
        let networks: Vec<&str> = match &self.allow {
            Some(networks) => networks.iter().map(String::as_str).collect(),
            None if address.ip().is_loopback() => LOOPBACK.to_vec(),
            None => {
                let message = "say which networks may connect, such as [\"192.168.0.0/16\"]: these protocols have no keys";
                return Err(("allow", message.to_owned()));
            }
        };
        let allow = networks.into_iter().map(|text| {
            let network =
                text.parse::<IpNet>().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from));
            let invalid = "is no network; valid examples: \"10.0.0.0/8\", \"127.0.0.1\"";
            network.map_err(|_| ("allow", format!("{text:?} {invalid}")))
        });
        let announced_as = self.announced_as(library, address).map_err(|problem| ("announce", problem))?;
        let service = TcpService {
            announced_as,
            protocol: self.protocol.clone(),
            allow: allow.collect::<Result<_, _>>()?,
            query: self.query.clone().unwrap_or_default(),
        };
        Ok((address, service))
    }

    fn announced_as(
        &self,
        library: &Library,
        address: SocketAddr,
    ) -> Result<Option<AnnouncedService>, String> {
        let Some(name) = self.announce.as_deref() else { return Ok(None) };
        if !(1..=ANNOUNCED_NAME_MAX_BYTES).contains(&name.len()) || name.contains(char::is_control) {
            return Err(format!("a name has 1 to {ANNOUNCED_NAME_MAX_BYTES} bytes, such as \"voxbridge\""));
        }
        if address.ip().is_loopback() {
            let message = "the listener is of this machine only; others cannot reach it, so `listen` needs another address";
            return Err(message.to_owned());
        }
        let mut protocols = library.clients().filter_map(|client| client.tcp.as_ref());
        let kind = protocols
            .find_map(|tcp| tcp.service_kind.clone().filter(|_| tcp.listener == self.protocol))
            .ok_or_else(|| format!("the protocol {:?} has no `service_kind` to announce", self.protocol))?;
        Ok(Some(AnnouncedService { name: name.to_owned(), kind }))
    }
}

/// The listeners without a mistake.
pub(super) fn build_all(
    configs: &[TcpConfig],
    library: &Library,
    problems: &mut ConfigProblems,
) -> Vec<(SocketAddr, TcpService)> {
    let build = |(at, config): (usize, &TcpConfig)| {
        let built = config.build(library).map_err(|(key, problem)| {
            problems.push(&["tcp", &at.to_string(), key], format!("tcp.{key}: {problem}"));
        });
        built.ok()
    };
    configs.iter().enumerate().filter_map(build).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(toml: &str) -> Result<(SocketAddr, TcpService), String> {
        let config: TcpConfig = toml::from_str(toml).unwrap();
        config.build(&Library::embedded().unwrap()).map_err(|(key, problem)| format!("{key}: {problem}"))
    }

    #[test]
    fn listener_of_this_machine_admits_this_machine() {
        let (address, service) = build("protocol = \"wyoming\"\nlisten = 10300").unwrap();
        assert_eq!(address, "127.0.0.1:10300".parse().unwrap());
        assert!(service.allow.iter().all(|network| network.addr().is_loopback()));
        let open = "protocol = \"wyoming\"\nlisten = \"0.0.0.0:1\"";
        assert!(build(open).unwrap_err().starts_with("allow: say which networks"));
        let (_, service) = build(&format!("{open}\nallow = [\"10.0.0.0/8\", \"::1\"]")).unwrap();
        assert_eq!(service.allow.len(), 2);
    }

    #[test]
    fn mistakes_name_their_key() {
        for (toml, words) in [
            ("protocol = \"wyomin\"\nlisten = 1", "protocol: no protocol on bare TCP is called \"wyomin\""),
            ("protocol = \"macaw\"\nlisten = 1", "protocol: "),
            ("protocol = \"wyoming\"\nlisten = 1\nallow = [\"home\"]", "allow: \"home\" is no network"),
            (
                "protocol = \"wyoming\"\nlisten = 1\nannounce = \"vox\"",
                "announce: the listener is of this machine",
            ),
            (
                "protocol = \"wyoming\"\nlisten = \"0.0.0.0:1\"\nallow = []\nannounce = \"\"",
                "announce: a name has 1 to 63 bytes",
            ),
            (
                "protocol = \"audiosocket\"\nlisten = \"0.0.0.0:1\"\nallow = []\nannounce = \"vox\"",
                "announce: the protocol \"audiosocket\" has no `service_kind`",
            ),
        ] {
            let problem = build(toml).unwrap_err();
            assert!(problem.starts_with(words), "{toml}: {problem}");
        }
    }
}
