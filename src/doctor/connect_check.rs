//! Connection steps of a check: DNS, TCP and TLS, and the symptom of a failed upgrade.
//!
//! Checks of upstreams and of the client path share this module. Every step has a time limit, and Ctrl-C interrupts it.

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
    report::skipped_steps,
    step::{CheckOutcome, DoctorStep, StepLimits},
    symptom::{CertificateProblem, Symptom},
};
use crate::net::{Endpoint, Transport, probe::tls_error};

/// Time limit for probing which protocol a port speaks after a step has failed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Collects the outcomes of the steps and sends each one at once to the display.
pub(crate) struct OutcomeLog {
    steps: &'static [DoctorStep],
    outcomes: Vec<CheckOutcome>,
    live_sender: Option<mpsc::Sender<CheckOutcome>>,
}

impl OutcomeLog {
    /// Creates a log for these steps.
    pub(crate) const fn new(
        steps: &'static [DoctorStep],
        live_sender: Option<mpsc::Sender<CheckOutcome>>,
    ) -> Self {
        Self { steps, outcomes: Vec::new(), live_sender }
    }

    /// Adds an outcome. Earlier steps without an outcome are logged as skipped.
    pub(crate) fn push(&mut self, outcome: CheckOutcome) {
        let before = self.steps.iter().position(|step| *step >= outcome.step).unwrap_or(self.steps.len());
        skipped_steps(&self.outcomes, &self.steps[..before])
            .into_iter()
            .for_each(|skipped| self.append(skipped));
        self.append(outcome);
    }

    /// Logs the remaining steps as skipped and returns all outcomes.
    pub(crate) fn finish(mut self) -> Vec<CheckOutcome> {
        skipped_steps(&self.outcomes, self.steps).into_iter().for_each(|skipped| self.append(skipped));
        self.outcomes
    }

    fn append(&mut self, outcome: CheckOutcome) {
        if let Some(live_sender) = &self.live_sender {
            // The channel has room for all steps. A closed display misses nothing, because the report has them all.
            let _ = live_sender.try_send(outcome.clone());
        }
        self.outcomes.push(outcome);
    }

    /// Outcomes so far.
    pub(crate) fn outcomes(&self) -> &[CheckOutcome] {
        &self.outcomes
    }
}

/// Completes when the user interrupts the check.
pub(crate) async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // The sender is gone, so that no interrupt can come any more.
        std::future::pending::<()>().await;
    }
}

/// Connection to a server.
pub(crate) struct ConnectedServer {
    /// Connection, with TLS for `wss://`.
    pub(crate) transport: Box<dyn Transport>,
    /// Addresses of the server's name.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Resolves, connects and negotiates TLS. Returns `None` if a step failed; the log has its outcome.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    limits: &StepLimits,
    stop: &mut watch::Receiver<bool>,
    log: &mut OutcomeLog,
) -> Option<ConnectedServer> {
    let mut steps = ConnectSteps { limits, stop, log };
    let addresses = steps.resolve(endpoint).await?;
    let tcp = steps.run_step(DoctorStep::Tcp, endpoint.connect_tcp(&addresses)).await?;
    let (tcp, took) = match tcp {
        (Ok(tcp), took) => (tcp, took),
        (Err(error), took) => return steps.fail(DoctorStep::Tcp, took, tcp_symptom(&error)),
    };
    let note = tcp.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
    steps.log.push(CheckOutcome::completed(DoctorStep::Tcp, took, limits.tcp_usual, note));
    let transport = steps.connect_tls(endpoint, &addresses, tcp).await?;
    Some(ConnectedServer { transport, addresses })
}

struct ConnectSteps<'w> {
    limits: &'w StepLimits,
    stop: &'w mut watch::Receiver<bool>,
    log: &'w mut OutcomeLog,
}

