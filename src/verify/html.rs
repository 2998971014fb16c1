//! Report of an acceptance run as one self-contained page: tables, plots, pictures of sessions, and sounds.

use std::fmt::Write as _;

use super::{
    compare::Compared,
    figure::{Figure, Section, Verdict},
    plot, report,
};
use crate::{audio::pcm, foreign::escape_markup};

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;\
    background:#fff;color:#1f2933}h1{font-size:1.5rem}table{border-collapse:collapse;width:100%;margin:.5rem 0 1rem}\
    th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #cbd2d9;vertical-align:top}\
    td.n{text-align:right;white-space:nowrap}small{color:#52606d}audio{height:2rem}\
    svg{max-width:100%;font:12px system-ui,sans-serif}svg text{fill:currentColor}\
    b.pass,b.better{color:#2f855a}b.fail,b.worse{color:#c53030}b.skipped{color:#7b8794}\
    rect.pass{fill:#68d391}rect.fail{fill:#fc8181}.limit{stroke:currentColor;stroke-width:2}\
    @media(prefers-color-scheme:dark){body{background:#14181d;color:#e4e7eb}th,td{border-color:#3e4c59}small{color:#9aa5b1}}";

/// Content of the page.
#[derive(Debug, Clone, Copy)]
pub struct Page<'p> {
    /// The servers, without secrets.
    pub servers: &'p str,
    /// voxbridge's version, and the time of the run.
    pub made_by: &'p str,
    /// The figures.
    pub figures: &'p [Figure],
    /// Pictures of sessions as SVG: a title and the picture.
    pub pictures: &'p [(String, String)],
    /// An earlier run beside this one: its name and the comparison.
    pub compared: Option<(&'p str, &'p [Compared<'p>])>,
}

impl Page<'_> {
    /// Writes the page.
    #[must_use]
    pub fn write(&self) -> String {
        let verdicts = report::count_verdicts(self.figures);
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>voxbridge verify</title>\
             <style>{STYLE}</style>\n<h1>voxbridge verify</h1>\n<p>{}<br><small>{}</small></p><p>{verdicts}</p>\n",
            escape_markup(self.servers),
            escape_markup(self.made_by)
        );
        if let Some((name, compared)) = self.compared {
            write_comparison(&mut page, name, compared);
        }
        for section in Section::ALL {
            let figures: Vec<&Figure> =
                self.figures.iter().filter(|figure| figure.section() == section.name()).collect();
            if !figures.is_empty() {
                write_section(&mut page, section.name(), &figures);
            }
        }
        for (title, picture) in self.pictures {
            let _ = writeln!(page, "<h2>{}</h2>\n{picture}", escape_markup(title));
        }
        page.push_str("</html>\n");
        page
    }
}

fn write_section(page: &mut String, name: &str, figures: &[&Figure]) {
    let _ = writeln!(
        page,
        "<h2>{name}</h2>\n<table><tr><th>figure<th>value<th>expected<th>verdict<th>what was seen, and what to try"
    );
    for figure in figures {
        let verdict = figure.verdict.name();
        let _ = write!(
            page,
            "<tr><td>{}<td class=\"n\">{}<td class=\"n\">{}<td><b class=\"{verdict}\">{verdict}</b><td>{}",
            escape_markup(&figure.name),
            escape_markup(&figure.display_value()),
            escape_markup(&expected(figure)),
            escape_markup(&figure.note)
        );
        if let Some(advice) = &figure.advice {
            let _ = write!(page, "<br>Try: {}", escape_markup(advice));
        }
        if let Some(trace) = &figure.trace {
            let _ = write!(page, "<br><small>Trace: {}</small>", escape_markup(trace));
        }
        if !figure.sound.is_empty() {
            page.push_str("<br><audio controls preload=\"none\" src=\"data:audio/mpeg;base64,");
            pcm::encode_base64(&figure.sound, page);
            page.push_str("\"></audio>");
        }
        page.push('\n');
    }
    page.push_str("</table>\n");
    if let Some(plot) = plot::draw(figures) {
        let _ = writeln!(page, "{plot}");
    }
}

fn expected(figure: &Figure) -> String {
    if figure.verdict == Verdict::Skipped { String::new() } else { figure.expected.to_string() }
}

fn write_comparison(page: &mut String, name: &str, compared: &[Compared<'_>]) {
    let _ = writeln!(
        page,
        "<h2>Beside {}</h2>\n<table><tr><th>figure<th>there<th>here<th>change",
        escape_markup(name)
    );
    for one in compared {
        let cell = |figure: Option<&Figure>| {
            let verdict = figure.map_or("", |figure| figure.verdict.name());
            let value = figure.map(Figure::display_value).unwrap_or_default();
            format!("<td class=\"n\">{} <b class=\"{verdict}\">{verdict}</b>", escape_markup(&value))
        };
        let (first, second, change) = (cell(one.first), cell(one.second), one.change.name());
        let name = escape_markup(one.name());
        let _ = writeln!(page, "<tr><td>{name}{first}{second}<td><b class=\"{change}\">{change}</b>");
    }
    page.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{compare::compare, figure::Expectation};

    #[test]
    fn page_is_self_contained_and_escapes_foreign_text() {
        let evil = "<script>alert(1)</script>\"'&";
        let mut figure =
            Figure::failed(format!("speech.voice.{evil}"), "share", Expectation::AtMost(0.1), evil)
                .with_advice(evil)
                .with_sound(vec![1, 2, 3]);
        figure.set_trace(std::path::Path::new(evil));
        let figures = [figure, Figure::measured("speech.first_audio", 0.5, "s", Expectation::AtMost(2.0))];
        let compared = compare(&figures, &figures);
        let page = Page {
            servers: evil,
            made_by: evil,
            figures: &figures,
            pictures: &[(evil.to_owned(), "<svg></svg>".to_owned())],
            compared: Some((evil, &compared)),
        };
        let html = page.write();
        assert!(!html.contains("<script"), "{html}");
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;"), "{html}");
        assert!(html.contains("src=\"data:audio/mpeg;base64,AQID\""), "{html}");
        for other_file in ["http://", "https://", "<link", "url(", "@import"] {
            assert!(!html.contains(other_file), "{other_file}: {html}");
        }
        for (open, close) in [("<table>", "</table>"), ("<svg", "</svg>"), ("<b ", "</b>")] {
            assert_eq!(html.matches(open).count(), html.matches(close).count(), "{open}");
        }
    }
}
