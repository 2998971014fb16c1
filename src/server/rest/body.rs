//! Reads the body of a request: bounded in bytes, in time and in memory.
//!
//! - A client must send [`PROGRESS_BYTES`] in every [`PROGRESS_WINDOW`], and the whole body within [`BODY_TIMEOUT`].
//! - Every byte counts in the memory of messages in transit. Large bodies wait when it is scarce: above half of the bound, all
//!   but the two oldest wait; above three quarters, all but the oldest; above five sixths, all. So they complete one after the
//!   other, and leave a sixth of the memory to WebSocket clients.
//! - When there is no room for a body, the slowest one is given up ([`super::bodies`]).

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::{StatusCode, body::Body as _};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    super::accept::request_body::RequestBody,
    bodies::{Bodies, BodyPlace},
    style::Failure,
};
use crate::server::memory::{Held, MemoryShare};

/// A body up to this length never waits for memory, bytes.
pub(super) const SMALL_BYTES: usize = 256 * 1024;
/// A longer body gets a block of memory that the allocator returns to the system at once (`process/allocator.rs`), bytes.
const HEAP_MAX_BYTES: usize = 64 * 1024;
/// Least size of such a block, bytes. Pages that are not used take no memory.
const BLOCK_BYTES: usize = 1024 * 1024;
/// A client that sends less than [`PROGRESS_BYTES`] in this time has stalled.
pub(super) const PROGRESS_WINDOW: Duration = Duration::from_secs(30);
/// Least progress, bytes: 2 KiB/s, a tenth of what the slowest mobile connections reach.
pub(super) const PROGRESS_BYTES: usize = 64 * 1024;
/// Longest time for a body: 25 MB over a slow mobile connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(900);
/// Longest wait for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a body that waits for memory looks again, and how often the slowest body makes room meanwhile.
const MEMORY_RETRY: Duration = Duration::from_millis(100);
const MEMORY_RETRIES_UNTIL_ROOM_IS_MADE: u32 = 20;

/// A body that is being received.
pub(super) struct BodyReader<'m> {
    body: RequestBody,
    bytes: BytesMut,
    max_bytes: usize,
    memory: &'m mut MemoryShare,
    place: BodyPlace,
    deadline: Instant,
    /// End of the current window, and the length at its start.
    window: (Instant, usize),
}

impl<'m> BodyReader<'m> {
    /// Starts to receive a body of at most `max_bytes`.
    pub(super) fn new(
        body: RequestBody,
        max_bytes: usize,
        memory: &'m mut MemoryShare,
        bodies: &Bodies,
    ) -> Result<Self, Failure> {
        if body.size_hint().lower() > max_bytes as u64 {
            return Err(too_large(max_bytes));
        }
        if let Some(compression) = body.compression() {
            return Err(compressed(&compression));
        }
        let now = Instant::now();
        let (deadline, window) = (now + BODY_TIMEOUT, (now + PROGRESS_WINDOW, 0));
        Ok(Self { body, bytes: BytesMut::new(), max_bytes, memory, place: bodies.begin(), deadline, window })
    }

    /// Receives until the body has this length or is complete. Returns what came so far.
    pub(super) async fn fill(&mut self, length: usize) -> Result<&[u8], Failure> {
        while self.bytes.len() < length {
            let Some(chunk) = self.next_chunk().await? else { break };
            self.append(&chunk).await?;
        }
        Ok(&self.bytes)
    }

