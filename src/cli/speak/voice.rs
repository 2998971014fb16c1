//! Checks the name of `--voice`. Servers speak in another voice, without an error, when they do not know the name.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use crate::{
    cli::{dial::ServerTarget, error::ClientError, http::HttpTarget, output, target::Target},
    suggestion::suggest_known,
};

/// Name of the voice for clients that name none, which is not listed.
const DEFAULT_VOICE: &str = "default";

/// Time limit of a server's list of voices.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);

/// Checks that the voice exists, as far as the target lists its voices.
///
/// # Errors
/// The bridge in this process has no such voice. A server may have voices that it does not list, so there is only a message.
pub(super) async fn check_voice(voice: &str, target: &Target) -> Result<(), ClientError> {
    let known = match target {
        Target::Local(bridge) => Some(bridge.voices().to_vec()),
        Target::Http(server) => list_voices(server).await,
        Target::Live(server) => list_voices_beside(server).await,
    };
    let Some(known) = known else { return Ok(()) };
    let Some(problem) = describe_unknown(voice, &known) else { return Ok(()) };
    match target {
        Target::Local(_) => {
            Err(ClientError::Usage(format!("{problem}; add it to [voices] in the file given by --config")))
        }
        Target::Http(_) | Target::Live(_) => {
            output::print_message(format_args!("{problem}; the server may speak in another voice"));
            Ok(())
        }
    }
}

fn describe_unknown(voice: &str, known: &[String]) -> Option<String> {
    if voice == DEFAULT_VOICE || known.iter().any(|name| name == voice) {
        return None;
    }
    let known = match known {
        [] => "; there are no voices but the default one".to_owned(),
        known => suggest_known(voice, || known.iter().map(String::as_str)),
    };
    Some(format!("unknown voice `{voice}`{known}"))
}

/// The voices of a server with an HTTP API; `None` if it lists none, as OpenAI's.
async fn list_voices(server: &HttpTarget) -> Option<Vec<String>> {
    let list = async { server.get("/voices").await.ok()?.collect().await.ok() };
    let list: Value = serde_json::from_slice(&timeout(LIST_TIMEOUT, list).await.ok()??).ok()?;
    let voices = list["data"].as_array()?.iter();
    Some(voices.filter_map(|voice| Some(voice["name"].as_str()?.to_owned())).collect())
}

/// The voices of a server by WebSocket. Macaw and voxbridge serve the HTTP API at the same address.
async fn list_voices_beside(server: &ServerTarget) -> Option<Vec<String>> {
    let url = server.url.replacen("ws", "http", 1);
    let host_end = url.find("://")? + 3;
    let end = url[host_end..].find(['/', '?']).map_or(url.len(), |at| host_end + at);
    let server = HttpTarget::new(&url[..end], None, server.ca.as_deref(), server.key.clone()).ok()?;
    list_voices(&server).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_voices_are_described_with_the_known_ones() {
        let known = ["anna".to_owned(), "bob".to_owned()];
        assert_eq!(describe_unknown("anna", &known), None);
        assert_eq!(describe_unknown("default", &[]), None);
        let problem = describe_unknown("ana", &known).unwrap();
        assert!(problem.starts_with("unknown voice `ana`, did you mean `anna`?"), "{problem}");
        let problem = describe_unknown("anna", &[]).unwrap();
        assert!(problem.ends_with("no voices but the default one"), "{problem}");
    }
}
