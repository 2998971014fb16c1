//! What the two columns look like.

use std::sync::Arc;

use super::*;
use crate::event::Lane;

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Page {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

/// Plays frames given with their milliseconds and returns the lines.
fn shown(columns: usize, colour: bool, frames: &[(u64, Wire, Passed<'_>)]) -> Vec<String> {
    let page = Page::default();
    let view = SideBySide::new(page.clone(), columns, colour);
    let start = tokio::time::Instant::now().into_std();
    for (ms, wire, frame) in frames {
        view.passed("sess_1", start + Duration::from_millis(*ms), *wire, *frame);
    }
    view.flush();
    page.lines()
}

const CONFIGURE: Passed<'_> = Passed::Text(r#"{"type":"session.configure","language":"en"}"#);

#[test]
fn each_wire_has_its_column() {
    let lines = shown(
        92,
        false,
        &[
            (0, Wire::FromClient, CONFIGURE),
            (250, Wire::ToLane(Lane(1)), Passed::Text(r#"{"type":"session.init"}"#)),
            (1500, Wire::FromLane(Lane(1)), Passed::Close(Some(1000))),
            (1510, Wire::ToClient, Passed::Close(None)),
        ],
    );
    assert_eq!(
        lines,
        [
            format!("    0.00 {:40} │", r#"→ session.configure language="en""#),
            format!("    0.25 {:40} │ → #1 session.init", ""),
            format!("    1.50 {:40} │ ← #1 closed with 1000", ""),
            format!("    1.51 {:40} │", "← closed"),
        ]
    );
}

#[test]
fn audio_is_summed_up_until_something_is_said() {
    let frame = [0; 1280];
    let mut frames: Vec<_> = (0..50).map(|i| (i * 40, Wire::FromClient, Passed::Binary(&frame))).collect();
    frames.push((2000, Wire::ToLane(Lane(1)), Passed::Text(r#"{"type":"session.init"}"#)));
    frames.push((2010, Wire::ToClient, Passed::Text(r#"{"type":"vad.speech_start"}"#)));
    frames.push((2020, Wire::ToClient, Passed::Binary(&frame)));
    let lines = shown(160, false, &frames);
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(lines[0].contains("│ → #1 session.init"));
    assert!(lines[1].starts_with("    1.96 → … 50 frames, 2.0 s of audio "), "{}", lines[1]);
    assert!(lines[2].contains("← vad.speech_start"));
    assert!(lines[3].contains("← … 1 frame, 0.0 s of audio"));
}

#[test]
fn a_long_stretch_of_audio_shows_that_it_goes_on() {
    let frame = [0; 1280];
    let frames: Vec<_> = (0..300).map(|i| (i * 40, Wire::FromClient, Passed::Binary(&frame))).collect();
    let lines = shown(160, false, &frames);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[0].contains("125 frames, 5.0 s") && lines[2].contains("50 frames, 2.0 s"));
}

#[test]
fn lines_fit_the_terminal() {
    let text = format!(r#"{{"type":"transcript.final","text":"{}"}}"#, "词".repeat(50));
    let frames =
        [(0, Wire::ToClient, Passed::Text(&text)), (0, Wire::FromLane(Lane(7)), Passed::Text(&text))];
    for columns in [0, 40, 81, 120] {
        for colour in [false, true] {
            for line in shown(columns, colour, &frames) {
                let width = console::measure_text_width(&line);
                assert!(width <= columns.max(LEAST_COLUMNS), "{width} > {columns}: {line}");
                assert!(line.contains('…'));
                assert_eq!(line.contains('\u{1b}'), colour);
            }
        }
    }
}

#[test]
fn the_header_names_both_columns() {
    let page = Page::default();
    SideBySide::new(page.clone(), 100, false).header();
    let lines = page.lines();
    assert!(lines[0].contains("client ⇄ voxbridge") && lines[0].contains("│ voxbridge ⇄ MiniCPM-o"));
}
