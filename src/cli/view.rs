//! Terminal output of `voxbridge transcribe`: transcripts or JSON lines on stdout, progress and notes on stderr.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::audio::SPEECH_RATE_HZ;

use super::client::ReceivedEvent;
use super::output;
use super::output::printable;
use super::server_events::MacawEvent;
use super::stream_recording::StreamProgress;

/// Layout of the progress bar; indicatif truncates the message on a narrow terminal.
const BAR_TEMPLATE: &str = "{bar:24} {pos_s}/{len_s}  {wide_msg}";

/// Output of one transcription.
pub(super) struct TranscriptView<W> {
    out: W,
    json: bool,
    bar: ProgressBar,
    /// Width of stdout if partial transcripts appear there because there is no progress bar.
    live_columns: Option<usize>,
    /// True while a partial transcript stands on the current line.
    has_partial_line: bool,
}

impl TranscriptView<io::Stdout> {
    /// Output on this terminal, or without one.
    pub(super) fn for_terminal(json: bool, samples: usize) -> Self {
        let has_progress_bar = io::stderr().is_terminal();
        let target =
            if has_progress_bar { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(samples as u64), target).with_style(progress_style());
        let live_columns = (!has_progress_bar && !json && io::stdout().is_terminal())
            .then(|| Term::stdout().size_checked().map_or(80, |(_, columns)| usize::from(columns)));
        Self { out: io::stdout(), json, bar, live_columns, has_partial_line: false }
    }
}

impl<W: Write> TranscriptView<W> {
    /// Output for tests, without a terminal.
    #[cfg(test)]
    pub(super) fn without_terminal(out: W, json: bool) -> Self {
        Self { out, json, bar: ProgressBar::hidden(), live_columns: None, has_partial_line: false }
    }

    /// Shows progress.
    pub(super) fn show(&mut self, progress: StreamProgress<'_>) -> io::Result<()> {
        match progress {
            StreamProgress::Sent(samples) => {
                self.bar.set_position(samples as u64);
                Ok(())
            }
            StreamProgress::Event(event) if self.json => {
                let line = join_lines(&event.text);
                self.write_line(&line)
            }
            StreamProgress::Event(event) => self.show_event(event),
        }
    }

    /// Prints a note on stderr, above the progress bar.
    pub(super) fn print_note(&self, note: &str) {
        self.bar.suspend(|| output::print_message(note));
    }

    /// Removes the progress bar and the partial transcript.
    pub(super) fn finish(&mut self) {
        self.bar.finish_and_clear();
        self.clear_partial();
    }

    fn show_event(&mut self, event: &ReceivedEvent) -> io::Result<()> {
        match &event.event {
            MacawEvent::Partial { text } => self.show_partial(text),
            MacawEvent::Final { text, .. } if !text.trim().is_empty() => {
                self.bar.set_message("");
                self.clear_partial();
                self.write_line(&printable(text.trim()))
            }
            event => {
                event.notice().iter().for_each(|notice| self.print_note(notice));
                Ok(())
            }
        }
    }

    fn show_partial(&mut self, text: &str) -> io::Result<()> {
        let text = printable(text);
        if let Some(columns) = self.live_columns {
            let shown = console::truncate_str(&text, columns.saturating_sub(1), "…");
            write!(self.out, "\r{shown}\x1b[K")?;
            self.out.flush()?;
            self.has_partial_line = true;
        }
        self.bar.set_message(text);
        Ok(())
    }

    fn write_line(&mut self, text: &str) -> io::Result<()> {
        let out = &mut self.out;
        self.bar.suspend(|| writeln!(out, "{text}").and_then(|()| out.flush()))
    }

    fn clear_partial(&mut self) {
        if std::mem::take(&mut self.has_partial_line) {
            // The next line reports a closed terminal.
            let _ = write!(self.out, "\r\x1b[K");
        }
    }
}

fn progress_style() -> ProgressStyle {
    let seconds = |samples: u64| Duration::from_secs(samples / u64::from(SPEECH_RATE_HZ));
    let clock = |at: Duration| format!("{}:{:02}", at.as_secs() / 60, at.as_secs() % 60);
    ProgressStyle::with_template(BAR_TEMPLATE)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("pos_s", move |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = out.write_str(&clock(seconds(state.pos())));
        })
        .with_key("len_s", move |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = out.write_str(&clock(seconds(state.len().unwrap_or(0))));
        })
}

/// Joins JSON to one line; a server may send it in several.
fn join_lines(text: &str) -> String {
    if text.contains('\n') { text.replace(['\n', '\r'], " ") } else { text.to_owned() }
}
