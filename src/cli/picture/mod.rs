//! Picture of a session: a timeline with the audio of both directions, the messages to and from the client, the latencies
//! and the upstream sessions, as an SVG file.

mod drawing;
pub(super) mod recordings;

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use self::drawing::Drawing;
use crate::{
    audio::{
        encoding::Encoding,
        opus::{DECODED_RATE_HZ, PacketDecoder},
        pcm,
    },
    server::tap::{TapFrame, TapPoint},
    spelling::ClientMapping,
};

/// Resolution of the envelopes.
const STEP: Duration = Duration::from_millis(20);
/// Level from which a client's sample is speech, full scale at 1: above the noise of a room.
const AUDIBLE: f32 = 0.06;
/// Pause of the audio to the client after which it begins anew.
const PAUSE: Duration = Duration::from_millis(500);
/// Audio of one direction.
struct AudioTrack {
    encoding: Encoding,
    /// Decoder of Opus, which becomes float32.
    packets: Option<PacketDecoder>,
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

impl Mark {
    /// True for the final transcript of an utterance, whatever the protocol calls it.
    fn is_final_transcript(&self) -> bool {
        self.name.ends_with("final") || self.name.ends_with("transcription.completed")
    }
}

/// Collects the frames of a session.
pub(super) struct SessionPicture {
    up: AudioTrack,
    down: AudioTrack,
    marks: Vec<Mark>,
    lanes: BTreeMap<u32, UpstreamSpan>,
}

/// Event in an upstream session.
struct UpstreamSpan {
    /// First and last frame.
    from: Duration,
    to: Duration,
    /// The last frame to it before its first words: its question.
    asked: Duration,
    /// The last text from it.
    said: String,
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
                let new = UpstreamSpan { from: at, to: at, asked: at, said: String::new() };
                let UpstreamSpan { from, to, asked, said } = self.lanes.entry(lane.0).or_insert(new);
                (*from, *to) = (at.min(*from), at.max(*to));
                if matches!(point, TapPoint::ToLane(_)) && said.is_empty() {
                    *asked = at;
                }
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
        let ends = self.marks.iter().map(|mark| mark.at).chain(self.lanes.values().map(|lane| lane.to));
        let end = ends.chain([self.up.end, self.down.end, Duration::from_secs(1)]).max().unwrap_or_default();
        let mut drawing = Drawing::new(&format!("A session of {:.1} s", end.as_secs_f64()), end);
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
            if is_repeated && !mark.is_final_transcript() {
                continue;
            }
            let arrow = if mark.is_up { "→" } else { "←" };
            let text = if mark.text.is_empty() { String::new() } else { format!(" “{}”", mark.text) };
            let label = format!("{arrow} {}{text}", mark.name);
            rows.place(drawing, mark.at..mark.at, &label, if mark.is_up { "up" } else { "down" });
        }
        rows.finish(drawing);
    }

    fn draw_latencies(&self, drawing: &mut Drawing) {
        let mut rows = drawing.rows("latency");
        for (from, to, what) in self.latencies() {
            let label = format!("{:.2} s {what}", (to - from).as_secs_f64());
            rows.place(drawing, from..to, &label, "late-text");
        }
        rows.finish(drawing);
    }

    /// Times from the end of an utterance to its final transcript, and from a command or the end of the client's sound to the
    /// audio that follows.
    fn latencies(&self) -> Vec<(Duration, Duration, &'static str)> {
        let sound_end = |until: Duration| {
            let sounds = self.up.peaks.iter().take_while(|(at, _)| *at < until);
            sounds.filter(|(_, peak)| *peak >= AUDIBLE).last().map(|(at, _)| *at + STEP)
        };
        let finals = self.marks.iter().filter(|mark| mark.is_final_transcript() && !mark.text.is_empty());
        let to_transcript = finals
            .filter_map(|mark| Some((sound_end(self.utterance_end(mark))?, mark.at, "to the transcript")));
        let to_audio = self.down.arrivals.iter().filter_map(|at| {
            let command = self.marks.iter().rfind(|mark| mark.is_up && mark.at <= *at).map(|mark| mark.at);
            Some((command.max(sound_end(*at))?, *at, "to the first audio"))
        });
        // A conversation's sound may go on during the transcript.
        to_transcript.chain(to_audio).filter(|(from, to, _)| from < to).collect()
    }

    /// When the utterance of a transcript was over: when the model was asked, or when the client was told before. The user may
    /// speak again until the transcript comes. Its own time if no upstream session said these words.
    fn utterance_end(&self, transcript: &Mark) -> Duration {
        let is_its_own =
            |lane: &&UpstreamSpan| lane.said.trim() == transcript.text.trim() && lane.asked <= transcript.at;
        let lane = self.lanes.values().filter(is_its_own).max_by_key(|lane| lane.asked);
        let Some(lane) = lane else { return transcript.at };
        // A session may be dialled when the utterance ends, and the question waits until it is ready.
        let told = self.marks.iter().filter(|mark| !mark.is_up && mark.name.ends_with("speech_stopped"));
        let told =
            told.map(|mark| mark.at).filter(|at| (lane.from.saturating_sub(PAUSE)..=lane.asked).contains(at));
        told.max().unwrap_or(lane.asked)
    }

    fn draw_lanes(&self, drawing: &mut Drawing) {
        let mut rows = drawing.rows("upstream");
        for (lane, UpstreamSpan { from, to, said, .. }) in &self.lanes {
            let text = if said.is_empty() { String::new() } else { format!(" “{said}”") };
            rows.place(drawing, *from..*to, &format!("#{lane}{text}"), "dim");
        }
        rows.finish(drawing);
    }
}

