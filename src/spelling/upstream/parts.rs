//! The parts of received messages that mean something to the bridge.

use serde::Deserialize;

/// Defines the parts of a message, each by the name that files give it.
macro_rules! message_parts {
    ($($part:ident)+) => {
        /// Each part of a received message, as it is known: by its JSON pointer in the file, or by its slot in the extractor.
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct MessageParts<P> {
            $(pub(crate) $part: Option<P>,)+
        }

        impl<P> MessageParts<P> {
            /// The same parts, as `find` knows them.
            pub(super) fn map<Q>(self, mut find: impl FnMut(P) -> Q) -> MessageParts<Q> {
                MessageParts { $($part: self.$part.map(&mut find),)+ }
            }
        }
    };
}

message_parts! {
    position
    length
    wait_s
    session_id
    text
    audio
    end_of_turn
    reason
    detail
    code
    response_id
    input_id
    context_tokens
    ticket
    backend
    sequence
    resume_token
    unit_ms
    input_rate_hz
    output_rate_hz
    input_format
    output_format
    item_id
    transcriber
    turn_detector
    call_id
    name
    arguments
    usage
    finish
    retryable
    retry_after
}
