//! The two files of a recording: its audio, and the JSON beside it.

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use tokio::task::spawn_blocking;

use crate::{
    cli::{
        commands::CommandError,
        error::{EXIT_INVALID_DATA, EXIT_NO_INPUT},
        output::print_message,
    },
    media::{
        MediaError,
        decode::{DecodeLimits, Decoder},
    },
    recording::document::RecordingDocument,
};

/// Longest recording: it is played from memory, and in real time.
const LONGEST: Duration = Duration::from_secs(6 * 3600);

/// A recording on the disk.
pub(super) struct SavedRecording {
    pub(super) document: RecordingDocument,
    pub(super) audio: PathBuf,
    bytes: Bytes,
}

impl SavedRecording {
    /// Reads a recording by the name of its audio or of its JSON.
    pub(super) fn read(file: &Path) -> Result<Self, CommandError> {
        let is_json = file.extension().is_some_and(|extension| extension == "json");
        let bytes = (!is_json).then(|| read_file(file)).transpose()?;
        let json = file.with_extension("json");
        let text = fs::read(&json).map_err(|error| {
            unreadable(&json, format!("{error}; a recording is an audio file and the JSON beside it"))
        })?;
        let document = RecordingDocument::parse(&text).map_err(|problem| invalid(&json, problem))?;
        let named = Path::new(&*document.audio.audio).file_name().unwrap_or_default();
        let audio = if is_json { file.with_file_name(named) } else { file.to_owned() };
        let bytes = bytes.map_or_else(|| read_file(&audio), Ok)?;
        if !document.end.complete {
            print_message(format_args!(
                "{}: the recording ends early, because its session was still open or its process was killed",
                audio.display()
            ));
        }
        Ok(Self { document, audio, bytes: bytes.into() })
    }

    /// Reads the recording of this session.
    pub(super) fn find(dir: &Path, session: &str) -> Result<Self, CommandError> {
        let is_meant = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(&format!("-{session}.json"))
        };
        let entries = fs::read_dir(dir).map_err(|error| unreadable(dir, error))?;
        match entries.flatten().map(|entry| entry.path()).find(is_meant) {
            Some(json) => Self::read(&json),
            None => Err(CommandError::failed(format!("{}: the session was not recorded", dir.display()))),
        }
    }

    /// The samples of a side, int16 mono at 16 kHz; `None` if it was not recorded. Damage is reported, and ends the audio.
    pub(super) async fn side(&self, side: &str) -> Result<Option<Vec<i16>>, CommandError> {
        let Some(channel) = self.document.channel_of(side) else { return Ok(None) };
        let (bytes, channels) = (self.bytes.clone(), self.document.audio.channels.len());
        let decoded = spawn_blocking(move || decode(bytes, channel, channels)).await;
        let (samples, damage) =
            decoded.map_err(CommandError::failed)?.map_err(|problem| invalid(&self.audio, problem))?;
        if let Some(damage) = damage {
            print_message(format_args!("{}: {damage}", self.audio.display()));
        }
        Ok(Some(samples))
    }

    /// Error for a recording of the model alone.
    pub(super) fn without_user(&self) -> CommandError {
        invalid(&self.audio, "it has only what was heard ([record] what = \"model\"), and not the user")
    }
}

/// The samples of one of so many channels, and what damage ends them.
fn decode(bytes: Bytes, channel: usize, channels: usize) -> Result<(Vec<i16>, Option<MediaError>), String> {
    let limits = DecodeLimits { decoded_max: LONGEST, ..DecodeLimits::default() };
    let decoder = Decoder::open(bytes, limits).map_err(|error| error.to_string())?;
    let found = decoder.info().channels;
    if found != channels {
        return Err(format!(
            "the audio has {found} channels, and its JSON names {channels}: is it another file?"
        ));
    }
    let mut decoder = decoder.only_channel(channel);
    let mut samples = Vec::new();
    while let Some(chunk) = decoder.next_chunk() {
        match chunk {
            Ok(chunk) => samples.extend(chunk),
            Err(damage) => return Ok((samples, Some(damage))),
        }
    }
    Ok((samples, None))
}

fn read_file(path: &Path) -> Result<Vec<u8>, CommandError> {
    fs::read(path).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, problem: impl Display) -> CommandError {
    CommandError::with_code(EXIT_NO_INPUT, format!("{}: {problem}", path.display()))
}

fn invalid(path: &Path, problem: impl Display) -> CommandError {
    CommandError::with_code(EXIT_INVALID_DATA, format!("{}: {problem}", path.display()))
}