impl ConnectSteps<'_> {
    /// Runs a step; returns its result and duration. Returns `None` after a timeout or an interrupt, which it logs.
    async fn run_step<T>(
        &mut self,
        step: DoctorStep,
        operation: impl Future<Output = T>,
    ) -> Option<(T, Duration)> {
        let start = Instant::now();
        tokio::select! {
            result = timeout(self.limits.step_timeout, operation) => match result {
                Ok(result) => Some((result, start.elapsed())),
                Err(_) => {
                    let waited = start.elapsed();
                    self.fail(step, waited, Symptom::NoAnswer { waited })
                }
            },
            () = wait_for_stop(self.stop) => {
                self.log.push(CheckOutcome::skipped(step, "interrupted"));
                None
            }
        }
    }

    fn fail<T>(&mut self, step: DoctorStep, took: Duration, symptom: Symptom) -> Option<T> {
        self.log.push(CheckOutcome::failed(step, took, symptom));
        None
    }

    async fn resolve(&mut self, endpoint: &Endpoint) -> Option<Vec<SocketAddr>> {
        let (found, took) = self.run_step(DoctorStep::Dns, endpoint.resolve()).await?;
        match found {
            Ok(addresses) if addresses.is_empty() => {
                self.fail(DoctorStep::Dns, took, Symptom::NameNotFound("the name has no address".to_owned()))
            }
            Ok(addresses) => {
                let outcome = match endpoint.literal_address() {
                    Some(_) => CheckOutcome::skipped(DoctorStep::Dns, "the URL contains an IP address"),
                    None => CheckOutcome::completed(
                        DoctorStep::Dns,
                        took,
                        self.limits.dns_usual,
                        format_ips(&addresses),
                    ),
                };
                self.log.push(outcome);
                Some(addresses)
            }
            Err(error) => self.fail(DoctorStep::Dns, took, Symptom::NameNotFound(error.to_string())),
        }
    }

    async fn connect_tls(
        &mut self,
        endpoint: &Endpoint,
        addresses: &[SocketAddr],
        tcp: tokio::net::TcpStream,
    ) -> Option<Box<dyn Transport>> {
        if !endpoint.is_secure() {
            self.log.push(CheckOutcome::skipped(DoctorStep::Tls, "the URL has no TLS"));
        }
        let (secured, took) = self.run_step(DoctorStep::Tls, endpoint.connect_tls(tcp)).await?;
        match secured {
            Ok(transport) => {
                if endpoint.is_secure() {
                    self.log.push(CheckOutcome::completed(
                        DoctorStep::Tls,
                        took,
                        self.limits.tls_usual,
                        "certificate trusted",
                    ));
                }
                Some(transport)
            }
            Err(error) => {
                let mut symptom = tls_symptom(&error);
                if matches!(symptom, Symptom::TlsFailed(_)) {
                    let plain = timeout(PROBE_TIMEOUT, endpoint.speaks_plain_http(addresses)).await;
                    symptom = if plain == Ok(true) { Symptom::ServerSpeaksPlaintext } else { symptom };
                }
                self.fail(DoctorStep::Tls, took, symptom)
            }
        }
    }
}

fn format_ips(addresses: &[SocketAddr]) -> String {
    let mut ips: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
    ips.dedup();
    ips.truncate(4);
    ips.join(", ")
}

fn tcp_symptom(error: &io::Error) -> Symptom {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Symptom::ConnectionRefused,
        io::ErrorKind::TimedOut => Symptom::Unreachable("no answer".to_owned()),
        _ => Symptom::Unreachable(without_os_code(error)),
    }
}

/// Error text without a suffix such as "(os error 113)".
fn without_os_code(error: &io::Error) -> String {
    let detail = error.to_string();
    detail.split(" (os error").next().unwrap_or_default().to_owned()
}

fn tls_symptom(error: &io::Error) -> Symptom {
    match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(problem)) => {
            Symptom::UntrustedCertificate(certificate_problem(problem))
        }
        Some(rustls::Error::AlertReceived(alert)) => {
            Symptom::ClientCertificateRequired(format!("the server sent the alert {alert:?}"))
        }
        Some(problem) => Symptom::TlsFailed(problem.to_string()),
        None => Symptom::TlsFailed(without_os_code(error)),
    }
}

