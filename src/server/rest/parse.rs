//! Parses bodies outside of the threads of sessions where that takes long.

use bytes::Bytes;

use super::{body::out_of_memory, style::Failure};
use crate::server::{
    codec_threads::CodecThreads,
    memory::{Held, MemoryShare},
};

/// Bodies up to this length are parsed at once, bytes: it takes less than a tenth of a millisecond.
const SHORT_BYTES: usize = 64 * 1024;

/// Parses a body. `needed_bytes` is what parsing takes at most, the body included.
pub(super) async fn parse<T: Send + 'static>(
    body: Bytes,
    needed_bytes: usize,
    memory: &mut MemoryShare,
    threads: &CodecThreads,
    read: impl FnOnce(Bytes) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    if body.len() <= SHORT_BYTES {
        return read(body);
    }
    let failed = || Failure::invalid("The body cannot be parsed");
    // The permit comes first, so that few bodies take the memory at once.
    let permit = threads.acquire().await.ok_or_else(failed)?;
    if !memory.hold(Held::Incoming, needed_bytes) {
        return Err(out_of_memory());
    }
    permit.run(move || read(body)).await.ok_or_else(failed)?
}
