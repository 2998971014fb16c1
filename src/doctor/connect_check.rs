//! The way to a server up to its first answer: name, connection, TLS; and what an answer to an upgrade means.
//!
//! Shared by the walks towards upstreams and as a client. Every step is bounded, and given up when the user wants to go.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};
use tokio_tungstenite::tungstenite::{
    Error as WsError,
    error::ProtocolError,
    handshake::client::Response,
    http::{HeaderName, header},
};

use super::{
    report::missing,
    step::{Bounds, Outcome, Step},
    symptom::{Certificate, Symptom},
};
use crate::net::{Endpoint, Transport, probe::tls_error};

/// Finding out what else a port speaks, after a step has failed.
const PROBE_MAX: Duration = Duration::from_secs(3);

/// What came of the steps so far, told at once to who wants to know.
pub(crate) struct Notes {
    steps: &'static [Step],
    outcomes: Vec<Outcome>,
    live: Option<mpsc::Sender<Outcome>>,
}

impl Notes {
    /// Notes about these steps, told there, if anywhere.
    pub(crate) const fn new(steps: &'static [Step], live: Option<mpsc::Sender<Outcome>>) -> Self {
        Self { steps, outcomes: Vec::new(), live }
    }

    /// One more step. Those before it that were not taken will not be.
    pub(crate) fn tell(&mut self, outcome: Outcome) {
        let before = self.steps.iter().position(|step| *step >= outcome.step).unwrap_or(self.steps.len());
        missing(&self.outcomes, &self.steps[..before]).into_iter().for_each(|missed| self.note(missed));
        self.note(outcome);
    }

    /// There is no step more.
    pub(crate) fn end(mut self) -> Vec<Outcome> {
        missing(&self.outcomes, self.steps).into_iter().for_each(|missed| self.note(missed));
        self.outcomes
    }

    fn note(&mut self, outcome: Outcome) {
        if let Some(live) = &self.live {
            // There is room for all steps, and who does not look misses nothing: the report has them all.
            let _ = live.try_send(outcome.clone());
        }
        self.outcomes.push(outcome);
    }

    /// All so far.
    pub(crate) fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }
}

/// Done when the user wants to go.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // Nobody can want it any more.
        std::future::pending::<()>().await;
    }
}

/// A server that was reached.
pub(crate) struct Reached {
    /// The connection, with TLS where the URL says so.
    pub(crate) transport: Box<dyn Transport>,
    /// The addresses of its name.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Name, connection, TLS. None where one of them failed, which is in the notes.
pub(crate) async fn reach(
    endpoint: &Endpoint,
    bounds: &Bounds,
    stop: &mut watch::Receiver<bool>,
    notes: &mut Notes,
) -> Option<Reached> {
    let mut way = Way { bounds, stop, notes };
    let addresses = way.resolve(endpoint).await?;
    let tcp = way.step(Step::Tcp, endpoint.tcp(&addresses)).await?;
    let (tcp, took) = match tcp {
        (Ok(tcp), took) => (tcp, took),
        (Err(error), took) => return way.fail(Step::Tcp, took, unreachable(&error)),
    };
    let note = tcp.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
    way.notes.tell(Outcome::good(Step::Tcp, took, bounds.tcp, note));
    let transport = way.secure(endpoint, &addresses, tcp).await?;
    Some(Reached { transport, addresses })
}

struct Way<'w> {
    bounds: &'w Bounds,
    stop: &'w mut watch::Receiver<bool>,
    notes: &'w mut Notes,
}

impl Way<'_> {
    /// What came of it, and after how long; none if nothing did, which is in the notes.
    async fn step<T>(&mut self, step: Step, doing: impl Future<Output = T>) -> Option<(T, Duration)> {
        let start = Instant::now();
        tokio::select! {
            done = timeout(self.bounds.step, doing) => match done {
                Ok(done) => Some((done, start.elapsed())),
                Err(_) => {
                    let waited = start.elapsed();
                    self.fail(step, waited, Symptom::Silent { waited })
                }
            },
            () = stopped(self.stop) => {
                self.notes.tell(Outcome::skipped(step, "interrupted"));
                None
            }
        }
    }

    fn fail<T>(&mut self, step: Step, took: Duration, symptom: Symptom) -> Option<T> {
        self.notes.tell(Outcome::failed(step, took, symptom));
        None
    }

    async fn resolve(&mut self, endpoint: &Endpoint) -> Option<Vec<SocketAddr>> {
        let (found, took) = self.step(Step::Dns, endpoint.resolve()).await?;
        match found {
            Ok(addresses) if addresses.is_empty() => {
                self.fail(Step::Dns, took, Symptom::NoName("it has no address".to_owned()))
            }
            Ok(addresses) => {
                let outcome = match endpoint.literal() {
                    Some(_) => Outcome::skipped(Step::Dns, "the URL has an address and no name"),
                    None => Outcome::good(Step::Dns, took, self.bounds.dns, listed(&addresses)),
                };
                self.notes.tell(outcome);
                Some(addresses)
            }
            Err(error) => self.fail(Step::Dns, took, Symptom::NoName(error.to_string())),
        }
    }

    async fn secure(
        &mut self,
        endpoint: &Endpoint,
        addresses: &[SocketAddr],
        tcp: tokio::net::TcpStream,
    ) -> Option<Box<dyn Transport>> {
        if !endpoint.is_secure() {
            self.notes.tell(Outcome::skipped(Step::Tls, "the URL says ws://"));
        }
        let (secured, took) = self.step(Step::Tls, endpoint.tls(tcp)).await?;
        match secured {
            Ok(transport) => {
                if endpoint.is_secure() {
                    self.notes.tell(Outcome::good(Step::Tls, took, self.bounds.tls, "certificate trusted"));
                }
                Some(transport)
            }
            Err(error) => {
                let mut symptom = tls_symptom(&error);
                if matches!(symptom, Symptom::TlsBroken(_)) {
                    let plain = timeout(PROBE_MAX, endpoint.speaks_plain_http(addresses)).await;
                    symptom = if plain == Ok(true) { Symptom::SpeaksPlain } else { symptom };
                }
                self.fail(Step::Tls, took, symptom)
            }
        }
    }
}