fn certificate_problem(problem: &rustls::CertificateError) -> CertificateProblem {
    use rustls::CertificateError as Error;
    match problem {
        // A wrong signature of a trusted name: the server has created a new certificate since.
        Error::UnknownIssuer | Error::BadSignature => CertificateProblem::UnknownIssuer,
        Error::NotValidForName => CertificateProblem::WrongName(Vec::new()),
        Error::NotValidForNameContext { presented, .. } => {
            CertificateProblem::WrongName(presented.iter().map(|name| name_without_type(name)).collect())
        }
        Error::Expired | Error::ExpiredContext { .. } => CertificateProblem::Expired,
        Error::NotValidYet | Error::NotValidYetContext { .. } => CertificateProblem::NotYetValid,
        // The gateway creates a self-signed CA certificate and uses it as its server certificate: `CaUsedAsEndEntity`.
        Error::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            CertificateProblem::UnknownIssuer
        }
        other => CertificateProblem::Other(other.to_string()),
    }
}

/// Extracts the name: `DnsName("gpu")` becomes `gpu`.
fn name_without_type(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}

/// Waits for the upgrade of a connection. Returns its result and duration; `None` after a failure, which it logs. An
/// interrupt does not stop the upgrade, because an open session must be closed cleanly.
pub(crate) async fn await_upgrade<T>(
    upgrade: impl Future<Output = Result<T, WsError>>,
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
    limits: &StepLimits,
    log: &mut OutcomeLog,
) -> Option<(T, Duration)> {
    let start = Instant::now();
    let upgraded = timeout(limits.step_timeout, upgrade).await;
    let took = start.elapsed();
    let symptom = match upgraded {
        Ok(Ok(upgraded)) => return Some((upgraded, took)),
        Ok(Err(error)) => upgrade_failure_symptom(&error, endpoint, addresses).await,
        Err(_) => match upgrade_failure_symptom(&WsError::ConnectionClosed, endpoint, addresses).await {
            Symptom::ServerSpeaksTls => Symptom::ServerSpeaksTls,
            _ => {
                let limit_s = limits.step_timeout.as_secs_f64();
                Symptom::ClosedWithoutAnswer(format!("no answer within {limit_s} s"))
            }
        },
    };
    log.push(CheckOutcome::failed(DoctorStep::Upgrade, took, symptom));
    None
}

/// Symptom of a failed upgrade. For a `ws://` URL, it also probes whether the port speaks TLS.
async fn upgrade_failure_symptom(error: &WsError, endpoint: &Endpoint, addresses: &[SocketAddr]) -> Symptom {
    let symptom = upgrade_symptom(error);
    let may_speak_tls = matches!(
        symptom,
        Symptom::ClosedWithoutAnswer(_)
            | Symptom::NotHttp(_)
            | Symptom::HttpStatus { status: 400, .. }
            | Symptom::NoAnswer { .. }
    );
    if !endpoint.is_secure() && may_speak_tls {
        let tls = timeout(PROBE_TIMEOUT, endpoint.speaks_tls(addresses)).await;
        if tls == Ok(true) {
            return Symptom::ServerSpeaksTls;
        }
    }
    symptom
}

fn upgrade_symptom(error: &WsError) -> Symptom {
    match error {
        WsError::Http(response) => Symptom::HttpStatus {
            status: response.status().as_u16(),
            server: header_text(response, header::SERVER),
            is_html: header_text(response, header::CONTENT_TYPE)
                .is_some_and(|kind| kind.starts_with("text/html")),
        },
        WsError::Io(error) => match tls_error(error) {
            // With TLS 1.3, a server rejects the client's certificate only after the handshake.
            Some(_) => tls_symptom(error),
            None => Symptom::ClosedWithoutAnswer(without_os_code(error)),
        },
        WsError::Protocol(ProtocolError::HandshakeIncomplete) | WsError::ConnectionClosed => {
            Symptom::ClosedWithoutAnswer("the server hung up".to_owned())
        }
        WsError::Protocol(
            ProtocolError::MissingUpgradeWebSocketHeader | ProtocolError::MissingConnectionUpgradeHeader,
        ) => Symptom::HttpStatus { status: 200, server: None, is_html: false },
        other => Symptom::NotHttp(other.to_string()),
    }
}

fn header_text(response: &Response, name: HeaderName) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Symptom of a server that accepts a WebSocket extension that was not offered.
pub(crate) fn unexpected_extension(response: &Response) -> Option<Symptom> {
    header_text(response, header::SEC_WEBSOCKET_EXTENSIONS).map(Symptom::UnexpectedExtension)
}
