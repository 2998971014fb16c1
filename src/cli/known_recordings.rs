//! Recordings whose words are known: the one in the program, or those that a manifest names.

use std::path::Path;

use bytes::Bytes;
use serde::Deserialize;

use super::error::ClientError;
use super::read_input::read_input;
use super::recording::Recording;
use crate::audio::pcm;
use crate::server::playground::RECORDING;
use crate::simulator::known_speech::KnownSpeech;

/// The manifest that lists the recording in the program.
const BUILT_IN_MANIFEST: &str = include_str!("../../examples/speech/manifest.json");
const BUILT_IN_FILE: &str = "jfk_16k.wav";

/// Name of the manifest in a directory with recordings.
const MANIFEST: &str = "manifest.json";
const MANIFEST_MAX_BYTES: u64 = 4 << 20;

/// Most recordings of a manifest, and the largest of them. All are in memory.
const RECORDINGS_MAX: usize = 200;
const RECORDING_MAX_BYTES: u64 = 16 << 20;

/// An entry of the manifest. Other keys say where a recording comes from.
#[derive(Deserialize)]
struct Entry {
    file: String,
    transcript: String,
    #[serde(default = "english")]
    language: String,
}

fn english() -> String {
    "en".to_owned()
}

/// A recording with its words.
#[derive(Clone)]
pub(super) struct KnownRecording {
    /// Name of the file without its ending.
    pub(super) name: String,
    /// Language of the words.
    pub(super) language: String,
    /// The words.
    pub(super) transcript: String,
    bytes: Bytes,
}

impl KnownRecording {
    /// Begins to decode the recording.
    pub(super) fn open(&self) -> Result<Recording, ClientError> {
        Recording::decode(self.bytes.clone(), &self.name)
    }

    /// Decodes the whole recording to int16 mono at 16 kHz.
    pub(super) async fn samples(&self) -> Result<Vec<i16>, ClientError> {
        self.open()?.read_all().await
    }

    fn new(entry: Entry, bytes: Bytes) -> Self {
        let name = entry.file.rsplit_once('.').map_or(entry.file.as_str(), |(name, _)| name).to_owned();
        Self { name, language: entry.language, transcript: entry.transcript, bytes }
    }
}

/// The recordings of a directory with a `manifest.json`, or the one in the program.
///
/// # Errors
/// The manifest or a recording cannot be read.
pub(super) async fn load(dir: Option<&Path>) -> Result<Vec<KnownRecording>, ClientError> {
    let Some(dir) = dir else {
        let built_in = read_manifest(BUILT_IN_MANIFEST, MANIFEST)?.into_iter();
        let entries = built_in.filter(|entry| entry.file == BUILT_IN_FILE);
        return Ok(entries.map(|entry| KnownRecording::new(entry, Bytes::from_static(RECORDING))).collect());
    };
    let path = dir.join(MANIFEST);
    let manifest = read_input(&path, MANIFEST_MAX_BYTES).await?;
    let entries = read_manifest(&String::from_utf8_lossy(&manifest), &path.display().to_string())?;
    let mut recordings = Vec::new();
    for entry in entries {
        let bytes = read_input(&dir.join(&entry.file), RECORDING_MAX_BYTES).await?;
        recordings.push(KnownRecording::new(entry, bytes.into()));
    }
    Ok(recordings)
}

fn read_manifest(text: &str, name: &str) -> Result<Vec<Entry>, ClientError> {
    let expected = r#"expected [{"file": "NAME.wav", "transcript": "WORDS", "language": "en"}, ...]"#;
    let wrong = |problem: String| ClientError::InvalidText(format!("{name}: {problem}; {expected}"));
    let entries: Vec<Entry> = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    match entries.len() {
        0 => Err(wrong("it lists no recordings".to_owned())),
        1..=RECORDINGS_MAX => Ok(entries),
        count => Err(wrong(format!("{count} recordings are more than {RECORDINGS_MAX}"))),
    }
}

/// Speech engines that know these recordings.
///
/// # Errors
/// As [`load`], or a recording is damaged.
pub(super) async fn known_speech(dir: Option<&Path>) -> Result<KnownSpeech, ClientError> {
    let mut known = Vec::new();
    for recording in load(dir).await? {
        let samples = recording.samples().await?.into_iter().map(pcm::to_f32);
        known.push((samples.collect(), recording.transcript));
    }
    Ok(KnownSpeech::new(&known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn program_has_one_recording_and_the_tree_seven() {
        let built_in = load(None).await.unwrap();
        assert_eq!(built_in.len(), 1);
        assert_eq!((built_in[0].name.as_str(), built_in[0].language.as_str()), ("jfk_16k", "en"));
        assert_eq!(built_in[0].samples().await.unwrap().len(), 176_000);
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/speech");
        assert_eq!(load(Some(&tree)).await.unwrap().len(), 7);
    }

    #[tokio::test]
    async fn bad_manifest_is_described() {
        let error = load(Some(Path::new("/nowhere"))).await.err().unwrap();
        assert!(error.to_string().contains("/nowhere/manifest.json"), "{error}");
        for (text, problem) in
            [("[]", "no recordings"), ("{", "line 1"), (r#"[{"file": "a"}]"#, "transcript")]
        {
            let error = read_manifest(text, "manifest.json").err().unwrap().to_string();
            assert!(error.starts_with("manifest.json: ") && error.contains(problem), "{error}");
        }
    }
}
