//! Addresses that are not of the public internet, by IANA's registries of special-purpose addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True for addresses that are not of the public internet: this machine, private and shared networks, links, multicast, and
/// what stands for such an IPv4 address in IPv6 (IANA's registries of special-purpose addresses).
pub(super) fn is_inner(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_inner_v4(address),
        IpAddr::V6(address) => is_inner_v6(address),
    }
}

fn is_inner_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || matches!(
            (a, b, c),
            (0 | 224.., ..) | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _)
        )
}

fn is_inner_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_inner_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // Unspecified, loopback, IPv4-compatible and IPv4-mapped.
        [0, 0, 0, 0, 0, 0, high, low] => high == 0 || embedded(high, low),
        [0, 0, 0, 0, 0, 0xffff, high, low] => embedded(high, low),
        // Translation of IPv4, and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        // Teredo and ORCHID, documentation, local translation, discarded.
        [0x2001, 0..=0x1ff, ..]
        | [0x2001, 0xdb8, ..]
        | [0x3fff, 0..=0xfff, ..]
        | [0x64, 0xff9b, 1, ..]
        | [0x100, 0, 0, 0, ..] => true,
        // Unique local, link-local and site-local, multicast.
        [first, ..] => matches!(first, 0xfc00..=0xfdff | 0xfe80..=0xfeff | 0xff00..),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_addresses_are_known_in_every_form() {
        for inner in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:a00:1::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:0:1::1",
            "2001:db8::1",
        ] {
            assert!(is_inner(inner.parse().unwrap()), "{inner}");
        }
        for public in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.169.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2001:4860::8888",
        ] {
            assert!(!is_inner(public.parse().unwrap()), "{public}");
        }
    }
}
