//! `voxbridge verify`: the figures of an acceptance run against a server, judged by stated expectations, and their reports.
//!
//! To change here: how words are compared, what a figure has, and how reports look. Not here: how the figures are measured,
//! which `cli::commands::verify` does with sessions of a bridge in its own process.
//!
//! - [`words`]: word errors of a transcript beside its reference
//! - [`figure`]: one figure with its expectation and verdict; [`advice`]: what to try when it fails
//! - [`report`]: figures as text and as JSON; [`html`]: as one self-contained page, with the plots of [`plot`]
//! - [`compare`]: the figures of two runs side by side
//! - [`turns`]: judges of the end of a turn, compared on recordings
//!
//! # The report as JSON
//!
//! ```json
//! [{"name": "transcription.word_error", "value": 0.02, "unit": "share", "expected": "<= 0.15", "verdict": "pass",
//!   "note": "1 of 60 words", "trace": null, "try": null}]
//! ```
//!
//! With `--compare`, it is `{"figures": [...], "comparison": [{"name", "change", "first", "second"}, ...]}`, where `change` is
//! `same`, `better`, `worse` or `only one`, and `first` and `second` are a figure or `null`. Both forms can be compared.
//!
//! - `value` is `null` if there was nothing to measure.
//! - `expected` is `<= NUMBER`, `>= NUMBER` or `succeeds`.
//! - `verdict` is `pass`, `fail` or `skipped`. A skipped figure concerns what the server does not offer, or what was not
//!   measured before the run ended.
//! - `trace` and `try` are set with `fail`: a file that `voxbridge replay` reads, and what to try.

pub mod advice;
pub mod compare;
pub mod figure;
pub mod html;
pub mod plot;
pub mod report;
pub mod turns;
pub mod words;
