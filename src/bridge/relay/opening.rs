//! The opening of the upstream session, the client's knowledge of it, and the client's messages until then.

use super::{
    Lane, RelayCodecs,
    pending::{ClientMessage, InFlightAppends, Pending},
};
use crate::{error::Error, upstream::relay::RelayUnits, vocabulary::LaneRequest};

/// Message that opens an upstream session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum RelayStart {
    /// The client has sent nothing yet.
    #[default]
    Unknown,
    /// The client's message that opens the session; `None` if its first message was an append, so that the session has the
    /// defaults.
    Init(Option<String>),
    /// The client's first message. The worker completes an append by defaults (mappings/notes/minicpm-o.md#commands),
    /// and the server judges anything else.
    FirstMessage,
}

/// The client's opening, and how upstreams took it.
#[derive(Debug, Default)]
pub(super) struct Opening {
    pub(super) start: RelayStart,
    /// Message that opens the upstream session, while the session is not open.
    pub(super) first_message: Option<ClientMessage>,
    /// Index of the opening variant in use, of those that the upstream may accept.
    pub(super) init_variant: usize,
    pub(super) variant_count: usize,
    /// How often upstreams ended the session while it was initialised.
    pub(super) refusals: u32,
    /// Length of the client's prompt, characters.
    pub(super) prompt_chars: u64,
    /// Most slices per picture.
    pub(super) max_slices: Option<i64>,
}

/// Progress towards an open session that the client has been informed of.
#[derive(Debug, Default)]
pub(super) struct ReportedProgress {
    /// A worker is assigned.
    pub(super) granted: bool,
    /// The position in the queue.
    pub(super) queued: bool,
    /// The session is open.
    pub(super) opened: bool,
    /// The upstream's session id.
    pub(super) session_id: Option<String>,
}

/// The client's messages on their way to the upstream.
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) pending: Pending,
    /// Lane that is not open yet, and the number of waiting messages already sent on it.
    pub(super) sent_early: Option<(Lane, usize)>,
    pub(super) in_flight: InFlightAppends,
    /// The client's input on its way to an upstream that gets commands.
    pub(super) units: RelayUnits,
    /// This upstream session got a message that the server may refuse.
    pub(super) sent_unchecked: bool,
    /// Appends so far that got an id of the relay.
    pub(super) append_count: u64,
}

impl Opening {
    /// Encodes the message that opens the upstream session, if the client has sent one.
    ///
    /// # Errors
    /// If the message is malformed for this upstream.
    pub(super) fn encode(&mut self, codecs: &RelayCodecs) -> Result<Option<LaneRequest>, Error> {
        Ok(match &self.start {
            RelayStart::Init(text) => {
                let mut variants = codecs.encode_opening_text(text.as_deref())?;
                self.variant_count = variants.len();
                Some(variants.swap_remove(self.init_variant % self.variant_count))
            }
            RelayStart::FirstMessage => {
                self.first_message.as_ref().map(|first| LaneRequest::RawText(first.text.clone()))
            }
            RelayStart::Unknown => None,
        })
    }

    /// True if upstreams have refused every variant, and often enough.
    pub(super) fn is_exhausted(&self, attempts: u32) -> bool {
        let variants = if let RelayStart::Init(_) = &self.start { self.variant_count } else { 1 };
        self.refusals as usize >= variants.max(attempts as usize)
    }

    /// True if the client has sent nothing yet that opens an upstream session.
    pub(super) fn is_missing(&self) -> bool {
        match self.start {
            RelayStart::Unknown => true,
            RelayStart::Init(_) => false,
            RelayStart::FirstMessage => {
                self.first_message.as_ref().is_some_and(|first| first.append.is_none())
            }
        }
    }

    /// Memory of the messages, bytes.
    pub(super) fn bytes(&self) -> usize {
        let opening = if let RelayStart::Init(text) = &self.start { text.as_ref() } else { None };
        let texts = opening.into_iter().chain(self.first_message.iter().map(|first| &first.text));
        texts.map(String::len).sum()
    }
}

impl Messages {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            pending: Pending::default(),
            sent_early: None,
            units: RelayUnits::default(),
            in_flight: InFlightAppends::new(bytes_max),
            sent_unchecked: false,
            append_count: 0,
        }
    }
}
