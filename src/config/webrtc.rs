//! `[webrtc]`: where calls are served.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::listen::resolve_address;
use crate::server::WebRtcAddresses;

/// `[webrtc]`: off unless `listen` is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WebRtcConfig {
    /// Address and UDP port of all calls.
    pub listen: Option<String>,
    /// Address that clients send to, with a port if that differs: this machine's in the clients' network.
    pub advertise: Option<String>,
}

impl WebRtcConfig {
    /// The addresses, if calls are served.
    ///
    /// # Errors
    /// A message that names the key.
    pub fn addresses(&self) -> Result<Option<WebRtcAddresses>, String> {
        let Some(listen) = &self.listen else {
            return match self.advertise {
                Some(_) => Err("webrtc.advertise: calls are off; set webrtc.listen too".to_owned()),
                None => Ok(None),
            };
        };
        let listen = resolve_address(listen).map_err(|problem| format!("webrtc.listen: {problem}"))?;
        let advertise = match &self.advertise {
            Some(address) => parse_advertised(address)?,
            None if listen.ip().is_unspecified() => {
                return Err("webrtc.advertise: clients must know which address to send to; set it, or let webrtc.listen \
                            be one address"
                    .to_owned());
            }
            None => (listen.ip(), None),
        };
        // Only the socket of all IPv6 addresses takes IPv4 too.
        let takes_all = listen.is_ipv6() && listen.ip().is_unspecified();
        if !takes_all && listen.is_ipv4() != advertise.0.is_ipv4() {
            return Err("webrtc.advertise: no packet to this address reaches webrtc.listen: one is IPv4, the other IPv6"
                .to_owned());
        }
        Ok(Some(WebRtcAddresses { listen, advertise }))
    }
}

fn parse_advertised(address: &str) -> Result<(IpAddr, Option<u16>), String> {
    let with_port = address.parse::<SocketAddr>().map(|address| (address.ip(), Some(address.port())));
    let parsed =
        with_port.or_else(|_| address.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| (ip, None)));
    let parsed = parsed.ok().filter(|(ip, _)| !ip.is_unspecified() && !ip.is_multicast());
    parsed.ok_or_else(|| {
        format!("webrtc.advertise: {address:?} is no address such as 203.0.113.7 or 203.0.113.7:3478")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(toml: &str) -> Result<Option<(String, String, Option<u16>)>, String> {
        let addresses = toml::from_str::<WebRtcConfig>(toml).unwrap().addresses()?;
        Ok(addresses
            .map(|calls| (calls.listen.to_string(), calls.advertise.0.to_string(), calls.advertise.1)))
    }

    #[test]
    fn clients_are_told_where_to_send() {
        let all = |listen: &str, ip: &str, port| Ok(Some((listen.to_owned(), ip.to_owned(), port)));
        assert_eq!(addresses(""), Ok(None));
        assert_eq!(addresses("listen = \"127.0.0.1:3478\""), all("127.0.0.1:3478", "127.0.0.1", None));
        assert_eq!(
            addresses("listen = \"0.0.0.0:3478\"\nadvertise = \"203.0.113.7\""),
            all("0.0.0.0:3478", "203.0.113.7", None)
        );
        assert_eq!(
            addresses("listen = \"[::]:3478\"\nadvertise = \"[2001:db8::1]:80\""),
            all("[::]:3478", "2001:db8::1", Some(80))
        );
        for (toml, words) in [
            ("listen = \"0.0.0.0:3478\"", "which address"),
            ("advertise = \"203.0.113.7\"", "calls are off"),
            ("listen = \"0.0.0.0:1\"\nadvertise = \"example.org\"", "no address"),
            ("listen = \"0.0.0.0:1\"\nadvertise = \"0.0.0.0\"", "no address"),
            ("listen = \"0.0.0.0:1\"\nadvertise = \"2001:db8::1\"", "the other IPv6"),
            ("listen = \"[::1]:1\"\nadvertise = \"203.0.113.7\"", "the other IPv6"),
            ("listen = \"nowhere:x\"", "webrtc.listen"),
        ] {
            let problem = addresses(toml).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
