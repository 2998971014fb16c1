//! A body that is sent as it is made.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

/// Parts that wait for the client.
const WAITING_PARTS_MAX: usize = 4;

/// A body that is sent as it is made. An error cuts it off, so that the client cannot take it for complete.
pub(crate) struct StreamedBody(mpsc::Receiver<io::Result<Bytes>>);

/// Where the parts of a [`StreamedBody`] go. It is closed when the client disconnects.
pub(super) type BodySender = mpsc::Sender<io::Result<Bytes>>;

impl StreamedBody {
    pub(super) fn new() -> (BodySender, Self) {
        let (sender, receiver) = mpsc::channel(WAITING_PARTS_MAX);
        (sender, Self(receiver))
    }
}

impl Body for StreamedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx).map(|part| part.map(|part| part.map(Frame::data)))
    }
}
