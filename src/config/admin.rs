//! `[admin]`: where operators ask, and who of them may.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    secret::Secret,
    server::{
        admin::{Entrance, auth::Guard},
        tls::{Acceptor, Files, TlsFile},
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
    #[serde(default, skip_serializing_if = "TlsFile::is_empty")]
    pub tls: TlsFile,
}

/// An admin listener to be.
#[derive(Debug)]
pub struct AdminPlan {
    /// Where.
    pub listen: SocketAddr,
    /// For whom.
    pub guard: Guard,
    /// How it is encrypted, if it is.
    pub tls: Option<Files>,
}

impl AdminPlan {
    /// Whether it may be served there: beyond this machine somebody has to be asked for something.
    ///
    /// # Errors
    /// What is missing, in words.
    pub(super) fn check_at(&self, bound: SocketAddr) -> Result<(), String> {
        if !self.guard.is_open() || bound.ip().is_loopback() {
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
    pub fn entrance(self) -> Result<Entrance, String> {
        let bad = |problem| format!("admin.tls: {problem}");
        Ok(Entrance { guard: self.guard, tls: self.tls.map(Acceptor::load).transpose().map_err(bad)? })
    }
}

impl AdminConfig {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Lays `over` over this: what it says wins.
    pub(super) fn overlaid(self, over: Self) -> Self {
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

    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.token_file.iter_mut().chain(self.tls.paths().map(|(_, path)| path))
    }

    /// What it says, whole; `None` where it names no address.
    ///
    /// # Errors
    /// What is wrong, in words that name the keys and never quote a secret.
    pub fn plan(&self) -> Result<Option<AdminPlan>, String> {
        let Some(listen) = &self.listen else { return Ok(None) };
        let bad = |problem: String| format!("admin.{problem}");
        let listen: SocketAddr = listen
            .parse()
            .map_err(|_| bad(format!("listen: {listen:?} is no address and port such as 127.0.0.1:9000")))?;
        let tls = self.tls.files().map_err(|problem| bad(format!("tls: {problem}")))?;
        let certificates = tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        let guard = Guard { token: self.token().map_err(bad)?, certificates, hosts: self.hosts.clone() };
        // Who has the token, and who probes, has no certificate to shake hands with.
        let optional = self.tls.client_certs.is_none() && guard.token.is_some();
        let tls = tls.map(|files| Files { optional: files.optional || optional, ..files });
        let plan = AdminPlan { listen, guard, tls };
        plan.check_at(listen)?;
        Ok(Some(plan))
    }

    /// Operators have an address of their own: one that clients are served at is theirs already.
    pub(super) fn check_apart(&self, clients: &str) -> Result<(), String> {
        let parsed = |address: &str| address.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
        let (Some(own), Some(theirs)) = (self.listen.as_deref().and_then(parsed), parsed(clients)) else {
            return Ok(());
        };
        let meet = own.ip() == theirs.ip() || own.ip().is_unspecified() || theirs.ip().is_unspecified();
        if own.port() != theirs.port() || !meet {
            return Ok(());
        }
        Err(format!(
            "admin.listen: clients are served at {theirs} (`listen`); operators need another port than {own}"
        ))
    }

    /// What works otherwise than one may think, a line each.
    pub(super) fn notes(&self) -> Vec<String> {
        let Ok(Some(plan)) = self.plan() else { return Vec::new() };
        let open = plan.tls.is_none() && !plan.listen.ip().is_loopback();
        let open =
            open.then_some("admin: the token crosses the network in the clear; [admin.tls] would encrypt it");
        let closed = plan.tls.is_some_and(|files| files.client_ca.is_some() && !files.optional).then_some(
            "admin: who shows no certificate is not even answered whether it is alive or ready; for probes and for whoever \
             has the token say `client_certs = \"optional\"` in [admin.tls]",
        );
        open.into_iter().chain(closed).map(str::to_owned).collect()
    }

    fn token(&self) -> Result<Option<Secret>, String> {
        let (key, token) = match (&self.token_file, &self.token_env) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err("token_file and admin.token_env: name one of them".to_owned()),
            (Some(path), None) => {
                let bad = |error| format!("token_file: {}: {error}", path.display());
                ("token_file", std::fs::read_to_string(path).map_err(bad)?)
            }
            (None, Some(name)) => {
                let missing = || format!("token_env: there is no variable {name} in the environment");
                ("token_env", super::env(name).ok_or_else(missing)?)
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

    fn plan(toml: &str) -> Result<Option<AdminPlan>, String> {
        toml::from_str::<AdminConfig>(toml).unwrap().plan()
    }

    #[test]
    fn nobody_listens_beyond_this_machine_unguarded() {
        assert!(plan("").unwrap().is_none());
        assert!(plan("listen = \"127.0.0.1:9000\"").unwrap().unwrap().guard.is_open());
        assert!(plan("listen = \"[::1]:9000\"").is_ok());
        for open in ["0.0.0.0:9000", "10.0.0.1:9000", "[::]:9000"] {
            let problem = plan(&format!("listen = {open:?}")).unwrap_err();
            assert!(problem.contains("token_file") && problem.contains("client_ca"), "{problem}");
            let tls = "[tls]\ncert = \"c\"\nkey = \"k\"";
            assert!(plan(&format!("listen = {open:?}\n{tls}")).is_err(), "TLS alone keeps nobody out");
            assert!(plan(&format!("listen = {open:?}\n{tls}\nclient_ca = \"a\"")).is_ok());
            assert!(plan(&format!("listen = {open:?}\ntoken_env = \"PATH\"")).is_ok());
        }
    }

    #[test]
    fn who_has_the_token_needs_no_certificate_to_shake_hands() {
        let tls = |rest: &str| {
            let toml = format!(
                "listen = \"0.0.0.0:1\"\n{rest}[tls]\ncert = \"c\"\nkey = \"k\"\nclient_ca = \"a\"\n"
            );
            move |certs: &str| plan(&format!("{toml}{certs}")).unwrap().unwrap().tls.unwrap().optional
        };
        let (with, without) = (tls("token_env = \"PATH\"\n"), tls(""));
        let (optional, required) = ("client_certs = \"optional\"", "client_certs = \"required\"");
        assert_eq!((with(""), with(optional), with(required)), (true, true, false));
        assert_eq!((without(""), without(optional), without(required)), (false, true, false));
    }

    #[test]
    fn operators_and_clients_do_not_share_an_address() {
        let apart = |own: &str, clients: &str| {
            let config = AdminConfig { listen: Some(own.to_owned()), ..AdminConfig::default() };
            config.check_apart(clients)
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
    fn what_is_wrong_is_said_by_its_key() {
        for (toml, words) in [
            ("listen = \"9000\"", "admin.listen: \"9000\""),
            ("listen = \"127.0.0.1:1\"\ntoken_file = \"/nowhere\"", "admin.token_file: /nowhere"),
            ("listen = \"127.0.0.1:1\"\ntoken_file = \"/dev/null\"", "admin.token_file: it is empty"),
            ("listen = \"127.0.0.1:1\"\ntoken_env = \"VOXBRIDGE_NO_SUCH\"", "no variable VOXBRIDGE_NO_SUCH"),
            ("listen = \"127.0.0.1:1\"\ntoken_file = \"a\"\ntoken_env = \"b\"", "name one of them"),
            ("listen = \"127.0.0.1:1\"\n[tls]\ncert = \"a\"", "admin.tls: `key` is missing"),
        ] {
            let problem = plan(toml).unwrap_err();
            assert!(problem.contains(words), "{toml}: {problem}");
        }
    }
}
