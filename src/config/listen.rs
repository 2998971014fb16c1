//! Addresses to listen on: `8000`, `localhost:8000`, `127.0.0.1:8000` or `[::1]:8000`.

use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use serde::{Deserialize, Deserializer, Serialize as _, Serializer, de::Error as _};

/// Address of a port that is given alone: this machine only.
const LOOPBACK: &str = "127.0.0.1";

/// Completes an address to `HOST:PORT`. A port alone, and `localhost`, stand for 127.0.0.1.
///
/// # Errors
/// A message with examples.
pub fn complete_address(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or((LOOPBACK, text));
    let is_name = || host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = in_brackets.map_or_else(is_name, |host| host.parse::<Ipv6Addr>().is_ok());
    match port.parse::<u16>() {
        Ok(port) if is_host && !host.is_empty() => {
            let host = if host.eq_ignore_ascii_case("localhost") { LOOPBACK } else { host };
            Ok(format!("{host}:{port}"))
        }
        _ => Err(format!(
            "{text:?} is not an address to listen on; use a port such as 8000, or an address and a port such as \
             127.0.0.1:8000, localhost:8000, [::1]:8000 or, for all addresses of this machine, 0.0.0.0:8000"
        )),
    }
}

/// Resolves a completed address; a name may need DNS.
///
/// # Errors
/// A message with the address.
pub(super) fn resolve_address(address: &str) -> Result<SocketAddr, String> {
    let mut found = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
    found.next().ok_or_else(|| format!("{address}: the name has no address"))
}

/// Reads an address of a configuration file, which may also be a number.
pub(super) fn deserialize_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    parse_value(toml::Value::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

/// Reads one address or a list of them.
pub(super) fn deserialize_addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let addresses = match toml::Value::deserialize(from)? {
        toml::Value::Array(addresses) if addresses.is_empty() => {
            return Err(D::Error::custom("the list has no address; leave the key out for the default"));
        }
        toml::Value::Array(addresses) => addresses,
        one => vec![one],
    };
    addresses.into_iter().map(parse_value).collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// Writes one address as a text and several as a list.
pub(super) fn serialize_addresses<S: Serializer>(addresses: &[String], to: S) -> Result<S::Ok, S::Error> {
    match addresses {
        [one] => one.serialize(to),
        several => several.serialize(to),
    }
}

fn parse_value(value: toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => complete_address(&text),
        other => complete_address(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_names_are_completed() {
        for (given, completed) in [
            ("8000", "127.0.0.1:8000"),
            ("localhost:8000", "127.0.0.1:8000"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[::1]:8000", "[::1]:8000"),
            ("gpu-1.example:80", "gpu-1.example:80"),
        ] {
            assert_eq!(complete_address(given).as_deref(), Ok(completed));
        }
        for given in
            ["", ":8000", "8000:", "here", "127.0.0.1", "70000", "::1:8000", "a b:1", "[::x]:1", "-1"]
        {
            let problem = complete_address(given).unwrap_err();
            assert!(problem.contains("127.0.0.1:8000"), "{given}: {problem}");
        }
    }

    #[test]
    fn configuration_file_takes_the_same_addresses() {
        let listen = |toml: &str| {
            let config = toml::from_str::<crate::config::Config>(toml);
            config.map(|config| (config.listen, config.admin.listen)).map_err(|error| error.to_string())
        };
        assert_eq!(listen("listen = 8000"), Ok((vec!["127.0.0.1:8000".into()], None)));
        let several = vec!["127.0.0.1:8000".to_owned(), "[::1]:8000".into()];
        assert_eq!(listen("listen = [8000, \"[::1]:8000\"]"), Ok((several, None)));
        let both = listen("listen = \"localhost:8000\"\n[admin]\nlisten = \"9000\"");
        assert_eq!(both, Ok((vec!["127.0.0.1:8000".into()], Some("127.0.0.1:9000".into()))));
        assert!(listen("listen = []").unwrap_err().contains("the list has no address"));
        for toml in
            ["listen = \"nonsense\"", "[admin]\nlisten = true", "listen = 8000.5", "listen = [8000, true]"]
        {
            assert!(listen(toml).unwrap_err().contains("is not an address to listen on"), "{toml}");
        }
    }
}
