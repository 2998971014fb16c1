//! Opens a container and its first stream.

use std::time::Duration;

use bytes::Bytes;
use symphonia::core::errors::Error;

use super::codec::Codec;
use super::container::Container;
use super::packet::{Demuxer, Event};
use super::source::CancelFlag;
use super::track::{DecodeLimits, MediaInfo, open_stream};
use crate::media::MediaError;

/// A file at its first packet.
pub(super) struct Opened {
    pub(super) demuxer: Box<dyn Demuxer>,
    pub(super) info: MediaInfo,
    pub(super) codec: Codec,
    /// Length that the headers state for certain.
    pub(super) promised: Option<Duration>,
}

/// Reads a file up to its first stream.
pub(super) fn open(
    container: Container,
    file: Bytes,
    limits: DecodeLimits,
    cancel: &CancelFlag,
) -> Result<Opened, MediaError> {
    let broken = |error: Error| container.broken(Duration::ZERO, &error);
    let mut problem = MediaError::NoAudioTrack { container: container.name() };
    let demuxer = container.open(file, cancel.clone()).map_err(broken)?;
    let mut demuxer = demuxer.ok_or_else(|| problem.clone())?;
    loop {
        if cancel.is_cancelled() {
            return Err(broken(Error::DecodeError("the request was cancelled")));
        }
        match demuxer.next().map_err(broken)? {
            Some(Event::Stream(stream)) => {
                let (mut info, codec) = open_stream(container, &stream, limits)?;
                info.track = demuxer.track();
                let promised = info.duration.filter(|_| stream.is_duration_certain);
                return Ok(Opened { demuxer, info, codec, promised });
            }
            Some(Event::Damage(damage)) => problem = broken(Error::DecodeError(damage)),
            Some(Event::Packet(_) | Event::Other) => {}
            None => return Err(problem),
        }
    }
}
