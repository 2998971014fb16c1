//! Bodies for files: uploads in any container, and recorded sessions.

use std::time::{Duration, Instant};

use super::LIBRARY;
use voxbridge::{
    media::{
        MediaError,
        decode::{DecodeLimits, Decoder},
    },
    trace::{
        AudioRetention, Trace,
        redact::{Redactor, fill_with_silence},
        replay::replay,
    },
};

/// Longest audio of an upload here. Compressed silence takes hardly any bytes.
const LONGEST: Duration = Duration::from_secs(60);

/// Decodes an upload. The upload's length and the limits bound the memory and the work.
pub fn container(data: &[u8]) {
    let limits = DecodeLimits { decoded_max: LONGEST, ..DecodeLimits::default() };
    let Ok(mut decoder) = Decoder::open(data.to_vec().into(), limits) else { return };
    let info = decoder.info();
    assert!(info.channels <= limits.channels_max && info.sample_rate_hz <= limits.rate_hz_max);
    let (mut samples, mut calls, mut ended) = (0, 0, false);
    while let Some(chunk) = decoder.next_chunk() {
        assert!(!ended, "nothing follows an error");
        calls += 1;
        match chunk {
            Ok(chunk) => samples += chunk.len(),
            Err(problem) => {
                assert!(!matches!(problem, MediaError::Empty | MediaError::UnknownFormat), "{problem}");
                ended = true;
            }
        }
    }
    // One chunk more than the limit, as the last packet is decoded whole.
    assert!(samples as u64 <= 16_000 * (LONGEST.as_secs() + 1), "{samples} samples");
    // A call takes half a second of audio or some thousand packets. Each packet has at least one byte.
    assert!(calls <= 2 + samples / 8_000 + 2 * data.len() / 4_000 + 8, "{calls} calls, {samples} samples");
}

/// Reads a recorded session, describes its records, and replays it. Redaction leaves nothing to redact.
pub fn trace(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    redact(&text);
    let trace = match Trace::parse(&text) {
        Ok(trace) => trace,
        Err(problem) => {
            assert!(!problem.message.is_empty() && problem.line_number <= text.lines().count() + 1);
            return;
        }
    };
    for record in &trace.records {
        assert!(!record.description().is_empty());
        let _ = (record.content(), record.memory_bytes());
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "an instant must come from somewhere; only differences count"
    )]
    let epoch = Instant::now();
    if let Ok(outcome) = replay(&trace, LIBRARY.clone(), epoch) {
        let again = replay(&trace, LIBRARY.clone(), epoch + Duration::from_secs(1));
        let again = again.expect("a trace that replays does so again");
        assert_eq!(outcome.is_same(), again.is_same(), "the same inputs have the same outputs");
    }
}

fn redact(text: &str) {
    for audio in [AudioRetention::None, AudioRetention::All] {
        let once = Redactor::new(audio).redact_query(text);
        assert_eq!(Redactor::new(audio).redact_query(&once), once);
    }
    let (filled, samples) = fill_with_silence(text);
    assert!(samples > 0 || filled == text);
}
