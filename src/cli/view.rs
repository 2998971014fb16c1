//! Terminal output of `transcribe` and `speak`: results on standard output; progress bars and notes on standard error.
//!
//! Without a terminal there are no bars, only a line for each finished file.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::clock::clock;
use super::error::ClientError;
use super::output;
use super::output::printable;

/// Layout of a progress bar; indicatif truncates the message on a narrow terminal.
const BAR_TEMPLATE: &str = "{prefix}  {bar:24} {position}/{length}  {wide_msg}";

/// Layout without a known length.
const SPINNER_TEMPLATE: &str = "{prefix}  {spinner} {position}  {wide_msg}";

/// Progress of one file.
#[derive(Debug)]
pub(super) enum Progress<'a> {
    /// The work has reached this point of the audio.
    At(Duration),
    /// What is happening now, such as the words of the current utterance.
    Doing(&'a str),
    /// The words of an utterance.
    Words(&'a str),
    /// A message about what the user must wait for or know.
    Note(&'a str),
    /// A server event, as JSON.
    Event(&'a str),
}

/// What of a file's progress is printed on standard output as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Printed {
    /// Nothing: the result is written when it is complete.
    Nothing,
    /// The words, an utterance each line.
    Words,
    /// The server's events, one each line.
    Events,
}

/// The terminal of a command that works on several files.
#[derive(Debug, Clone)]
pub(super) struct Terminal {
    bars: MultiProgress,
    has_bars: bool,
}

impl Terminal {
    /// Bars on standard error, if that is a terminal.
    pub(super) fn stderr() -> Self {
        let has_bars = io::stderr().is_terminal();
        let target = if has_bars { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self { bars: MultiProgress::with_draw_target(target), has_bars }
    }

    /// True if progress is shown.
    pub(super) const fn has_bars(&self) -> bool {
        self.has_bars
    }

    /// Without bars, for tests.
    #[cfg(test)]
    pub(super) fn hidden() -> Self {
        Self { bars: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()), has_bars: false }
    }

    /// The view of one file.
    pub(super) fn file<W: Write>(
        &self,
        name: &str,
        length: Option<Duration>,
        printed: Printed,
        out: W,
    ) -> FileView<W> {
        let bar = ProgressBar::hidden();
        let bar = if self.has_bars { self.bars.add(bar) } else { bar };
        bar.set_length(length.map_or(0, millis));
        bar.set_style(bar_style(if length.is_some() { BAR_TEMPLATE } else { SPINNER_TEMPLATE }));
        bar.set_prefix(short_name(name));
        FileView { terminal: self.clone(), bar, printed, out }
    }

    /// Prints a message on standard error, above the bars.
    pub(super) fn print_message(&self, message: impl Display) {
        self.bars.suspend(|| output::print_message(message));
    }

    /// Prints a result on standard output.
    pub(super) fn print(&self, text: impl Display) -> Result<(), ClientError> {
        self.bars.suspend(|| output::print(text))
    }
}

/// View of one file. Dropping it removes its bar.
pub(super) struct FileView<W> {
    terminal: Terminal,
    bar: ProgressBar,
    printed: Printed,
    out: W,
}

impl<W: Write> FileView<W> {
    /// Shows progress.
    pub(super) fn show(&mut self, progress: Progress<'_>) -> Result<(), ClientError> {
        match progress {
            Progress::At(position) => self.bar.set_position(millis(position)),
            Progress::Doing(text) => self.bar.set_message(printable(text)),
            Progress::Words(text) => {
                self.bar.set_message("");
                if self.printed == Printed::Words {
                    return self.print_line(&printable(text));
                }
            }
            Progress::Note(note) if self.printed != Printed::Events => {
                self.terminal.print_message(format_args!("{}: {note}", self.bar.prefix()));
            }
            Progress::Event(event) if self.printed == Printed::Events => {
                // A server may send an event in several lines.
                return self.print_line(&event.replace(['\n', '\r'], " "));
            }
            Progress::Note(_) | Progress::Event(_) => {}
        }
        Ok(())
    }

    fn print_line(&mut self, text: &str) -> Result<(), ClientError> {
        let out = &mut self.out;
        let printed = self.terminal.bars.suspend(|| writeln!(out, "{text}").and_then(|()| out.flush()));
        printed.map_err(ClientError::unwritable_stdout)
    }
}

impl<W> Drop for FileView<W> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The last part of a path.
fn short_name(name: &str) -> String {
    printable(name.rsplit('/').next().unwrap_or(name))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn bar_style(template: &str) -> ProgressStyle {
    let write_clock = |ms: u64, out: &mut dyn std::fmt::Write| {
        let _ = out.write_str(&clock(Duration::from_millis(ms)));
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("position", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            write_clock(state.pos(), out);
        })
        .with_key("length", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            write_clock(state.len().unwrap_or(0), out);
        })
}
