//! Guards: what an upload announces is checked before symphonia allocates or computes for it.

/// ALAC: the length of a frame, for which its decoder allocates.
pub(super) mod alac;
/// FLAC: metadata, which takes many times its size, is left out, and streams one after another are divided.
pub(super) mod flac;
/// Vorbis: the codebooks of a setup header, which take thousands of times their size.
pub(super) mod vorbis;
