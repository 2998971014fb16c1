//! Terminal output of `transcribe` and `speak`: results on standard output; progress bars and notes on standard error.
//!
//! Without a terminal there are no bars, only a line for each finished file.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::clock::clock;
use super::error::ClientError;
use super::output;
use super::output::printable;
use crate::media::transcript::{Gap, Segment};

/// Layout of a progress bar; indicatif truncates the message on a narrow terminal.
const BAR_TEMPLATE: &str = "{prefix}  {bar:24} {position}/{length}{speed}{left}  {wide_msg}";

/// Work before the time left is estimated.
const ESTIMATE_AFTER: Duration = Duration::from_secs(2);

/// Layout without a known length.
const SPINNER_TEMPLATE: &str = "{prefix}  {spinner} {position}{speed}  {wide_msg}";

/// Progress of one file.
#[derive(Debug)]
pub(super) enum Progress<'a> {
    /// The work has reached this point of the audio.
    At(Duration),
    /// Current activity, such as the words of the current utterance.
    Doing(&'a str),
    /// An utterance was transcribed. They come in the order of speech.
    Transcribed(&'a Segment),
    /// An utterance was not transcribed.
    Failed(&'a Gap),
    /// A message about what the user must wait for or know.
    Note(&'a str),
    /// A server event, as JSON.
    Event(&'a str),
}

/// Progress of a file that is printed on standard output as it occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Printed {
    /// Nothing.
    Nothing,
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
        let begin_ms = Arc::new(AtomicU64::new(0));
        let template = if length.is_some() { BAR_TEMPLATE } else { SPINNER_TEMPLATE };
        let bar = ProgressBar::hidden()
            .with_style(bar_style(template, begin_ms.clone()))
            .with_prefix(short_name(name));
        bar.set_length(length.map_or(0, millis));
        // Last, because each change of a visible bar draws it.
        let bar = if self.has_bars { self.bars.add(bar) } else { bar };
        bar.tick();
        FileView { terminal: self.clone(), bar, begin_ms, printed, out }
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
    /// Where the work began, ms.
    begin_ms: Arc<AtomicU64>,
    printed: Printed,
    out: W,
}

impl<W: Write> FileView<W> {
    /// The work begins at this point, and not at the start.
    pub(super) fn begin_at(&self, position: Duration) {
        self.begin_ms.store(millis(position), Relaxed);
        self.bar.set_position(millis(position));
        self.bar.reset_elapsed();
    }

    /// Shows progress.
    pub(super) fn show(&mut self, progress: &Progress<'_>) -> Result<(), ClientError> {
        match progress {
            Progress::At(position) => self.bar.set_position(millis(*position)),
            Progress::Doing(text) => self.bar.set_message(printable(text)),
            Progress::Transcribed(_) => self.bar.set_message(""),
            Progress::Note(note) if self.printed != Printed::Events => {
                self.terminal.print_message(format_args!("{}: {note}", self.bar.prefix()));
            }
            Progress::Event(event) if self.printed == Printed::Events => {
                // A server may send an event in several lines.
                return self.print_line(&event.replace(['\n', '\r'], " "));
            }
            Progress::Note(_) | Progress::Event(_) | Progress::Failed(_) => {}
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

/// Time until the end, if the rest of the work takes as long as the work until here; `None` until that can be estimated.
fn time_left(elapsed: Duration, done: u64, total: u64) -> Option<Duration> {
    let rest = total.checked_sub(done).filter(|_| done > 0 && elapsed >= ESTIMATE_AFTER)?;
    Some(elapsed.mul_f64(rest as f64 / done as f64))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Audio per time, such as `12x`; `None` until that can be measured.
pub(super) fn speed(elapsed: Duration, done: Duration) -> Option<String> {
    let times = done.as_secs_f64() / Some(elapsed.as_secs_f64()).filter(|seconds| *seconds > 0.0)?;
    (times > 0.0).then(|| if times < 10.0 { format!("{times:.1}x") } else { format!("{times:.0}x") })
}

fn bar_style(template: &str, begin_ms: Arc<AtomicU64>) -> ProgressStyle {
    let also_begin_ms = begin_ms.clone();
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
        .with_key("speed", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let done = Duration::from_millis(state.pos().saturating_sub(also_begin_ms.load(Relaxed)));
            let measured = Some(state.elapsed()).filter(|elapsed| *elapsed >= ESTIMATE_AFTER);
            if let Some(speed) = measured.and_then(|elapsed| speed(elapsed, done)) {
                let _ = write!(out, ", {speed}");
            }
        })
        .with_key("left", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let begin_ms = begin_ms.load(Relaxed);
            let (done, total) = (state.pos(), state.len().unwrap_or(0));
            if let Some(left) =
                time_left(state.elapsed(), done.saturating_sub(begin_ms), total.saturating_sub(begin_ms))
            {
                let _ = write!(out, ", {} left", clock(left));
            }
        })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps the lines that were drawn.
    #[derive(Debug, Clone, Default)]
    struct DrawnLines(Arc<Mutex<Vec<String>>>);

    impl TermLike for DrawnLines {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().extend((!text.trim().is_empty()).then(|| text.trim().to_owned()));
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_frame_of_the_bar_has_name_and_length() {
        let drawn = DrawnLines::default();
        let target = ProgressDrawTarget::term_like(Box::new(drawn.clone()));
        let terminal = Terminal { bars: MultiProgress::with_draw_target(target), has_bars: true };
        let mut view =
            terminal.file("a/talk.wav", Some(Duration::from_secs(61)), Printed::Nothing, io::sink());
        view.show(&Progress::At(Duration::from_secs(30))).unwrap();
        drop(view);
        let lines = drawn.0.lock().unwrap().clone();
        assert!(lines.first().is_some_and(|line| line.contains("0:00/1:01")), "{lines:#?}");
        assert!(lines.iter().all(|line| line.starts_with("talk.wav  ")), "{lines:#?}");
    }

    #[test]
    fn speed_is_audio_per_time() {
        let s = Duration::from_secs;
        assert_eq!(speed(s(10), s(45)).as_deref(), Some("4.5x"));
        assert_eq!(speed(s(10), s(300)).as_deref(), Some("30x"));
        assert_eq!((speed(s(0), s(3)), speed(s(3), s(0))), (None, None));
    }

    #[test]
    fn time_left_follows_from_the_pace_so_far() {
        let s = Duration::from_secs;
        assert_eq!(time_left(s(10), 20_000, 60_000), Some(s(20)));
        assert_eq!(time_left(s(10), 60_000, 60_000), Some(s(0)));
        for (elapsed, done, total) in [(s(1), 20_000, 60_000), (s(10), 0, 60_000), (s(10), 61_000, 60_000)] {
            assert_eq!(time_left(elapsed, done, total), None, "{elapsed:?} {done} {total}");
        }
    }
}
