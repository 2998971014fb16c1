//! `voxbridge health`: whether a server that runs is ready, for probes of containers that have no shell.

use std::time::Duration;

use hyper::Uri;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{Failure, NOBODY};
use crate::{cli::args::HealthArgs, net::Endpoint};

/// Who takes longer is not well.
const WITHIN: Duration = Duration::from_secs(5);
/// An answer has a few hundred bytes.
const ANSWER_MAX_BYTES: u64 = 64 * 1024;

pub(super) async fn run(args: HealthArgs) -> Result<(), Failure> {
    let endpoint = endpoint(&args)?;
    let asked = timeout(WITHIN, ask(&endpoint, if args.alive { "/healthz" } else { "/readyz" })).await;
    let nobody =
        |why: String| Failure::of(NOBODY, format!("no admin listener answers at {}: {why}", args.admin));
    let answer = asked
        .map_err(|_| nobody("it took too long".to_owned()))?
        .map_err(|error| nobody(error.to_string()))?;
    let (status, body) = taken_apart(&answer).ok_or_else(|| nobody("it does not speak HTTP".to_owned()))?;
    println!("{}", body.trim());
    match status {
        200 => Ok(()),
        503 => Err(Failure::failed(format!("not ready: {}", reasons(body)))),
        other => Err(Failure::failed(format!("it answers with HTTP {other}"))),
    }
}

/// The way there, which is that of a WebSocket up to its path.
fn endpoint(args: &HealthArgs) -> Result<Endpoint, Failure> {
    let (scheme, place) = match args.admin.split_once("://") {
        None => ("ws", args.admin.as_str()),
        Some(("http", place)) => ("ws", place),
        Some(("https", place)) => ("wss", place),
        Some(_) => {
            return Err(Failure::usage(format!(
                "{:?} is neither IP:PORT nor http:// nor https://",
                args.admin
            )));
        }
    };
    let bad = |error: String| {
        Failure::usage(format!("{:?} is no address of an admin listener: {error}", args.admin))
    };
    let uri: Uri = format!("{scheme}://{place}").parse().map_err(|error| bad(format!("{error}")))?;
    Endpoint::of(&uri, args.ca.as_deref()).map_err(bad)
}

async fn ask(endpoint: &Endpoint, path: &str) -> std::io::Result<String> {
    let mut stream = endpoint.connect().await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", endpoint.authority);
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    // Who closes without a TLS goodbye has still answered.
    let read = stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer).await;
    if answer.is_empty() {
        read.map(|_| String::new())
    } else {
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Status and body of an HTTP/1.1 answer.
fn taken_apart(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?, body))
}

fn reasons(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let reasons = body["reasons"].as_array().into_iter().flatten();
    reasons.filter_map(|reason| reason["message"].as_str()).collect::<Vec<_>>().join("; ")
}
