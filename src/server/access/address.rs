//! Who is connected: the peer, or whom a proxy that is trusted says it stands for.
//!
//! Proxies write into a header from whom they have a request, each behind what was there already, and everybody can send
//! such a header. So it is read from its end, as far as those who wrote it are trusted; the first who is not is the client.
//! Only the header that the operator names is read: a proxy lets the other one through as it came.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The header in which proxies say for whom they speak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum ProxyHeader {
    /// What most write.
    #[default]
    #[serde(rename = "x-forwarded-for")]
    XForwardedFor,
    /// RFC 7239.
    #[serde(rename = "forwarded")]
    Forwarded,
}

impl ProxyHeader {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}

/// Proxies that are trusted.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies {
    /// Where they are.
    trusted: Vec<IpNet>,
    /// What they write.
    pub header: ProxyHeader,
}

impl TrustedProxies {
    /// Those of these networks.
    ///
    /// # Errors
    /// The entry that is none, and what one looks like.
    pub fn new(networks: &[String], header: ProxyHeader) -> Result<Self, String> {
        let parse_network = |text: &String| {
            text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| {
                format!("{text:?} is no network; one looks like \"10.0.0.0/8\" or \"127.0.0.1\"")
            })
        };
        Ok(Self { trusted: networks.iter().map(parse_network).collect::<Result<_, _>>()?, header })
    }

    /// Who is connected, by what proxies wrote into the header's lines, which are one list (RFC 9110 §5.3).
    pub fn client_address<'h>(
        &self,
        peer: IpAddr,
        lines: impl DoubleEndedIterator<Item = &'h [u8]>,
    ) -> IpAddr {
        let mut client = peer.to_canonical();
        for hop in lines.rev().flat_map(|line| line.rsplit(|byte| *byte == b',')) {
            if !self.is_trusted(client) {
                break;
            }
            // What cannot be read was written by somebody who is trusted: all beyond it counts as theirs. To pass over it
            // would be to believe whoever sent it what stands before it.
            let Some(hop) = self.parse_entry(hop) else { break };
            client = hop.to_canonical();
        }
        client
    }

    /// Whom an entry names.
    fn parse_entry(&self, entry: &[u8]) -> Option<IpAddr> {
        let entry = std::str::from_utf8(entry).ok()?;
        match self.header {
            ProxyHeader::XForwardedFor => parse_address(entry),
            ProxyHeader::Forwarded => parse_address(forwarded_for(entry)?),
        }
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }
}

/// `for=192.0.2.60;proto=https` → `192.0.2.60`.
fn forwarded_for(element: &str) -> Option<&str> {
    let pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let mut for_pairs = pairs.filter(|(name, _)| name.trim().eq_ignore_ascii_case("for"));
    for_pairs.next().map(|(_, value)| value)
}

/// With a port or without, in brackets and quotes or without.
fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    text.parse().ok().or_else(with_port).or_else(bracketed)
}

/// What counts as one address: of IPv6 a /64, which is the least that one customer has.
#[must_use]
pub fn client_subnet(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_of(header: ProxyHeader, peer: &str, lines: &[&str]) -> String {
        let networks = ["10.0.0.0/8", "127.0.0.1", "fd00::/8"].map(str::to_owned);
        let proxies = TrustedProxies::new(&networks, header).unwrap();
        proxies.client_address(peer.parse().unwrap(), lines.iter().map(|line| line.as_bytes())).to_string()
    }

    #[test]
    fn rightmost_untrusted_address_is_the_client() {
        let client = |peer: &str, lines: &[&str]| client_of(ProxyHeader::XForwardedFor, peer, lines);
        assert_eq!(client("192.0.2.1", &["198.51.100.7"]), "192.0.2.1", "who is not trusted says nothing");
        assert_eq!(client("10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(client("::ffff:10.0.0.1", &["198.51.100.7:4711"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &["6.6.6.6, 198.51.100.7, 10.2.3.4"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &["6.6.6.6", "198.51.100.7", "10.2.3.4"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1", &["6.6.6.6, unknown"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["6.6.6.6, unknown, 10.9.9.9"]), "10.9.9.9");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client("fd00::1", &["[2001:db8::1]:443"]), "2001:db8::1");
    }

    #[test]
    fn unreadable_entry_stops_the_walk() {
        let proxies = TrustedProxies::new(&["10.0.0.0/8".to_owned()], ProxyHeader::XForwardedFor).unwrap();
        let client =
            |lines: &[&[u8]]| proxies.client_address([10, 0, 0, 1].into(), lines.iter().copied()).to_string();
        assert_eq!(client(&[b"6.6.6.6", b"\xff"]), "10.0.0.1", "a line");
        assert_eq!(client(&[b"6.6.6.6, \xff1.2.3.4, 10.2.3.4"]), "10.2.3.4", "an entry");
        assert_eq!(client(&[b"6.6.6.6,\xff", b"198.51.100.7"]), "198.51.100.7", "who is known is known");
        assert_eq!(client(&[b"6.6.6.6", b""]), "10.0.0.1", "nobody is named");
    }

    #[test]
    fn forwarded_header_is_parsed() {
        let client = |lines: &[&str]| client_of(ProxyHeader::Forwarded, "10.0.0.1", lines);
        assert_eq!(client(&["for=192.0.2.60;proto=http;by=203.0.113.43"]), "192.0.2.60");
        assert_eq!(client(&["For=\"[2001:db8:cafe::17]:4711\""]), "2001:db8:cafe::17");
        assert_eq!(client(&["for=6.6.6.6, for=192.0.2.43, for=10.0.0.9"]), "192.0.2.43");
        assert_eq!(client(&["for=_hidden"]), "10.0.0.1");
        assert_eq!(client(&["proto=https"]), "10.0.0.1");
    }

    #[test]
    fn subnet_is_ipv6_64_or_single_ipv4() {
        let is_same =
            |a: &str, b: &str| client_subnet(a.parse().unwrap()) == client_subnet(b.parse().unwrap());
        assert!(
            is_same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2")
                && !is_same("2001:db8:0:1::1", "2001:db8:0:2::1")
        );
        assert!(is_same("::ffff:192.0.2.1", "192.0.2.1") && !is_same("192.0.2.1", "192.0.2.2"));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_header_never_panics(line in ".*", standard: bool) {
            let header = if standard { ProxyHeader::Forwarded } else { ProxyHeader::XForwardedFor };
            client_of(header, "10.0.0.1", &[&line]);
        }
    }
}
