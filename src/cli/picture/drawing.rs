//! An SVG drawing with a time axis: envelopes of audio, and lines of labels.

use std::{collections::BTreeMap, fmt::Write as _, ops::Range, time::Duration};

use super::STEP;
use crate::foreign::escape_markup;

const WIDTH: f64 = 1200.0;
/// Left and right end of the time axis.
const LEFT: f64 = 120.0;
const RIGHT: f64 = 1180.0;
/// Half of the height of an envelope, and the height of a line of labels.
const ENVELOPE: f64 = 32.0;
const LINE: f64 = 17.0;
/// Most lines of labels of one kind.
const ROWS_MAX: usize = 16;
/// Estimated width of a letter: that of a wide font.
const LETTER: f64 = 7.0;
/// Longest line of a label, and most lines of one.
const LABEL_MAX_CHARS: usize = 56;
const LABEL_LINES_MAX: usize = 3;
const STYLE: &str = "svg{background:#fff;font:12px system-ui,sans-serif}text{fill:#1f2933}.dim{fill:#7b8794}\
    .up{fill:#0b69a3}.down{fill:#2f855a}.up-wave{stroke:#0b69a3}.down-wave{stroke:#2f855a}.line{stroke:#cbd2d9}.late{stroke:#c05621;stroke-width:2}.lane{fill:#e4e7eb}\
    .late-text{fill:#c05621;font-weight:600}\
    @media(prefers-color-scheme:dark){svg{background:#14181d}text{fill:#e4e7eb}.dim{fill:#9aa5b1}.up{fill:#63b3ed}\
    .down{fill:#68d391}.up-wave{stroke:#63b3ed}.down-wave{stroke:#68d391}.line{stroke:#3e4c59}.lane{fill:#323f4b}}";

/// An SVG file under construction, from top to bottom.
pub(super) struct Drawing {
    body: String,
    y: f64,
    seconds: f64,
}

/// Lines of labels, each with a span of time. A label takes the first adjacent lines that have room.
pub(super) struct LabelRows {
    top: f64,
    ends: Vec<f64>,
    /// Times without a label are marked in a line of their own, below the labels.
    has_bare_marks: bool,
}

impl Drawing {
    /// A drawing with this title, whose time axis ends at `end`.
    pub(super) fn new(title: &str, end: Duration) -> Self {
        let mut drawing = Self { body: String::new(), y: 30.0, seconds: end.as_secs_f64() };
        drawing.text(LEFT, "", title);
        drawing.y += 20.0;
        drawing
    }

    fn x(&self, at: Duration) -> f64 {
        LEFT + at.as_secs_f64() / self.seconds * (RIGHT - LEFT)
    }

    fn text(&mut self, x: f64, class: &str, text: &str) {
        self.anchored_text(x, class, "", text);
    }

