//! Where the playground may be served: its visitors use the model, and may watch their own sessions.

use super::{Config, listen::resolve_address};

impl Config {
    /// True if the playground is served.
    ///
    /// # Errors
    /// It is asked for where anybody could use it.
    pub(super) fn allows_playground(&self) -> Result<bool, String> {
        if self.playground != Some(true) {
            return Ok(false);
        }
        let asks_for_keys = self.access.keys.is_some() && self.access.required != Some(false);
        let is_public =
            |address: &String| resolve_address(address).map_or(true, |address| !address.ip().is_loopback());
        match self.listen_addresses().into_iter().find(is_public) {
            Some(address) if !asks_for_keys => Err(format!(
                "playground: without API keys, it is served on loopback addresses only, and {address} is none; configure keys \
                 ([access] keys, or --keys FILE), or listen on 127.0.0.1"
            )),
            _ => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn playground_needs_loopback_or_keys() {
        let allows = |toml: &str| toml::from_str::<Config>(toml).unwrap().allows_playground();
        assert_eq!(allows(""), Ok(false));
        assert_eq!(allows("playground = false\nlisten = \"0.0.0.0:80\""), Ok(false));
        for toml in [
            "playground = true",
            "playground = true\nlisten = [8000, \"[::1]:8000\"]",
            "playground = true\nlisten = \"0.0.0.0:80\"\n[access]\nkeys = \"keys.toml\"",
        ] {
            assert_eq!(allows(toml), Ok(true), "{toml}");
        }
        for toml in [
            "playground = true\nlisten = \"0.0.0.0:80\"",
            "playground = true\nlisten = [8000, \"[::]:80\"]",
            "playground = true\nlisten = \"0.0.0.0:80\"\n[access]\nkeys = \"keys.toml\"\nrequired = false",
        ] {
            let problem = allows(toml).unwrap_err();
            assert!(problem.contains("keys") && problem.contains(":80 is none"), "{problem}");
        }
    }
}
