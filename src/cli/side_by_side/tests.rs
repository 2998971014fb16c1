//! Tests of the printed columns.

use std::sync::Arc;

use super::*;
use crate::{audio::SPEECH_RATE_HZ, vocabulary::Lane};

#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SharedBuffer {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

/// Passes frames, each with its time in ms, to the view and returns the printed lines.
fn printed_lines(columns: usize, colour: bool, frames: &[(u64, TapPoint, TapFrame<'_>)]) -> Vec<String> {
    let buffer = SharedBuffer::default();
    let view = SideBySide::new(buffer.clone(), columns, colour, SPEECH_RATE_HZ);
    let start = tokio::time::Instant::now().into_std();
    for (ms, wire, frame) in frames {
        view.on_frame("sess_1", start + Duration::from_millis(*ms), *wire, *frame);
    }
    view.flush();
    buffer.lines()
}

const CONFIGURE: TapFrame<'_> = TapFrame::Text(r#"{"type":"session.configure","language":"en"}"#);

#[test]
fn client_and_upstream_messages_have_their_own_columns() {
    let lines = printed_lines(
        132,
        false,
        &[
            (0, TapPoint::FromClient, CONFIGURE),
            (250, TapPoint::ToLane(Lane(1)), TapFrame::Text(r#"{"type":"session.init"}"#)),
            (1500, TapPoint::FromLane(Lane(1)), TapFrame::Close(Some(1000))),
            (1510, TapPoint::ToClient, TapFrame::Close(None)),
        ],
    );
    assert_eq!(
        lines,
        [
            format!("    0.00 {:60} │", r#"→ session.configure language="en""#),
            format!("    0.25 {:60} │ → #1 session.init", ""),
            format!("    1.50 {:60} │ ← #1 closed with 1000", ""),
            format!("    1.51 {:60} │", "← closed"),
        ]
    );
}

#[test]
fn audio_frames_are_summed_until_next_client_message() {
    let frame = [0; 1280];
    let mut frames: Vec<_> =
        (0..50).map(|i| (i * 40, TapPoint::FromClient, TapFrame::Binary(&frame))).collect();
    frames.push((2000, TapPoint::ToLane(Lane(1)), TapFrame::Text(r#"{"type":"session.init"}"#)));
    frames.push((2010, TapPoint::ToClient, TapFrame::Text(r#"{"type":"vad.speech_start"}"#)));
    frames.push((2020, TapPoint::ToClient, TapFrame::Binary(&frame)));
    let lines = printed_lines(160, false, &frames);
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(lines[0].contains("│ → #1 session.init"));
    let audio = "    2.01 → … 50 frames, 2.0 s of audio, at 0.00 to 1.96 ";
    assert!(lines[1].starts_with(audio), "{}", lines[1]);
    assert!(lines[2].contains("← vad.speech_start"));
    assert!(lines[3].contains("← … 1 frame, 0.0 s of audio"));
}

#[test]
fn long_audio_is_printed_every_five_seconds() {
    let frame = [0; 1280];
    let frames: Vec<_> = (0..300).map(|i| (i * 40, TapPoint::FromClient, TapFrame::Binary(&frame))).collect();
    let lines = printed_lines(160, false, &frames);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[0].contains("125 frames, 5.0 s") && lines[2].contains("50 frames, 2.0 s"));
}

#[test]
fn lines_fit_the_terminal() {
    let text = format!(r#"{{"type":"transcript.final","text":"{}"}}"#, "词".repeat(50));
    let frames = [
        (0, TapPoint::ToClient, TapFrame::Text(&text)),
        (0, TapPoint::FromLane(Lane(7)), TapFrame::Text(&text)),
    ];
    for columns in [0, 40, 81, 120] {
        for colour in [false, true] {
            for line in printed_lines(columns, colour, &frames) {
                let width = console::measure_text_width(&line);
                assert!(width <= columns.max(MIN_COLUMNS), "{width} > {columns}: {line}");
                assert!(line.contains('…'));
                assert_eq!(line.contains('\u{1b}'), colour);
            }
        }
    }
}

#[test]
fn narrow_terminal_shows_whole_messages_of_both_sides() {
    let text = r#"{"type":"response.output.delta","text":"ask not what your country can do"}"#;
    let frames =
        [(0, TapPoint::FromClient, CONFIGURE), (10, TapPoint::FromLane(Lane(1)), TapFrame::Text(text))];
    assert_eq!(
        printed_lines(80, false, &frames),
        [
            "    0.00 → session.configure language=\"en\"",
            "    0.01         ← #1 response.output.delta text=\"ask not what your country can…",
        ]
    );
}

#[test]
fn header_explains_signs_and_names_both_columns() {
    let buffer = SharedBuffer::default();
    SideBySide::new(buffer.clone(), 132, false, SPEECH_RATE_HZ).header();
    let lines = buffer.lines();
    assert!(lines[0].contains("→ towards the model"), "{lines:?}");
    let names = lines.last().unwrap();
    assert!(names.contains("client ⇄ voxbridge") && names.contains("│ voxbridge ⇄ MiniCPM-o"));
}

#[test]
fn times_never_run_backwards() {
    let frame = [0; 1280];
    let message = TapFrame::Text(r#"{"type":"x"}"#);
    let lines = printed_lines(
        160,
        false,
        &[
            (0, TapPoint::FromClient, TapFrame::Binary(&frame)),
            (10, TapPoint::ToClient, TapFrame::Binary(&frame)),
            (500, TapPoint::ToLane(Lane(1)), message),
            (400, TapPoint::FromLane(Lane(2)), message),
            (600, TapPoint::ToClient, message),
            (700, TapPoint::FromClient, TapFrame::Binary(&frame)),
            (800, TapPoint::ToLane(Lane(1)), message),
        ],
    );
    let times: Vec<f64> = lines.iter().map(|line| line[..8].trim().parse().unwrap()).collect();
    assert!(times.is_sorted() && times.len() == 6 + 1, "{lines:#?}");
}
