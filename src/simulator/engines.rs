//! Where real transcripts and real speech may come from. Not an engine: whoever runs one implements this.

use futures_util::future::BoxFuture;

/// A recogniser and a voice, shared by all workers. An error's text becomes the session's diagnostic.
pub trait SpeechEngines: Send + Sync + 'static {
    /// What is said in these samples (float32, 16 kHz, mono); empty if nothing is.
    fn recognise(&self, samples: Vec<f32>) -> BoxFuture<'_, Result<String, String>>;

    /// The text as samples (float32, 24 kHz, mono).
    fn speak(&self, text: String) -> BoxFuture<'_, Result<Vec<f32>, String>>;
}
