//! Interface to real speech recognition and synthesis. The implementation is in `process`.

use futures_util::future::BoxFuture;

/// Speech recognition and synthesis, shared by all workers. An error text becomes the diagnostic of the session.
pub trait SpeechEngines: Send + Sync + 'static {
    /// Transcribes float32 samples (16 kHz mono); the transcript is empty if there is no speech.
    fn recognise(&self, samples: Vec<f32>) -> BoxFuture<'_, Result<String, String>>;

    /// Synthesizes a text as float32 samples (24 kHz mono).
    fn speak(&self, text: String) -> BoxFuture<'_, Result<Vec<f32>, String>>;
}
