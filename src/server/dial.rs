//! Opening a WebSocket to an upstream, in the mode a lane wants.
//!
//! A [`tower::Service`] from mode to socket, so that what chooses among upstreams can be put in front of it.

use std::{
    path::Path,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use hyper::Uri;
use tokio_tungstenite::{client_async_with_config, tungstenite::Error as WsError};

use super::socket::{Metered, limits};
use crate::{
    event::{Mode, Why},
    mapping::UpstreamMapping,
    net::{Counted, Endpoint, Transport},
};

/// Read buffer of an upstream socket: 16 KiB cost least (field notes libraries.md), the default is 128 KiB a socket.
const READ_BUFFER_BYTES: usize = 16 * 1024;

/// A WebSocket to an upstream.
pub type UpstreamSocket = Metered<Box<dyn Transport>>;

/// The way to an upstream.
#[derive(Clone)]
pub struct Dialer {
    target: Arc<Target>,
}

struct Target {
    endpoint: Endpoint,
    /// The URL up to the mode's value.
    url: String,
    mapping: Arc<UpstreamMapping>,
}

impl Dialer {
    /// The way to `url` (`ws://` or `wss://`). The dialect's path stands in for one that is missing, the lane's mode for
    /// one that is there; certificates are checked against the system's authorities and those in the PEM file `ca`.
    ///
    /// # Errors
    /// What is wrong with the URL or the file, in words.
    pub fn new(url: &str, ca: Option<&Path>, mapping: Arc<UpstreamMapping>) -> Result<Self, String> {
        let bad = |problem: String| {
            format!("{url:?}: {problem}; an upstream looks like ws://HOST:8006{}", mapping.path)
        };
        let uri: Uri = url.parse().map_err(|error| bad(format!("it is no URL ({error})")))?;
        let endpoint = Endpoint::of(&uri, ca).map_err(bad)?;
        let path = if uri.path() == "/" { &mapping.path } else { uri.path() };
        let mut query = form_urlencoded::Serializer::new(String::new());
        let given = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        query.extend_pairs(given.filter(|(name, _)| *name != mapping.mode_key));
        let mut query = query.finish();
        if !query.is_empty() {
            query.push('&');
        }
        let url = format!("{}://{}{path}?{query}{}=", endpoint.scheme, endpoint.authority, mapping.mode_key);
        Ok(Self { target: Arc::new(Target { endpoint, url, mapping }) })
    }

    /// The mode a URL names, if it names one.
    #[must_use]
    pub fn mode_of(url: &str, mapping: &UpstreamMapping) -> Option<String> {
        let (_, query) = url.split_once('?')?;
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(name, _)| *name == mapping.mode_key).map(|(_, mode)| mode.into_owned())
    }
}

impl tower::Service<Mode> for Dialer {
    type Response = UpstreamSocket;
    type Error = Why;
    type Future = BoxFuture<'static, Result<UpstreamSocket, Why>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Why>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mode: Mode) -> Self::Future {
        let target = self.target.clone();
        Box::pin(async move { target.dial(mode).await })
    }
}

impl Target {
    async fn dial(&self, mode: Mode) -> Result<UpstreamSocket, Why> {
        let place = &self.endpoint.authority;
        let Some(mode) = self.mapping.modes.get(&mode) else {
            return Err(Why::Unreachable(format!("{place}: its dialect has no mode {mode:?}")));
        };
        let transport = self.endpoint.connect().await;
        let transport = transport.map_err(|error| Why::Unreachable(format!("{place}: {error}")))?;
        let (transport, traffic) = Counted::new(transport);
        let transport: Box<dyn Transport> = Box::new(transport);
        let limits = limits(READ_BUFFER_BYTES, self.mapping.message_max_bytes);
        match client_async_with_config(format!("{}{mode}", self.url), transport, Some(limits)).await {
            Ok((stream, _)) => Ok(Metered { stream, traffic }),
            Err(WsError::Http(response)) => Err(Why::Refused(response.status().as_u16())),
            Err(error) => Err(Why::Unreachable(format!("{place}: {error}"))),
        }
    }
}
