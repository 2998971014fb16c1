//! Reads the expiry and the names of a certificate. rustls verifies certificates.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use x509_cert::{
    Certificate,
    der::{
        Decode as _,
        asn1::{PrintableStringRef, Utf8StringRef},
        oid::db::rfc4519::CN,
    },
    ext::pkix::{SubjectAltName, name::GeneralName},
};

/// Expiry since 1970; `None` if it cannot be read.
pub fn expiry_since_epoch(certificate: &CertificateDer<'_>) -> Option<Duration> {
    let certificate = Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate.validity.not_after.to_unix_duration())
}

/// The common name, and the alternative names that are DNS names, URIs or mail addresses; empty if they cannot be
/// read.
pub fn certificate_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = Certificate::from_der(certificate) else { return Vec::new() };
    let subject = &certificate.tbs_certificate.subject.0;
    let common_names = subject.iter().flat_map(|part| part.0.iter()).filter(|attribute| attribute.oid == CN);
    let mut names: Vec<String> = common_names
        .filter_map(|attribute| {
            let utf8 = attribute.value.decode_as::<Utf8StringRef<'_>>().map(|text| text.to_string());
            utf8.or_else(|_| {
                attribute.value.decode_as::<PrintableStringRef<'_>>().map(|text| text.to_string())
            })
            .ok()
        })
        .collect();
    if let Ok(Some((_, SubjectAltName(alternatives)))) = certificate.tbs_certificate.get() {
        names.extend(alternatives.iter().filter_map(|name| match name {
            GeneralName::DnsName(name) | GeneralName::UniformResourceIdentifier(name) => {
                Some(name.to_string())
            }
            GeneralName::Rfc822Name(name) => Some(name.to_string()),
            _ => None,
        }));
    }
    names
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn names_and_expiry_are_read_from_certificate() {
        let mut params = CertificateParams::new(["robots.example.com".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "robots");
        params.not_after = date_time_ymd(2100, 1, 2);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(certificate_names(certificate.der()), ["robots", "robots.example.com"]);
        let expires = expiry_since_epoch(certificate.der()).unwrap();
        assert_eq!(expires.as_secs(), 4_102_531_200);
    }

    #[test]
    fn unreadable_certificate_has_no_names_and_no_expiry() {
        for bytes in [&b""[..], b"\x30", b"certificate"] {
            let invalid = CertificateDer::from(bytes);
            assert_eq!((certificate_names(&invalid).len(), expiry_since_epoch(&invalid)), (0, None));
        }
    }
}
