//! Client address: the peer's, or the one reported by a trusted proxy.
//!
//! Each proxy appends the address of its own peer to a header, and any client can send such a header. Therefore the
//! header is read from its end, as long as the entries come from trusted proxies. The first untrusted address is the
//! client. Only the configured header is read, because a proxy passes the other one through unchanged.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::named_enum::named_enum;
use ipnet::IpNet;

named_enum! {
    /// Header in which proxies report the client's address.
    #[derive(Default)]
    pub enum ProxyHeader {
        /// The most common header.
        #[default]
        XForwardedFor = "x-forwarded-for",
        /// RFC 7239.
        Forwarded = "forwarded",
    }
}

/// Networks of trusted proxies, and the header they set.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies {
    /// Trusted networks.
    trusted: Vec<IpNet>,
    /// Header set by these proxies.
    pub header: ProxyHeader,
}

impl TrustedProxies {
    /// Parses a list of networks.
    ///
    /// # Errors
    /// The malformed entry, with an example of a valid one.
    pub fn new(networks: &[String], header: ProxyHeader) -> Result<Self, String> {
        let parse_network = |text: &String| {
            text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| {
                format!("invalid network {text:?}; valid examples: \"10.0.0.0/8\", \"127.0.0.1\"")
            })
        };
        Ok(Self { trusted: networks.iter().map(parse_network).collect::<Result<_, _>>()?, header })
    }

    /// Determines the client's address from the header lines, which form one list (RFC 9110 §5.3).
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
            // A trusted proxy wrote the unreadable entry, so the request counts as that proxy's. Skipping the entry
            // would trust a value that any client can send.
            let Some(hop) = self.parse_entry(hop) else { break };
            client = hop.to_canonical();
        }
        client
    }

    /// Parses the address of one entry.
    fn parse_entry(&self, entry: &[u8]) -> Option<IpAddr> {
        let entry = std::str::from_utf8(entry).ok()?;
        match self.header {
            ProxyHeader::XForwardedFor => parse_address(entry),
            ProxyHeader::Forwarded => parse_address(forwarded_for(entry)?),
        }
    }

    /// True for the address of a trusted proxy.
    pub(in crate::server) fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }
}

/// Extracts the `for` value: `for=192.0.2.60;proto=https` → `192.0.2.60`.
fn forwarded_for(element: &str) -> Option<&str> {
    let pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let mut for_pairs = pairs.filter(|(name, _)| name.trim().eq_ignore_ascii_case("for"));
    for_pairs.next().map(|(_, value)| value)
}

/// Parses an address with or without port, brackets and quotes.
fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    text.parse().ok().or_else(with_port).or_else(bracketed)
}

/// Maps an address to the unit of quotas: an IPv6 /64, the smallest allocation of a customer, or a single IPv4 address.
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
        assert_eq!(
            client("192.0.2.1", &["198.51.100.7"]),
            "192.0.2.1",
            "header of an untrusted peer is ignored"
        );
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
        assert_eq!(client(&[b"6.6.6.6", b"\xff"]), "10.0.0.1", "unreadable line");
        assert_eq!(client(&[b"6.6.6.6, \xff1.2.3.4, 10.2.3.4"]), "10.2.3.4", "unreadable entry");
        assert_eq!(
            client(&[b"6.6.6.6,\xff", b"198.51.100.7"]),
            "198.51.100.7",
            "readable entry after an unreadable one"
        );
        assert_eq!(client(&[b"6.6.6.6", b""]), "10.0.0.1", "empty line");
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
