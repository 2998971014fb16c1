//! Messages of the stub in the dialect of a server that can converse, in one session.
//!
//! They have the fields of the real servers, so that reading them costs the bridge what it costs there.

use voxbridge::{cli::args::ServerArg, spelling::upstream::SampleEncoding};

use crate::append::{Append, find_string_value, has_type};

/// Silence before the first unit that voxbridge sends to vLLM-Omni, samples.
const VLLM_LEAD_SAMPLES: usize = 320;

/// Message of the bridge.
pub(crate) enum Received<'a> {
    /// Opens the session.
    Opening,
    /// Brings audio, or has none where it should.
    Append(Option<Append<'a>>),
    /// Ends the session.
    Closing,
    /// Asks to stop an answer.
    Cancellation,
    /// Needs no answer.
    Other,
}

/// A second of speech: messages before it, the two halves of the message around its base64, and messages after it.
pub(crate) struct SpokenSecond {
    pub(crate) before: Vec<String>,
    pub(crate) around: (String, String),
    pub(crate) after: Vec<String>,
}

/// One session.
pub(crate) struct ServerDialect {
    server: ServerArg,
    id: String,
    is_chat: bool,
    /// Number of the answer.
    turn: u64,
    /// Number of the unit that is answered.
    unit: u64,
    has_appended: bool,
    event_count: u64,
}

impl ServerDialect {
    pub(crate) const fn new(server: ServerArg, id: String, is_chat: bool) -> Self {
        Self { server, id, is_chat, turn: 0, unit: 0, has_appended: false, event_count: 0 }
    }

    pub(crate) const fn encoding(&self) -> SampleEncoding {
        encoding_of(self.server)
    }

