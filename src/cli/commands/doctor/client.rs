//! The way of a client: to a voxbridge that runs, through its listener, until a session is open and left again.

use std::{path::Path, time::Duration};

use hyper::Uri;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

use crate::{
    cli::{
        Client, ClientError, ClientTiming, ServerTarget,
        dial::{endpoint_and_uri, upgrade},
        key,
    },
    doctor::{
        connect_check::{OutcomeLog, connect, upgrade_failure_symptom},
        diagnosis::CheckedServer,
        report::CheckReport,
        step::{CheckOutcome, DoctorStep, StepLimits},
        symptom::Symptom,
    },
    net::Endpoint,
};

/// The bridge opens a session at once; its upstream is asked only when there is something to ask.
const SESSION_OPEN_USUAL: Duration = Duration::from_secs(1);

/// Where it leads.
pub(super) struct ClientCheck {
    target: ServerTarget,
    title: String,
    endpoint: Endpoint,
    uri: Uri,
}

impl ClientCheck {
    /// The way to a URL, trusting the certificates of a PEM file, too, and showing the key in a file.
    pub(super) fn new(url: String, ca: Option<&Path>, key: Option<&Path>) -> Result<Self, ClientError> {
        let key = key::load_key(key)?;
        let target = ServerTarget { url, model: None, language: None, key };
        let (endpoint, uri) = endpoint_and_uri(&target, ca)?;
        Ok(Self { title: format!("{uri}  as a client"), target, endpoint, uri })
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Walks it.
    pub(super) async fn run(
        &self,
        limits: StepLimits,
        mut stop: watch::Receiver<bool>,
        live_sender: mpsc::Sender<CheckOutcome>,
    ) -> CheckReport {
        let mut log = OutcomeLog::new(&DoctorStep::CLIENT, Some(live_sender));
        self.run_steps(&limits, &mut stop, &mut log).await;
        let server = CheckedServer {
            authority: self.endpoint.authority.clone(),
            url: self.uri.to_string(),
            dialect_title: "a voxbridge".to_owned(),
            is_voxbridge: true,
            has_key: self.target.key.is_some(),
            ..CheckedServer::default()
        };
        CheckReport { name: "client".to_owned(), server, outcomes: log.finish(), clue: None }
    }

    /// A session of a client holds no worker before it says something, so none of this is to be hurried when the user
    /// wants to go.
    async fn run_steps(
        &self,
        limits: &StepLimits,
        stop: &mut watch::Receiver<bool>,
        log: &mut OutcomeLog,
    ) -> Option<()> {
        let connected = connect(&self.endpoint, limits, stop, log).await?;
        let start = Instant::now();
        let upgraded =
            timeout(limits.step_timeout, upgrade(&self.uri, connected.transport, self.target.key.as_ref()))
                .await;
        let took = start.elapsed();
        let socket = match upgraded {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => {
                let symptom = upgrade_failure_symptom(&error, &self.endpoint, &connected.addresses).await;
                return fail_step(log, DoctorStep::Upgrade, took, symptom);
            }
            Err(_) => {
                let symptom = Symptom::ClosedWithoutAnswer(format!(
                    "nothing for {} s",
                    limits.step_timeout.as_secs_f64()
                ));
                return fail_step(log, DoctorStep::Upgrade, took, symptom);
            }
        };
        log.push(CheckOutcome::completed(DoctorStep::Upgrade, took, limits.upgrade_usual, self.uri.path()));
        let start = Instant::now();
        let timing = ClientTiming {
            created_timeout: limits.step_timeout,
            close_timeout: limits.close_timeout,
            ..ClientTiming::default()
        };
        let client = match Client::await_created(socket, &self.target, timing).await {
            Ok((client, _)) => client,
            Err(error) => {
                let symptom = Symptom::SessionNotOpened(error_text(error));
                return fail_step(log, DoctorStep::Session, start.elapsed(), symptom);
            }
        };
        log.push(CheckOutcome::completed(
            DoctorStep::Session,
            start.elapsed(),
            SESSION_OPEN_USUAL,
            client.session_id(),
        ));
        let start = Instant::now();
        match client.close(|_| {}).await {
            true => log.push(CheckOutcome::completed(
                DoctorStep::Close,
                start.elapsed(),
                limits.close_timeout,
                "",
            )),
            false => {
                let symptom = Symptom::CloseNotAcknowledged("no answer to the goodbye".to_owned());
                log.push(CheckOutcome::failed(DoctorStep::Close, start.elapsed(), symptom));
            }
        }
        Some(())
    }
}

fn fail_step(log: &mut OutcomeLog, step: DoctorStep, took: Duration, symptom: Symptom) -> Option<()> {
    log.push(CheckOutcome::failed(step, took, symptom));
    None
}

/// Without the address, which stands above already.
fn error_text(error: ClientError) -> String {
    match error {
        ClientError::SessionNotOpened { reason, .. } => reason,
        other => other.to_string(),
    }
}
