//! Answers that take long begin before their words are known, so that proxies and clients do not give the request up.
//!
//! At first, nothing is sent, and a failure has its HTTP status: for as long as upstreams are looked for or a queue is waited
//! in ([`quiet_max`]). After that, HTTP 200 and the headers are sent, and every [`FILL_INTERVAL`] something that readers of the
//! format skip: white space, empty lines, or comments of event streams. A failure is then the error object in place of JSON, and
//! the end of the connection in the middle of any other body. Where an incomplete transcript ends is a trailer.

use std::{convert::Infallible, io, pin::pin, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    HeaderMap, Response,
    header::{CONTENT_TYPE, TRAILER},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tracing::warn;

use super::{
    super::accept::http_error::HttpResponse,
    Body, RestResult, complete,
    session::Stage,
    streamed_body::{BodySender, StreamedBody},
    style::{Failure, Style, set_header},
    transcript::{INCOMPLETE_HEADER, TranscriptFormat, content_type},
};

/// How often something is sent: clients and proxies wait for 10 s at least, usually for 60 s.
const FILL_INTERVAL: Duration = Duration::from_secs(5);
/// A comment of a stream of server-sent events.
pub(super) const COMMENT: &str = ":\n\n";

/// Bytes that are sent while an answer is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filler {
    content_type: &'static str,
    /// Start of the body, which comes first.
    start: &'static str,
    /// Bytes behind it that readers skip.
    fill: &'static str,
    tells_failures: bool,
}

impl Filler {
    pub(super) const JSON: Self = Self::of(TranscriptFormat::Json);

    pub(super) const fn of(format: TranscriptFormat) -> Self {
        let (start, fill, tells_failures) = match format {
            TranscriptFormat::Json | TranscriptFormat::VerboseJson => ("", " ", true),
            TranscriptFormat::Text | TranscriptFormat::Srt => ("", "\n", false),
            // The file is known by its first line; empty lines may follow.
            TranscriptFormat::Vtt => ("WEBVTT\n\n", "\n", false),
        };
        Self { content_type: content_type(format), start, fill, tells_failures }
    }
}

/// Answers with what `making` yields, and begins early if that takes long. `served` is held until the end of the answer.
pub(super) async fn answer_in_time<F>(
    making: F,
    stage: watch::Receiver<Stage>,
    filler: Filler,
    style: Style,
    served: impl Send + 'static,
) -> RestResult
where
    F: Future<Output = Result<HttpResponse, Failure>> + Send + 'static,
{
    let mut making = Box::pin(making);
    if let Some(made) = made_in_time(&mut making, stage).await {
        return made.map(complete);
    }
    let send = move |sender| send_late(making, filler, style, sender);
    let mut response = Response::new(Body::Right(StreamedBody::made_by(send, "answer", served)));
    set_header(response.headers_mut(), CONTENT_TYPE.as_str(), filler.content_type);
    set_header(response.headers_mut(), TRAILER.as_str(), INCOMPLETE_HEADER.as_str());
    Ok(response)
}

/// Longest time without a byte. Looking for an upstream takes 10 s at most, and queues are left after two minutes, by default;
/// a request that has its first words hardly fails.
const fn quiet_max(stage: Stage) -> Duration {
    Duration::from_secs(match stage {
        Stage::Opened => 15,
        Stage::Queued => 150,
        Stage::Answering => 5,
    })
}

/// Waits for what is made, until the answer has to begin without it: `None`.
pub(super) async fn made_in_time<T>(
    making: &mut (impl Future<Output = T> + Unpin),
    mut stage: watch::Receiver<Stage>,
) -> Option<T> {
    let start = Instant::now();
    loop {
        let until = start + quiet_max(*stage.borrow_and_update());
        tokio::select! {
            biased;
            made = &mut *making => return Some(made),
            Ok(()) = stage.changed() => {}
            () = sleep_until(until) => return None,
        }
    }
}

/// Sends an answer that began before it was known.
///
/// # Errors
/// The client does not take it.
async fn send_late(
    making: impl Future<Output = Result<HttpResponse, Failure>>,
    filler: Filler,
    style: Style,
    sender: BodySender,
) -> Result<(), &'static str> {
    sender.send(format!("{}{}", filler.start, filler.fill).into()).await?;
    let mut trailers = HeaderMap::new();
    let body = match wait_filled(making, filler.fill, &sender).await? {
        Ok(made) => {
            let (head, body) = made.into_parts();
            let incomplete = head.headers.get(INCOMPLETE_HEADER).cloned();
            trailers.extend(incomplete.map(|value| (INCOMPLETE_HEADER, value)));
            without_start(bytes_of(body).await, filler.start)
        }
        Err(failure) => {
            warn!(problem = failure.message, "request failed after its answer began");
            if !filler.tells_failures {
                sender.cut_off(io::Error::other(failure.message)).await;
                return Ok(());
            }
            failure.body(style).to_string().into()
        }
    };
    sender.send(body).await?;
    sender.finish_with(trailers).await
}

/// Waits for what is made, and sends this every [`FILL_INTERVAL`] meanwhile.
///
/// # Errors
/// The client does not take it.
pub(super) async fn wait_filled<T>(
    making: impl Future<Output = T>,
    fill: &'static str,
    sender: &BodySender,
) -> Result<T, &'static str> {
    let mut making = pin!(making);
    loop {
        match timeout(FILL_INTERVAL, &mut making).await {
            Ok(made) => return Ok(made),
            Err(_) => sender.send(Bytes::from_static(fill.as_bytes())).await?,
        }
    }
}

