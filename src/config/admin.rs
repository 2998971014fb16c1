//! `[admin]`: where operators ask, and who of them may.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    secret::Secret,
    server::{
        admin::{AdminSecurity, auth::AdminAuth},
        tls::{ReloadableAcceptor, TlsConfig, TlsFiles},
    },
};

/// The admin listener; off unless an address is named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AdminConfig {
    /// Address to listen on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// File with the token that those who ask must know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Or a variable of the environment that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// Names by which it may be asked, besides those of the loopback address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// TLS; with `client_ca` a certificate is as good as the token. It is asked of everybody where there is no token, and
    /// optional where there is one, unless `client_certs` says which.
    #[serde(default, skip_serializing_if = "TlsConfig::is_empty")]
    pub tls: TlsConfig,
}

/// An admin listener to be.
#[derive(Debug)]
pub struct AdminSettings {
    /// Where.
    pub listen: SocketAddr,
    /// For whom.
    pub auth: AdminAuth,
    /// How it is encrypted, if it is.
    pub tls: Option<TlsFiles>,
}

impl AdminSettings {
    /// Whether it may be served there: beyond this machine somebody has to be asked for something.
    ///
    /// # Errors
    /// What is missing, in words.
    pub(super) fn check_exposure(&self, bound: SocketAddr) -> Result<(), String> {
        if !self.auth.is_open() || bound.ip().is_loopback() {
            return Ok(());
        }
        Err(format!(
            "admin.listen: {bound} can be reached from other machines, and whoever reaches it may end sessions: name a token \
             with `token_file` or `token_env`, or a `client_ca` in [admin.tls], or listen on 127.0.0.1"
        ))
    }

    /// The entrance, with its files read.
    ///
    /// # Errors
    /// Which file is wrong; never what is in it.
    pub fn load(self) -> Result<AdminSecurity, String> {
        let bad = |problem| format!("admin.tls: {problem}");
        Ok(AdminSecurity {
            auth: self.auth,
            tls: self.tls.map(ReloadableAcceptor::load).transpose().map_err(bad)?,
        })
    }
}

impl AdminConfig {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Lays `over` over this: what it says wins.
    pub(super) fn overlaid_with(self, over: Self) -> Self {
        // Who names a file on the command line does not mean the variable of the configuration.
        let token_env =
            if over.token_file.is_some() { over.token_env } else { over.token_env.or(self.token_env) };
        Self {
            listen: over.listen.or(self.listen),
            token_file: over.token_file.or(self.token_file),
            token_env,
            ..self
        }
    }

    pub(super) fn file_paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.token_file.iter_mut().chain(self.tls.file_paths().map(|(_, path)| path))
    }

    /// What it says, whole; `None` where it names no address.
    ///
    /// # Errors
    /// What is wrong, in words that name the keys and never quote a secret.
    pub fn resolve(&self) -> Result<Option<AdminSettings>, String> {
        let Some(listen) = &self.listen else { return Ok(None) };
        let bad = |problem: String| format!("admin.{problem}");
        let listen: SocketAddr = listen
            .parse()
            .map_err(|_| bad(format!("listen: {listen:?} is no address and port such as 127.0.0.1:9000")))?;
        let tls = self.tls.resolve().map_err(|problem| bad(format!("tls: {problem}")))?;
        let accepts_certificates = tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        let auth = AdminAuth {
            token: self.read_token().map_err(bad)?,
            accepts_certificates,
            hosts: self.hosts.clone(),
        };
        // Who has the token, and who probes, has no certificate to shake hands with.
        let is_optional = self.tls.client_certs.is_none() && auth.token.is_some();
        let tls = tls.map(|files| TlsFiles {
            is_client_cert_optional: files.is_client_cert_optional || is_optional,
            ..files
        });
        let settings = AdminSettings { listen, auth, tls };
        settings.check_exposure(listen)?;
        Ok(Some(settings))
    }

    /// Operators have an address of their own: one that clients are served at is theirs already.
    pub(super) fn check_address_conflict(&self, clients: &str) -> Result<(), String> {
        let parsed = |address: &str| address.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
        let (Some(admin), Some(clients)) = (self.listen.as_deref().and_then(parsed), parsed(clients)) else {
            return Ok(());
        };
        let overlap =
            admin.ip() == clients.ip() || admin.ip().is_unspecified() || clients.ip().is_unspecified();
        if admin.port() != clients.port() || !overlap {
            return Ok(());
        }
        Err(format!(
            "admin.listen: clients are served at {clients} (`listen`); operators need another port than {admin}"
        ))
    }

    /// What works otherwise than one may think, a line each.
    pub(super) fn notes(&self) -> Vec<String> {
        let Ok(Some(settings)) = self.resolve() else { return Vec::new() };
        let is_unencrypted = settings.tls.is_none() && !settings.listen.ip().is_loopback();
        let unencrypted = is_unencrypted
            .then_some("admin: the token crosses the network in the clear; [admin.tls] would encrypt it");
        let probes_locked_out = settings.tls.is_some_and(|files| files.client_ca.is_some() && !files.is_client_cert_optional).then_some(
            "admin: who shows no certificate is not even answered whether it is alive or ready; for probes and for whoever \
             has the token say `client_certs = \"optional\"` in [admin.tls]",
        );
        unencrypted.into_iter().chain(probes_locked_out).map(str::to_owned).collect()
    }

    fn read_token(&self) -> Result<Option<Secret>, String> {
        let (key, token) = match (&self.token_file, &self.token_env) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err("token_file and admin.token_env: name one of them".to_owned()),
            (Some(path), None) => {
                let bad = |error| format!("token_file: {}: {error}", path.display());
                ("token_file", std::fs::read_to_string(path).map_err(bad)?)
            }
            (None, Some(name)) => {
                let missing = || format!("token_env: there is no variable {name} in the environment");
                ("token_env", super::env_var(name).ok_or_else(missing)?)
            }
        };
        match token.trim() {
            "" => Err(format!("{key}: it is empty, and an empty token keeps nobody out")),
            token => Ok(Some(Secret::new(token))),
        }
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
            assert!(settings(&format!("listen = {open:?}\n{tls}")).is_err(), "TLS alone keeps nobody out");
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
            ("listen = \"9000\"", "admin.listen: \"9000\""),
            ("listen = \"127.0.0.1:1\"\ntoken_file = \"/nowhere\"", "admin.token_file: /nowhere"),
            ("listen = \"127.0.0.1:1\"\ntoken_file = \"/dev/null\"", "admin.token_file: it is empty"),
            ("listen = \"127.0.0.1:1\"\ntoken_env = \"VOXBRIDGE_NO_SUCH\"", "no variable VOXBRIDGE_NO_SUCH"),
            ("listen = \"127.0.0.1:1\"\ntoken_file = \"a\"\ntoken_env = \"b\"", "name one of them"),
            ("listen = \"127.0.0.1:1\"\n[tls]\ncert = \"a\"", "admin.tls: `key` is missing"),
        ] {
            let problem = settings(toml).unwrap_err();
            assert!(problem.contains(words), "{toml}: {problem}");
        }
    }
}