    /// Receives the whole body.
    pub(super) async fn finish(mut self) -> Result<Bytes, Failure> {
        self.fill(usize::MAX).await?;
        Ok(self.bytes.freeze())
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let until = self.window.0.min(self.deadline);
            let frame = tokio::select! {
                frame = timeout_at(until, self.body.frame()) => frame,
                () = self.place.given_up() => return Err(given_up()),
            };
            match frame {
                Ok(None) => return Ok(None),
                Ok(Some(Ok(frame))) => {
                    if let Ok(chunk) = frame.into_data() {
                        return Ok(Some(chunk));
                    }
                }
                Ok(Some(Err(error))) => {
                    return Err(Failure::invalid(format!("The body cannot be read: {error}")));
                }
                Err(_) => self.check_progress()?,
            }
        }
    }

    /// Fails if too little came in the window that has ended; otherwise begins the next.
    fn check_progress(&mut self) -> Result<(), Failure> {
        if Instant::now() >= self.deadline {
            return Err(too_slow());
        }
        if self.bytes.len() < self.window.1 + PROGRESS_BYTES {
            return Err(stalled());
        }
        self.window = (Instant::now() + PROGRESS_WINDOW, self.bytes.len());
        Ok(())
    }

    async fn append(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        let length = self.bytes.len() + chunk.len();
        if length > self.max_bytes {
            return Err(too_large(self.max_bytes));
        }
        if length > SMALL_BYTES {
            self.wait_for_memory().await?;
        }
        if !self.memory.hold(Held::Incoming, length) {
            return Err(out_of_memory());
        }
        self.place.add(chunk.len());
        if length > self.bytes.capacity() && length > HEAP_MAX_BYTES {
            // The system's own block: the allocator would keep the smaller ones of many uploads.
            self.bytes.reserve(length.max(BLOCK_BYTES) - self.bytes.len());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// True if others may take the memory that is left, but not this body.
    fn lacks_memory(&self) -> bool {
        let leaves_less_than = |part| self.memory.leaves_less_than(part);
        leaves_less_than(6)
            || (leaves_less_than(4) && self.place.older() > 0)
            || (leaves_less_than(2) && self.place.older() > 1)
    }

    /// Waits until others leave memory.
    async fn wait_for_memory(&mut self) -> Result<(), Failure> {
        if !self.lacks_memory() {
            return Ok(());
        }
        self.place.set_held(true);
        let waited = self.retry_for_memory().await;
        self.place.set_held(false);
        // The server was slow, not the client.
        self.window = (Instant::now() + PROGRESS_WINDOW, self.bytes.len());
        waited
    }

    async fn retry_for_memory(&self) -> Result<(), Failure> {
        let until = Instant::now() + MEMORY_TIMEOUT;
        let mut retries = 0_u32;
        while self.lacks_memory() {
            if Instant::now() >= until {
                return Err(out_of_memory());
            }
            retries += 1;
            if retries.is_multiple_of(MEMORY_RETRIES_UNTIL_ROOM_IS_MADE) {
                // A WebSocket that holds more goes first; only then an upload that is slower.
                if !self.memory.evict_larger() {
                    self.place.bodies.give_up_slowest(SMALL_BYTES);
                }
            }
            tokio::select! {
                () = sleep(MEMORY_RETRY) => {}
                () = self.place.given_up() => return Err(given_up()),
            }
        }
        Ok(())
    }
}

/// Reads a body of at most `max_bytes`.
pub(super) async fn read_body(
    body: RequestBody,
    max_bytes: usize,
    memory: &mut MemoryShare,
    bodies: &Bodies,
) -> Result<Bytes, Failure> {
    BodyReader::new(body, max_bytes, memory, bodies)?.finish().await
}

/// HTTP 413.
pub(super) fn too_large(max_bytes: usize) -> Failure {
    let limit = match max_bytes >> 20 {
        0 => format!("{} KiB", max_bytes >> 10),
        mebibytes => format!("{mebibytes} MiB"),
    };
    let message = format!("The upload exceeds the limit of {limit}");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "file_too_large", message)
}

/// HTTP 415.
fn compressed(compression: &str) -> Failure {
    let message =
        format!("The body is compressed (Content-Encoding: {compression}); send it without compression");
    Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_encoding", message)
}

/// HTTP 503: the request would need more memory than there is.
pub(super) fn out_of_memory() -> Failure {
    let message = "Out of memory, try again later";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message)
}

fn stalled() -> Failure {
    let (least, window) = (PROGRESS_BYTES >> 10, PROGRESS_WINDOW.as_secs());
    let message = format!("The upload has stalled: less than {least} KiB came in {window} s");
    Failure::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
}

fn too_slow() -> Failure {
    let message = format!("The body was not complete within {} s", BODY_TIMEOUT.as_secs());
    Failure::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
}

fn given_up() -> Failure {
    let message = "The server has no room for more uploads, and this one was the slowest; try again later";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message)
}
