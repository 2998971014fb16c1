//! A body that is sent as it is made.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    HeaderMap,
    body::{Body, Frame},
};
use tokio::{sync::mpsc, time::timeout};
use tracing::warn;

/// Parts that wait for the client.
const WAITING_PARTS_MAX: usize = 4;
/// Time for the client to take a part. A client that plays speech as it arrives takes nothing for a minute at times: the system
/// takes more once a third of its buffers of megabytes is free.
const TAKE_TIMEOUT: Duration = Duration::from_secs(120);

/// A part of a body.
enum Part {
    Data(Bytes),
    /// The body is complete; headers that were not known before it.
    End(HeaderMap),
}

/// A body that is sent as it is made. An error cuts it off, so that the client cannot take it for complete; so does the loss of
/// its sender.
pub(crate) struct StreamedBody {
    parts: mpsc::Receiver<io::Result<Part>>,
    /// The end or an error came.
    is_over: bool,
}

/// Where the parts of a [`StreamedBody`] go.
#[derive(Clone)]
pub(super) struct BodySender(mpsc::Sender<io::Result<Part>>);

impl StreamedBody {
    fn new() -> (BodySender, Self) {
        let (sender, parts) = mpsc::channel(WAITING_PARTS_MAX);
        (BodySender(sender), Self { parts, is_over: false })
    }
}

impl StreamedBody {
    /// Makes a body in a task of its own, which ends early if the client goes. `served` is held until then.
    pub(super) fn made_by<F>(
        make: impl FnOnce(BodySender) -> F,
        what: &'static str,
        served: impl Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), &'static str>> + Send + 'static,
    {
        let (sender, body) = Self::new();
        let (gone, making) = (sender.clone(), make(sender));
        tokio::spawn(async move {
            tokio::select! {
                biased;
                // Ends the session, which frees its worker.
                () = gone.closed() => {}
                made = making => {
                    if let Err(problem) = made {
                        warn!(problem, "{what} is incomplete");
                    }
                }
            }
            drop(served);
        });
        body
    }
}

impl BodySender {
    /// Sends a part.
    ///
    /// # Errors
    /// The client has gone or takes nothing.
    pub(super) async fn send(&self, data: Bytes) -> Result<(), &'static str> {
        self.send_part(Ok(Part::Data(data))).await
    }

    /// Ends a complete body, and waits until all of it is taken.
    ///
    /// # Errors
    /// The client takes nothing.
    pub(super) async fn finish(&self) -> Result<(), &'static str> {
        self.finish_with(HeaderMap::new()).await
    }

    /// As [`Self::finish`], with headers behind the body, for clients that accept them.
    pub(super) async fn finish_with(&self, trailers: HeaderMap) -> Result<(), &'static str> {
        self.send_part(Ok(Part::End(trailers))).await?;
        timeout(TAKE_TIMEOUT, self.closed()).await.map_err(|_| "the client takes nothing")
    }

    /// Cuts the body off.
    pub(super) async fn cut_off(&self, problem: io::Error) {
        // Without its sender, the body is cut off as well.
        let _ = self.send_part(Err(problem)).await;
    }

    /// Completes when the body was taken to its end, or the client has gone.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }

    async fn send_part(&self, part: io::Result<Part>) -> Result<(), &'static str> {
        self.0.send_timeout(part, TAKE_TIMEOUT).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Timeout(_) => "the client takes nothing",
            mpsc::error::SendTimeoutError::Closed(_) => "the client has gone",
        })
    }
}

impl Body for StreamedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.parts.poll_recv(cx).map(|part| {
            let part = part.unwrap_or_else(|| Err(io::Error::other("the answer was cut off")));
            self.is_over = !matches!(part, Ok(Part::Data(_)));
            match part {
                Ok(Part::Data(data)) => Some(Ok(Frame::data(data))),
                Ok(Part::End(trailers)) => (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers))),
                Err(error) => Some(Err(error)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn body_is_complete_only_if_its_sender_says_so() {
        for is_finished in [true, false] {
            let (sender, body) = StreamedBody::new();
            let sending = async move {
                sender.send("words".into()).await.unwrap();
                if is_finished {
                    sender.finish().await.unwrap();
                }
            };
            let reading = async {
                let read = body.collect().await;
                read.map(http_body_util::Collected::to_bytes).map_err(|error| error.to_string())
            };
            let ((), read) = tokio::join!(sending, reading);
            let expected =
                if is_finished { Ok("words".into()) } else { Err("the answer was cut off".to_owned()) };
            assert_eq!(read, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (sender, mut body) = StreamedBody::new();
        for _ in 0..WAITING_PARTS_MAX {
            sender.send("words".into()).await.unwrap();
        }
        for _ in 0..5 {
            let taken = async {
                sleep(TAKE_TIMEOUT - Duration::from_secs(1)).await;
                body.frame().await.unwrap().unwrap();
            };
            let (sent, ()) = tokio::join!(sender.send("words".into()), taken);
            assert_eq!(sent, Ok(()));
        }
        let start = Instant::now();
        assert_eq!(sender.send("words".into()).await, Err("the client takes nothing"));
        assert!(start.elapsed() >= TAKE_TIMEOUT && start.elapsed() < TAKE_TIMEOUT * 2);
        drop(body);
        assert_eq!(sender.send("words".into()).await, Err("the client has gone"));
    }

    #[tokio::test(start_paused = true)]
    async fn sender_waits_until_the_end_is_taken() {
        let (sender, mut body) = StreamedBody::new();
        sender.send("words".into()).await.unwrap();
        let mut finishing = std::pin::pin!(sender.finish());
        assert!(finishing.as_mut().now_or_never().is_none());
        body.frame().await.unwrap().unwrap();
        assert!(finishing.as_mut().now_or_never().is_none(), "the end is not taken yet");
        assert!(body.frame().await.is_none());
        drop(body);
        assert_eq!(finishing.await, Ok(()));
    }
}
