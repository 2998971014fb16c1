//! Checks the audio settings of a client file by building the converters that a session builds of them.

use std::collections::BTreeMap;

use super::{AudioOut, ClientMapping};
use crate::{
    audio::{
        encoding::Encoding, format::FormatError, input_converter::InputConverter, opus::PacketOptions,
        output_converter::OutputConverter,
    },
    spelling::field::{AudioFormat, FieldRole},
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
        problems.extend(self.packet_problems().map(|(key, message)| ("audio_out", key, message)));
        if input.message_max_bytes == 0 {
            let message = "`message_max_bytes` is 0, and every message would end its connection";
            problems.push(("audio_in", "message_max_bytes", message.to_owned()));
        }
        problems.dedup();
        problems
    }
}

impl ClientMapping {
    /// Settings of Opus that no encoder has, or that have no effect: key and message.
    fn packet_problems(&self) -> impl Iterator<Item = (&'static str, String)> {
        let AudioOut { bit_rate, complexity, frame_ms, frame_max_bytes, .. } = self.audio_out;
        let (rates, options) = (PacketOptions::BIT_RATES, self.audio_out.packet_options());
        let plays_opus = self.plays_opus();
        let without_opus = |key| format!("`{key}` is for Opus, and no audio to the client is");
        let one_of = PacketOptions::FRAMES_MS;
        [
            (bit_rate.is_some() && !plays_opus).then(|| ("bit_rate", without_opus("bit_rate"))),
            (complexity.is_some() && !plays_opus).then(|| ("complexity", without_opus("complexity"))),
            bit_rate.filter(|rate| !rates.contains(rate)).map(|rate| {
                ("bit_rate", format!("`bit_rate` is {rate} (expected {} to {})", rates.start(), rates.end()))
            }),
            complexity.filter(|complexity| *complexity > PacketOptions::COMPLEXITY_MAX).map(|complexity| {
                (
                    "complexity",
                    format!("`complexity` is {complexity} (expected 0 to {})", PacketOptions::COMPLEXITY_MAX),
                )
            }),
            frame_ms.filter(|ms| self.audio_out.encoding == Encoding::Opus && !one_of.contains(ms)).map(
                |ms| ("frame_ms", format!("`frame_ms` is {ms}, and packets of Opus last 20, 40 or 60 ms")),
            ),
            (plays_opus && (1..options.mean_bytes() * 2).contains(&frame_max_bytes)).then(|| {
                let least = options.mean_bytes() * 2;
                (
                    "frame_max_bytes",
                    format!("`frame_max_bytes` is too little for packets of Opus: {least} or more"),
                )
            }),
        ]
        .into_iter()
        .flatten()
    }

    /// True if the client may get Opus: by default, with a rate of its own, or by the value of a field.
    fn plays_opus(&self) -> bool {
        let roles = [FieldRole::OutputEncoding, FieldRole::OutputFormat].map(Some);
        let mut chosen = self
            .all_fields()
            .filter(|field| roles.contains(&field.file.to))
            .flat_map(|field| field.file.values.iter().chain(field.file.value_map.values()));
        let encoding_of = |name: &str| {
            AudioFormat::parse(name).map_or_else(|| Encoding::from_name(name), |format| Some(format.encoding))
        };
        self.audio_out.encoding == Encoding::Opus
            || self.audio_out.rates_hz.contains_key(&Encoding::Opus)
            || chosen.any(|name| encoding_of(name) == Some(Encoding::Opus))
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
