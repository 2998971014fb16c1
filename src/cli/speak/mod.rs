//! `voxbridge speak`: texts in, their speech out, as audio files.
//!
//! - [`live`]: over the WebSocket of a Macaw server or of voxbridge
//! - [`request`]: over the HTTP API of OpenAI, which voxbridge serves too
//! - [`rest_session`]: over a bridge in this process
//! - [`voice`]: checks the name of the voice
//! - [`kept_parts`]: keeps what was spoken until the file is complete
//!
//! Each gets the speech in pieces, as it is generated, and passes them on.

mod kept_parts;
pub(super) mod live;
mod request;
pub(super) mod rest_session;
mod voice;

use std::path::{Path, PathBuf};
use std::time::Duration;

use self::kept_parts::KeptParts;
use super::args::SpeakArgs;
use super::client::ClientTiming;
use super::ending::Ending;
use super::error::ClientError;
use super::files::{self, FileJob};
use super::inputs::{FolderFiles, Input};
use super::output_file::{Destination, is_special};
use super::read_input::{check_inputs, read_input};
use super::resume_file::path_beside;
use super::speech_audio::SpeechFile;
use super::target::Target;
use super::view::{FileView, Printed, Progress, Terminal};
use crate::audio::encode::AudioFormat;
use crate::media::book::{TextChapter, chapters_of};
use crate::media::id3::CHAPTERS_MAX;
use crate::session::tts::text_normalization::split_parts;

/// Maximum characters of a `tts.speak` (mappings/notes/macaw.md#commands) and of `POST /v1/audio/speech`.
pub(super) const CHUNK_MAX_CHARS: usize = 4096;

/// Upper bound of a text; days of speech.
const TEXT_MAX_BYTES: u64 = 16 << 20;

/// Endings of the names of texts, in folders.
const TEXT_ENDINGS: &[&str] = &["txt", "text", "md"];

/// Speech as it comes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Speech<'a> {
    /// The part of this number begins.
    Part(usize),
    /// Audio: int16 at 24 kHz, which may be split within samples.
    Audio(&'a [u8]),
}

/// Runs the command until its end or a signal.
///
/// # Errors
/// [`ClientError`], which knows its exit code.
pub async fn run(args: &SpeakArgs, ending: Ending) -> Result<(), ClientError> {
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
    Target::work(&args.target, ending, speak_all).await
}

/// The files with texts; a text of the command line counts as a file named `speech`.
fn inputs(args: &SpeakArgs) -> Result<Vec<Input>, ClientError> {
    match args.text.as_deref() {
        None => FolderFiles { endings: TEXT_ENDINGS, is_recursive: args.recursive }.expand(&args.file),
        // A user who names a folder means the texts in it.
        Some(folder) if args.recursive || Path::new(folder).is_dir() => {
            let reason =
                format!("{folder} would be spoken as a text; to speak the texts of a folder, use --file DIR");
            Err(ClientError::Usage(reason))
        }
        Some("-") => Ok(vec![Input::named(PathBuf::from("-"))]),
        Some(_) => Ok(vec![Input::named(PathBuf::from("speech"))]),
    }
}

/// True if speech that exists stays, and speech that was interrupted is continued: with --resume, and in folders.
fn resumes(args: &SpeakArgs, inputs: &[Input]) -> bool {
    let is_of_folder = !args.join && inputs.iter().all(|input| input.in_folder.is_some());
    args.resume || (is_of_folder && !args.overwrite)
}

fn is_done(args: &SpeakArgs, inputs: &[Input], destination: &Destination) -> bool {
    let exists =
        matches!(destination, Destination::File(path) if path.is_file() && !path_beside(path).exists());
    exists && resumes(args, inputs)
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

/// Boundary before a part of the speech.
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
        if is_done(self.args, &self.inputs, &self.destination) {
            let name = self.name();
            self.terminal.print_message(format_args!("{name}: another run has spoken it"));
            return Ok(String::new());
        }
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
        let view = self.terminal.file(&self.name(), None, Printed::Nothing, std::io::sink());
        let pauses = [self.args.chapter_pause, self.args.paragraph_pause];
        let mut spoken = SpokenText { file, view, before, pauses };
        let mut kept = self.open_kept_parts(&parts)?;
        let done = kept.as_ref().map_or(Ok(0), |kept| kept.replay(|speech| spoken.add(speech)))?;
        let on_speech = |speech: Speech<'_>| {
            let speech = match speech {
                Speech::Part(number) => Speech::Part(done + number),
                audio => audio,
            };
            kept.as_mut().map_or(Ok(()), |kept| kept.add(&speech))?;
            spoken.add(speech)
        };
        self.speak(&parts[done..], on_speech).await?;
        let length = spoken.file.duration().as_secs_f64();
        spoken.file.finish()?;
        kept.map_or(Ok(()), KeptParts::remove)?;
        self.terminal.print_message(format_args!("{length:.1} s of speech in {}", self.destination));
        Ok(String::new())
    }

    async fn speak(
        &self,
        parts: &[String],
        on_speech: impl FnMut(Speech<'_>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let voice = self.args.voice.as_deref();
        match self.target {
            Target::Live(target) => {
                live::speak(target, ClientTiming::default(), parts, voice, on_speech).await
            }
            Target::Http(target) => request::speak(target, parts, voice, on_speech).await,
            Target::Local(bridge) => rest_session::speak(bridge, parts, voice, on_speech).await,
        }
    }

    /// Keeps the parts of a text of several, if it goes to a file. Parts of an earlier run are opened even for one part, so that
    /// they are removed at the end.
    fn open_kept_parts(&self, parts: &[String]) -> Result<Option<KeptParts<'_>>, ClientError> {
        match &self.destination {
            Destination::File(path)
                if (parts.len() > 1 || path_beside(path).exists()) && !is_special(path) =>
            {
                let voice = self.args.voice.as_deref();
                KeptParts::open(path, parts, voice, !self.args.overwrite, self.terminal).map(Some)
            }
            _ => Ok(None),
        }
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

/// Speech on its way to a file, with the pauses and chapters between its parts.
struct SpokenText {
    file: SpeechFile,
    view: FileView<std::io::Sink>,
    before: Vec<Before>,
    /// Those before chapters and before paragraphs.
    pauses: [Duration; 2],
}

impl SpokenText {
    fn add(&mut self, speech: Speech<'_>) -> Result<(), ClientError> {
        match speech {
            Speech::Part(number) => {
                let what = self.before.get(number).copied().unwrap_or(Before::Nothing);
                if number > 0 {
                    self.file.push_silence(pause_before(what, self.pauses))?;
                }
                if what == Before::Chapter {
                    self.file.begin_chapter();
                }
                self.view.show(&Progress::Doing(&format!("{} of {} parts", number + 1, self.before.len())))
            }
            Speech::Audio(audio) => {
                self.file.push(audio)?;
                self.view.show(&Progress::At(self.file.duration()))
            }
        }
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
    #[tokio::test]
    async fn byte_order_mark_is_not_part_of_a_text() {
        let path = std::env::temp_dir().join(format!("voxbridge-mark-{}.md", std::process::id()));
        std::fs::write(&path, "\u{FEFF}# One").unwrap();
        assert_eq!(read_text(&path).await.unwrap(), "# One");
        std::fs::remove_file(path).unwrap();
    }
}
