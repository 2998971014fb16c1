//! Dialects of the upstreams that may serve one session, and what each of them serves.
//!
//! To change here: how the limits of several dialects combine. Not here: which upstream a lane gets, which the pool decides.

use std::{collections::BTreeMap, sync::Arc};

use super::{DuplexLimits, UpstreamMapping};
use crate::vocabulary::{LanePurpose, Mode, VoiceEncoding};

/// Dialects of a route; at least one.
#[derive(Debug, Clone)]
pub struct Dialects(Arc<[ServedDialect]>);

/// A dialect, and what its upstreams serve.
#[derive(Debug, Clone)]
pub struct ServedDialect {
    /// The dialect.
    pub mapping: Arc<UpstreamMapping>,
    /// Purposes that the configuration lets its upstreams serve; `None` for all of the dialect.
    pub serves: Option<Arc<[LanePurpose]>>,
}

impl ServedDialect {
    /// True if its upstreams serve lanes of this purpose and mode.
    #[must_use]
    pub fn serves(&self, purpose: LanePurpose, mode: Mode) -> bool {
        self.serves.as_ref().is_none_or(|serves| serves.contains(&purpose)) && self.mapping.can(purpose, mode)
    }
}

impl From<Arc<UpstreamMapping>> for Dialects {
    fn from(mapping: Arc<UpstreamMapping>) -> Self {
        Self([ServedDialect { mapping, serves: None }].into())
    }
}

impl Dialects {
    /// These dialects; `None` without any.
    #[must_use]
    pub fn new(dialects: Vec<ServedDialect>) -> Option<Self> {
        (!dialects.is_empty()).then(|| Self(dialects.into()))
    }

    /// The dialect of the first upstream, which messages name.
    #[must_use]
    pub fn first(&self) -> &Arc<UpstreamMapping> {
        &self.0[0].mapping
    }

    /// Every dialect, once.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<UpstreamMapping>> {
        let is_first =
            |at: usize| !self.0[..at].iter().any(|other| other.mapping.name == self.0[at].mapping.name);
        self.0.iter().enumerate().filter(move |(at, _)| is_first(*at)).map(|(_, dialect)| &dialect.mapping)
    }

    /// The dialect of this name, if it is one of them.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Arc<UpstreamMapping>> {
        self.0.iter().map(|dialect| &dialect.mapping).find(|mapping| mapping.name == name)
    }

    /// Dialects that serve lanes of this purpose and mode.
    pub fn serving(&self, purpose: LanePurpose, mode: Mode) -> impl Iterator<Item = &UpstreamMapping> {
        self.0.iter().filter(move |dialect| dialect.serves(purpose, mode)).map(|dialect| &*dialect.mapping)
    }

    /// True if some upstream serves lanes of this purpose and mode.
    #[must_use]
    pub fn serve(&self, purpose: LanePurpose, mode: Mode) -> bool {
        self.serving(purpose, mode).next().is_some()
    }

    /// Longest audio of one question that every transcribing dialect takes, ms.
    #[must_use]
    pub fn audio_max_ms(&self) -> u64 {
        let limits = self.serving(LanePurpose::Transcribe, Mode::Chat).map(|dialect| dialect.audio_max_ms);
        limits.min().unwrap_or(self.first().audio_max_ms)
    }

    /// Encodings of voice samples to try, in order. A lane whose dialect lacks one uses its own first.
    #[must_use]
    pub fn voice_encodings(&self) -> Arc<[VoiceEncoding]> {
        self.first().voice_encodings.clone()
    }

    /// Limits that every dialect with conversations keeps to, because a conversation may move between them.
    #[must_use]
    pub fn duplex(&self) -> Arc<DuplexLimits> {
        let mut talking = self
            .iter()
            .filter(|dialect| dialect.modes.keys().any(|mode| *mode != Mode::Chat))
            .map(|dialect| &dialect.duplex);
        let first = talking.next().unwrap_or(&self.first().duplex);
        talking
            .fold(Arc::clone(first), |limits, other| Arc::new(Arc::unwrap_or_clone(limits).strictest(other)))
    }
}

impl DuplexLimits {
    /// True for a server that makes a second of audio at a time. Others send it as it is made.
    pub(crate) const fn has_units(&self) -> bool {
        self.busy_unit_tokens > 0
    }

    /// The shorter sessions, the smaller context and the larger units of both.
    fn strictest(self, other: &Self) -> Self {
        let mut session_max_ms: BTreeMap<Mode, u32> = self.session_max_ms;
        for (mode, ms) in &other.session_max_ms {
            session_max_ms.entry(*mode).and_modify(|known| *known = (*known).min(*ms)).or_insert(*ms);
        }
        Self {
            session_max_ms,
            context_max_tokens: self.context_max_tokens.min(other.context_max_tokens),
            idle_unit_tokens: self.idle_unit_tokens.max(other.idle_unit_tokens),
            busy_unit_tokens: self.busy_unit_tokens.max(other.busy_unit_tokens),
            frame_tokens: self.frame_tokens.max(other.frame_tokens),
        }
    }
}
