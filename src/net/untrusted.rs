//! The error for a server whose certificate is not trusted.

use std::io;

use rustls::CertificateError;

/// The server's certificate is not trusted, for this reason.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server's certificate is not trusted ({0}); to trust it, name a file with it by --upstream-ca, or by `ca` of the \
     [[upstream]] in the configuration"
)]
pub(crate) struct UntrustedCertificate(&'static str);

impl UntrustedCertificate {
    /// Puts the problem in words.
    pub(super) fn new(problem: &CertificateError) -> Self {
        Self(certificate_problem(problem))
    }

    /// Problem of the certificate, if that is the cause of this error.
    pub(crate) fn cause_of(error: &io::Error) -> Option<&'static str> {
        error.get_ref()?.downcast_ref::<Self>().map(|certificate| certificate.0)
    }
}

fn certificate_problem(problem: &CertificateError) -> &'static str {
    use CertificateError::*;
    match problem {
        Expired | ExpiredContext { .. } => "it has expired",
        NotValidYet | NotValidYetContext { .. } => "it is not valid yet",
        NotValidForName | NotValidForNameContext { .. } => "it is for another name",
        Revoked => "it has been revoked",
        BadSignature => "its signature is wrong",
        BadEncoding | UnhandledCriticalExtension => "it is malformed",
        InvalidPurpose | InvalidPurposeContext { .. } => "it is not for servers",
        // The gateway's certificate is its own authority: `Other(CaUsedAsEndEntity)`.
        _ => "its issuer is unknown",
    }
}
