//! Picture of a session: a timeline with the audio of both directions, the messages to and from the client, the latencies
//! and the upstream sessions, as an SVG file.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use serde_json::Value;

use crate::{
    audio::{encoding::Encoding, pcm},
    mapping::ClientMapping,
    server::tap::{TapFrame, TapPoint},
};

const WIDTH: f64 = 1200.0;
/// Left and right end of the time axis.
const LEFT: f64 = 120.0;
const RIGHT: f64 = 1180.0;
/// Half of the height of an envelope, and the height of a line of labels.
const ENVELOPE: f64 = 32.0;
const LINE: f64 = 17.0;
/// Estimated width of a letter.
const LETTER: f64 = 6.3;
/// Resolution of the envelopes.
const STEP: Duration = Duration::from_millis(20);
/// Level from which a client's sample is speech, full scale at 1: above the noise of a room.
const AUDIBLE: f32 = 0.06;
/// Pause of the audio to the client after which it begins anew.
const PAUSE: Duration = Duration::from_millis(500);
const LABEL_MAX_CHARS: usize = 44;
const STYLE: &str = "svg{background:#fff;font:12px system-ui,sans-serif}text{fill:#1f2933}.dim{fill:#7b8794}\
    .up{fill:#0b69a3}.down{fill:#2f855a}.up-wave{stroke:#0b69a3}.down-wave{stroke:#2f855a}.line{stroke:#cbd2d9}.late{stroke:#c05621;stroke-width:2}.lane{fill:#e4e7eb}\
    .late-text{fill:#c05621;font-weight:600}\
    @media(prefers-color-scheme:dark){svg{background:#14181d}text{fill:#e4e7eb}.dim{fill:#9aa5b1}.up{fill:#63b3ed}\
    .down{fill:#68d391}.up-wave{stroke:#63b3ed}.down-wave{stroke:#68d391}.line{stroke:#3e4c59}.lane{fill:#323f4b}}";

/// Audio of one direction.
struct AudioTrack {
    encoding: Encoding,
    bytes_per_second: f64,
    /// End of the audio so far.
    end: Duration,
    /// Loudest sample of each step, with the time of the step.
    peaks: Vec<(Duration, f32)>,
    /// When audio began to arrive, at first and after each pause.
    arrivals: Vec<Duration>,
}

/// A message between the client and voxbridge.
struct Mark {
    at: Duration,
    is_up: bool,
    name: String,
    text: String,
}

/// Collects the frames of a session.
pub(super) struct SessionPicture {
    up: AudioTrack,
    down: AudioTrack,
    marks: Vec<Mark>,
    /// First and last frame of each upstream session, and the last text from it.
    lanes: BTreeMap<u32, (Duration, Duration, String)>,
}

impl SessionPicture {
    /// An empty picture of a session with a client of this protocol.
    pub(super) fn new(client: &ClientMapping) -> Self {
        let (input, output) = (&client.audio_in, &client.audio_out);
        Self {
            up: AudioTrack::new(input.encoding, input.rate_hz, input.channels),
            down: AudioTrack::new(output.encoding, output.rate_hz, 1),
            marks: Vec::new(),
            lanes: BTreeMap::new(),
        }
    }

    /// Adds a frame at this time since the start of the session. Frames of one direction come in order.
    pub(super) fn add(&mut self, at: Duration, point: TapPoint, frame: TapFrame<'_>) {
        match (point, frame) {
            (TapPoint::FromClient, TapFrame::Binary(bytes)) => self.up.push(at, bytes, true),
            (TapPoint::ToClient, TapFrame::Binary(bytes)) => self.down.push(at, bytes, false),
            (TapPoint::FromClient | TapPoint::ToClient, frame) => {
                let is_up = point == TapPoint::FromClient;
                let (name, text) = match frame {
                    TapFrame::Text(text) => describe(text),
                    _ => ("close".to_owned(), String::new()),
                };
                self.marks.push(Mark { at, is_up, name, text });
            }
            (TapPoint::FromLane(lane) | TapPoint::ToLane(lane), frame) => {
                let (from, to, said) = self.lanes.entry(lane.0).or_insert((at, at, String::new()));
                (*from, *to) = (at.min(*from), at.max(*to));
                if let (TapPoint::FromLane(_), TapFrame::Text(text)) = (point, frame) {
                    let json: Value = serde_json::from_str(text).unwrap_or_default();
                    let text = json["text"].as_str().unwrap_or_default();
                    // The whole text comes last, if at all; otherwise it is the sum of the deltas.
                    match text.starts_with(said.as_str()) {
                        true if !text.is_empty() => text.clone_into(said),
                        _ => said.push_str(text),
                    }
                }
            }
        }
    }

