//! The model side's wire: text frames of one dialect to and from the neutral vocabulary.
//!
//! One dialect type serves every mapping file; it holds no session state, only room to decode audio into.

mod relay;

use std::sync::Arc;

use crate::{
    audio::pcm,
    event::{Append, EndMeaning, Ending, Frame, LaneCommand, LaneEvent, Mark},
    mapping::{
        UpstreamMapping,
        extract::{Found, Node},
        template::Fill,
        upstream::{ReceiveName, Rule, SendName},
    },
};

/// One session's dialect.
#[derive(Debug)]
pub struct Dialect {
    mapping: Arc<UpstreamMapping>,
    /// Decoded audio of the message at hand; given back empty, so an idle session holds none.
    samples: Vec<f32>,
}

impl Dialect {
    /// A dialect for one session.
    #[must_use]
    pub const fn new(mapping: Arc<UpstreamMapping>) -> Self {
        Self { mapping, samples: Vec::new() }
    }

    /// The mapping it speaks by.
    #[must_use]
    pub const fn mapping(&self) -> &Arc<UpstreamMapping> {
        &self.mapping
    }

    /// Reads one frame, leniently: what cannot be read is [`LaneEvent::Unknown`], never an error.
    ///
    /// A message may mean several events; they are told in order, all with the same mark.
    pub fn decode<'a>(&'a mut self, frame: Frame<'a>, mut told: impl FnMut(LaneEvent<'_>, Mark<'_>)) {
        self.samples.clear();
        let Frame::Text(text) = frame else {
            return told(LaneEvent::Unknown("a binary frame".to_owned()), Mark::default());
        };
        match self.mapping.shape.extract(text) {
            Ok(found) => match self.mapping.rules.iter().find(|rule| matches(rule, &found)) {
                Some(rule) => {
                    let mark = mark(rule, &found);
                    tell(&self.mapping, rule, &found, &mut self.samples, |event| told(event, mark));
                }
                None => told(LaneEvent::Unknown(describe(&self.mapping, &found)), Mark::default()),
            },
            Err(error) => told(LaneEvent::Unknown(error.to_string()), Mark::default()),
        }
        self.samples = Vec::new();
    }

    /// The text frame for a command.
    #[must_use]
    pub fn encode(&self, command: &LaneCommand) -> String {
        let (name, room) = match command {
            LaneCommand::Init(None) => (SendName::Init, 64),
            LaneCommand::Init(Some(voice)) => (SendName::InitWithVoice, 256 + 2 * voice.0.len()),
            LaneCommand::Transcribe { audio, .. } => {
                (SendName::Transcribe, 1024 + pcm::base64_f32_len(audio.len()))
            }
            LaneCommand::Speak { voice: None, request, .. } => (SendName::Speak, 1024 + request.len()),
            LaneCommand::Speak { voice: Some(voice), request, .. } => {
                (SendName::SpeakWithVoice, 1024 + request.len() + 2 * voice.0.len())
            }
            LaneCommand::Converse(opening) => {
                let name = match opening.voice {
                    Some(_) => SendName::ConverseWithVoice,
                    None => SendName::Converse,
                };
                let voice = opening.voice.as_ref().map_or(0, |voice| 2 * voice.0.len());
                (name, 256 + opening.prompt.len() + opening.config.len() + voice)
            }
            LaneCommand::Append(Append { frame: None, audio, .. }) => {
                (SendName::Append, 160 + pcm::base64_f32_len(audio.len()))
            }
            LaneCommand::Append(Append { frame: Some(frame), audio, .. }) => {
                (SendName::AppendWithFrame, 200 + frame.0.len() + pcm::base64_f32_len(audio.len()))
            }
            LaneCommand::Close => (SendName::Close, 64),
            LaneCommand::Spelled(text) => return text.clone(),
        };
        let mut json = String::with_capacity(room);
        if let Some(template) = self.mapping.message(name) {
            template.render(&mut json, |slot| fill(command, name.slots()[slot]));
        }
        json
    }
}

