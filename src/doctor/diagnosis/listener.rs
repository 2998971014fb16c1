//! Causes on the way of a client, where voxbridge's own listener is another's server: what it says there it says for reasons
//! of its own (`server::access`).

use super::{CheckedServer, Diagnosis};
use crate::doctor::symptom::{CertificateProblem, Symptom};

/// What the same does not mean of an upstream; none where it means the same.
pub(super) fn diagnose(server: &CheckedServer, symptom: &Symptom) -> Option<Diagnosis> {
    let address = &server.authority;
    Some(match symptom {
        Symptom::HttpStatus { status, .. } => {
            let (cause, advice) = cause_and_advice(*status, server.has_key)?;
            Diagnosis::new(format!("{} answered with HTTP {status}.", server.url), cause, advice)
        }
        Symptom::ConnectionRefused => Diagnosis::new(
            format!("The machine of {address} is there, and refuses the connection."),
            "No voxbridge runs there, or it listens elsewhere: on 127.0.0.1:8000 unless it is told otherwise.",
            "Start it, or give the address that it says it listens on.",
        ),
        Symptom::ServerSpeaksPlaintext => Diagnosis::new(
            format!("{address} speaks HTTP without TLS."),
            "The URL says wss://, and this voxbridge has no [tls], or TLS ends in front of it.",
            "Use ws:// in the URL, or the address of what ends TLS.",
        ),
        Symptom::ServerSpeaksTls => Diagnosis::new(
            format!("{address} speaks TLS."),
            "The URL says ws://, and this voxbridge has a [tls].",
            "It speaks TLS, use wss://; and name its authority with --client-ca if it is one of your own.",
        ),
        Symptom::UntrustedCertificate(CertificateProblem::UnknownIssuer) => Diagnosis::new(
            format!("{address} shows a certificate that nobody vouches for whom this system trusts."),
            "It was signed by an authority of your own, or by none.",
            "Name the file of that authority with --client-ca.",
        ),
        Symptom::ClientCertificateRequired(detail) => Diagnosis::new(
            format!("{address} ended TLS: {detail}."),
            "It asks its clients for a certificate (`client_ca` in [tls]), and the doctor has none to show.",
            "Try it with a client that has one, or set client_certs = \"optional\".",
        ),
        _ => return None,
    })
}

const fn cause_and_advice(status: u16, has_key: bool) -> Option<(&'static str, &'static str)> {
    Some(match status {
        401 if has_key => (
            "The key that was shown is not among those of this voxbridge ([access] keys), or no longer.",
            "Check the file named with --key-file, or VOXBRIDGE_KEY; a key is the whole secret, not its name.",
        ),
        401 => (
            "This voxbridge wants a key of its clients ([access] keys), and none was shown.",
            "Show one: --key-file FILE, or VOXBRIDGE_KEY in the environment.",
        ),
        403 => (
            "The key is not for this path, protocol or model, no route leads such a client anywhere, or its Origin is not allowed.",
            "Look at voxbridge's log, which says which; then at the key's entry and at [[route]].",
        ),
        404 => (
            "No client protocol is served at this path.",
            "Check the path of the URL; the body of the answer lists those there are.",
        ),
        426 => (
            "The request came without its Upgrade header: a proxy in front of voxbridge does not pass it on.",
            "Have the proxy pass on the headers Upgrade and Connection; examples/proxies shows how.",
        ),
        429 => (
            "This key or this address has as many sessions as it may, or began too many in a minute.",
            "Wait as long as Retry-After says, or raise sessions_per_address in [limits] or the key's own limits.",
        ),
        503 => (
            "As many sessions run as may (`sessions_max`), or this voxbridge is draining; or a proxy answers, and no voxbridge behind it.",
            "Ask its admin listener: `voxbridge health` says why it is not ready.",
        ),
        502 | 504 => (
            "A proxy answers, and no voxbridge behind it.",
            "Start voxbridge, and check what the proxy passes on to.",
        ),
        _ => return None,
    })
}
