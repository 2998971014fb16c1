//! `serve --tls-self-signed`: where the certificate is kept, and which host it is for.

use std::{fs, path::PathBuf, process::Command};

use super::{Config, env_var};
use crate::server::{tls::self_signed::SelfSignedCertificate, unix_now};

impl Config {
    /// Serves this machine's self-signed certificate, which is made if needed.
    ///
    /// # Errors
    /// Another certificate is configured, or the files cannot be written.
    pub fn use_self_signed_certificate(&mut self) -> Result<SelfSignedCertificate, String> {
        if !self.tls.is_empty() {
            return Err(
                "--tls-self-signed: another certificate is configured ([tls] or --tls-cert); use only one"
                    .to_owned(),
            );
        }
        let certificate = state_dir()
            .and_then(|dir| SelfSignedCertificate::load_or_create(&dir, &host_name(), unix_now()))
            .map_err(|problem| format!("--tls-self-signed: {problem}"))?;
        self.tls = certificate.tls_config();
        Ok(certificate)
    }
}

/// The directory for files that a program makes for itself: systemd's `StateDirectory=`, or that of the XDG base
/// directory specification.
fn state_dir() -> Result<PathBuf, String> {
    let absolute = |name: &str| env_var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let in_state_home = || absolute("XDG_STATE_HOME").map(|dir| dir.join("voxbridge"));
    let in_home = || absolute("HOME").map(|dir| dir.join(".local/state/voxbridge"));
    absolute("STATE_DIRECTORY")
        .or_else(in_state_home)
        .or_else(in_home)
        .ok_or_else(|| "no place for the certificate; set XDG_STATE_HOME to a directory".to_owned())
}

/// The machine's host name; `localhost` if it has none that a certificate may contain.
fn host_name() -> String {
    let from_command = || String::from_utf8(Command::new("hostname").output().ok()?.stdout).ok();
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(from_command).unwrap_or_default();
    let name = name.trim().to_ascii_lowercase();
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let is_host =
        name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.bytes().all(is_allowed);
    if is_host { name } else { "localhost".to_owned() }
}
