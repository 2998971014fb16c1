//! Rules of a client mapping that the types of its file do not express: what needs what, and what excludes what.

use super::{
    ClientMapping, CommandSyntax, EventMessage, Framing, LockStep, NO_PATHS, PARALLEL_MAX, PathPattern,
    ProtocolCommand, SEGMENTS_MAX, Verb, is_top_level, names_model,
};
use crate::{
    audio::encoding::Encoding,
    error::ErrorKind,
    spelling::{
        check::{Document, FileError},
        field::FieldRole,
    },
    vocabulary::{CloseReason, EventName},
};

/// The mistakes of a mapping, each at its place in the file.
pub(super) fn problems(mapping: &ClientMapping, document: &Document<'_>) -> Vec<FileError> {
    let mut checks = Checks { mapping, document, problems: Vec::new() };
    checks.check_words();
    checks.check_limits();
    checks.check_audio_out();
    checks.check_commands();
    checks.check_framing();
    checks.check_events();
    checks.check_lock_step();
    checks.check_query();
    checks.check_setup_page();
    checks.check_paths();
    for (section, key, message) in mapping.audio_problems() {
        checks.add(&[section, key], message);
    }
    checks.problems
}

struct Checks<'m> {
    mapping: &'m ClientMapping,
    document: &'m Document<'m>,
    problems: Vec<FileError>,
}

