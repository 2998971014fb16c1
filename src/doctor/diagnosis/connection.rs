//! Diagnoses of connection failures: DNS, TCP, TLS and upgrade.

use super::{CheckedServer, Diagnosis};
use crate::doctor::{
    experiments::Clue,
    step::DoctorStep,
    symptom::{CertificateProblem, Symptom, format_duration},
};

pub(super) fn diagnose(server: &CheckedServer, symptom: &Symptom) -> Diagnosis {
    let address = &server.authority;
    match symptom {
        Symptom::NameNotFound(detail) => Diagnosis::new(
            format!("The name in {address} has no address ({detail})."),
            "The name is misspelled, or the name server of this machine does not know it. Names often differ inside a container or cluster.",
            "Correct the URL, or use the IP address instead of the name.",
        ),
        Symptom::ConnectionRefused => Diagnosis::new(
            format!("{address} is reachable but refuses the connection."),
            "Nothing listens on this port: the server is not running, uses another port, or listens only on 127.0.0.1 of its own machine.",
            match &server.start {
                Some(start) => format!("Start the server, or correct the port. It is started by: {start}"),
                None => {
                    "Start the server, or correct the port; the default port of a MiniCPM-o gateway is 8006."
                        .to_owned()
                }
            },
        ),
        Symptom::Unreachable(detail) => Diagnosis::new(
            format!("{address} cannot be reached: {detail}."),
            "This machine has no network path to the server.",
            "Check the network between the two machines: routes, VPN, firewall.",
        ),
        Symptom::ServerSpeaksPlaintext => Diagnosis::new(
            format!("{address} speaks HTTP without TLS."),
            "The URL begins with wss://, but the server uses no TLS: it was started with --http, or TLS ends at another address.",
            "Use ws:// in the URL, or enable TLS on the server.",
        ),
        Symptom::ServerSpeaksTls => Diagnosis::new(
            format!("{address} speaks TLS."),
            "The URL begins with ws://, but a MiniCPM-o gateway uses TLS unless it is started with --http.",
            "The server speaks TLS, use wss:// in the URL. If its certificate is self-signed, name it with `ca`.",
        ),
        Symptom::UntrustedCertificate(problem) => diagnose_certificate(server, problem),
        Symptom::ClientCertificateRequired(detail) => Diagnosis::new(
            format!("{address} ended TLS: {detail}."),
            "The server requires a client certificate and received none that it trusts.",
            "Configure a client certificate and its key for this upstream, issued by an authority that the server trusts.",
        ),
        Symptom::TlsFailed(detail) => Diagnosis::new(
            format!("TLS with {address} failed: {detail}."),
            "The port speaks neither TLS 1.2 nor 1.3, or a device on the network path interferes.",
            "Check that this is the port of the gateway; try `openssl s_client -connect` from this machine.",
        ),
        Symptom::NotHttp(detail) => Diagnosis::new(
            format!("{address} answered the upgrade with something other than HTTP ({detail})."),
            "Another service listens on this port.",
            "Correct the port; the default port of a MiniCPM-o gateway is 8006.",
        ),
        Symptom::UnexpectedExtension(name) => Diagnosis::new(
            format!("{address} accepted the WebSocket extension {name}, which was not offered."),
            "A proxy in front of the server changes the WebSocket handshake.",
            "Configure the proxy to forward the WebSocket handshake unchanged.",
        ),
        other => Diagnosis::new(
            format!("{address} ended the connection without an answer to the upgrade ({}).", other.summary()),
            "This is not the port of the gateway, the gateway is about to stop, or a proxy in front of it gave up.",
            "Check the port and the log of the server that listens on it.",
        ),
    }
}

/// Diagnosis of a server that did not answer before the upgrade.
pub(super) fn diagnose_no_answer(server: &CheckedServer, step: DoctorStep, symptom: &Symptom) -> Diagnosis {
    let waited = match symptom {
        Symptom::NoAnswer { waited } => format_duration(*waited),
        other => other.summary(),
    };
    let address = &server.authority;
    match step {
        DoctorStep::Dns => Diagnosis::new(
            format!("The name server did not answer within {waited}."),
            "The name server of this machine is unreachable, or waits for another name server.",
            "Check /etc/resolv.conf, or use the IP address instead of the name.",
        ),
        DoctorStep::Tcp => Diagnosis::new(
            format!("{address} did not answer within {waited}, not even with a refusal."),
            "A firewall or security group drops the packets, or the machine is off.",
            "Open the port for connections from this machine, and check the address.",
        ),
        _ => Diagnosis::new(
            format!(
                "{address} accepted the connection, but did not answer the TLS handshake within {waited}."
            ),
            "The port speaks no TLS and waits for other data, or the server hangs.",
            "Try ws:// instead of wss://, and check the server's log.",
        ),
    }
}

