//! The way of a client: to a voxbridge that runs, through its listener, until a session is open and left again.

use std::{path::Path, time::Duration};

use hyper::Uri;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

use crate::{
    cli::{
        Client, ClientError, Target, Timing,
        dial::{address, upgrade},
        key,
    },
    doctor::{
        connect_check::{Notes, reach, refused},
        diagnosis::Subject,
        report::Walked,
        step::{Bounds, Outcome, Step},
        symptom::Symptom,
    },
    net::Endpoint,
};

/// The bridge opens a session at once; its upstream is asked only when there is something to ask.
const SESSION_USUAL: Duration = Duration::from_secs(1);

/// Where it leads.
pub(super) struct Way {
    target: Target,
    title: String,
    endpoint: Endpoint,
    uri: Uri,
}

impl Way {
    /// The way to a URL, trusting the certificates of a PEM file, too, and showing the key in a file.
    pub(super) fn new(url: String, ca: Option<&Path>, key: Option<&Path>) -> Result<Self, ClientError> {
        let key = key::shown(key)?;
        let target = Target { url, model: None, language: None, key };
        let (endpoint, uri) = address(&target, ca)?;
        Ok(Self { title: format!("{uri}  as a client"), target, endpoint, uri })
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Walks it.
    pub(super) async fn walk(
        &self,
        bounds: Bounds,
        mut stop: watch::Receiver<bool>,
        live: mpsc::Sender<Outcome>,
    ) -> Walked {
        let mut notes = Notes::new(&Step::CLIENT, Some(live));
        self.steps(&bounds, &mut stop, &mut notes).await;
        let subject = Subject {
            authority: self.endpoint.authority.clone(),
            url: self.uri.to_string(),
            title: "a voxbridge".to_owned(),
            is_listener: true,
            has_key: self.target.key.is_some(),
            ..Subject::default()
        };
        Walked { name: "client".to_owned(), subject, outcomes: notes.end(), clue: None }
    }

    /// A session of a client holds no worker before it says something, so none of this is to be hurried when the user
    /// wants to go.
    async fn steps(
        &self,
        bounds: &Bounds,
        stop: &mut watch::Receiver<bool>,
        notes: &mut Notes,
    ) -> Option<()> {
        let reached = reach(&self.endpoint, bounds, stop, notes).await?;
        let start = Instant::now();
        let upgraded =
            timeout(bounds.step, upgrade(&self.uri, reached.transport, self.target.key.as_ref())).await;
        let took = start.elapsed();
        let socket = match upgraded {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => {
                let symptom = refused(&error, &self.endpoint, &reached.addresses).await;
                return fail(notes, Step::Upgrade, took, symptom);
            }
            Err(_) => {
                let symptom = Symptom::HungUp(format!("nothing for {} s", bounds.step.as_secs_f64()));
                return fail(notes, Step::Upgrade, took, symptom);
            }
        };
        notes.tell(Outcome::good(Step::Upgrade, took, bounds.upgrade, self.uri.path()));
        let start = Instant::now();
        let timing = Timing { created: bounds.step, close: bounds.close, ..Timing::default() };
        let client = match Client::greet(socket, &self.target, timing).await {
            Ok((client, _)) => client,
            Err(error) => {
                let symptom = Symptom::NoSession(words(error));
                return fail(notes, Step::Session, start.elapsed(), symptom);
            }
        };
        notes.tell(Outcome::good(Step::Session, start.elapsed(), SESSION_USUAL, client.session_id()));
        let start = Instant::now();
        match client.close(|_| {}).await {
            true => notes.tell(Outcome::good(Step::Close, start.elapsed(), bounds.close, "")),
            false => {
                let symptom = Symptom::NoGoodbye("no answer to the goodbye".to_owned());
                notes.tell(Outcome::failed(Step::Close, start.elapsed(), symptom));
            }
        }
        Some(())
    }
}

fn fail(notes: &mut Notes, step: Step, took: Duration, symptom: Symptom) -> Option<()> {
    notes.tell(Outcome::failed(step, took, symptom));
    None
}

/// Without the address, which stands above already.
fn words(error: ClientError) -> String {
    match error {
        ClientError::NoSession { why, .. } => why,
        other => other.to_string(),
    }
}
