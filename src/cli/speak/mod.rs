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
use std::time::Duration;

use super::args::SpeakArgs;
use super::client::ClientTiming;
use super::error::ClientError;
use super::files::{self, FileJob};
use super::inputs::{FolderFiles, Input};
use super::output_file::Destination;
use super::read_input::{check_inputs, read_input};
use super::speech_audio::SpeechFile;
use super::target::Target;
use super::view::{Printed, Progress, Terminal};
use crate::media::book::{TextChapter, chapters_of};
use crate::media::encode::AudioFormat;
use crate::media::encode::id3::CHAPTERS_MAX;
use crate::session::tts::text_normalization::split_parts;

/// Maximum characters of a `tts.speak` (Macaw field notes §1.4) and of `POST /v1/audio/speech`.
pub(super) const CHUNK_MAX_CHARS: usize = 4096;

/// Upper bound of a text; days of speech.
const TEXT_MAX_BYTES: u64 = 16 << 20;

/// Endings of the names of texts, in folders.
const TEXT_ENDINGS: &[&str] = &["txt", "text", "md"];

/// Speech as it comes.
#[derive(Debug)]
pub(super) enum Speech<'a> {
    /// The part of this number begins.
    Part(usize),
    /// Audio: int16 at 24 kHz, which may be split within samples.
    Audio(&'a [u8]),
}

/// Runs the command until `stop` completes with the number of a signal.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &SpeakArgs, stop: impl Future<Output = u8>) -> Result<(), ClientError> {
    let format = audio_format(args)?;
    check_inputs(&args.file)?;
    let inputs = inputs(args)?;
    let work: Vec<(Vec<Input>, Destination)> = match args.join {
        true => {
            let destination = Destination::of(&args.output);
            destination.check()?;
            vec![(inputs, destination)]
        }
        false => {
            let destinations = Destination::for_inputs(&inputs, Some(&args.output), format.name())?;
            inputs.into_iter().map(|input| vec![input]).zip(destinations).collect()
        }
    };
    let is_done = |(inputs, destination): &(Vec<Input>, Destination)| is_done(args, inputs, destination);
    let (done, work): (Vec<_>, Vec<_>) = work.into_iter().partition(is_done);
    let done: Vec<String> = done.iter().map(|(_, destination)| destination.to_string()).collect();
    files::report_done(&done, work.len(), "texts are spoken", "--overwrite speaks them anew");
    if work.is_empty() {
        return Ok(());
    }
    let speak_all = async |target: &Target| {
        if let Some(voice) = &args.voice {
            voice::check_voice(voice, target).await?;
        }
        let terminal = Terminal::stderr();
        let jobs = work.into_iter().map(|(inputs, destination)| {
            let job = SpeakJob { args, target, inputs, destination, format, terminal: &terminal };
            FileJob { name: job.name(), work: job.run() }
        });
        let parallel = args.jobs.map_or(target.parallel_files(), usize::from);
        files::run_all(jobs.collect(), parallel, &terminal, "spoke").await
    };
    Target::open(&args.target).await?.work(stop, speak_all).await
}

/// The files with texts; a text of the command line counts as a file named `speech`.
fn inputs(args: &SpeakArgs) -> Result<Vec<Input>, ClientError> {
    match args.text.as_deref() {
        None => FolderFiles { endings: TEXT_ENDINGS, is_recursive: args.recursive }.expand(&args.file),
        Some("-") => Ok(vec![Input::named(PathBuf::from("-"))]),
        Some(_) => Ok(vec![Input::named(PathBuf::from("speech"))]),
    }
}

/// True if the speech of a folder's text exists, or of any text with --resume.
fn is_done(args: &SpeakArgs, inputs: &[Input], destination: &Destination) -> bool {
    let is_of_folder = !args.join && inputs.iter().all(|input| input.in_folder.is_some());
    let exists = matches!(destination, Destination::File(path) if path.is_file());
    exists && (args.resume || (is_of_folder && !args.overwrite))
}

/// The format asked for, or that of the output's name.
fn audio_format(args: &SpeakArgs) -> Result<AudioFormat, ClientError> {
    let is_directory = args.output.is_dir() || args.output.as_os_str().as_encoded_bytes().ends_with(b"/");
    let ending = args.output.extension().filter(|_| !is_directory);
    let ending = ending.map(|ending| ending.to_string_lossy().to_ascii_lowercase());
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

/// The speech of one text, or of several that become one file.
struct SpeakJob<'c> {
    args: &'c SpeakArgs,
    target: &'c Target,
    inputs: Vec<Input>,
    destination: Destination,
    format: AudioFormat,
    terminal: &'c Terminal,
}

/// What comes before a part of the speech.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Chapter,
    Paragraph,
    Nothing,
}