/// A slot's value; the names are those of [`SendName::slots`].
fn fill<'v>(command: &'v LaneCommand, slot: &str) -> Fill<'v> {
    match (command, slot) {
        (LaneCommand::Init(Some(voice)) | LaneCommand::Speak { voice: Some(voice), .. }, "voice") => {
            Fill::Raw(&voice.0)
        }
        (LaneCommand::Transcribe { prompt, .. }, "prompt") => Fill::Str(prompt),
        (LaneCommand::Transcribe { audio, .. }, "audio") => Fill::Audio(audio),
        // Without a voice sample there is nothing to put between the two halves of the prompt.
        (LaneCommand::Speak { after_voice, .. }, "system" | "after_voice") => Fill::Str(after_voice),
        (LaneCommand::Speak { before_voice, .. }, "before_voice") => Fill::Str(before_voice),
        (LaneCommand::Speak { request, .. }, "text") => Fill::Str(request),
        (LaneCommand::Converse(opening), "prompt") => Fill::Str(&opening.prompt),
        (LaneCommand::Converse(opening), "config") => Fill::Raw(&opening.config),
        (LaneCommand::Converse(opening), "voice") => {
            opening.voice.as_ref().map_or(Fill::Null, |voice| Fill::Raw(&voice.0))
        }
        (LaneCommand::Append(append), "audio") => Fill::Audio(&append.audio),
        (LaneCommand::Append(append), "input_id") => Fill::Str(&append.input_id),
        (LaneCommand::Append(append), "force_listen") => Fill::Bool(append.force_listen),
        (LaneCommand::Append(append), "frame") => {
            append.frame.as_ref().map_or(Fill::Null, |frame| Fill::Raw(&frame.0))
        }
        (LaneCommand::Close, "reason") => Fill::Str("turn_done"),
        _ => Fill::Null,
    }
}

fn mark<'f>(rule: &Rule, found: &'f Found<'_>) -> Mark<'f> {
    let text = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_str);
    let tokens = rule.context_tokens.and_then(|slot| found.get(slot)).and_then(Node::as_f64);
    Mark {
        response_id: text(rule.response_id),
        input_id: text(rule.input_id),
        context_tokens: tokens.map(|tokens| tokens.clamp(0.0, f64::from(u32::MAX)) as u32),
    }
}

/// What a message means.
fn tell(
    mapping: &UpstreamMapping,
    rule: &Rule,
    found: &Found<'_>,
    samples: &mut Vec<f32>,
    mut told: impl FnMut(LaneEvent<'_>),
) {
    let text = |slot: Option<usize>| slot.and_then(|slot| found.get(slot)).and_then(Node::as_str);
    let count = |slot: Option<usize>| {
        let number = slot.and_then(|slot| found.get(slot)).and_then(Node::as_f64)?;
        Some(number.clamp(0.0, f64::from(u32::MAX)) as u32)
    };
    match rule.event {
        ReceiveName::Queued => told(LaneEvent::Queued {
            position: count(rule.position),
            length: count(rule.length),
            wait_s: rule.wait_s.and_then(|slot| found.get(slot)).and_then(Node::as_f64),
        }),
        ReceiveName::Granted => told(LaneEvent::Granted),
        ReceiveName::Ready => told(LaneEvent::Ready { session_id: text(rule.session_id) }),
        ReceiveName::Listen => told(LaneEvent::Listen),
        ReceiveName::Text => told(LaneEvent::Text(text(rule.text).unwrap_or_default())),
        ReceiveName::Audio => told(audio(text(rule.audio), samples)),
        ReceiveName::Done => {
            // An answer whose audio cannot be read is still an answer: its text counts.
            let _ = decode_audio(text(rule.audio), samples);
            told(LaneEvent::Done { text: text(rule.text), audio: samples });
        }
        ReceiveName::Output => output(rule, found, samples, told),
        ReceiveName::Closed => {
            told(LaneEvent::Closed(ending(mapping, text(rule.reason), text(rule.detail))));
        }
        ReceiveName::Failed => failed(mapping, text(rule.code), text(rule.detail), told),
    }
}

fn audio<'s>(text: Option<&str>, samples: &'s mut Vec<f32>) -> LaneEvent<'s> {
    match decode_audio(text, samples) {
        Ok(()) => LaneEvent::Audio(samples),
        Err(problem) => LaneEvent::Unknown(problem),
    }
}

