//! Sessions for commands in the server's own process: no socket, path or key leads to them.

use std::sync::{Arc, Weak};

use tokio::sync::SetOnce;

use super::{super::accept::admission::Caller, PROTOCOL, session::RestSession};
use crate::server::{ServerContext, client_port::PortForm};

/// Opens sessions with a server of this process. Clones share the server.
#[derive(Clone, Default)]
pub(crate) struct LocalSessions(Arc<SetOnce<Weak<ServerContext>>>);

impl LocalSessions {
    /// Names the server, which runs from now on.
    pub(in crate::server) fn begin(&self, server: &Arc<ServerContext>) {
        let _ = self.0.set(Arc::downgrade(server));
    }

    /// Opens a session of the protocol `rest` with this model, as soon as the server runs. With `shows_messages`, its events come with
    /// the messages that spell them.
    ///
    /// # Errors
    /// The server is stopping.
    pub(crate) async fn open(&self, model: &str, shows_messages: bool) -> Result<RestSession, String> {
        let form = if shows_messages { PortForm::ShownEvents } else { PortForm::Events };
        self.open_as(PROTOCOL, model, form).await
    }

    /// Opens a session of another protocol, whose limits and pace it has. Its audio must be int16 mono at 16 kHz.
    ///
    /// # Errors
    /// The server is stopping, or knows no such protocol.
    pub(crate) async fn open_client(&self, protocol: &str, model: &str) -> Result<RestSession, String> {
        self.open_as(protocol, model, PortForm::Events).await
    }

    async fn open_as(&self, protocol: &str, model: &str, form: PortForm) -> Result<RestSession, String> {
        let server = self.0.wait().await.upgrade().ok_or("it has stopped")?;
        let snapshot = server.snapshot();
        let caller = Caller::of_this_process();
        let admission = caller.admit(&snapshot.config, &server).map_err(|_| "it takes no more sessions")?;
        let client = snapshot.config.library.client(protocol)?;
        Ok(RestSession::open(snapshot, caller, String::new(), model, client, admission, form))
    }
}