    /// Draws the picture.
    pub(super) fn draw_svg(&mut self) -> String {
        self.marks.sort_by_key(|mark| mark.at);
        let ends = self.marks.iter().map(|mark| mark.at).chain(self.lanes.values().map(|lane| lane.1));
        let end = ends.chain([self.up.end, self.down.end, Duration::from_secs(1)]).max().unwrap_or_default();
        let mut drawing = Drawing { body: String::new(), y: 30.0, seconds: end.as_secs_f64() };
        drawing.text(LEFT, "", &format!("A session of {:.1} s", drawing.seconds));
        drawing.y += 20.0;
        drawing.envelope("client speaks", "up", &self.up.peaks);
        self.draw_marks(&mut drawing);
        drawing.envelope("voxbridge speaks", "down", &self.down.peaks);
        self.draw_latencies(&mut drawing);
        self.draw_lanes(&mut drawing);
        drawing.axis();
        drawing.finish()
    }

    fn draw_marks(&self, drawing: &mut Drawing) {
        let mut last = ("", false);
        let mut rows = drawing.rows("messages");
        for mark in &self.marks {
            let is_repeated =
                std::mem::replace(&mut last, (&mark.name, mark.is_up)) == (&mark.name, mark.is_up);
            if is_repeated && !mark.name.ends_with("final") {
                continue;
            }
            let arrow = if mark.is_up { "→" } else { "←" };
            let text = if mark.text.is_empty() { String::new() } else { format!(" “{}”", mark.text) };
            let label = shorten(&format!("{arrow} {}{text}", mark.name));
            rows.place(drawing, (mark.at, mark.at), &label, if mark.is_up { "up" } else { "down" });
        }
        rows.finish(drawing);
    }

    fn draw_latencies(&self, drawing: &mut Drawing) {
        let mut rows = drawing.rows("latency");
        for (from, to, what) in self.latencies() {
            let label = format!("{:.2} s {what}", (to - from).as_secs_f64());
            rows.place(drawing, (from, to), &label, "late-text");
        }
        rows.finish(drawing);
    }

    /// Times from the end of the client's sound to its final transcript, and from a command or the end of the client's sound
    /// to the audio that follows.
    fn latencies(&self) -> Vec<(Duration, Duration, &'static str)> {
        let sound_end = |until: Duration| {
            let sounds = self.up.peaks.iter().take_while(|(at, _)| *at < until);
            sounds.filter(|(_, peak)| *peak >= AUDIBLE).last().map(|(at, _)| *at + STEP)
        };
        let finals = self.marks.iter().filter(|mark| mark.name.ends_with("final") && !mark.text.is_empty());
        let to_transcript =
            finals.filter_map(|mark| Some((sound_end(mark.at)?, mark.at, "to the transcript")));
        let to_audio = self.down.arrivals.iter().filter_map(|at| {
            let command = self.marks.iter().rfind(|mark| mark.is_up && mark.at <= *at).map(|mark| mark.at);
            Some((command.max(sound_end(*at))?, *at, "to the first audio"))
        });
        // A conversation's sound may go on during the transcript.
        to_transcript.chain(to_audio).filter(|(from, to, _)| from < to).collect()
    }

    fn draw_lanes(&self, drawing: &mut Drawing) {
        let mut rows = drawing.rows("upstream");
        for (lane, (from, to, said)) in &self.lanes {
            let text = if said.is_empty() { String::new() } else { format!(" “{said}”") };
            rows.place(drawing, (*from, *to), &shorten(&format!("#{lane}{text}")), "dim");
        }
        rows.finish(drawing);
    }
}

impl AudioTrack {
    fn new(encoding: Encoding, rate_hz: u32, channels: u16) -> Self {
        let bytes_per_second = encoding.bytes_per_sample() as f64 * f64::from(rate_hz) * f64::from(channels);
        Self { encoding, bytes_per_second, end: Duration::ZERO, peaks: Vec::new(), arrivals: Vec::new() }
    }

    /// Adds a frame: recorded audio ends when it arrives, played audio begins then or after the audio before.
    fn push(&mut self, at: Duration, bytes: &[u8], is_recorded: bool) {
        let duration = Duration::from_secs_f64(bytes.len() as f64 / self.bytes_per_second.max(1.0));
        let start = if is_recorded { at.saturating_sub(duration) } else { at };
        if start > self.end + PAUSE || self.arrivals.is_empty() {
            self.arrivals.push(at);
        }
        let start = start.max(self.end);
        self.end = start + duration;
        let size = self.encoding.bytes_per_sample();
        let step = ((self.bytes_per_second * STEP.as_secs_f64()) as usize / size * size).max(size);
        for (number, chunk) in (0_u32..).zip(bytes.chunks(step)) {
            let samples =
                chunk.chunks_exact(size).map(|sample| pcm::to_f32(self.encoding.decode_first(sample)));
            self.peaks
                .push((start + STEP * number, samples.fold(0.0, |peak, sample| sample.abs().max(peak))));
        }
    }
}

