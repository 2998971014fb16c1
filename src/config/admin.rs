//! `[admin]`: the listener for operators, and its authentication.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::ranges::conflict;
use crate::server::{
    admin::{AdminSecurity, auth::AdminAuth},
    tls::{ReloadableAcceptor, TlsConfig, TlsFiles},
};

/// `[admin]`. The listener is off unless `listen` is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AdminConfig {
    /// Address and port to listen on, completed by [`super::complete_address`].
    #[serde(default, deserialize_with = "super::listen::deserialize_address")]
    pub listen: Option<String>,
    /// File with the admin token.
    pub token_file: Option<PathBuf>,
    /// Environment variable with the admin token.
    pub token_env: Option<String>,
    /// Accepted `Host` names besides those of the loopback address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// TLS settings. A client certificate of `client_ca` replaces the token. Without a token, the certificate
    /// is required; with one, it is optional. `client_certs` overrides this.
    #[serde(default, skip_serializing_if = "TlsConfig::is_empty")]
    pub tls: TlsConfig,
}

/// Resolved settings of the admin listener.
#[derive(Debug)]
pub struct AdminSettings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Authentication of operators.
    pub auth: AdminAuth,
    /// TLS files, if TLS is configured.
    pub tls: Option<TlsFiles>,
}

impl AdminSettings {
    /// Checks that a listener beyond this machine requires authentication.
    ///
    /// # Errors
    /// A message that names the missing keys.
    pub(super) fn check_exposure(&self, bound: SocketAddr) -> Result<(), String> {
        if !self.auth.is_open() || bound.ip().is_loopback() {
            return Ok(());
        }
        Err(format!(
            "admin.listen: {bound} is reachable from other machines, and the admin API can end sessions: set a token \
             with `token_file` or `token_env`, or a `client_ca` in [admin.tls], or listen on 127.0.0.1"
        ))
    }

    /// Reads the TLS files.
    ///
    /// # Errors
    /// A message that names the file but never quotes it.
    pub fn load(self) -> Result<AdminSecurity, String> {
        let bad = |problem| format!("admin.tls: {problem}");
        Ok(AdminSecurity {
            auth: self.auth,
            tls: self.tls.map(ReloadableAcceptor::load).transpose().map_err(bad)?,
        })
    }
}

impl AdminConfig {
    /// Resolves the section; `None` if `listen` is not set.
    ///
    /// # Errors
    /// A message that names the key but never quotes a secret.
    pub fn resolve(&self) -> Result<Option<AdminSettings>, String> {
        let Some(listen) = &self.listen else { return Ok(None) };
        let bad = |problem: String| format!("admin.{problem}");
        let listen =
            super::listen::resolve_address(listen).map_err(|problem| bad(format!("listen: {problem}")))?;
        let tls = self.tls.resolve().map_err(|problem| bad(format!("tls: {problem}")))?;
        let accepts_certificates = tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        let auth = AdminAuth {
            token: super::read_token(self.token_file.as_deref(), self.token_env.as_deref()).map_err(bad)?,
            accepts_certificates,
            hosts: self.hosts.clone(),
        };
        // Holders of the token and health probes have no certificate, so their handshake must succeed
        // without one.
        let is_optional = self.tls.client_certs.is_none() && auth.token.is_some();
        let tls = tls.map(|files| TlsFiles {
            is_client_cert_optional: files.is_client_cert_optional || is_optional,
            ..files
        });
        let settings = AdminSettings { listen, auth, tls };
        settings.check_exposure(listen)?;
        Ok(Some(settings))
    }

    /// Checks that the admin listener and the client listener do not share a port.
    pub(super) fn check_address_conflict(&self, clients: &str) -> Result<(), String> {
        let Some(admin) = self.listen.as_deref().filter(|admin| conflict(admin, clients)) else {
            return Ok(());
        };
        Err(format!(
            "admin.listen: {admin} conflicts with the clients' address {clients} (`listen`); use another port"
        ))
    }

