//! Picture of two recordings of the same user: what the user said, and below, what was heard and what happened then and now.

use std::time::Duration;

use super::{STEP, drawing::Drawing};
use crate::{
    audio::SPEECH_RATE_HZ,
    recording::document::{RecordedEvent, RecordingDocument, TimedEvent},
};

/// Names of the recordings.
const NAMES: [&str; 2] = ["then", "now"];

/// Draws the user's audio and what was heard, int16 mono at 16 kHz, with the events of both recordings.
pub(in crate::cli) fn draw_recordings(
    user: &[i16],
    heard: [Option<Vec<i16>>; 2],
    recordings: [&RecordingDocument; 2],
) -> String {
    let ends = recordings.map(|recording| Duration::from_millis(recording.end.duration_ms));
    let end = ends.into_iter().chain([Duration::from_secs(1)]).max().unwrap_or_default();
    let profiles = recordings.map(|recording| recording.session.profile.as_str());
    let title = format!(
        "A user of {:.1} s, with profile {} then and {} now",
        end.as_secs_f64(),
        profiles[0],
        profiles[1]
    );
    let mut drawing = Drawing::new(&title, end);
    drawing.envelope("user speaks", "up", &peaks_of(user));
    for ((name, heard), recording) in NAMES.into_iter().zip(heard).zip(recordings) {
        drawing.envelope(&format!("heard {name}"), "down", &peaks_of(&heard.unwrap_or_default()));
        let mut rows = drawing.rows(name);
        for TimedEvent { at_ms, event } in &recording.events {
            let at = Duration::from_millis(*at_ms);
            if let Some((before, label, class)) = describe(event) {
                let from = at.saturating_sub(Duration::from_millis(before));
                rows.place(&mut drawing, from..at, &label, class);
            }
        }
        rows.finish(&mut drawing);
    }
    drawing.axis();
    drawing.finish()
}

/// An event as a label: how long before its time it began, ms; its words; its class.
fn describe(event: &RecordedEvent<'_>) -> Option<(u64, String, &'static str)> {
    Some(match event {
        RecordedEvent::UserTranscript { text, .. } => (0, format!("→ “{text}”"), "up"),
        RecordedEvent::ModelTranscript { text, .. } => (0, format!("← “{text}”"), "down"),
        RecordedEvent::ToolCalled { tool, arguments, .. }
        | RecordedEvent::ServerToolCalled { tool, arguments, .. } => {
            (0, format!("← {tool} {arguments}"), "down")
        }
        RecordedEvent::Interrupted => (0, "→ interrupted".to_owned(), "up"),
        RecordedEvent::Error { error } => (0, format!("← error {error}"), "down"),
        RecordedEvent::FirstAudio { after_ms } => {
            (*after_ms, format!("{} to the first audio", seconds(*after_ms)), "late-text")
        }
        RecordedEvent::FirstTranscript { after_ms } => {
            (*after_ms, format!("{} to the transcript", seconds(*after_ms)), "late-text")
        }
        _ => return None,
    })
}

fn seconds(ms: u64) -> String {
    format!("{:.2} s", ms as f64 / 1000.0)
}

/// Loudest sample of each step, with the time of the step.
fn peaks_of(samples: &[i16]) -> Vec<(Duration, f32)> {
    let step = SPEECH_RATE_HZ as usize * STEP.as_millis() as usize / 1000;
    let steps = (0_u32..).zip(samples.chunks(step));
    let peak = |samples: &[i16]| samples.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or_default();
    steps.map(|(number, samples)| (STEP * number, f32::from(peak(samples)) / 32_768.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_shows_both_sessions_on_one_axis() {
        let recording = |words: &str, ms: u64| {
            let text = format!(
                r#"{{"recording":1,"session":"s","client":"macaw","profile":"p-{words}","key":null,"opened_unix_ms":1,
                "opened":"","audio":"a.wav","rate_hz":24000,"channels":["user","model"],"events":[
                {{"at_ms":900,"event":"user_transcript","utterance":1,"from_ms":1,"to_ms":4,"text":"Hi","language":null}},
                {{"at_ms":{ms},"event":"first_audio","after_ms":400}},
                {{"at_ms":{ms},"event":"model_transcript","answer":1,"text":"{words}"}}
                ],"duration_ms":2500,"lost_pieces":0,"left_out_ms":0,"complete":true}}"#
            );
            RecordingDocument::parse(text.as_bytes()).unwrap()
        };
        let (then, now) = (recording("Old", 1_500), recording("<New>", 1_200));
        let svg = draw_recordings(&[9_000; 16_000], [Some(vec![0; 40_000]), None], [&then, &now]);
        for words in [
            "A user of 2.5 s, with profile p-Old then and p-&lt;New&gt; now",
            "heard then",
            "heard now",
            "← “Old”",
            "← “&lt;New&gt;”",
            "0.40 s to the first audio",
        ] {
            assert!(svg.contains(words), "no {words}: {svg}");
        }
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }
}
