//! A self-signed certificate for development, made once and kept in a directory.
//!
//! Two files: `NAME.pem` is the certificate, which clients must trust; `NAME.key.pem` holds it together with its private
//! key. One file for the pair, so that two servers that start at once never mix two pairs. The certificate is no authority:
//! a client that trusts it trusts this server only.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use ring::digest::{SHA256, digest};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};

use super::{TlsConfig, names::expiry_since_epoch, parse_certificates, prefix_path};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Longest validity that all browsers and operating systems accept.
const VALIDITY: Duration = Duration::from_secs(398 * 24 * 3600);
/// A certificate that expires within this time is replaced.
const RENEWAL_PERIOD: Duration = Duration::from_secs(31 * 24 * 3600);
/// Names of every machine.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A self-signed certificate on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfSignedCertificate {
    /// The certificate (PEM), which clients must trust.
    pub cert: PathBuf,
    /// The private key with the certificate (PEM).
    pub key: PathBuf,
    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` prints it.
    pub fingerprint: String,
}

impl SelfSignedCertificate {
    /// Finds this machine's certificate in a directory, or makes one, for localhost, its addresses and `host_name`. `now` is
    /// the time since 1970.
    ///
    /// # Errors
    /// Names the file and the problem.
    pub fn load_or_create(dir: &Path, host_name: &str, now: Duration) -> Result<Self, String> {
        let (cert, key) = (dir.join(format!("{host_name}.pem")), dir.join(format!("{host_name}.key.pem")));
        let pair = match fs::read_to_string(&key).ok().filter(|pair| is_usable(pair, now)) {
            Some(pair) => pair,
            None => {
                let pair =
                    create_pair(host_name, now).map_err(|error| prefix_path(&key)(error.to_string()))?;
                write_file(&key, 0o600, &pair).map_err(|error| prefix_path(&key)(error.to_string()))?;
                pair
            }
        };
        let public = pair.find("-----BEGIN CERTIFICATE-----").map_or("", |at| &pair[at..]);
        write_file(&cert, 0o644, public).map_err(|error| prefix_path(&cert)(error.to_string()))?;
        let fingerprint = fingerprint(&pair).ok_or_else(|| prefix_path(&key)("no certificate".to_owned()))?;
        Ok(Self { cert, key, fingerprint })
    }

    /// The configuration that serves this certificate.
    pub fn tls_config(&self) -> TlsConfig {
        TlsConfig { cert: Some(self.key.clone()), key: Some(self.key.clone()), ..TlsConfig::default() }
    }
}

/// True if the text has a private key, and a certificate that stays valid for a while.
fn is_usable(pair: &str, now: Duration) -> bool {
    let certificates = parse_certificates(pair.as_bytes()).unwrap_or_default();
    let expiry = certificates.first().and_then(|own| expiry_since_epoch(own));
    expiry.is_some_and(|expiry| expiry > now + RENEWAL_PERIOD)
        && PrivateKeyDer::from_pem_slice(pair.as_bytes()).is_ok()
}

/// Makes a private key and a certificate for it, one after the other (PEM).
fn create_pair(host_name: &str, now: Duration) -> Result<String, rcgen::Error> {
    let mut names = LOCAL_NAMES.map(str::to_owned).to_vec();
    if !LOCAL_NAMES.contains(&host_name) {
        names.push(host_name.to_owned());
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, format!("voxbridge on {host_name}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let epoch = date_time_ymd(1970, 1, 1);
    // A day early, for clients whose clocks are behind.
    (params.not_before, params.not_after) = (epoch + now.saturating_sub(DAY), epoch + now + VALIDITY - DAY);
    let key = KeyPair::generate()?;
    Ok(format!("{}{}", key.serialize_pem(), params.self_signed(&key)?.pem()))
}

/// Replaces a file as a whole, in a directory that is made if needed.
fn write_file(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temporary, path)
}

fn fingerprint(pair: &str) -> Option<String> {
    let certificates = parse_certificates(pair.as_bytes()).ok()?;
    let bytes = digest(&SHA256, certificates.first()?);
    Some(bytes.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("voxbridge-self-signed-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn certificate_is_reused_until_a_month_before_its_expiry() {
        let dir = directory("renewal");
        let at = |days: u32| SelfSignedCertificate::load_or_create(&dir, "bridge", NOW + days * DAY).unwrap();
        let first = at(0);
        assert_eq!(at(365), first);
        let renewed = at(367);
        assert_ne!(renewed.fingerprint, first.fingerprint);
        assert_eq!((at(368), &renewed.cert), (renewed.clone(), &first.cert));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn damaged_key_file_is_replaced_and_missing_certificate_is_written_again() {
        let dir = directory("damaged");
        let load = || SelfSignedCertificate::load_or_create(&dir, "bridge", NOW).unwrap();
        let first = load();
        fs::remove_file(&first.cert).unwrap();
        assert_eq!(load(), first);
        assert!(fs::read_to_string(&first.cert).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
        fs::write(&first.key, fs::read(&first.cert).unwrap()).unwrap();
        assert_ne!(load().fingerprint, first.fingerprint, "the private key is gone");
        fs::remove_dir_all(&dir).unwrap();
    }
}
