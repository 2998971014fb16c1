//! Checks the audio settings of a client file by building the converters that a session builds of them.

use std::collections::BTreeMap;

use super::ClientMapping;
use crate::audio::{
    encoding::Encoding,
    input_converter::{FormatError, InputConverter},
    output_converter::OutputConverter,
};

impl ClientMapping {
    /// Settings that no session could be opened with: section, key and message.
    pub(super) fn audio_problems(&self) -> Vec<(&'static str, &'static str, String)> {
        let (input, output) = (&self.audio_in, &self.audio_out);
        let mut problems = Vec::new();
        for (key, encoding, rate_hz) in formats(input.encoding, input.rate_hz, &input.rates_hz) {
            match InputConverter::with_encoding(encoding, rate_hz, input.channels) {
                Err(error @ FormatError::Channels { .. }) => {
                    problems.push(("audio_in", "channels", error.to_string()));
                }
                Err(error) => problems.push(("audio_in", key, error.to_string())),
                Ok(_) => {}
            }
        }
        for (key, encoding, rate_hz) in formats(output.encoding, output.rate_hz, &output.rates_hz) {
            problems.extend(
                OutputConverter::new(encoding, rate_hz)
                    .err()
                    .map(|error| ("audio_out", key, error.to_string())),
            );
        }
        if input.message_max_bytes == 0 {
            let message = "`message_max_bytes` is 0, and every message would end its connection";
            problems.push(("audio_in", "message_max_bytes", message.to_owned()));
        }
        problems.dedup();
        problems
    }
}

/// The default format and those of other encodings, with the key of each.
fn formats(
    encoding: Encoding,
    rate_hz: u32,
    others: &BTreeMap<Encoding, u32>,
) -> impl Iterator<Item = (&'static str, Encoding, u32)> {
    let others = others.iter().map(|(encoding, rate_hz)| ("rates_hz", *encoding, *rate_hz));
    [("rate_hz", encoding, rate_hz)].into_iter().chain(others)
}