    /// Notes on surprising settings, one line each.
    pub(super) fn notes(&self) -> Vec<String> {
        let Ok(Some(settings)) = self.resolve() else { return Vec::new() };
        let is_unencrypted = settings.tls.is_none() && !settings.listen.ip().is_loopback();
        let unencrypted =
            is_unencrypted.then_some("admin: the token crosses the network unencrypted; set up [admin.tls]");
        let probes_locked_out = settings.tls.is_some_and(|files| files.client_ca.is_some() && !files.is_client_cert_optional).then_some(
            "admin: health probes without a client certificate fail; to accept them, and operators with a token, set \
             `client_certs = \"optional\"` in [admin.tls]",
        );
        unencrypted.into_iter().chain(probes_locked_out).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(toml: &str) -> Result<Option<AdminSettings>, String> {
        toml::from_str::<AdminConfig>(toml).unwrap().resolve()
    }

    #[test]
    fn non_loopback_listener_needs_token_or_client_ca() {
        assert!(settings("").unwrap().is_none());
        assert!(settings("listen = \"127.0.0.1:9000\"").unwrap().unwrap().auth.is_open());
        assert!(settings("listen = \"[::1]:9000\"").is_ok());
        for open in ["0.0.0.0:9000", "10.0.0.1:9000", "[::]:9000"] {
            let problem = settings(&format!("listen = {open:?}")).unwrap_err();
            assert!(problem.contains("token_file") && problem.contains("client_ca"), "{problem}");
            let tls = "[tls]\ncert = \"c\"\nkey = \"k\"";
            assert!(
                settings(&format!("listen = {open:?}\n{tls}")).is_err(),
                "TLS alone authenticates no client"
            );
            assert!(settings(&format!("listen = {open:?}\n{tls}\nclient_ca = \"a\"")).is_ok());
            assert!(settings(&format!("listen = {open:?}\ntoken_env = \"PATH\"")).is_ok());
        }
    }

    #[test]
    fn token_makes_client_certificate_optional() {
        let tls = |rest: &str| {
            let toml = format!(
                "listen = \"0.0.0.0:1\"\n{rest}[tls]\ncert = \"c\"\nkey = \"k\"\nclient_ca = \"a\"\n"
            );
            move |certs: &str| {
                settings(&format!("{toml}{certs}")).unwrap().unwrap().tls.unwrap().is_client_cert_optional
            }
        };
        let (with, without) = (tls("token_env = \"PATH\"\n"), tls(""));
        let (optional, required) = ("client_certs = \"optional\"", "client_certs = \"required\"");
        assert_eq!((with(""), with(optional), with(required)), (true, true, false));
        assert_eq!((without(""), without(optional), without(required)), (false, true, false));
    }

    #[test]
    fn admin_and_client_address_conflict_is_rejected() {
        let apart = |own: &str, clients: &str| {
            let config = AdminConfig { listen: Some(own.to_owned()), ..AdminConfig::default() };
            config.check_address_conflict(clients)
        };
        for (own, clients) in [
            ("127.0.0.1:8000", "127.0.0.1:8000"),
            ("127.0.0.1:8000", "0.0.0.0:8000"),
            ("0.0.0.0:8000", "127.0.0.1:8000"),
        ] {
            let problem = apart(own, clients).unwrap_err();
            assert!(problem.contains(own) && problem.contains(clients), "{problem}");
        }
        for (own, clients) in [
            ("127.0.0.1:8001", "0.0.0.0:8000"),
            ("127.0.0.2:8000", "127.0.0.1:8000"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.0.0.1:8000", "localhost:8000"),
        ] {
            assert_eq!(apart(own, clients), Ok(()), "{own} {clients}");
        }
    }

    #[test]
    fn invalid_admin_settings_name_their_key() {
        for (toml, words) in [
            ("listen = \"127.0.0.1:1\"\ntoken_file = \"/nowhere\"", "admin.token_file: /nowhere"),
            ("listen = \"127.0.0.1:1\"\ntoken_file = \"/dev/null\"", "admin.token_file: the token is empty"),
            ("listen = \"127.0.0.1:1\"\ntoken_env = \"VOXBRIDGE_NO_SUCH\"", "no variable VOXBRIDGE_NO_SUCH"),
            ("listen = \"127.0.0.1:1\"\ntoken_file = \"a\"\ntoken_env = \"b\"", "set only one"),
            ("listen = \"127.0.0.1:1\"\n[tls]\ncert = \"a\"", "admin.tls: `key` is missing"),
        ] {
            let problem = settings(toml).unwrap_err();
            assert!(problem.contains(words), "{toml}: {problem}");
        }
    }
}
