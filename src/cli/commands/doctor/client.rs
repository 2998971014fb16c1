//! Doctor check of the client path: connects to a running voxbridge, opens a session and closes it.

use std::{path::Path, time::Duration};

use hyper::Uri;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use crate::{
    cli::{
        Client, ClientError, ClientTiming, ServerTarget,
        dial::{endpoint_and_uri, upgrade},
        key,
    },
    doctor::{
        connect_check::{OutcomeLog, await_upgrade, connect},
        diagnosis::CheckedServer,
        report::CheckReport,
        step::{CheckOutcome, DoctorStep, StepLimits},
        symptom::Symptom,
    },
    net::Endpoint,
};

/// Usual time to open a session. The bridge opens one at once and contacts an upstream only when it needs one.
const SESSION_OPEN_USUAL: Duration = Duration::from_secs(1);

/// Client path to check.
pub(super) struct ClientCheck {
    target: ServerTarget,
    title: String,
    endpoint: Endpoint,
    uri: Uri,
}

impl ClientCheck {
    /// Creates a check of `url`, with additional CA certificates and an API key from files.
    pub(super) fn new(url: String, ca: Option<&Path>, key: Option<&Path>) -> Result<Self, ClientError> {
        let key = key::load_key(key)?;
        let ca = ca.map(Path::to_path_buf);
        let target = ServerTarget { url, key, ca, ..ServerTarget::default() };
        let (endpoint, uri) = endpoint_and_uri(&target)?;
        Ok(Self { title: format!("{uri}  as a client"), target, endpoint, uri })
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Runs the check.
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

    /// Runs the steps until one fails. An idle client session occupies no upstream worker, so the upgrade and the session
    /// run to their end even after Ctrl-C.
    async fn run_steps(
        &self,
        limits: &StepLimits,
        stop: &mut watch::Receiver<bool>,
        log: &mut OutcomeLog,
    ) -> Option<()> {
        let connected = connect(&self.endpoint, limits, stop, log).await?;
        let upgrade = upgrade(&self.uri, connected.transport, self.target.key.as_ref());
        let ((socket, _), took) =
            await_upgrade(upgrade, &self.endpoint, &connected.addresses, limits, log).await?;
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
                log.push(CheckOutcome::failed(DoctorStep::Session, start.elapsed(), symptom));
                return None;
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
                let symptom = Symptom::CloseNotAcknowledged("no answer to session.close".to_owned());
                log.push(CheckOutcome::failed(DoctorStep::Close, start.elapsed(), symptom));
            }
        }
        Some(())
    }
}

/// Text of the error without the URL, which the report shows already.
fn error_text(error: ClientError) -> String {
    match error {
        ClientError::SessionNotOpened { reason, .. } => reason,
        other => other.to_string(),
    }
}
