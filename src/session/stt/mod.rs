//! Speech to text: utterances of the speech input become transcripts.
//!
//! - [`transcriber`] sends utterances to an upstream and reports their transcripts in order
//! - [`lanes`] dials, uses and leaves its lanes
//! - [`replies`] handles what the upstream answers
//! - [`recognition`] is one upstream connection, and what it was asked
//! - [`likely_end`] asks for the words of a turn that is likely over, and [`pause_transcript`] has them
//! - [`utterance_queue`] keeps utterances until they are reported
//! - [`utterance`] is one segment of speech with its state
//! - [`cut_sentence`] joins the transcripts of a sentence that was cut

mod cut_sentence;
mod lanes;
mod likely_end;
mod pause_transcript;
mod recognition;
mod replies;
pub(crate) mod transcriber;
pub(crate) mod utterance;
mod utterance_queue;
