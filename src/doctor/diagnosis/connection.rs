//! Causes on the way: name, port, certificate, upgrade.

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
            "The name is misspelled, or the name server of this machine does not know it; in a container or cluster names are often different.",
            "Correct the URL, or try the address in place of the name.",
        ),
        Symptom::ConnectionRefused => Diagnosis::new(
            format!("The machine of {address} is there, and refuses the connection."),
            "Nothing listens at this port: the server is not running, runs at another port, or listens on 127.0.0.1 of its own machine only.",
            "Start the server, or correct the port; a MiniCPM-o gateway's is 8006 unless told otherwise.",
        ),
        Symptom::Unreachable(detail) => Diagnosis::new(
            format!("{address} cannot be reached: {detail}."),
            "There is no way from this machine to that one.",
            "Check the network between the two: routes, VPN, firewall.",
        ),
        Symptom::ServerSpeaksPlaintext => Diagnosis::new(
            format!("{address} speaks HTTP without TLS."),
            "The URL says wss://, and the server speaks plain: it was started with --http, or TLS ends somewhere else.",
            "Use ws:// in the URL, or have the server speak TLS.",
        ),
        Symptom::ServerSpeaksTls => Diagnosis::new(
            format!("{address} speaks TLS."),
            "The URL says ws://; a MiniCPM-o gateway speaks TLS unless it is started with --http.",
            "It speaks TLS, use wss://; and name its certificate with `ca` if it is one of its own making.",
        ),
        Symptom::UntrustedCertificate(problem) => diagnose_certificate(server, problem),
        Symptom::ClientCertificateRequired(detail) => Diagnosis::new(
            format!("{address} ended TLS: {detail}."),
            "It asks its clients for a certificate, and got none that it trusts.",
            "Give this upstream a client certificate and its key, made by an authority that the server trusts.",
        ),
        Symptom::TlsFailed(detail) => Diagnosis::new(
            format!("TLS with {address} failed: {detail}."),
            "The port speaks neither TLS 1.2 nor 1.3, or something between the two interferes.",
            "Check that the port is the gateway's; try `openssl s_client -connect` from this machine.",
        ),
        Symptom::NotHttp(detail) => Diagnosis::new(
            format!("{address} answered the upgrade with something that is no HTTP ({detail})."),
            "Some other service listens at this port.",
            "Correct the port; a MiniCPM-o gateway's is 8006 unless told otherwise.",
        ),
        Symptom::UnexpectedExtension(name) => Diagnosis::new(
            format!("{address} agreed to {name}, which nobody had offered."),
            "A proxy in front of the server answers for it and changes the messages.",
            "Have the proxy pass the WebSocket handshake on as it is.",
        ),
        other => Diagnosis::new(
            format!("{address} ended the connection without an answer to the upgrade ({}).", other.summary()),
            "The port is not the gateway's, the gateway is about to stop, or a proxy in front of it gave up.",
            "Check the port, and the log of what listens there.",
        ),
    }
}

/// Nothing came before the upgrade was asked for.
pub(super) fn diagnose_no_answer(server: &CheckedServer, step: DoctorStep, symptom: &Symptom) -> Diagnosis {
    let waited = match symptom {
        Symptom::NoAnswer { waited } => format_duration(*waited),
        other => other.summary(),
    };
    let address = &server.authority;
    match step {
        DoctorStep::Dns => Diagnosis::new(
            format!("The name server did not answer within {waited}."),
            "The name server of this machine cannot be reached, or waits for another one.",
            "Check /etc/resolv.conf, or try the address in place of the name.",
        ),
        DoctorStep::Tcp => Diagnosis::new(
            format!("{address} did not answer within {waited}, not even with a refusal."),
            "A firewall or security group swallows the packets, or the machine is off.",
            "Open the port from this machine to that one, and check the address.",
        ),
        _ => Diagnosis::new(
            format!("{address} took the connection, and said nothing to TLS within {waited}."),
            "The port speaks no TLS and waits for something else, or the server hangs.",
            "Try ws:// in place of wss://, and look at the server's log.",
        ),
    }
}

