//! Opens the WebSocket of a client: builds the URL, connects by TCP, and by TLS for `wss://`, and upgrades.

use std::{path::PathBuf, time::Duration};

use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{
    self,
    client::IntoClientRequest as _,
    http::{HeaderValue, Uri, header::AUTHORIZATION},
    protocol::WebSocketConfig,
};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::error::ClientError;
use crate::net::{Endpoint, Transport, UntrustedCertificate, read_certificates};
use crate::secret::Secret;
use crate::server::ANSWERS_HEADER;

/// Server and session parameters of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTarget {
    /// `ws://` or `wss://`; without a path, `/v1/realtime` is meant.
    pub url: String,
    /// The model; one that the URL names already stays if this is `None`.
    pub model: Option<String>,
    /// Language of the speech, ISO 639-1.
    pub language: Option<String>,
    /// CA certificates (PEM) to trust besides those of the system.
    pub ca: Option<PathBuf>,
    /// The key to show, where one is wanted.
    pub key: Option<Secret>,
}

/// Open WebSocket connection.
pub(super) type ClientWebSocket = WebSocketStream<Box<dyn Transport>>;

/// Path of the protocol, for URLs without a path.
const DEFAULT_PATH: &str = "/v1/realtime";

/// The model asked for by default. voxbridge accepts any name; a Macaw server requires one of its models.
pub(super) const DEFAULT_MODEL: &str = "minicpm-o";

/// Time limit of DNS, TCP, TLS and upgrade together; a running server needs well under a second.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest message, as on the real server, which closes with 1009 above 16 MiB (mappings/notes/macaw.md#connect).
const MESSAGE_MAX_BYTES: usize = 16 << 20;

/// Upper bound of the write buffer. Every message is flushed at once, so it holds one message.
const WRITE_MAX_BYTES: usize = 1 << 20;

/// Connects and upgrades within [`CONNECT_TIMEOUT`]. Returns also whether the server answers speech, which only voxbridge says.
pub(super) async fn dial(target: &ServerTarget) -> Result<(ClientWebSocket, Option<bool>), ClientError> {
    let (endpoint, uri) = endpoint_and_uri(target)?;
    let unreachable = |reason: String| ClientError::Unreachable { url: target.url.clone(), reason };
    let key = target.key.as_ref();
    let dialled = async { upgrade(&uri, endpoint.connect().await?, key).await };
    match timeout(CONNECT_TIMEOUT, dialled).await {
        Ok(Ok(dialled)) => Ok(dialled),
        Ok(Err(tungstenite::Error::Http(response))) => {
            Err(ClientError::HttpRejected { url: target.url.clone(), status: response.status().as_u16() })
        }
        Ok(Err(tungstenite::Error::Io(reason))) => Err(match UntrustedCertificate::cause_of(&reason) {
            Some(problem) => {
                ClientError::UntrustedCertificate { url: target.url.clone(), problem, option: "--ca" }
            }
            None => unreachable(reason.to_string()),
        }),
        Ok(Err(reason)) => Err(unreachable(reason.to_string())),
        Err(_) => Err(unreachable(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()))),
    }
}

/// Endpoint and complete URL of the server.
pub(super) fn endpoint_and_uri(target: &ServerTarget) -> Result<(Endpoint, Uri), ClientError> {
    let invalid_url =
        |reason: &str| ClientError::InvalidUrl { url: target.url.clone(), reason: reason.to_owned() };
    let given: Uri = target.url.parse().map_err(|reason| invalid_url(&format!("{reason}")))?;
    if let Some(ca) = &target.ca {
        read_certificates(ca).map_err(ClientError::UnreadableCa)?;
    }
    let endpoint = Endpoint::from_uri(&given, target.ca.as_deref()).map_err(|reason| invalid_url(&reason))?;
    let path = match given.path() {
        "" | "/" => DEFAULT_PATH,
        path => path,
    };
    let query = build_query(given.query().unwrap_or_default(), target);
    let url = format!("{}://{}{path}?{query}", endpoint.scheme, endpoint.authority);
    Ok((endpoint, url.parse().map_err(|reason| invalid_url(&format!("{reason}")))?))
}

/// Query of the URL, in which the options replace parameters of the same name.
fn build_query(given: &str, target: &ServerTarget) -> String {
    let pairs: Vec<_> = form_urlencoded::parse(given.as_bytes()).collect();
    let names_model = pairs.iter().any(|(key, _)| key == "model");
    let model = target.model.as_deref().or((!names_model).then_some(DEFAULT_MODEL));
    let options = [("model", model), ("language", target.language.as_deref())];
    let is_replaced = |key: &str| options.iter().any(|(name, value)| *name == key && value.is_some());

    let mut out = form_urlencoded::Serializer::new(String::new());
    out.extend_pairs(pairs.iter().filter(|(key, _)| !is_replaced(key)));
    out.extend_pairs(options.iter().filter_map(|(name, value)| value.map(|value| (name, value))));
    out.finish()
}

/// Upgrades an open connection to a WebSocket, with this API key. Returns also whether the server answers speech.
pub(super) async fn upgrade(
    uri: &Uri,
    transport: Box<dyn Transport>,
    key: Option<&Secret>,
) -> Result<(ClientWebSocket, Option<bool>), tungstenite::Error> {
    let mut request = uri.into_client_request()?;
    request.headers_mut().insert(ANSWERS_HEADER, HeaderValue::from_static("?"));
    if let Some(key) = key {
        let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose()))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_MAX_BYTES))
        .max_frame_size(Some(MESSAGE_MAX_BYTES))
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_MAX_BYTES);
    let (socket, response) = client_async_with_config(request, transport, Some(config)).await?;
    let answers = response.headers().get(ANSWERS_HEADER).and_then(|answers| answers.to_str().ok());
    Ok((socket, answers.and_then(answers_of_macaw)))
}

/// Whether clients of the Macaw protocol, such as this one, get answers.
fn answers_of_macaw(answers: &str) -> Option<bool> {
    let of_macaw = answers.split(',').find_map(|answer| answer.trim().strip_prefix("macaw="))?;
    Some(of_macaw == "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialled_uri(url: &str, model: Option<&str>, language: Option<&str>) -> Result<String, ClientError> {
        let target = ServerTarget {
            url: url.into(),
            model: model.map(Into::into),
            language: language.map(Into::into),
            ..ServerTarget::default()
        };
        endpoint_and_uri(&target).map(|(_, uri)| uri.to_string())
    }

    #[test]
    fn options_become_query_parameters_and_path_has_default() {
        let plain = "ws://127.0.0.1:8000/v1/realtime";
        assert_eq!(dialled_uri(plain, None, None).unwrap(), format!("{plain}?model=minicpm-o"));
        assert_eq!(dialled_uri("ws://127.0.0.1:8000", Some("m"), None).unwrap(), format!("{plain}?model=m"));
        assert_eq!(
            dialled_uri("wss://host/x?a=1&model=old", Some("a b&c"), Some("de")).unwrap(),
            "wss://host/x?a=1&model=a+b%26c&language=de"
        );
        assert_eq!(
            dialled_uri("ws://[::1]:1/?model=mine", None, None).unwrap(),
            "ws://[::1]:1/v1/realtime?model=mine"
        );
    }

    #[test]
    fn invalid_urls_are_usage_errors() {
        for url in ["http://host/", "host:8000", "", "ws://", "/v1/realtime"] {
            let error = dialled_uri(url, None, None).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{url}: {error}");
        }
    }
}
