//! Certificates for tests: authorities, signed certificates, and TLS clients and servers for them.

use std::{net::SocketAddr, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{io::copy_bidirectional, net::TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::bench::serve_each;

/// A certificate authority.
pub type Authority = CertifiedIssuer<'static, KeyPair>;

pub fn authority(name: &str) -> Authority {
    let params = authority_params(CertificateParams::new([]).unwrap(), name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn authority_params(mut params: CertificateParams, name: &str) -> CertificateParams {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A certificate and its key (PEM).
pub type CertificateAndKey = (String, String);

pub fn signed(by: &Authority, name: &str) -> CertificateAndKey {
    signed_with(by, name, |_| {})
}

/// Signs a certificate whose parameters are changed by `change`.
pub fn signed_with(
    by: &Authority,
    name: &str,
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateAndKey {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    (params.signed_by(&key, by).unwrap().pem(), key.serialize_pem())
}

/// A self-signed certificate, as the gateway creates its own (`openssl req -x509`).
pub fn self_signed(name: &str) -> CertificateAndKey {
    let key = KeyPair::generate().unwrap();
    let params = authority_params(CertificateParams::new([name.to_owned()]).unwrap(), name);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn parse_pem((cert, key): &CertificateAndKey) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).map(Result::unwrap).collect();
    (chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
}

/// A TLS client that trusts this authority and presents this certificate.
pub fn connector(trusted: &Authority, shown: Option<&CertificateAndKey>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.as_ref().der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match shown.map(parse_pem) {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
    };
    TlsConnector::from(Arc::new(config))
}

/// A TLS server that presents this certificate.
pub fn acceptor(shown: &CertificateAndKey) -> TlsAcceptor {
    let (chain, key) = parse_pem(shown);
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Runs TLS in front of a plain server and returns its address.
pub async fn serve_tls(plain: SocketAddr, acceptor: TlsAcceptor) -> SocketAddr {
    serve_each(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            // A client that does not trust the certificate disconnects; some tests check exactly that.
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut upstream = TcpStream::connect(plain).await.unwrap();
            let _ = copy_bidirectional(&mut stream, &mut upstream).await;
        }
    })
    .await
}