/// All of a unit in one message: what there is of it, and last what ends it, which is one event and not two: the next unit
/// may be on its way before a second one comes.
fn output(rule: &Rule, found: &Found<'_>, samples: &mut Vec<f32>, mut told: impl FnMut(LaneEvent<'_>)) {
    let node = |slot: Option<usize>| slot.and_then(|slot| found.get(slot));
    let text = |slot: Option<usize>| node(slot).and_then(Node::as_str).filter(|text| !text.is_empty());
    if let Some(text) = text(rule.text) {
        told(LaneEvent::Text(text));
    }
    if let Some(base64) = text(rule.audio) {
        told(audio(Some(base64), samples));
    }
    if node(rule.end_of_turn) == Some(&Node::Bool(true)) {
        told(LaneEvent::Listen);
    } else {
        told(LaneEvent::Done { text: None, audio: &[] });
    }
}

/// An error is the end, unless the dialect says otherwise of its code.
fn failed(
    mapping: &UpstreamMapping,
    code: Option<&str>,
    detail: Option<&str>,
    mut told: impl FnMut(LaneEvent<'_>),
) {
    let ending = ending(mapping, code, detail);
    if code.is_some_and(|code| is_in(&mapping.meanings.goes_on, code)) {
        told(LaneEvent::Trouble(&ending.words));
    } else {
        told(LaneEvent::Closed(ending));
    }
}

fn matches(rule: &Rule, found: &Found<'_>) -> bool {
    rule.when.iter().all(|(slot, value)| found.get(*slot).and_then(Node::as_str) == Some(value))
}

fn decode_audio(text: Option<&str>, samples: &mut Vec<f32>) -> Result<(), String> {
    let text = text.unwrap_or_default();
    pcm::pull_base64_f32(without_data_prefix(text), samples)
        .map_err(|error| format!("audio of {} characters that was dropped: {error}", text.len()))
}

/// Without `data:audio/…;base64,`: the C++ back-end takes it (field notes §1.7), so others may send it.
fn without_data_prefix(text: &str) -> &str {
    let url = text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    url.map_or(text, |(_, data)| data)
}

fn is_in(list: &[String], text: &str) -> bool {
    list.iter().any(|entry| text.contains(entry.as_str()))
}

fn ending(mapping: &UpstreamMapping, reason: Option<&str>, detail: Option<&str>) -> Ending {
    let reason = reason.unwrap_or("no reason given");
    let meaning = if detail.is_some_and(|detail| is_in(&mapping.meanings.empty_answer, detail)) {
        EndMeaning::EmptyAnswer
    } else if is_in(&mapping.meanings.queue_full, reason) {
        EndMeaning::QueueFull
    } else if is_in(&mapping.meanings.used_up, reason) {
        let stays = is_in(&mapping.meanings.stays_open, reason);
        if stays { EndMeaning::UsedUpAndOpen } else { EndMeaning::UsedUp }
    } else {
        EndMeaning::Over
    };
    let words = detail.map_or_else(|| reason.to_owned(), |detail| format!("{reason}: {detail}"));
    Ending { meaning, words }
}

/// The values the rules look at, for the log.
fn describe(mapping: &UpstreamMapping, found: &Found<'_>) -> String {
    let mut slots: Vec<usize> =
        mapping.rules.iter().flat_map(|rule| rule.when.iter().map(|when| when.0)).collect();
    slots.sort_unstable();
    slots.dedup();
    let values: Vec<&str> =
        slots.iter().filter_map(|slot| found.get(*slot)).filter_map(Node::as_str).collect();
    if values.is_empty() {
        "a message without a type".to_owned()
    } else {
        format!("a message of type {}", values.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::VoiceSample, mapping::Library};

    fn dialect() -> Dialect {
        Dialect::new(Library::embedded().unwrap().upstream("minicpm-o").unwrap())
    }

    fn legacy() -> Dialect {
        Dialect::new(Library::embedded().unwrap().upstream("minicpm-o-legacy").unwrap())
    }

    fn seen(text: &str) -> String {
        seen_by(dialect(), text)
    }

    fn seen_by(mut dialect: Dialect, text: &str) -> String {
        let mut seen = Vec::new();
        dialect.decode(Frame::Text(text), |event, _| seen.push(format!("{event:?}")));
        seen.join(", ")
    }

    #[test]
    fn the_real_servers_messages_are_understood() {
        for (text, event) in [
            (r#"{"type":"session.queue_done"}"#, "Granted"),
            (
                r#"{"type":"session.queued","position":1,"estimated_wait_s":0.8,"ticket_id":"q","queue_length":1}"#,
                "Queued { position: Some(1), length: Some(1), wait_s: Some(0.8) }",
            ),
            (
                r#"{"type":"session.created","session_id":"s","metrics":{"kv_cache_length":17}}"#,
                "Ready { session_id: Some(\"s\") }",
            ),
            (r#"{"type":"response.output.delta","kind":"text","text":" jumps"}"#, "Text(\" jumps\")"),
            (
                r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAAAAAAD8="}"#,
                "Audio([0.0, 0.5])",
            ),
            (
                r#"{"type":"response.output.delta","kind":"audio","audio":"data:audio/pcm;base64,AAAAAAAAAD8="}"#,
                "Audio([0.0, 0.5])",
            ),
            (
                r#"{"type":"response.done","text":"x","reason":"turn_end"}"#,
                "Done { text: Some(\"x\"), audio: [] }",
            ),
            (r#"{"type":"response.done","text":"x","audio":null}"#, "Done { text: Some(\"x\"), audio: [] }"),
            (
                r#"{"type":"session.closed","session_id":null,"reason":"backend_error"}"#,
                "Closed(Ending { meaning: Over, words: \"backend_error\" })",
            ),
            (
                r#"{"type":"error","error":{"code":"queue_full","message":"Queue full","type":"server_error"}}"#,
                "Closed(Ending { meaning: QueueFull, words: \"queue_full: Queue full\" })",
            ),
        ] {
            assert_eq!(seen(text), event, "{text}");
        }
    }

    #[test]
    fn the_crash_on_an_empty_answer_is_an_empty_answer() {
        let text = r#"{"type":"session.closed","reason":"backend_error","diagnostic":{"message":"torch.cat(): expected a non-empty list of Tensors"}}"#;
        assert!(seen(text).contains("EmptyAnswer"));
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_never_fatal() {
        for text in ["{", "[]", "{}", r#"{"type":"session.resume"}"#, r#"{"type":7}"#] {
            assert!(seen(text).starts_with("Unknown"), "{text}");
        }
        for (audio, words) in [
            ("AAA", "audio of 3 characters that was dropped: the audio is not valid base64"),
            ("AAAA", "audio of 4 characters that was dropped: 3 bytes of audio are not a whole number"),
        ] {
            let text = format!(r#"{{"type":"response.output.delta","kind":"audio","audio":"{audio}"}}"#);
            assert!(seen(&text).starts_with(&format!("Unknown(\"{words}")), "{}", seen(&text));
        }
        assert!(seen(r#"{"type":"response.output.delta","kind":"text"}"#).starts_with("Text(\"\")"));
    }

    #[test]
    fn questions_are_spelled_as_the_field_notes_say() {
        let ask = LaneCommand::Transcribe { prompt: "p \"q\"".into(), audio: Arc::new(vec![0, 16384]) };
        let json: serde_json::Value = serde_json::from_str(&dialect().encode(&ask)).unwrap();
        let content = &json["input"]["messages"][0]["content"];
        assert_eq!(content[0]["text"], "p \"q\"");
        assert_eq!(content[1], serde_json::json!({"type": "audio", "data": "AAAAAAAAAD8="}));
        assert_eq!(json["input"]["tts"]["enabled"], false);
        assert!(json["input"].get("use_tts_template").is_none());

        let voice = VoiceSample("\"AAAAAA==\"".into());
        let speak = LaneCommand::Speak {
            before_voice: "b".into(),
            after_voice: "a".into(),
            request: "r".into(),
            voice: Some(voice.clone()),
        };
        let json: serde_json::Value = serde_json::from_str(&dialect().encode(&speak)).unwrap();
        assert_eq!(json["input"]["tts"]["ref_audio_data"], "AAAAAA==");
        assert_eq!(json["input"]["messages"][0]["content"][1]["data"], "AAAAAA==");
        let init: serde_json::Value =
            serde_json::from_str(&dialect().encode(&LaneCommand::Init(Some(voice)))).unwrap();
        assert_eq!(init["payload"]["voice"]["ref_audio_base64"], "AAAAAA==");
    }

    #[test]
    fn one_message_of_the_legacy_dialect_is_all_that_came_of_a_unit() {
        let ended = "Done { text: None, audio: [] }";
        for (text, audio, end_of_turn, events) in [
            ("\"a\"", "\"AAAAAAAAAD8=\"", "false", format!("Text(\"a\"), Audio([0.0, 0.5]), {ended}")),
            ("\"a\"", "\"AAAAAAAAAD8=\"", "true", "Text(\"a\"), Audio([0.0, 0.5]), Listen".to_owned()),
            ("\"\"", "null", "false", ended.to_owned()),
            ("\"\"", "\"\"", "true", "Listen".to_owned()),
            (
                "null",
                "\"AAAA\"",
                "false",
                format!(
                    "Unknown(\"audio of 4 characters that was dropped: 3 bytes of audio are not a whole number of float32 samples\"), {ended}"
                ),
            ),
        ] {
            let message = format!(
                r#"{{"type":"response.output_audio.delta","text":{text},"audio":{audio},"end_of_turn":{end_of_turn},"kv_cache_length":172}}"#
            );
            assert_eq!(seen_by(legacy(), &message), events, "{message}");
            legacy().decode(Frame::Text(&message), |_, mark| assert_eq!(mark.context_tokens, Some(172)));
        }
    }

    #[test]
    fn the_legacy_servers_other_messages_are_understood() {
        let error = |code: &str| format!(r#"{{"type":"error","error":{{"code":"{code}","message":"m"}}}}"#);
        for (text, event) in [
            (r#"{"type":"session.queue_done"}"#.to_owned(), "Granted".to_owned()),
            (
                r#"{"type":"session.created","session_id":"rt_1","prompt_length":94}"#.to_owned(),
                "Ready { session_id: Some(\"rt_1\") }".to_owned(),
            ),
            (r#"{"type":"response.listen","kv_cache_length":88}"#.to_owned(), "Listen".to_owned()),
            (
                r#"{"type":"session.closed","reason":"context_full"}"#.to_owned(),
                "Closed(Ending { meaning: UsedUpAndOpen, words: \"context_full\" })".to_owned(),
            ),
            (error("inference_failed"), "Trouble(\"inference_failed: m\")".to_owned()),
            (error("not_ready"), "Trouble(\"not_ready: m\")".to_owned()),
            (
                error("queue_full"),
                "Closed(Ending { meaning: QueueFull, words: \"queue_full: m\" })".to_owned(),
            ),
            (error("worker_busy"), "Closed(Ending { meaning: Over, words: \"worker_busy: m\" })".to_owned()),
        ] {
            assert_eq!(seen_by(legacy(), &text), event, "{text}");
        }
    }

    #[test]
    fn the_legacy_dialect_is_spoken_as_its_server_takes_it() {
        let said = |command: &LaneCommand| -> serde_json::Value {
            serde_json::from_str(&legacy().encode(command)).unwrap()
        };
        let opening = crate::event::Opening {
            prompt: "p".into(),
            config: r#"{"temperature":0.7}"#.into(),
            voice: Some(VoiceSample("\"AAAAAA==\"".into())),
        };
        let expected = serde_json::json!({"type": "session.update", "session": {
            "instructions": "p", "voice_config": {"temperature": 0.7},
            "ref_audio": "AAAAAA==", "tts_ref_audio": "AAAAAA=="
        }});
        assert_eq!(said(&LaneCommand::Converse(Box::new(opening))), expected);
        let append = |frame: Option<&str>| {
            LaneCommand::Append(Append {
                audio: Arc::new(vec![0, 16384]),
                input_id: "1".into(),
                force_listen: true,
                frame: frame.map(|frame| crate::event::VideoFrame(frame.into())),
            })
        };
        let mut expected = serde_json::json!(
            {"type": "input_audio_buffer.append", "audio": "AAAAAAAAAD8=", "force_listen": true}
        );
        assert_eq!(said(&append(None)), expected);
        expected["video_frames"] = serde_json::json!(["/9j/"]);
        expected["max_slice_nums"] = 1.into();
        assert_eq!(said(&append(Some("\"/9j/\""))), expected);
    }
}
