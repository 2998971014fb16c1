//! Certificates for tests, and TLS clients that trust them.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Signs another certificate for localhost; returns it and its key (PEM).
    pub(crate) fn signed(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// A TLS client that trusts only this authority.
    pub(crate) fn connector(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }
}

/// A certificate for localhost, its key (PEM), and a client that trusts its issuer.
pub(crate) fn certificate() -> (String, String, TlsConnector) {
    let authority = Authority::new();
    let (cert, key) = authority.signed();
    (cert, key, authority.connector())
}