fn diagnose_certificate(server: &CheckedServer, problem: &CertificateProblem) -> Diagnosis {
    let address = &server.authority;
    let has_certificate = |description: &str| format!("{address} has a certificate {description}.");
    match problem {
        CertificateProblem::UnknownIssuer => Diagnosis::new(
            has_certificate("from an issuer that this system does not trust"),
            match server.has_ca {
                true => {
                    "The `ca` file does not match: the gateway makes a new certificate whenever it is set up again."
                }
                false => "The gateway makes its own, self-signed certificate.",
            },
            format!(
                "Copy the server's certificate to a file and name the file with `ca` (or --upstream-ca); \
                 `openssl s_client -connect {address} -showcerts` shows it."
            ),
        ),
        CertificateProblem::WrongName(names) => Diagnosis::new(
            match names.as_slice() {
                [] => has_certificate("for another name"),
                names => has_certificate(&format!("for {}", names.join(", "))),
            },
            "The host in the URL is not among the names in the certificate.",
            "Use one of the certificate's names in the URL, or name this certificate with `ca`, which trusts it under any name.",
        ),
        CertificateProblem::Expired => Diagnosis::new(
            has_certificate("that has expired"),
            "The certificate was not renewed, or the clock of this machine is wrong.",
            "Renew the certificate on the server, and check `date` on this machine.",
        ),
        CertificateProblem::NotYetValid => Diagnosis::new(
            has_certificate("that is not valid yet"),
            "The clock of this machine or of the issuing machine is wrong.",
            "Check `date` on both machines.",
        ),
        CertificateProblem::Other(detail) => Diagnosis::new(
            has_certificate(&format!("that cannot be used ({detail})")),
            "The certificate was issued for another purpose, or TLS does not allow its format.",
            "Name this certificate with `ca`, or configure another one on the server.",
        ),
    }
}

/// Diagnosis of an HTTP answer other than an upgrade.
pub(super) fn diagnose_http_status(
    server: &CheckedServer,
    status: u16,
    server_name: Option<&str>,
    is_html: bool,
    clue: Option<&Clue>,
) -> Diagnosis {
    let content = if is_html { " and an HTML page" } else { "" };
    let software = server_name.map_or_else(String::new, |name| format!(" (server: {name})"));
    let seen = format!("{} answered with HTTP {status}{content}{software}.", server.url);
    if let Some(Clue::OtherUrl(url, dialect)) = clue {
        let dialect = dialect.as_ref().map_or_else(String::new, |name| format!(" and dialect = {name:?}"));
        return Diagnosis::new(
            seen,
            format!("The path, mode or dialect does not match the server, which accepts {url}."),
            format!("Use {url}{dialect} for this upstream."),
        );
    }
    let (cause, advice) = match status {
        403 => (
            "The path, mode or dialect does not match the server, or the server is not ready yet. This is not authentication: the gateway has none, and answers 403 to every unknown WebSocket path.",
            "Check the path of the URL and the dialect; if the server has just started, wait until its workers have registered.",
        ),
        401 | 407 => (
            "A proxy in front of the server requires credentials; the gateway itself has no authentication.",
            "Configure the token or certificate that the proxy requires, or use the address of the gateway behind it.",
        ),
        404 | 405 | 410 => (
            "The server has no WebSocket at this path.",
            "Check the path of the URL; on a MiniCPM-o gateway it is /v1/realtime.",
        ),
        426 => {
            ("The server requires another protocol version.", "Check that the URL belongs to a WebSocket.")
        }
        429 => (
            "A proxy in front of the server limits requests, and there were too many.",
            "Raise this limit for voxbridge, which opens a connection for every utterance.",
        ),
        502..=504 => (
            "A proxy answers, but the gateway behind it does not: it is down, starting, or at another address.",
            "Start the gateway, and check the target address of the proxy. If the server is SGLang-Omni, its model may still be loading.",
        ),
        500..=599 => ("The server has an internal error.", "Check the server's log."),
        300..=399 => (
            "The server redirects to another address, which a WebSocket client does not follow.",
            "Use the target address of the redirect; often it is https, so use wss://.",
        ),
        200..=299 => (
            "This is a web server, or a proxy that does not forward the header `Upgrade`, so that the server saw an ordinary request.",
            "Configure the proxy to forward the headers Upgrade and Connection (nginx: proxy_http_version 1.1, proxy_set_header Upgrade $http_upgrade, proxy_set_header Connection \"upgrade\"), and check the port.",
        ),
        _ => (
            "The server rejects this WebSocket.",
            "Check the URL, the log of the server, and the log of any proxy in front of it.",
        ),
    };
    Diagnosis::new(seen, cause, advice)
}