impl AudioTrack {
    fn new(encoding: Encoding, rate_hz: u32, channels: u16) -> Self {
        let packets = (encoding == Encoding::Opus).then(PacketDecoder::default);
        let (encoding, rate_hz, channels) = match packets {
            Some(_) => (Encoding::F32le, DECODED_RATE_HZ, 1),
            None => (encoding, rate_hz, channels),
        };
        let bytes_per_second = encoding.bytes_per_sample() as f64 * f64::from(rate_hz) * f64::from(channels);
        Self {
            encoding,
            packets,
            bytes_per_second,
            end: Duration::ZERO,
            peaks: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    /// Adds a frame: recorded audio ends when it arrives, played audio begins then or after the audio before.
    fn push(&mut self, at: Duration, bytes: &[u8], is_recorded: bool) {
        let decoded: Vec<u8> = match &mut self.packets {
            None => Vec::new(),
            Some(packets) => {
                let mut audio = Vec::new();
                packets.decode(bytes, &mut audio);
                audio.iter().flat_map(|sample| sample.to_le_bytes()).collect()
            }
        };
        let bytes = if self.packets.is_some() { &decoded } else { bytes };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{spelling::Library, vocabulary::Lane};

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
    fn latency_begins_at_the_end_of_the_utterance_even_if_the_user_speaks_again() {
        let (loud, quiet) = ([0x40; 32_000], [0; 16_000]);
        let words = TapFrame::Text(r#"{"text":"words"}"#);
        let svg = picture(&[
            (1000, TapPoint::FromClient, TapFrame::Binary(&loud)),
            (1500, TapPoint::FromClient, TapFrame::Binary(&quiet)),
            (1510, TapPoint::ToLane(Lane(1)), TapFrame::Text("{}")),
            (2510, TapPoint::FromClient, TapFrame::Binary(&loud)),
            (2550, TapPoint::FromLane(Lane(1)), words),
            (2560, TapPoint::ToLane(Lane(1)), TapFrame::Text(r#"{"type":"session.close"}"#)),
            (2600, TapPoint::ToClient, TapFrame::Text(r#"{"type":"transcript.final","text":"words"}"#)),
        ]);
        assert!(svg.contains("1.60 s to the transcript"), "{svg}");

        // A session that is dialled late is asked late.
        let svg = picture(&[
            (1000, TapPoint::FromClient, TapFrame::Binary(&loud)),
            (1500, TapPoint::FromClient, TapFrame::Binary(&quiet)),
            (1500, TapPoint::ToClient, TapFrame::Text(r#"{"type":"input_audio_buffer.speech_stopped"}"#)),
            (1510, TapPoint::ToLane(Lane(1)), TapFrame::Text("{}")),
            (2000, TapPoint::FromClient, TapFrame::Binary(&loud[..16_000])),
            (2010, TapPoint::ToLane(Lane(1)), TapFrame::Text("{}")),
            (2550, TapPoint::FromLane(Lane(1)), words),
            (2600, TapPoint::ToClient, TapFrame::Text(r#"{"type":"transcript.final","text":"words"}"#)),
        ]);
        assert!(svg.contains("1.60 s to the transcript"), "{svg}");
    }

    /// The number after `name="` in a line.
    fn number(line: &str, name: &str) -> f64 {
        let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap_or_else(|| panic!("{line}"));
        rest.split('"').next().unwrap().parse().unwrap()
    }

    #[test]
    fn marks_of_messages_are_not_drawn_over_labels() {
        let names: Vec<String> =
            (0..60).map(|n| format!(r#"{{"type":"conversation.item.transcription.{n}"}}"#)).collect();
        let frames = (0..).zip(&names).map(|(n, text)| (n * 90, TapPoint::ToClient, TapFrame::Text(text)));
        let svg = picture(&frames.collect::<Vec<_>>());
        let (mut labels, mut marks) = (Vec::new(), Vec::new());
        for line in svg.lines().filter(|line| line.contains("class=\"down\" x")) {
            let (x, y) = (number(line, " x"), number(line, " y"));
            let Some((tag, text)) = line.split_once('>').filter(|_| line.starts_with("<text")) else {
                marks.push((x, y));
                continue;
            };
            let width = 6.0 * text.trim_end_matches("</text>").chars().count() as f64;
            let left = if tag.contains("anchor=\"end\"") { x - width } else { x };
            labels.push((left, left + width, y));
        }
        assert!(labels.len() > 16 && marks.len() == 60, "{} {}", labels.len(), marks.len());
        for (x, top) in marks {
            let over = labels.iter().find(|(left, right, baseline)| {
                (left + 1.0..right - 1.0).contains(&x) && (top..top + 14.0).contains(baseline)
            });
            assert!(over.is_none(), "a mark at {x}, {top} over the label at {over:?}: {svg}");
        }
    }

    #[test]
    fn long_texts_are_wrapped_at_words_and_complete_in_the_title() {
        let words: Vec<String> = (0..12).map(|number| format!("considerable{number}")).collect();
        let text = words.join(" ");
        let message = format!(r#"{{"type":"transcript.final","text":"{text}"}}"#);
        let svg = picture(&[(100, TapPoint::ToClient, TapFrame::Text(&message))]);
        assert!(svg.contains(&format!("<title>← transcript.final “{text}”</title>")), "{svg}");
        let lines: Vec<&str> = svg.lines().filter(|line| line.contains("class=\"down\" x")).collect();
        let shown = lines.concat();
        assert!(lines.len() > 3, "{svg}");
        for word in &words[..5] {
            assert!(shown.contains(word.as_str()), "{word} is cut: {shown}");
        }
        assert!(shown.contains('…'), "{shown}");
    }

    #[test]
    fn picture_of_many_messages_stays_small() {
        let texts: Vec<String> =
            (0..1000).map(|number| format!(r#"{{"type":"message {number}"}}"#)).collect();
        let frames = (0..).zip(&texts).map(|(ms, text)| (ms, TapPoint::ToClient, TapFrame::Text(text)));
        let frames: Vec<_> = frames.collect();
        let svg = picture(&frames);
        let height = svg.split_once("viewBox=\"0 0 1200 ").unwrap().1.split_once('"').unwrap().0;
        assert!(height.parse::<u32>().unwrap() < 700, "{height}");
        assert!(svg.contains("← message 0</text>") && !svg.contains("← message 500</text>"));
    }

    #[test]
    fn picture_of_an_empty_session_is_valid() {
        let svg = picture(&[]);
        assert!(svg.contains("A session of 1.0 s") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
