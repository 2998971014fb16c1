//! `voxbridge health`: asks a running server whether it is ready. Meant for container probes without a shell.

use std::time::Duration;

use hyper::Uri;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::CommandError;
use crate::{
    cli::{args::HealthArgs, error::EXIT_UNAVAILABLE, output},
    config::complete_address,
    net::Endpoint,
};

/// Time limit of the whole request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Upper bound of the response; a real one has a few hundred bytes.
const RESPONSE_MAX_BYTES: u64 = 64 * 1024;

pub(super) async fn run(args: HealthArgs) -> Result<(), CommandError> {
    let endpoint = endpoint(&args)?;
    let response =
        timeout(TIMEOUT, send_request(&endpoint, if args.alive { "/healthz" } else { "/readyz" })).await;
    let unavailable = |reason: String| {
        CommandError::with_code(
            EXIT_UNAVAILABLE,
            format!("no admin listener answers at {}: {reason}", args.admin),
        )
    };
    let response = response
        .map_err(|_| unavailable(format!("no response within {} s", TIMEOUT.as_secs())))?
        .map_err(|error| unavailable(error.to_string()))?;
    let (status, body) =
        parse_response(&response).ok_or_else(|| unavailable("the response is not HTTP/1.1".to_owned()))?;
    let printed = output::print_line(body.trim());
    match status {
        200 => printed.map_err(CommandError::from),
        503 => Err(CommandError::failed(format!("not ready: {}", not_ready_reasons(body)))),
        other => Err(CommandError::failed(format!("the admin listener answered with HTTP {other}"))),
    }
}

/// Endpoint of the admin listener. [`Endpoint`] knows only WebSocket schemes, so `http` becomes `ws`.
fn endpoint(args: &HealthArgs) -> Result<Endpoint, CommandError> {
    let (scheme, authority) = match args.admin.split_once("://") {
        // The same variable sets the address of `serve`.
        None => ("ws", complete_address(&args.admin).unwrap_or_else(|_| args.admin.clone())),
        Some(("http", authority)) => ("ws", authority.to_owned()),
        Some(("https", authority)) => ("wss", authority.to_owned()),
        Some(_) => {
            return Err(CommandError::usage(format!(
                "{:?} is neither IP:PORT nor http:// nor https://",
                args.admin
            )));
        }
    };
    let invalid_address = |error: String| {
        CommandError::usage(format!("{:?} is not a valid address of an admin listener: {error}", args.admin))
    };
    let uri: Uri =
        format!("{scheme}://{authority}").parse().map_err(|error| invalid_address(format!("{error}")))?;
    Endpoint::from_uri(&uri, args.ca.as_deref()).map_err(invalid_address)
}

async fn send_request(endpoint: &Endpoint, path: &str) -> std::io::Result<String> {
    let mut stream = endpoint.connect().await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", endpoint.authority);
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut response = Vec::new();
    // A read error after data is ignored: some servers close TLS without close_notify.
    let read = stream.take(RESPONSE_MAX_BYTES).read_to_end(&mut response).await;
    if response.is_empty() {
        read.map(|_| String::new())
    } else {
        Ok(String::from_utf8_lossy(&response).into_owned())
    }
}

/// Status and body of an HTTP/1.1 response.
fn parse_response(response: &str) -> Option<(u16, &str)> {
    let (head, body) = response.split_once("\r\n\r\n")?;
    Some((head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?, body))
}

fn not_ready_reasons(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let reasons = body["reasons"].as_array().into_iter().flatten();
    reasons.filter_map(|reason| reason["message"].as_str()).collect::<Vec<_>>().join("; ")
}