fn listed(addresses: &[SocketAddr]) -> String {
    let mut ips: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
    ips.dedup();
    ips.truncate(4);
    ips.join(", ")
}

fn unreachable(error: &io::Error) -> Symptom {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Symptom::Refused,
        io::ErrorKind::TimedOut => Symptom::Unreachable("no answer".to_owned()),
        _ => Symptom::Unreachable(without_code(error)),
    }
}

/// Without "(os error 113)".
fn without_code(error: &io::Error) -> String {
    let words = error.to_string();
    words.split(" (os error").next().unwrap_or_default().to_owned()
}

fn tls_symptom(error: &io::Error) -> Symptom {
    match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(problem)) => Symptom::Certificate(certificate(problem)),
        Some(rustls::Error::AlertReceived(alert)) => {
            Symptom::WantsCertificate(format!("it sent the alert {alert:?}"))
        }
        Some(problem) => Symptom::TlsBroken(problem.to_string()),
        None => Symptom::TlsBroken(without_code(error)),
    }
}

fn certificate(problem: &rustls::CertificateError) -> Certificate {
    use rustls::CertificateError as Bad;
    match problem {
        // A signature that is not of the authority by that name: the server made itself another one since.
        Bad::UnknownIssuer | Bad::BadSignature => Certificate::UnknownIssuer,
        Bad::NotValidForName => Certificate::WrongName(Vec::new()),
        Bad::NotValidForNameContext { presented, .. } => {
            Certificate::WrongName(presented.iter().map(|name| plain_name(name)).collect())
        }
        Bad::Expired | Bad::ExpiredContext { .. } => Certificate::Expired,
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => Certificate::NotYet,
        // A certificate that is its own authority and serves as a server's, as the gateway makes one: `CaUsedAsEndEntity`.
        Bad::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => Certificate::UnknownIssuer,
        other => Certificate::Other(format!("{other:?}")),
    }
}

/// `DnsName("gpu")` is `gpu` to people.
fn plain_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}

/// What an upgrade that failed looks like; a port that speaks TLS to a `ws://` URL is found out by asking.
pub(crate) async fn refused(error: &WsError, endpoint: &Endpoint, addresses: &[SocketAddr]) -> Symptom {
    let symptom = upgrade_symptom(error);
    let suspect = matches!(
        symptom,
        Symptom::HungUp(_)
            | Symptom::NotHttp(_)
            | Symptom::Status { status: 400, .. }
            | Symptom::Silent { .. }
    );
    if !endpoint.is_secure() && suspect {
        let tls = timeout(PROBE_MAX, endpoint.speaks_tls(addresses)).await;
        if tls == Ok(true) {
            return Symptom::SpeaksTls;
        }
    }
    symptom
}

fn upgrade_symptom(error: &WsError) -> Symptom {
    match error {
        WsError::Http(response) => Symptom::Status {
            status: response.status().as_u16(),
            server: text(response, header::SERVER),
            page: text(response, header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html")),
        },
        WsError::Io(error) => match tls_error(error) {
            // With TLS 1.3 a server says what it thinks of the client's certificate only now.
            Some(_) => tls_symptom(error),
            None => Symptom::HungUp(without_code(error)),
        },
        WsError::Protocol(ProtocolError::HandshakeIncomplete) | WsError::ConnectionClosed => {
            Symptom::HungUp("it hung up".to_owned())
        }
        WsError::Protocol(
            ProtocolError::MissingUpgradeWebSocketHeader | ProtocolError::MissingConnectionUpgradeHeader,
        ) => Symptom::Status { status: 200, server: None, page: false },
        other => Symptom::NotHttp(other.to_string()),
    }
}

fn text(response: &Response, name: HeaderName) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// What the server agreed to that nobody offered.
pub(crate) fn unexpected(response: &Response) -> Option<Symptom> {
    text(response, header::SEC_WEBSOCKET_EXTENSIONS).map(Symptom::Extension)
}