async fn bytes_of(body: Full<Bytes>) -> Bytes {
    let collected: Result<_, Infallible> = body.collect().await;
    collected.map(http_body_util::Collected::to_bytes).unwrap_or_default()
}

fn without_start(body: Bytes, start: &str) -> Bytes {
    if body.starts_with(start.as_bytes()) { body.slice(start.len()..) } else { body }
}

#[cfg(test)]
mod tests {
    use hyper::{StatusCode, server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::sleep,
    };

    use super::*;
    use crate::server::accept::http_error::answer_with;

    /// The answer that is made after this time, and when its head and its end came.
    async fn answer(
        format: TranscriptFormat,
        takes: Duration,
        made: Result<&'static str, &'static str>,
    ) -> (Result<String, String>, [Duration; 2]) {
        let start = Instant::now();
        let making = async move {
            sleep(takes).await;
            let failed = |message| Failure::new(StatusCode::BAD_GATEWAY, "bad_gateway", message);
            made.map(|body| answer_with("text/plain", body)).map_err(failed)
        };
        let stage = watch::Sender::new(Stage::Opened);
        let filler = Filler::of(format);
        let answer = answer_in_time(making, stage.subscribe(), filler, Style::OpenAi, ()).await;
        let head_at = start.elapsed();
        let body = match answer {
            Err(failure) => Err(format!("{} {}", failure.status.as_u16(), failure.message)),
            Ok(response) => match response.into_body().collect().await {
                Ok(body) => Ok(String::from_utf8(body.to_bytes().to_vec()).unwrap()),
                Err(error) => Err(error.to_string()),
            },
        };
        (body, [head_at, start.elapsed()])
    }

    #[tokio::test(start_paused = true)]
    async fn quick_answers_are_complete_and_have_their_status() {
        let second = Duration::from_secs(1);
        for format in TranscriptFormat::ALL {
            let (body, at) = answer(format, second, Ok("WEBVTT\n\nwords")).await;
            assert_eq!((body, at[0]), (Ok("WEBVTT\n\nwords".to_owned()), second));
            let (failed, _) = answer(format, second, Err("no")).await;
            assert_eq!(failed, Err("502 no".to_owned()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_begin_early_with_what_readers_skip() {
        use TranscriptFormat::{Json, Srt, Text, VerboseJson, Vtt};
        let takes = Duration::from_secs(28);
        for (format, made, expected) in [
            (Json, "{}", "   {}"),
            (VerboseJson, "{}", "   {}"),
            (Text, "words", "\n\n\nwords"),
            (Srt, "1\n", "\n\n\n1\n"),
            (Vtt, "WEBVTT\n\n00:00", "WEBVTT\n\n\n\n\n00:00"),
        ] {
            let (body, [head_at, end_at]) = answer(format, takes, Ok(made)).await;
            assert_eq!(body.as_deref().map(str::to_owned), Ok(expected.to_owned()));
            assert_eq!((head_at, end_at), (quiet_max(Stage::Opened), takes));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn request_in_a_queue_keeps_its_status_and_first_words_begin_the_answer() {
        let (sender, stage) = watch::channel(Stage::Opened);
        let start = Instant::now();
        let advancing = async {
            sleep(Duration::from_secs(10)).await;
            sender.send_replace(Stage::Queued);
            sleep(Duration::from_secs(100)).await;
            sender.send_replace(Stage::Answering);
            std::future::pending::<()>().await;
        };
        let mut never = Box::pin(std::future::pending::<()>());
        tokio::select! {
            () = advancing => {}
            made = made_in_time(&mut never, stage) => assert_eq!(made, None),
        }
        assert_eq!(start.elapsed().as_secs(), 110);
    }

    /// The bytes of an answer that takes a minute, to a request with this header line.
    async fn bytes_of_late_answer(header: &str, marked: bool) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let answering = service_fn(move |_| async move {
            let making = async move {
                sleep(Duration::from_secs(60)).await;
                let mut made = answer_with("text/plain", "words");
                if marked {
                    made.headers_mut().insert(INCOMPLETE_HEADER, "1.500".parse().unwrap());
                }
                Ok(made)
            };
            let stage = watch::Sender::new(Stage::Opened);
            let filler = Filler::of(TranscriptFormat::Text);
            answer_in_time(making, stage.subscribe(), filler, Style::OpenAi, ())
                .await
                .map_err(|failure| failure.message)
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(server), answering));
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{header}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn late_answer_has_where_it_is_incomplete_as_a_trailer() {
        for (header, marked, end) in [
            ("te: trailers\r\n", true, "5\r\nwords\r\n0\r\nx-voxbridge-incomplete-from: 1.500\r\n\r\n"),
            ("te: trailers\r\n", false, "5\r\nwords\r\n0\r\n\r\n"),
            // Only clients that ask for trailers get one (RFC 9110 §6.5.1).
            ("", true, "5\r\nwords\r\n0\r\n\r\n"),
        ] {
            let answer = bytes_of_late_answer(header, marked).await;
            assert!(answer.contains("\r\ntrailer: x-voxbridge-incomplete-from\r\n"), "{answer}");
            assert!(answer.ends_with(end), "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn late_failure_is_an_error_object_in_json_and_cuts_off_other_formats() {
        let minute = Duration::from_secs(60);
        for format in TranscriptFormat::ALL {
            let (body, _) = answer(format, minute, Err("lost")).await;
            match format {
                TranscriptFormat::Json | TranscriptFormat::VerboseJson => {
                    let body: serde_json::Value = serde_json::from_str(&body.unwrap()).unwrap();
                    assert_eq!(body["error"]["message"], "lost");
                }
                _ => assert_eq!(body, Err("lost".to_owned())),
            }
        }
    }
}
