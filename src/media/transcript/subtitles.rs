//! The file formats of subtitles: SubRip and WebVTT.

use std::fmt::Write as _;

use super::cues::Cue;

/// Format of subtitles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubtitleFormat {
    /// SubRip.
    Srt,
    /// WebVTT.
    Vtt,
}

/// Writes subtitles, a cue at a time. The file is valid at any time.
#[derive(Debug)]
pub struct SubtitleWriter {
    format: SubtitleFormat,
    cues: usize,
}

impl SubtitleWriter {
    /// A writer of a file in this format.
    pub const fn new(format: SubtitleFormat) -> Self {
        Self { format, cues: 0 }
    }

    /// The head of a file, before its first cue.
    pub const fn header(&self) -> &'static str {
        match self.format {
            SubtitleFormat::Srt => "",
            SubtitleFormat::Vtt => "WEBVTT\n\n",
        }
    }

    /// The text that adds these cues to the file.
    pub fn add(&mut self, cues: &[Cue]) -> String {
        let mut text = String::new();
        for cue in cues {
            if self.cues > 0 {
                text.push('\n');
            }
            self.cues += 1;
            // Writing to a string cannot fail.
            let _ = match self.format {
                SubtitleFormat::Srt => writeln!(text, "{}\n{}", self.cues, block(cue, ',', str::to_owned)),
                SubtitleFormat::Vtt => writeln!(text, "{}", block(cue, '.', escaped)),
            };
        }
        text
    }
}

/// Times and lines of a cue. `point` separates the milliseconds.
fn block(cue: &Cue, point: char, line: impl Fn(&str) -> String) -> String {
    let lines: Vec<String> = cue.lines.iter().map(|text| line(text)).collect();
    format!("{} --> {}\n{}", clock(cue.start_ms, point), clock(cue.end_ms, point), lines.join("\n"))
}

/// A text in WebVTT, which has tags and entities.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn clock(ms: u64, point: char) -> String {
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}{point}{:03}", ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cues_are_numbered_or_escaped_as_the_format_has_it() {
        let cue = Cue { start_ms: 3_600_500, end_ms: 3_601_001, lines: vec!["a < b".into(), "& c".into()] };
        let mut srt = SubtitleWriter::new(SubtitleFormat::Srt);
        assert_eq!(srt.add(std::slice::from_ref(&cue)), "1\n01:00:00,500 --> 01:00:01,001\na < b\n& c\n");
        assert!(srt.add(std::slice::from_ref(&cue)).starts_with("\n2\n01:00:00,500"));
        let mut vtt = SubtitleWriter::new(SubtitleFormat::Vtt);
        assert_eq!(vtt.add(&[cue]), "01:00:00.500 --> 01:00:01.001\na &lt; b\n&amp; c\n");
        assert_eq!(vtt.header(), "WEBVTT\n\n");
    }
}
