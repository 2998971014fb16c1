//! `voxbridge speak`: texts in, their speech out, as audio files.
//!
//! - [`live`]: over the WebSocket of a Macaw server or of voxbridge
//! - [`request`]: over the HTTP API of OpenAI, which voxbridge serves too
//! - [`rest_session`]: over a bridge in this process
//! - [`voice`]: checks the name of the voice
//!
//! Each gets the speech in pieces, as it is generated, and passes them on.

pub(super) mod live;
mod request;
pub(super) mod rest_session;
mod voice;

use std::path::{Path, PathBuf};

use super::args::SpeakArgs;
use super::client::ClientTiming;
use super::error::ClientError;
use super::files::{self, FileJob};
use super::output_file::Destination;
use super::read_input::{check_inputs, read_input};
use super::speech_audio::SpeechFile;
use super::target::Target;
use super::view::{Printed, Progress, Terminal};
use crate::media::encode::AudioFormat;
use crate::session::tts::text_normalization::split_parts;

/// Maximum characters of a `tts.speak` (Macaw field notes §1.4) and of `POST /v1/audio/speech`.
pub(super) const CHUNK_MAX_CHARS: usize = 4096;

/// Upper bound of a text; days of speech.
const TEXT_MAX_BYTES: u64 = 16 << 20;

/// Runs the command until `stop` completes with the number of a signal.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &SpeakArgs, stop: impl Future<Output = u8>) -> Result<(), ClientError> {
    let format = audio_format(args)?;
    let inputs = inputs(args);
    let destinations = Destination::for_inputs(&inputs, Some(&args.output), format.name())?;
    check_inputs(&args.file)?;
    let speak_all = async |target: &Target| {
        if let Some(voice) = &args.voice {
            voice::check_voice(voice, target).await?;
        }
        let terminal = Terminal::stderr();
        let jobs = inputs.iter().zip(destinations).map(|(file, destination)| {
            let job = SpeakJob { args, target, file, destination, format, terminal: &terminal };
            FileJob { name: job.name(), work: job.run() }
        });
        let parallel = args.jobs.map_or(target.parallel_files(), usize::from);
        files::run_all(jobs.collect(), parallel, &terminal, "spoke").await
    };
    Target::open(&args.target).await?.work(stop, speak_all).await
}

/// The files with texts; a text of the command line counts as a file named `speech`.
fn inputs(args: &SpeakArgs) -> Vec<PathBuf> {
    match args.text.as_deref() {
        None => args.file.clone(),
        Some("-") => vec![PathBuf::from("-")],
        Some(_) => vec![PathBuf::from("speech")],
    }
}

/// The format asked for, or that of the output's name.
fn audio_format(args: &SpeakArgs) -> Result<AudioFormat, ClientError> {
    let ending = args.output.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match (args.format, ending.as_deref()) {
        (Some(format), _) => Ok(format),
        (None, None) => Ok(AudioFormat::Wav),
        (None, Some(ending)) => {
            let name = if ending == "ogg" { "opus" } else { ending };
            AudioFormat::from_name(name).ok_or_else(|| {
                let names = AudioFormat::ALL.map(AudioFormat::name).join(", ");
                ClientError::Usage(format!(
                    "no audio format is named {ending:?}; use one of {names}, or --format"
                ))
            })
        }
    }
}

/// The speech of one text.
struct SpeakJob<'c> {
    args: &'c SpeakArgs,
    target: &'c Target,
    file: &'c Path,
    destination: Destination,
    format: AudioFormat,
    terminal: &'c Terminal,
}

impl SpeakJob<'_> {
    fn name(&self) -> String {
        if self.args.text.is_some() { self.destination.to_string() } else { files::input_name(self.file) }
    }

    /// Speaks the text to its file. Prints nothing on standard output but audio.
    async fn run(self) -> Result<String, ClientError> {
        let text = match self.args.text.as_deref() {
            Some(text) if text != "-" => text.to_owned(),
            _ => read_text(self.file).await?,
        };
        let parts = split_parts(&text, CHUNK_MAX_CHARS);
        if parts.is_empty() {
            return Err(ClientError::InvalidText("there is no text to speak".to_owned()));
        }
        let mut file = SpeechFile::create(&self.destination, self.format)?;
        let mut view = self.terminal.file(&self.name(), None, Printed::Nothing, std::io::sink());
        let on_audio = |audio: &[u8]| {
            file.push(audio)?;
            view.show(Progress::At(file.duration()))
        };
        let voice = self.args.voice.as_deref();
        match self.target {
            Target::Live(target) => {
                live::speak(target, ClientTiming::default(), &parts, voice, on_audio).await?;
            }
            Target::Http(target) => request::speak(target, &parts, voice, on_audio).await?,
            Target::Local(bridge) => rest_session::speak(bridge, &parts, voice, on_audio).await?,
        }
        let length = file.duration().as_secs_f64();
        file.finish()?;
        self.terminal.print_message(format_args!("{length:.1} s of speech in {}", self.destination));
        Ok(String::new())
    }
}

async fn read_text(file: &Path) -> Result<String, ClientError> {
    let bytes = read_input(file, TEXT_MAX_BYTES).await?;
    String::from_utf8(bytes).map_err(|_| ClientError::InvalidText("the text is not UTF-8".to_owned()))
}