/// Name and text of a JSON message: the first of the usual keys.
fn describe(message: &str) -> (String, String) {
    let json: Value = serde_json::from_str(message).unwrap_or_default();
    let first =
        |keys: &[&str]| keys.iter().find_map(|key| json[*key].as_str()).unwrap_or_default().to_owned();
    let unnamed = || json.as_object().and_then(|object| object.keys().next()).cloned().unwrap_or_default();
    let mut name = Some(first(&["type", "event"])).filter(|name| !name.is_empty()).unwrap_or_else(unnamed);
    if json["speaker"] == "assistant" {
        name.push_str(" of the model");
    }
    (name, first(&["text", "transcript", "partial", "reason"]))
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(LABEL_MAX_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// An SVG file under construction, from top to bottom.
struct Drawing {
    body: String,
    y: f64,
    seconds: f64,
}

/// Lines of labels, each with a span of time. A label takes the first line that has room.
struct LabelRows {
    top: f64,
    ends: Vec<f64>,
}

impl Drawing {
    fn x(&self, at: Duration) -> f64 {
        LEFT + at.as_secs_f64() / self.seconds * (RIGHT - LEFT)
    }

    fn text(&mut self, x: f64, class: &str, text: &str) {
        let (y, text) = (self.y, escape(text));
        let _ = writeln!(self.body, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{text}</text>"#);
    }

    /// The title of a part, to the left of the time axis.
    fn title(&mut self, text: &str) {
        self.text(8.0, "dim", text);
    }

    fn envelope(&mut self, title: &str, class: &str, peaks: &[(Duration, f32)]) {
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

    fn rows(&mut self, title: &str) -> LabelRows {
        self.y += 8.0;
        self.title(title);
        LabelRows { top: self.y, ends: Vec::new() }
    }

    /// The time axis: a tick at each full 1, 2 or 5 times a power of ten.
    fn axis(&mut self) {
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

    fn finish(self) -> String {
        let height = self.y + 14.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" role=\"img\">\
             <title>Timeline of a voxbridge session</title><style>{STYLE}</style>\n{}</svg>\n",
            self.body
        )
    }
}

impl LabelRows {
    fn place(&mut self, drawing: &mut Drawing, (from, to): (Duration, Duration), label: &str, class: &str) {
        let (from, to) = (drawing.x(from), drawing.x(to));
        let width = label.chars().count() as f64 * LETTER;
        // A label that does not fit to the right of its time stands to the left of it.
        let start = if from + width > WIDTH { from - width } else { from };
        let row = self.ends.iter().position(|end| *end < start).unwrap_or(self.ends.len());
        self.ends.resize(self.ends.len().max(row + 1), 0.0);
        self.ends[row] = to.max(start + width) + LETTER;
        drawing.y = self.top + row as f64 * LINE;
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
        drawing.text(start + 3.0, if class == "dim" { "" } else { class }, label);
    }

    fn finish(self, drawing: &mut Drawing) {
        drawing.y = self.top + self.ends.len().max(1) as f64 * LINE;
    }
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    // XML has no control characters.
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::Lane, mapping::Library};

    fn picture(frames: &[(u64, TapPoint, TapFrame<'_>)]) -> String {
        let mut picture = SessionPicture::new(&Library::embedded().unwrap().client("macaw").unwrap());
        frames.iter().for_each(|(ms, point, frame)| picture.add(Duration::from_millis(*ms), *point, *frame));
        picture.draw_svg()
    }

    #[test]
    fn picture_shows_messages_audio_upstreams_and_latencies() {
        let (loud, quiet) = ([0x40; 32_000], [0; 32_000]);
        let last = TapFrame::Text(r#"{"type":"transcript.final","text":"<b>&\u0007"}"#);
        let svg = picture(&[
            (1000, TapPoint::FromClient, TapFrame::Binary(&loud)),
            (1100, TapPoint::ToLane(Lane(1)), TapFrame::Text("{}")),
            (2000, TapPoint::FromClient, TapFrame::Binary(&quiet)),
            (2200, TapPoint::FromLane(Lane(1)), TapFrame::Text(r#"{"type":"x","text":"words"}"#)),
            (2500, TapPoint::ToClient, last),
            (3000, TapPoint::FromClient, TapFrame::Text(r#"{"type":"tts.speak","text":"Hello"}"#)),
            (3250, TapPoint::ToClient, TapFrame::Binary(&loud)),
        ]);
        for words in [
            "A session of 3.9 s",
            "← transcript.final “&lt;b&gt;&amp; ”",
            "→ tts.speak “Hello”",
            "#1 “words”",
            "1.50 s to the transcript",
            "0.25 s to the first audio",
        ] {
            assert!(svg.contains(words), "no {words}: {svg}");
        }
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn picture_of_an_empty_session_is_valid() {
        let svg = picture(&[]);
        assert!(svg.contains("A session of 1.0 s") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