impl Checks<'_> {
    fn add(&mut self, path: &[&str], message: impl Into<String>) {
        self.problems.push(self.document.problem_at_key(path, message.into()));
    }

    /// Every kind of error and every reason of a close has its words.
    fn check_words(&mut self) {
        let mapping = self.mapping;
        for kind in ErrorKind::SESSION_KINDS.iter().filter(|kind| mapping.error(**kind).is_none()) {
            let message = format!(
                "[errors] says nothing about `{}`, nor about `other`; every kind needs words",
                kind.name()
            );
            self.add(&["errors"], message);
        }
        let needed = CloseReason::ALL.iter().filter(|name| name.fallback().is_none());
        for name in needed.filter(|name| !mapping.closes.contains_key(name)) {
            self.add(&["closes"], format!("[closes] says nothing about `{}`", name.name()));
        }
    }

    fn check_limits(&mut self) {
        let (audio_in, transcripts) = (&self.mapping.audio_in, &self.mapping.transcripts);
        if audio_in.backpressure_ms > 0 && audio_in.max_ahead_ms > 0 {
            let message =
                "`backpressure_ms` keeps all audio and `max_ahead_ms` drops some; one of them must be 0";
            self.add(&["audio_in", "backpressure_ms"], message);
        }
        if self.mapping.tcp.is_some() && audio_in.idle_ms == 0 {
            let message = "a client on bare TCP answers no pings, so `idle_ms` must not be 0: nothing else finds out that it is gone";
            self.add(&["audio_in", "idle_ms"], message);
        }
        if !(1..=PARALLEL_MAX).contains(&transcripts.parallel_max) {
            self.add(&["transcripts", "parallel_max"], format!("`parallel_max` must be 1 to {PARALLEL_MAX}"));
        }
        if !(1..=SEGMENTS_MAX).contains(&transcripts.segments_max) {
            self.add(&["transcripts", "segments_max"], format!("`segments_max` must be 1 to {SEGMENTS_MAX}"));
        }
    }

    fn check_audio_out(&mut self) {
        let mapping = self.mapping;
        let speaks = [Verb::Speak, Verb::AppendText].into_iter().any(|verb| mapping.has_verb(verb));
        let most = mapping.audio_out.frame_max_bytes;
        let has_audio_event = !mapping.event(EventName::Audio).is_empty();
        let plays = speaks || has_audio_event || mapping.realtime.is_some() || mapping.is_live;
        if plays && self.document.offset_of(&["audio_out"]).is_none() {
            let message = "the protocol has audio to the client, and so needs a table [audio_out]";
            self.add(&["audio_in"], message);
        } else if most < Encoding::MAX_BYTES_PER_SAMPLE && (most > 0 || speaks) {
            let none = if speaks { "" } else { ", or be 0 for a protocol that sends none" };
            let least = Encoding::MAX_BYTES_PER_SAMPLE;
            let message = format!("`frame_max_bytes` must hold a sample: {least} or more{none}");
            self.add(&["audio_out", "frame_max_bytes"], message);
        }
    }

    fn check_commands(&mut self) {
        let mapping = self.mapping;
        for (at, command) in mapping.commands.iter().enumerate() {
            let is_same =
                |other: &&ProtocolCommand| command.exactly.is_some() && other.exactly == command.exactly;
            if let Some(other) = mapping.commands[..at].iter().find(is_same) {
                let message = format!("`{}` and `{}` are the same message", other.name, command.name);
                self.add(&["commands", &command.name, "exactly"], message);
            }
        }
        let mut verbs = mapping.commands.iter().flat_map(|command| &command.verbs).map(|verb| verb.verb);
        let needs_realtime = mapping.realtime.is_none() && verbs.clone().any(Verb::is_realtime);
        let needs_live = !mapping.is_live && verbs.any(Verb::is_live);
        for (is_missing, what) in [(needs_realtime, "a table [realtime]"), (needs_live, "`live = true`")] {
            if is_missing {
                let message = format!("a command has a verb that needs {what}; see mappings/reference.md");
                self.add(&["commands"], message);
            }
        }
        if mapping.command_syntax == CommandSyntax::Words && !is_top_level(&mapping.command_key) {
            let message =
                "`command_syntax = \"words\"` needs a `command_key` such as \"/command\", for the first word";
            self.add(&["command_syntax"], message);
        }
    }

    fn check_framing(&mut self) {
        let mapping = self.mapping;
        if mapping.framing == Framing::Json {
            let takes_binary = mapping.audio_in.frame_max_bytes > 0 && mapping.takes_binary_audio;
            let sends_binary =
                mapping.audio_out.frame_max_bytes > 0 && mapping.event(EventName::Audio).is_empty();
            if takes_binary || sends_binary {
                let message = "`framing = \"json\"` needs audio in JSON: a command with the verb `audio` and the event `audio`, or `frame_max_bytes = 0`";
                self.add(&["framing"], message);
            }
        }
        if mapping.framing != Framing::Protobuf {
            return;
        }
        let of_commands = || mapping.commands.iter().flat_map(|command| &command.fields);
        let chooses_rate = of_commands().any(|field| field.file.to == Some(FieldRole::OutputRateHz));
        let chooses_encoding = mapping
            .all_fields()
            .any(|field| matches!(field.file.to, Some(FieldRole::OutputEncoding | FieldRole::OutputFormat)));
        if chooses_rate || chooses_encoding {
            let message = "`framing = \"protobuf\"` needs one format of audio to the client; only its rate may be chosen, in [query]";
            self.add(&["framing"], message);
        }
        let is_plain_text = |message: &EventMessage| message.is_text;
        if mapping.events.values().flatten().any(is_plain_text) {
            self.add(&["events"], "`framing = \"protobuf\"` has no messages of plain text; write JSON");
        }
    }

    fn check_events(&mut self) {
        let mapping = self.mapping;
        if mapping.segments_max.is_some() && mapping.event(EventName::TranscriptSegment).is_empty() {
            let message =
                "a template has `${last_segments}`, whose elements need a template `transcript_segment`";
            self.add(&["events"], message);
        }
        if mapping.has_verb(Verb::Complete) && mapping.event(EventName::Completed).is_empty() {
            let message = "a command has the verb `complete`, which is answered by an event `completed`; add its template";
            self.add(&["events"], message);
        }
    }

    fn check_lock_step(&mut self) {
        let mapping = self.mapping;
        let chooses_finals = mapping.all_fields().any(|field| field.file.to == Some(FieldRole::FinalsOnly));
        if mapping.lock_step == LockStep::EveryFrame && chooses_finals {
            let message = "`lock_step = \"every_frame\"` answers every frame; a field with `to = \"finals_only\"` cannot change that";
            self.add(&["lock_step"], message);
        }
    }

    fn check_query(&mut self) {
        let mapping = self.mapping;
        for (header, parameter) in &mapping.headers {
            if !mapping.query.iter().any(|field| field.name == *parameter) {
                let message =
                    format!("the header `{header}` stands for `{parameter}`, which [query] does not have");
                self.add(&["headers"], message);
            }
        }
        for name in mapping.key_parameters.iter().filter(|name| mapping.has_parameter(name)) {
            let message = format!("`{name}` contains a key, and so is no parameter of [query]");
            self.add(&["key_parameters"], message);
        }
        if !mapping.query.iter().any(names_model) {
            let message = format!(
                "no parameter has `to = \"model\"`, and a connection without a model finds no route; for clients that name \
                 none, add `model = {{ to = \"model\", type = \"text\", max = 256, default = {:?} }}` to [query]",
                mapping.name
            );
            self.add(&["query"], message);
        }
    }

    fn check_setup_page(&mut self) {
        let mapping = self.mapping;
        let Some(page) = &mapping.setup_page else { return };
        for (name, _) in page.parameters.iter().filter(|(name, _)| !mapping.has_parameter(name)) {
            let message = format!("[setup_page] has the parameter `{name}`, which [query] does not have");
            self.add(&["setup_page", "parameters"], message);
        }
        if let Some(name) = page.signature.as_ref().filter(|name| !mapping.key_parameters.contains(name)) {
            let message = format!("[setup_page] signs with `{name}`, which is none of `key_parameters`");
            self.add(&["setup_page", "signature"], message);
        }
    }

    fn check_paths(&mut self) {
        let mapping = self.mapping;
        for name in mapping.path_patterns.iter().flat_map(PathPattern::names) {
            if !mapping.query.iter().any(|field| field.name == name) {
                let message =
                    format!("a path has the part `{{{name}}}`, and [query] has no parameter `{name}`");
                self.add(&["paths"], message);
            }
        }
        if mapping.paths.is_empty() && !mapping.is_rest && mapping.tcp.is_none() {
            self.add(&["paths"], NO_PATHS);
        }
    }
}