    pub(crate) fn read<'p>(&mut self, payload: &'p [u8]) -> Received<'p> {
        if ["input.append", "input_audio_buffer.append"].iter().any(|name| has_type(payload, name)) {
            let lead = match self.server {
                ServerArg::Vllm if !self.has_appended => VLLM_LEAD_SAMPLES,
                _ => 0,
            };
            self.has_appended = true;
            Received::Append(Append::parse(payload, self.encoding(), lead))
        } else if has_type(payload, "session.init") || has_type(payload, "session.update") {
            Received::Opening
        } else if has_type(payload, "session.close") {
            Received::Closing
        } else if has_type(payload, "response.cancel") {
            Received::Cancellation
        } else {
            Received::Other
        }
    }

    /// First message of the server, if it has one.
    pub(crate) fn greeting(&mut self) -> Option<String> {
        match self.server {
            ServerArg::Demo | ServerArg::Legacy => Some(r#"{"type":"session.queue_done"}"#.to_owned()),
            ServerArg::Sglang => {
                let session = format!(
                    r#""session":{{"id":"{}","object":"realtime.session","type":"realtime","model":"MiniCPM-o-4_5","sglang":{{"granted":null}}}}"#,
                    self.id
                );
                Some(self.event("session.created", &session))
            }
            _ => None,
        }
    }

    /// The session is open.
    pub(crate) fn opened(&mut self) -> Vec<String> {
        let id = &self.id;
        match self.server {
            ServerArg::Sglang => {
                let session = format!(
                    r#""client_event_id":"open","session":{{"id":"{id}","object":"realtime.session","type":"realtime","model":"MiniCPM-o-4_5","sglang":{{"granted":{{"model":"MiniCPM-o-4_5","interaction":"native","native_full_duplex":true,"input_modalities":["audio","image"],"output_modalities":["audio"],"input_audio_format":{{"type":"audio/pcm","rate":16000}},"output_audio_format":{{"type":"audio/pcm","rate":24000}},"native_unit_ms":1000,"limits":{{"max_input_bytes":1920000}},"rejections":[]}}}}}}"#
                );
                vec![self.event("session.updated", &session)]
            }
            ServerArg::Vllm => {
                let session = format!(
                    r#""session":{{"id":"{id}","object":"realtime.session","state":"open","epoch":0,"capabilities":{{"implementation_level":"model_native_duplex","required_input_modalities":["audio"],"chunk_period_ms":1000,"supports_barge_in":true,"supports_session_resume":true}}}}"#
                );
                let token = format!(r#""resume_token":"token_{id}","attachment_generation":1"#);
                let created = self.event("session.created", &format!("{session},{token}"));
                vec![created, self.event("session.updated", &session)]
            }
            ServerArg::Legacy => vec![format!(
                r#"{{"type":"session.created","session_id":"{id}","prompt_length":60,"mode":"audio"}}"#
            )],
            _ => {
                let mode = if self.is_chat { "turn_based" } else { "full_duplex" };
                vec![format!(
                    r#"{{"type":"session.created","session_id":"{id}","mode":"{mode}","metrics":{{"backend":"pytorch","kv_cache_length":300}},"server_send_ts":1700000000.5}}"#
                )]
            }
        }
    }

    /// Receipt of an append, if the server sends one.
    pub(crate) fn accepted(&mut self, payload: &[u8]) -> Option<String> {
        if self.server != ServerArg::Sglang {
            return None;
        }
        let id = find_string_value(payload, "\"event_id\"").unwrap_or_default();
        let members = format!(
            r#""seq":{},"accepted_end_ms":{},"client_event_id":"{}""#,
            self.unit,
            (self.unit + 1) * 1000,
            String::from_utf8_lossy(id)
        );
        Some(self.event("sglang.input_audio.accepted", &members))
    }

    /// The model listens.
    pub(crate) fn listen(&mut self, input_id: &str) -> Vec<String> {
        let id = self.id.clone();
        let message = match self.server {
            ServerArg::Sglang => self.unit_done(),
            ServerArg::Vllm => {
                let members = format!(
                    r#""session_id":"{id}","epoch":0,"response":{{"object":"realtime.response","status":"listening","metadata":{{"type":"response.listen","session_id":"{id}","epoch":0,"reason":"model_listen","model_listen":true}}}}"#
                );
                self.event("response.listen", &members)
            }
            ServerArg::Legacy => r#"{"type":"response.listen","kv_cache_length":400}"#.to_owned(),
            _ => format!(
                r#"{{"type":"response.output.delta","kind":"listen","session_id":"{id}","input_id":"{input_id}","metrics":{{"backend":"pytorch","kv_cache_length":400}},"server_send_ts":1700000000.5}}"#
            ),
        };
        vec![message]
    }

    /// The model says a word for a second, as the first or the last of its answer, or between them.
    pub(crate) fn speak(
        &mut self,
        word: &str,
        input_id: &str,
        (is_first, is_last): (bool, bool),
    ) -> SpokenSecond {
        self.turn += u64::from(is_first);
        match self.server {
            ServerArg::Sglang => self.speak_as_sglang(word, (is_first, is_last)),
            ServerArg::Vllm => self.speak_as_vllm(word, (is_first, is_last)),
            ServerArg::Legacy => SpokenSecond {
                before: Vec::new(),
                around: (
                    format!(r#"{{"type":"response.output_audio.delta","text":"{word}","audio":""#),
                    format!(r#"","end_of_turn":{is_last},"kv_cache_length":500}}"#),
                ),
                after: Vec::new(),
            },
            _ => self.speak_as_demo(word, input_id, is_last),
        }
    }

    fn speak_as_demo(&self, word: &str, input_id: &str, is_last: bool) -> SpokenSecond {
        let ids = format!(
            r#""session_id":"{}","response_id":"resp_{}_{}","input_id":"{input_id}""#,
            self.id, self.id, self.turn
        );
        let metrics =
            r#""metrics":{"backend":"pytorch","kv_cache_length":500},"server_send_ts":1700000000.5}"#;
        let listen = format!(r#"{{"type":"response.output.delta","kind":"listen",{ids},{metrics}"#);
        SpokenSecond {
            before: vec![format!(
                r#"{{"type":"response.output.delta","kind":"text",{ids},"text":"{word}",{metrics}"#
            )],
            around: (
                format!(r#"{{"type":"response.output.delta","kind":"audio",{ids},"audio":""#),
                format!(r#"",{metrics}"#),
            ),
            after: (is_last && !self.is_chat).then_some(listen).into_iter().collect(),
        }
    }

    fn speak_as_sglang(&mut self, word: &str, (is_first, is_last): (bool, bool)) -> SpokenSecond {
        let response = format!("{}-response-{}", self.id, self.turn);
        let ids = format!(
            r#""response_id":"{response}","item_id":"{response}-message","output_index":0,"content_index":0"#
        );
        let unit = format!(
            r#""sglang":{{"unit_id":"unit_{}","chunk_seq":{},"media_time":{{"t_start_ms":{},"duration_ms":1000}}}}"#,
            self.unit,
            self.event_count,
            self.unit * 1000
        );
        let object = format!(r#""id":"{response}","object":"realtime.response""#);
        let mut before = Vec::new();
        if is_first {
            let members = format!(r#""response":{{{object},"status":"in_progress","output":[]}},{unit}"#);
            before.push(self.event("response.created", &members));
        }
        let members = format!(r#"{ids},"delta":"{word}",{unit}"#);
        before.push(self.event("response.output_audio_transcript.delta", &members));
        let around = self.event("response.output_audio.delta", &format!(r#"{ids},"delta":"|",{unit}"#));
        let mut after = Vec::new();
        if is_last {
            let done = format!(r#"{ids},"transcript":"{word}",{unit}"#);
            after.push(self.event("response.output_audio_transcript.done", &done));
            after.push(self.event("response.output_audio.done", &format!("{ids},{unit}")));
            let members = format!(
                r#""response":{{{object},"status":"completed","status_details":{{"reason":"stop"}},"output":[{{"id":"{response}-message","object":"realtime.item","type":"message","role":"assistant","content":[{{"type":"output_audio","transcript":"{word}"}}]}}],"usage":null}},{unit}"#
            );
            after.push(self.event("response.done", &members));
        }
        after.push(self.unit_done());
        SpokenSecond { before, around: split_at_audio(&around), after }
    }

    fn unit_done(&mut self) -> String {
        let members = format!(
            r#""unit_id":"unit_{}","sglang":{{"unit_id":"unit_{}","chunk_seq":{},"media_time":{{"t_start_ms":{},"duration_ms":1000}}}}"#,
            self.unit,
            self.unit,
            self.event_count,
            self.unit * 1000
        );
        self.unit += 1;
        self.event("sglang.unit.done", &members)
    }

    fn speak_as_vllm(&mut self, word: &str, (is_first, is_last): (bool, bool)) -> SpokenSecond {
        let id = format!("resp_{}_{}", self.id, self.turn);
        let response_id = format!(r#""response_id":"{id}""#);
        let part = format!(r#"{response_id},"item_id":"item_{id}","output_index":0,"content_index":0"#);
        let item = |status: &str| {
            format!(
                r#""item":{{"id":"item_{id}","object":"realtime.item","type":"message","role":"assistant","status":"{status}","content":[]}}"#
            )
        };
        let response = |status: &str| {
            format!(
                r#""response":{{"id":"{id}","object":"realtime.response","status":"{status}","status_details":null,"output":[],"modalities":["audio","text"],"metadata":{{}}}},{response_id}"#
            )
        };
        let in_response = |status: &str| format!(r#"{response_id},"output_index":0,{}"#, item(status));
        let in_conversation = |status: &str| format!(r#""previous_item_id":null,{}"#, item(status));
        let mut before = Vec::new();
        if is_first {
            let audio_part = format!(r#"{part},"part":{{"type":"audio","transcript":""}}"#);
            let metadata =
                format!(r#"{part},"metadata":{{"session_id":"{}","epoch":0,"model_speak":true}}"#, self.id);
            for (name, members) in [
                ("response.created", response("in_progress")),
                ("conversation.item.added", in_conversation("in_progress")),
                ("conversation.item.created", in_conversation("in_progress")),
                ("response.output_item.added", in_response("in_progress")),
                ("response.content_part.added", audio_part),
                ("response.speak", metadata),
            ] {
                before.push(self.event(name, &members));
            }
        }
        let members = format!(
            r#"{part},"delta":"|","format":"pcm16","sample_rate_hz":24000,"metadata":{{"epoch":0,"model_speak":true,"audio_duration_ms":1000}}"#
        );
        let around = self.event("response.output_audio.delta", &members);
        let words = format!(r#"{part},"delta":"{word}""#);
        let mut after = vec![self.event("response.output_audio_transcript.delta", &words)];
        if is_last {
            for (name, members) in [
                ("response.output_audio.done", part.clone()),
                ("response.output_audio_transcript.done", format!(r#"{part},"transcript":"{word}""#)),
                (
                    "response.content_part.done",
                    format!(r#"{part},"part":{{"type":"audio","transcript":"{word}"}}"#),
                ),
                ("response.output_item.done", in_response("completed")),
                ("conversation.item.done", in_conversation("completed")),
                ("response.done", response("completed")),
                ("rate_limits.updated", r#""rate_limits":[]"#.to_owned()),
            ] {
                after.push(self.event(name, &members));
            }
        }
        SpokenSecond { before, around: split_at_audio(&around), after }
    }

    /// There was no answer to stop.
    pub(crate) fn not_cancelled(&mut self) -> Option<String> {
        let members = r#""error":{"type":"invalid_request_error","code":"response_not_active","message":"no answer","event_id":"cancel"}"#;
        (self.server == ServerArg::Vllm).then(|| self.event("error", members))
    }

    /// The end of the session.
    pub(crate) fn closed(&mut self) -> String {
        match self.server {
            ServerArg::Sglang => {
                self.event("session.closed", r#""reason":"client_closed","client_event_id":"close""#)
            }
            ServerArg::Vllm => {
                let members = format!(r#""session_id":"{}","reason":"client_close""#, self.id);
                self.event("session.closed", &members)
            }
            ServerArg::Legacy => r#"{"type":"session.closed","reason":"stopped"}"#.to_owned(),
            _ => format!(
                r#"{{"type":"session.closed","session_id":"{}","reason":"client_closed","server_send_ts":1700000000.5}}"#,
                self.id
            ),
        }
    }

    /// An event of SGLang-Omni or vLLM-Omni, which numbers all of a session.
    fn event(&mut self, kind: &str, members: &str) -> String {
        self.event_count += 1;
        let count = self.event_count;
        let sequence = match self.server {
            ServerArg::Vllm if kind != "session.created" => format!(r#","server_event_seq":{count}"#),
            _ => String::new(),
        };
        format!(r#"{{"type":"{kind}","event_id":"event_{count:032x}",{members}{sequence}}}"#)
    }
}

/// Encoding of the samples in both directions.
pub(crate) const fn encoding_of(server: ServerArg) -> SampleEncoding {
    match server {
        ServerArg::Sglang | ServerArg::Vllm => SampleEncoding::S16le,
        _ => SampleEncoding::F32le,
    }
}

/// Splits a message at its audio, for which it has a mark.
fn split_at_audio(message: &str) -> (String, String) {
    let (begin, end) = message.split_once('|').unwrap_or((message, ""));
    (begin.to_owned(), end.to_owned())
}
