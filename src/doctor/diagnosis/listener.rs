//! Diagnoses of the client path, where the server is a voxbridge. Its HTTP statuses have their own meanings
//! (`server::access`).

use super::{CheckedServer, Diagnosis};
use crate::doctor::symptom::{CertificateProblem, Symptom};

/// Diagnosis specific to voxbridge; `None` if the symptom means the same for an upstream.
pub(super) fn diagnose(server: &CheckedServer, symptom: &Symptom) -> Option<Diagnosis> {
    let address = &server.authority;
    Some(match symptom {
        Symptom::HttpStatus { status, .. } => {
            let (cause, advice) = cause_and_advice(*status, server.has_key)?;
            Diagnosis::new(format!("{} answered with HTTP {status}.", server.url), cause, advice)
        }
        Symptom::ConnectionRefused => Diagnosis::new(
            format!("{address} is reachable but refuses the connection."),
            "No voxbridge runs there, or it listens on another address; the default is 127.0.0.1:8000.",
            "Start voxbridge, or use the address that it prints at its start.",
        ),
        Symptom::ServerSpeaksPlaintext => Diagnosis::new(
            format!("{address} speaks HTTP without TLS."),
            "The URL begins with wss://, but this voxbridge has no [tls], or a proxy in front of it ends TLS.",
            "Use ws:// in the URL, or the address of the proxy.",
        ),
        Symptom::ServerSpeaksTls => Diagnosis::new(
            format!("{address} speaks TLS."),
            "The URL begins with ws://, but this voxbridge has a [tls].",
            "The server speaks TLS, use wss:// in the URL. If you use your own certificate authority, name it with --client-ca.",
        ),
        Symptom::UntrustedCertificate(CertificateProblem::UnknownIssuer) => Diagnosis::new(
            format!("{address} has a certificate from an issuer that this system does not trust."),
            "The certificate is self-signed, or signed by your own authority.",
            "Name the certificate file of this authority with --client-ca.",
        ),
        Symptom::ClientCertificateRequired(detail) => Diagnosis::new(
            format!("{address} ended TLS: {detail}."),
            "This voxbridge requires a client certificate (`client_ca` in [tls]), and the doctor has none.",
            "Test with a client that has a certificate, or set client_certs = \"optional\".",
        ),
        _ => return None,
    })
}

const fn cause_and_advice(status: u16, has_key: bool) -> Option<(&'static str, &'static str)> {
    Some(match status {
        401 if has_key => (
            "The key is not among those of this voxbridge ([access] keys), or was removed.",
            "Check the file named with --key-file, or VOXBRIDGE_KEY; it must contain the secret itself, not the name of the key.",
        ),
        401 => (
            "This voxbridge requires an API key ([access] keys), and none was sent.",
            "Provide a key with --key-file FILE or in the environment variable VOXBRIDGE_KEY.",
        ),
        403 => (
            "The key is not for this path, protocol or model, no route matches this client, or its Origin is not allowed.",
            "See voxbridge's log for the reason; then check the entry of the key and [[route]].",
        ),
        404 => (
            "No client protocol is served at this path.",
            "Check the path of the URL; the body of the response lists the available paths.",
        ),
        426 => (
            "The request arrived without its Upgrade header: a proxy in front of voxbridge does not forward it.",
            "Configure the proxy to forward the headers Upgrade and Connection; see examples/proxies.",
        ),
        429 => (
            "This key or address has reached its limit of sessions, or of new sessions per minute.",
            "Wait for the time in the header Retry-After, or raise sessions_per_address in [limits] or the limits of the key.",
        ),
        503 => (
            "This voxbridge has reached `sessions_max` or is draining, or a proxy answers but no voxbridge behind it.",
            "Ask its admin listener: `voxbridge health` reports why it is not ready.",
        ),
        502 | 504 => (
            "A proxy answers, but no voxbridge behind it.",
            "Start voxbridge, and check the target address of the proxy.",
        ),
        _ => return None,
    })
}