impl SpeakJob<'_> {
    fn name(&self) -> String {
        match self.inputs.as_slice() {
            [input] if self.args.text.is_none() => files::input_name(&input.path),
            _ => self.destination.to_string(),
        }
    }

    /// Speaks the text to its file. Prints nothing on standard output but audio.
    async fn run(self) -> Result<String, ClientError> {
        let chapters = self.chapters().await?;
        let (parts, before) = parts_of(&chapters);
        if parts.is_empty() {
            return Err(ClientError::InvalidText("there is no text to speak".to_owned()));
        }
        let mut file = SpeechFile::create(&self.destination, self.format)?;
        let title = self.destination.title();
        if self.format == AudioFormat::Mp3 && chapters.len() > CHAPTERS_MAX {
            let (name, count) = (self.name(), chapters.len());
            self.terminal.print_message(format_args!(
                "{name}: an mp3 file lists at most {CHAPTERS_MAX} chapters; those after it, of {count}, are spoken but not listed"
            ));
        }
        file.announce(&title, chapters.into_iter().map(|chapter| chapter.title).collect())?;
        let mut view = self.terminal.file(&self.name(), None, Printed::Nothing, std::io::sink());
        let pauses = [self.args.chapter_pause, self.args.paragraph_pause];
        let on_speech = |speech: Speech<'_>| match speech {
            Speech::Part(number) => {
                let what = before.get(number).copied().unwrap_or(Before::Nothing);
                if number > 0 {
                    file.push_silence(pause_before(what, pauses))?;
                }
                if what == Before::Chapter {
                    file.begin_chapter();
                }
                view.show(&Progress::Doing(&format!("{} of {} parts", number + 1, before.len())))
            }
            Speech::Audio(audio) => {
                file.push(audio)?;
                view.show(&Progress::At(file.duration()))
            }
        };
        let voice = self.args.voice.as_deref();
        match self.target {
            Target::Live(target) => {
                live::speak(target, ClientTiming::default(), &parts, voice, on_speech).await?;
            }
            Target::Http(target) => request::speak(target, &parts, voice, on_speech).await?,
            Target::Local(bridge) => rest_session::speak(bridge, &parts, voice, on_speech).await?,
        }
        let length = file.duration().as_secs_f64();
        file.finish()?;
        self.terminal.print_message(format_args!("{length:.1} s of speech in {}", self.destination));
        Ok(String::new())
    }

    /// The chapters of all texts.
    async fn chapters(&self) -> Result<Vec<TextChapter>, ClientError> {
        let mut chapters = Vec::new();
        for input in &self.inputs {
            let text = match self.args.text.as_deref() {
                Some(text) if text != "-" => text.to_owned(),
                _ => read_text(&input.path).await?,
            };
            let name = input.path.file_stem().unwrap_or_default().to_string_lossy();
            chapters.extend(chapters_of(&text, &name));
        }
        Ok(chapters)
    }
}

const fn pause_before(what: Before, [chapter, paragraph]: [Duration; 2]) -> Duration {
    match what {
        Before::Chapter => chapter,
        Before::Paragraph => paragraph,
        Before::Nothing => Duration::ZERO,
    }
}

/// The parts to speak, one request each, and what comes before each of them.
fn parts_of(chapters: &[TextChapter]) -> (Vec<String>, Vec<Before>) {
    let (mut parts, mut before) = (Vec::new(), Vec::new());
    for chapter in chapters {
        let mut next = Before::Chapter;
        for paragraph in &chapter.paragraphs {
            for part in split_parts(paragraph, CHUNK_MAX_CHARS) {
                parts.push(part);
                before.push(next);
                next = Before::Nothing;
            }
            // A chapter begins even if its heading cannot be spoken.
            if next == Before::Nothing {
                next = Before::Paragraph;
            }
        }
    }
    (parts, before)
}

async fn read_text(file: &Path) -> Result<String, ClientError> {
    let bytes = read_input(file, TEXT_MAX_BYTES).await?;
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| ClientError::InvalidText("the text is not UTF-8".to_owned()))?;
    // Some editors put a byte order mark first, which would hide a heading.
    Ok(text.strip_prefix('\u{FEFF}').map_or_else(|| text.clone(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_chapters_and_paragraphs() {
        let text = format!("Intro.\n\n# One\n\nFirst.\n\n{}", "Long sentence. ".repeat(400));
        let (parts, before) = parts_of(&chapters_of(&text, "book"));
        assert_eq!(parts[..3], ["Intro.", "One", "First."]);
        use Before::{Chapter, Nothing, Paragraph};
        assert_eq!(before, [Chapter, Chapter, Paragraph, Paragraph, Nothing]);
    }
}