fn diagnose_certificate(server: &CheckedServer, problem: &CertificateProblem) -> Diagnosis {
    let address = &server.authority;
    let shows_certificate = |description: &str| format!("{address} shows a certificate {description}.");
    match problem {
        CertificateProblem::UnknownIssuer => Diagnosis::new(
            shows_certificate("that nobody vouches for whom this system trusts"),
            match server.has_ca {
                true => {
                    "The `ca` file is for another certificate: the gateway makes itself a new one when it is set up anew."
                }
                false => "The gateway makes its own certificate.",
            },
            format!(
                "Copy the server's certificate and name the file with `ca` (or --upstream-ca); \
                 `openssl s_client -connect {address} -showcerts` shows it."
            ),
        ),
        CertificateProblem::WrongName(names) => Diagnosis::new(
            match names.as_slice() {
                [] => shows_certificate("for another name"),
                names => shows_certificate(&format!("for {}", names.join(", "))),
            },
            "The URL calls the server by a name or address that is not in its certificate.",
            "Use one of the certificate's names in the URL; or name that very certificate with `ca`, and it is trusted under any name.",
        ),
        CertificateProblem::Expired => Diagnosis::new(
            shows_certificate("that has expired"),
            "It was not renewed, or the clock of this machine is wrong.",
            "Renew it on the server, and check `date` here.",
        ),
        CertificateProblem::NotYetValid => Diagnosis::new(
            shows_certificate("that is not valid yet"),
            "The clock of this machine or of the one that made the certificate is wrong.",
            "Check `date` on both.",
        ),
        CertificateProblem::Other(detail) => Diagnosis::new(
            shows_certificate(&format!("that cannot be used ({detail})")),
            "It was made for another purpose or in a way that TLS does not allow.",
            "Name that very certificate with `ca`, or have the server show another one.",
        ),
    }
}

/// An HTTP answer that is no upgrade.
pub(super) fn diagnose_http_status(
    server: &CheckedServer,
    status: u16,
    server_name: Option<&str>,
    is_html: bool,
    clue: Option<&Clue>,
) -> Diagnosis {
    let by = server_name.map_or_else(String::new, |name| format!(", and calls itself {name}"));
    let with = if is_html { " with a page for people" } else { "" };
    let seen = format!("{} answered with HTTP {status}{with}{by}.", server.url);
    if let Some(Clue::OtherUrl(url, dialect)) = clue {
        let dialect = dialect.as_ref().map_or_else(String::new, |name| format!(" and dialect = {name:?}"));
        return Diagnosis::new(
            seen,
            format!("The path, mode or dialect is not the server's: it takes {url}."),
            format!("Use {url}{dialect} for this upstream."),
        );
    }
    let (cause, advice) = match status {
        403 => (
            "The path, the mode or the dialect is not the server's, or it is not ready yet. It is not authentication: the gateway has none, and answers every WebSocket it does not know like this.",
            "Check the path of the URL and the dialect; if the server has just started, wait until its workers have registered.",
        ),
        401 | 407 => (
            "Something in front of the server wants credentials; the gateway itself has none.",
            "Give this upstream the token or certificate that the proxy wants, or the address behind it.",
        ),
        404 | 405 | 410 => (
            "There is nothing of the kind at this path.",
            "Check the path of the URL; a MiniCPM-o gateway's is /v1/realtime.",
        ),
        426 => ("The server wants another version of the protocol.", "Check that the URL is a WebSocket's."),
        429 => (
            "Somebody counts requests in front of the server, and this was one too many.",
            "Raise that limit for voxbridge, which opens a connection for every utterance.",
        ),
        502..=504 => (
            "A proxy answers, and nobody behind it does: the gateway is down, starting, or at another address.",
            "Start the gateway, and check what the proxy passes on to.",
        ),
        500..=599 => ("The server is broken.", "Look at the server's log."),
        300..=399 => (
            "The server sends its visitors elsewhere; a WebSocket client does not follow.",
            "Use the address it leads to; often that is https, so wss://.",
        ),
        200..=299 => (
            "This is a web server, or a proxy that does not pass on `Upgrade`: the WebSocket request arrived as an ordinary one.",
            "Have the proxy pass on the headers Upgrade and Connection (nginx: proxy_http_version 1.1, proxy_set_header Upgrade $http_upgrade, proxy_set_header Connection \"upgrade\"), and check the port.",
        ),
        _ => (
            "The server does not want this WebSocket.",
            "Check the URL, and the log of the server and of what stands in front of it.",
        ),
    };
    Diagnosis::new(seen, cause, advice)
}