    /// Writes a text whose attributes may say on which side of `x` it stands.
    fn anchored_text(&mut self, x: f64, class: &str, attributes: &str, text: &str) {
        let (y, text) = (self.y, escape_markup(text));
        let _ =
            writeln!(self.body, r#"<text class="{class}" x="{x:.1}" y="{y:.1}"{attributes}>{text}</text>"#);
    }

    /// The title of a part, to the left of the time axis.
    fn title(&mut self, text: &str) {
        self.text(8.0, "dim", text);
    }

    /// Draws the envelope of audio.
    pub(super) fn envelope(&mut self, title: &str, class: &str, peaks: &[(Duration, f32)]) {
        self.y += ENVELOPE;
        self.title(title);
        let (y, mut columns) = (self.y, BTreeMap::<i64, f32>::new());
        let width = (self.x(STEP) - LEFT).max(1.0) + 0.3;
        for (at, peak) in peaks {
            let column = columns.entry(self.x(*at) as i64).or_default();
            *column = column.max(*peak);
        }
        // A square root shows quiet speech; silence is a thin line.
        let mut path = String::new();
        for (x, peak) in columns {
            let half = (f64::from(peak).sqrt() * ENVELOPE).max(0.5);
            let _ = write!(path, "M{x} {:.1}v{:.1}", y - half, 2.0 * half);
        }
        let _ = writeln!(self.body, r#"<path class="{class}-wave" stroke-width="{width:.1}" d="{path}"/>"#);
        self.y += ENVELOPE + 14.0;
    }

    /// Begins lines of labels with this title.
    pub(super) fn rows(&mut self, title: &str) -> LabelRows {
        self.y += 8.0;
        self.title(title);
        LabelRows { top: self.y, ends: Vec::new(), has_bare_marks: false }
    }

    /// The time axis: a tick at each full 1, 2 or 5 times a power of ten.
    pub(super) fn axis(&mut self) {
        let ideal = self.seconds / 12.0;
        let power = 10_f64.powf(ideal.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|it| it * power).find(|step| *step >= ideal);
        let step = step.unwrap_or(1.0);
        let (top, bottom) = (44.0, self.y);
        self.y += 16.0;
        for tick in 0..=(self.seconds / step) as u32 {
            let at = f64::from(tick) * step;
            let x = self.x(Duration::from_secs_f64(at));
            let _ = writeln!(self.body, r#"<path class="line" d="M{x:.1} {top}V{bottom:.1}" opacity=".5"/>"#);
            self.text(x - 8.0, "dim", &format!("{} s", (at * 1000.0).round() / 1000.0));
        }
    }

    /// Completes the file.
    pub(super) fn finish(self) -> String {
        let height = self.y + 14.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" role=\"img\">\
             <title>Timeline of a voxbridge session</title><style>{STYLE}</style>\n{}</svg>\n",
            self.body
        )
    }
}

impl LabelRows {
    /// Adds a label for this span of time.
    pub(super) fn place(&mut self, drawing: &mut Drawing, span: Range<Duration>, label: &str, class: &str) {
        let (from, to) = (drawing.x(span.start), drawing.x(span.end));
        let lines = wrap(label);
        let columns = lines.iter().map(|line| console::measure_text_width(line)).max().unwrap_or(0);
        let width = columns as f64 * LETTER;
        // A label that does not fit to the right of its time stands to the left of it.
        let is_left = from + width > WIDTH;
        let start = if is_left { from - width } else { from };
        let free = self.take_rows(lines.len(), start, to.max(start + width) + LETTER);
        self.has_bare_marks |= free.is_none();
        drawing.y = self.top + free.unwrap_or(ROWS_MAX) as f64 * LINE;
        let _ = writeln!(drawing.body, "<g><title>{}</title>", escape_markup(label));
        let (top, bottom) = (drawing.y - 10.0, drawing.y + 4.0);
        let _ = match class {
            "late-text" => {
                writeln!(drawing.body, r#"<path class="late" d="M{from:.1} {bottom:.1}H{to:.1}"/>"#)
            }
            "dim" => {
                let (width, height) = (to - from, bottom - top);
                writeln!(
                    drawing.body,
                    r#"<rect class="lane" x="{from:.1}" y="{top:.1}" width="{width:.1}" height="{height}"/>"#
                )
            }
            _ => writeln!(
                drawing.body,
                r#"<rect class="{class}" x="{from:.1}" y="{top:.1}" width="1.5" height="14"/>"#
            ),
        };
        // Without room for its label, the time alone is marked.
        if free.is_some() {
            let class = if class == "dim" { "" } else { class };
            for line in &lines {
                match is_left {
                    true => drawing.anchored_text(from - 3.0, class, r#" text-anchor="end""#, line),
                    false => drawing.text(start + 3.0, class, line),
                }
                drawing.y += LINE;
            }
        }
        drawing.body.push_str("</g>\n");
    }

    /// Takes the first `count` adjacent lines that are free at `start`, until `end`. Returns the first of them.
    fn take_rows(&mut self, count: usize, start: f64, end: f64) -> Option<usize> {
        let is_free = |row: usize| self.ends.get(row).is_none_or(|end| *end < start);
        let first = (0..=ROWS_MAX.checked_sub(count)?).find(|first| (*first..first + count).all(is_free))?;
        self.ends.resize(self.ends.len().max(first + count), 0.0);
        self.ends[first..first + count].fill(end);
        Some(first)
    }

    /// Ends the lines of labels.
    pub(super) fn finish(self, drawing: &mut Drawing) {
        let labels = self.ends.len().max(1);
        let rows = if self.has_bare_marks { ROWS_MAX + 1 } else { labels };
        drawing.y = self.top + rows as f64 * LINE;
    }
}

/// The first lines of a label, which end between words. A word that is longer than a line continues on the next one.
fn wrap(label: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in label.split(' ').flat_map(split_long) {
        let fits = |line: &str| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= LABEL_MAX_CHARS
        };
        let count = lines.len();
        match lines.last_mut() {
            Some(line) if fits(line) => {
                line.push_str(if line.is_empty() { "" } else { " " });
                line.push_str(&word);
            }
            Some(line) if count == LABEL_LINES_MAX => {
                line.push('…');
                break;
            }
            _ => lines.push(word),
        }
    }
    lines
}

fn split_long(word: &str) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    letters.chunks(LABEL_MAX_CHARS).map(|part| part.iter().collect()).collect()
}
