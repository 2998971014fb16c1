//! How `voxbridge transcribe` shows what happens: transcripts or JSON lines on stdout, progress and notes on stderr.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::audio::SPEECH_RATE_HZ;

use super::client::{Event, printable};
use super::server_events::ClientSeen;
use super::stream_recording::Step;

/// What fits beside the bar and the times on a narrow terminal; indicatif cuts what does not.
const BAR: &str = "{bar:24} {pos_s}/{len_s}  {wide_msg}";

/// Shows one transcription.
pub(super) struct View<W> {
    out: W,
    json: bool,
    bar: ProgressBar,
    /// Width of stdout, where the unfinished words are shown on it because there is no bar.
    live: Option<usize>,
    /// Unfinished words stand on the current line.
    dirty: bool,
}

impl View<io::Stdout> {
    /// For this terminal, or none.
    pub(super) fn detect(json: bool, samples: usize) -> Self {
        let draws = io::stderr().is_terminal();
        let target = if draws { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(samples as u64), target).with_style(style());
        let live = (!draws && !json && io::stdout().is_terminal())
            .then(|| Term::stdout().size_checked().map_or(80, |(_, columns)| usize::from(columns)));
        Self { out: io::stdout(), json, bar, live, dirty: false }
    }
}

impl<W: Write> View<W> {
    /// For tests: no terminal anywhere.
    #[cfg(test)]
    pub(super) fn plain(out: W, json: bool) -> Self {
        Self { out, json, bar: ProgressBar::hidden(), live: None, dirty: false }
    }

    /// Shows a step.
    pub(super) fn show(&mut self, step: Step<'_>) -> io::Result<()> {
        match step {
            Step::Sent(samples) => {
                self.bar.set_position(samples as u64);
                Ok(())
            }
            Step::Event(event) if self.json => {
                let line = one_line(&event.text);
                self.line(&line)
            }
            Step::Event(event) => self.words(event),
        }
    }

    /// A note beside the transcript.
    pub(super) fn note(&self, words: &str) {
        self.bar.suspend(|| eprintln!("voxbridge: {words}"));
    }

    /// Removes what was only there while it lasted.
    pub(super) fn finish(&mut self) {
        self.bar.finish_and_clear();
        self.clear();
    }

    fn words(&mut self, event: &Event) -> io::Result<()> {
        match &event.seen {
            ClientSeen::Partial { text } => self.unfinished(text),
            ClientSeen::Final { text, .. } if !text.trim().is_empty() => {
                self.bar.set_message("");
                self.clear();
                self.line(&printable(text.trim()))
            }
            ClientSeen::Error { code, message, recoverable: true } => {
                self.note(&printable(&format!("the server reports {code}: {message}")));
                Ok(())
            }
            ClientSeen::FramesDropped { dropped_ms } => {
                self.note(&format!("the server dropped {dropped_ms} ms of audio"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn unfinished(&mut self, text: &str) -> io::Result<()> {
        let text = printable(text);
        if let Some(columns) = self.live {
            let shown = console::truncate_str(&text, columns.saturating_sub(1), "…");
            write!(self.out, "\r{shown}\x1b[K")?;
            self.out.flush()?;
            self.dirty = true;
        }
        self.bar.set_message(text);
        Ok(())
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        let out = &mut self.out;
        self.bar.suspend(|| writeln!(out, "{text}").and_then(|()| out.flush()))
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.dirty) {
            // A terminal that is gone is noticed by the next line.
            let _ = write!(self.out, "\r\x1b[K");
        }
    }
}

fn style() -> ProgressStyle {
    let seconds = |samples: u64| Duration::from_secs(samples / u64::from(SPEECH_RATE_HZ));
    let clock = |at: Duration| format!("{}:{:02}", at.as_secs() / 60, at.as_secs() % 60);
    ProgressStyle::with_template(BAR)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("pos_s", move |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = out.write_str(&clock(seconds(state.pos())));
        })
        .with_key("len_s", move |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = out.write_str(&clock(seconds(state.len().unwrap_or(0))));
        })
}

/// JSON as one line; a server may send it spread over several.
fn one_line(text: &str) -> String {
    if text.contains('\n') { text.replace(['\n', '\r'], " ") } else { text.to_owned() }
}
