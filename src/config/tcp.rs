//! `[[tcp]]`: listeners for protocols on bare TCP.

use std::{collections::BTreeSet, net::SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{listen, problems::ConfigProblems};
use crate::{
    mapping::{Library, check::suggest_known},
    server::TcpService,
};

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
        let service = TcpService {
            protocol: self.protocol.clone(),
            allow: allow.collect::<Result<_, _>>()?,
            query: self.query.clone().unwrap_or_default(),
        };
        Ok((address, service))
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
        ] {
            let problem = build(toml).unwrap_err();
            assert!(problem.starts_with(words), "{toml}: {problem}");
        }
    }
}
