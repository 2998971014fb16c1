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

/// Writes subtitles, a cue at a time. The file is valid at any time. The last cue is held back until its end is known: a cue
/// does not reach into the next, nor past the end of the recording.
#[derive(Debug)]
pub struct SubtitleWriter {
    format: SubtitleFormat,
    /// Number of cues that were written.
    written: usize,
    held: Option<Cue>,
}

impl SubtitleWriter {
    /// A writer of a file in this format.
    pub const fn new(format: SubtitleFormat) -> Self {
        Self { format, written: 0, held: None }
    }

    /// The head of a file, before its first cue.
    pub const fn header(&self) -> &'static str {
        match self.format {
            SubtitleFormat::Srt => "",
            SubtitleFormat::Vtt => "WEBVTT\n\n",
        }
    }

    /// The text that adds these cues to the file, but for the last one.
    pub fn add(&mut self, cues: &[Cue]) -> String {
        let mut text = String::new();
        for cue in cues {
            if let Some(mut before) = self.held.replace(cue.clone()) {
                before.end_before(cue.start_ms);
                self.write(&before, &mut text);
            }
        }
        text
    }

    /// The text of the last cue, in a recording that ends here.
    pub fn finish(&mut self, end_ms: u64) -> String {
        let mut text = String::new();
        if let Some(mut last) = self.held.take() {
            last.end_within(end_ms);
            self.write(&last, &mut text);
        }
        text
    }

    fn write(&mut self, cue: &Cue, text: &mut String) {
        if self.written > 0 {
            text.push('\n');
        }
        self.written += 1;
        // Writing to a string cannot fail.
        let _ = match self.format {
            SubtitleFormat::Srt => writeln!(text, "{}\n{}", self.written, block(cue, ',', without_arrows)),
            SubtitleFormat::Vtt => writeln!(text, "{}", block(cue, '.', escaped)),
        };
    }
}

/// Times and lines of a cue. `point` separates the milliseconds.
fn block(cue: &Cue, point: char, line: impl Fn(&str) -> String) -> String {
    let lines: Vec<String> = cue.lines.iter().map(|text| line(text)).collect();
    format!("{} --> {}\n{}", clock(cue.start_ms, point), clock(cue.end_ms, point), lines.join("\n"))
}

/// A text in SubRip, which has no escapes: readers take a line with this arrow for the times of a cue.
fn without_arrows(text: &str) -> String {
    text.replace("-->", "→")
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

    fn cue(start_ms: u64, end_ms: u64, lines: &[&str]) -> Cue {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        Cue { start_ms, end_ms, words_end_ms: start_ms + 1, lines }
    }

    #[test]
    fn cues_are_numbered_or_escaped_as_the_format_has_it() {
        let cue = cue(3_600_500, 3_601_001, &["a < b", "& c"]);
        let mut srt = SubtitleWriter::new(SubtitleFormat::Srt);
        assert_eq!(srt.add(std::slice::from_ref(&cue)), "");
        assert_eq!(srt.add(std::slice::from_ref(&cue)), "1\n01:00:00,500 --> 01:00:01,001\na < b\n& c\n");
        assert!(srt.finish(u64::MAX).starts_with("\n2\n01:00:00,500"));
        let mut vtt = SubtitleWriter::new(SubtitleFormat::Vtt);
        let text = vtt.add(&[cue]) + &vtt.finish(u64::MAX);
        assert_eq!(text, "01:00:00.500 --> 01:00:01.001\na &lt; b\n&amp; c\n");
        assert_eq!((vtt.header(), vtt.finish(0).as_str()), ("WEBVTT\n\n", ""));
    }

    #[test]
    fn cue_text_with_an_arrow_is_not_parsed_as_times() {
        for line in ["a --> b", "00:00:01,000 --> 00:00:02,000", "--->", "-->-->", "- -->"] {
            for format in [SubtitleFormat::Srt, SubtitleFormat::Vtt] {
                let mut writer = SubtitleWriter::new(format);
                let text = writer.add(&[cue(0, 1000, &[line])]) + &writer.finish(1000);
                assert_eq!(text.matches("-->").count(), 1, "{text}");
            }
        }
    }

    #[test]
    fn cue_ends_before_the_next_and_with_the_recording() {
        let mut srt = SubtitleWriter::new(SubtitleFormat::Srt);
        // Two with the same start come from a server without times.
        let cues =
            [(0, 1000), (0, 1000), (800, 2000), (1900, 2900)].map(|(start, end)| cue(start, end, &["x"]));
        let text = srt.add(&cues) + &srt.finish(2500);
        let ends: Vec<_> =
            text.lines().filter_map(|line| line.split_once(" --> ")).map(|(_, end)| &end[6..]).collect();
        assert_eq!(ends, ["01,000", "00,800", "01,900", "02,500"]);
    }
}
