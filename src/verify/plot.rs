//! Plot of the figures of one section as an SVG picture: a bar for each value, and a mark for what was expected.

use std::fmt::Write as _;

use super::figure::{Expectation, Figure, Verdict, display_number};
use crate::foreign::escape_markup;

const WIDTH: f64 = 760.0;
/// Left and right end of the bars.
const LEFT: f64 = 260.0;
const RIGHT: f64 = 640.0;
const ROW: f64 = 22.0;

/// Draws the measured figures with a limit. Each unit has a scale of its own. `None` if fewer than two can be drawn.
#[must_use]
pub fn draw(figures: &[&Figure]) -> Option<String> {
    let bars: Vec<Bar<'_>> = figures.iter().filter_map(|figure| Bar::of(figure)).collect();
    if bars.len() < 2 {
        return None;
    }
    let height = ROW * bars.len() as f64 + 8.0;
    let mut svg = format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img">"#);
    for (number, bar) in bars.iter().enumerate() {
        let same_unit = bars.iter().filter(|other| other.figure.unit == bar.figure.unit);
        let full = same_unit.map(|other| other.value.max(other.limit)).fold(f64::MIN_POSITIVE, f64::max);
        bar.draw(&mut svg, ROW * number as f64 + 4.0, full);
    }
    svg.push_str("</svg>");
    Some(svg)
}

struct Bar<'f> {
    figure: &'f Figure,
    value: f64,
    limit: f64,
}

impl<'f> Bar<'f> {
    fn of(figure: &'f Figure) -> Option<Self> {
        let limit = match figure.expected {
            Expectation::AtMost(limit) | Expectation::AtLeast(limit) => limit,
            Expectation::Succeeds => return None,
        };
        let value = figure.value.filter(|value| value.is_finite() && *value >= 0.0)?;
        Some(Self { figure, value, limit })
    }

    fn draw(&self, svg: &mut String, y: f64, full: f64) {
        let x = |value: f64| LEFT + value / full * (RIGHT - LEFT);
        let class = if self.figure.verdict == Verdict::Pass { "pass" } else { "fail" };
        let (name, unit) = (escape_markup(&self.figure.name), &self.figure.unit);
        let (baseline, width) = (y + ROW * 0.65, (x(self.value) - LEFT).max(1.0));
        let _ = write!(
            svg,
            r#"<text x="{:.0}" y="{baseline:.0}" text-anchor="end">{name}</text><rect class="{class}" x="{LEFT}" y="{y:.0}" width="{width:.1}" height="{:.0}"/><path class="limit" d="M{:.1} {:.0}v{ROW}"/><text x="{:.0}" y="{baseline:.0}">{}</text>"#,
            LEFT - 8.0,
            ROW - 6.0,
            x(self.limit),
            y - 3.0,
            x(self.value.max(self.limit)) + 6.0,
            escape_markup(&display_number(self.value, unit)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_a_unit_share_a_scale_and_names_are_escaped() {
        let figure = |name: &str, value| Figure::measured(name, value, "s", Expectation::AtMost(2.0));
        let (short, long) = (figure("a.<b>", 1.0), figure("a.c", 4.0));
        let svg = draw(&[&short, &long]).unwrap();
        assert!(svg.contains("a.&lt;b&gt;") && !svg.contains("<b>"), "{svg}");
        assert!(svg.contains(r#"class="pass" x="260" y="4" width="95.0""#), "{svg}");
        assert!(svg.contains(r#"class="fail" x="260" y="26" width="380.0""#), "{svg}");
        assert_eq!(draw(&[&short]), None, "one bar shows nothing");
    }
}
