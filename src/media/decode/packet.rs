//! Items that containers hand to the timeline: streams, and packets with what is known about their time.

use std::time::Duration;

use bytes::Bytes;
use symphonia::core::audio::Channels;
use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters};
use symphonia::core::errors::Error;

/// Time in nanoseconds: presentation times of a file, which begin at 0, and lengths.
pub(super) type Nanos = i64;

/// Nanoseconds of a second.
pub(super) const SECOND: Nanos = 1_000_000_000;

/// Nanoseconds of this many ticks.
pub(super) fn nanos(ticks: i64, ticks_per_s: u32) -> Nanos {
    let nanos = i128::from(ticks) * i128::from(SECOND) / i128::from(ticks_per_s.max(1));
    i64::try_from(nanos).unwrap_or(if ticks < 0 { i64::MIN / 4 } else { i64::MAX / 4 })
}

/// Samples in this time, rounded.
pub(super) fn samples_in(time: Nanos, rate_hz: u32) -> usize {
    let samples =
        (i128::from(time.max(0)) * i128::from(rate_hz) + i128::from(SECOND / 2)) / i128::from(SECOND);
    usize::try_from(samples).unwrap_or(usize::MAX)
}

/// As the standard library's type. Negative times are zero.
pub(super) fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time.max(0).unsigned_abs())
}

/// Takes a container apart.
pub(super) trait Demuxer: Send {
    /// The next item; `None` at the end of the file. Each call does a bounded amount of work.
    ///
    /// # Errors
    /// Damage behind which nothing can be found.
    fn next(&mut self) -> Result<Option<Event>, Error>;

    /// The audio track that was chosen, from 1, and how many there are, if there are several.
    fn track(&self) -> Option<(usize, usize)> {
        None
    }
}

/// The next item of a container.
pub(super) enum Event {
    /// Packets of this format follow.
    Stream(Stream),
    /// Audio.
    Packet(Packet),
    /// Damage. Audio may follow.
    Damage(&'static str),
    /// Something that was skipped, such as a packet of another track.
    Other,
}

/// Format of the packets that follow.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) params: AudioCodecParameters,
    /// Name of a codec that is not supported, or why it is not.
    pub(super) unsupported: Option<String>,
    /// Length according to the headers.
    pub(super) duration: Option<Nanos>,
    /// Shorter audio is cut off: the headers count it.
    pub(super) is_duration_certain: bool,
    /// The format changes within a recording, whose times continue. A joined recording has times of its own.
    pub(super) is_continued: bool,
}

impl Stream {
    /// A stream of this codec. Its decoder reads the headers, if there are any.
    pub(super) fn of(codec: AudioCodecId, rate_hz: u32, channels: u16, headers: &[u8]) -> Self {
        let mut params = AudioCodecParameters::new();
        params.for_codec(codec).with_sample_rate(rate_hz).with_channels(Channels::Discrete(channels));
        if !headers.is_empty() {
            params.with_extra_data(headers.into());
        }
        Self { params, ..Self::default() }
    }

    /// A stream of a codec that is not supported, by its name.
    pub(super) fn unsupported(name: impl Into<String>) -> Self {
        Self { unsupported: Some(name.into()), ..Self::default() }
    }
}

/// One packet and what its container knows about it.
#[derive(Default)]
pub(super) struct Packet {
    pub(super) data: Bytes,
    /// Presentation time of its first sample, before the trims. Without one, it follows its predecessor.
    pub(super) at: Option<Nanos>,
    /// Samples according to the container; 0 if only the codec knows.
    pub(super) samples: u64,
    /// Audio at its start and its end that is not heard.
    pub(super) trim_start: Nanos,
    pub(super) trim_end: Nanos,
    /// An edit jumps here: the packet before is not the one that the encoder saw.
    pub(super) is_after_jump: bool,
}
