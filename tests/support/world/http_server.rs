//! A scripted server that answers HTTP requests.

use std::{collections::VecDeque, time::Duration};

use serde_json::Value;
use voxbridge::{
    audio::{pcm, wav},
    spelling::upstream::{ReceiveName, SendName},
    vocabulary::{AnswerPart, DisconnectReason, HttpRequest, Lane, LanePurpose},
};

use super::{
    bytes_of,
    harness::{Harness, StepMeter},
    network::InFlight,
};

/// A scripted server that answers HTTP requests.
#[derive(Debug, Clone, Default)]
pub struct HttpScript {
    /// How it fails; `None` for answers.
    pub failure: Option<HttpFailure>,
    /// Number of requests that fail.
    pub failures: usize,
    /// Time before each part of an answer.
    pub delay: Duration,
    /// The answers in order, status and messages; `None` for answers of its own.
    pub answers: Option<VecDeque<(u16, Vec<Value>)>>,
    /// Another upstream may serve each lane's requests.
    pub has_others: bool,
    /// Rate of its speech, which comes as WAV files, Hz; `None` for 24 kHz and bare samples where a body is speech.
    pub wav_rate_hz: Option<u32>,
}

/// How an HTTP request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpFailure {
    /// Nothing ever comes.
    Stuck,
    /// This status.
    Status(u16),
    /// The connection breaks behind the first part.
    DiesMidAnswer,
}

/// Words of the scripted server.
pub const HTTP_WORDS: [&str; 2] = ["these words ", "are scripted"];
/// Samples of its speech: a second at 24 kHz.
pub static HTTP_SPEECH: [i16; 24_000] = [4000; 24_000];

impl<M: StepMeter> Harness<M> {
    /// Answers an HTTP request as scripted.
    pub(super) fn answer_request(&mut self, lane: Lane, request: HttpRequest) {
        assert!(self.mapping.is_http(), "{lane:?} has a WebSocket");
        let failure = self.http.failure.filter(|_| self.http.failures > 0);
        self.http.failures = self.http.failures.saturating_sub(1);
        let scripted = self.http.answers.as_mut().map(|answers| answers.pop_front().expect("an answer"));
        let mut parts = match (failure, scripted) {
            (Some(HttpFailure::Stuck), _) => Vec::new(),
            (Some(HttpFailure::Status(status)), _) => {
                let page = r#"{"error": {"message": "refused by script"}}"#.to_owned();
                vec![head(lane, status, "application/json"), InFlight::ToBridge(lane, page)]
            }
            (_, Some((status, messages))) => stream(lane, status, messages.iter().map(Value::to_string)),
            (_, None) => self.usual_answer(lane, &request.path),
        };
        match failure {
            Some(HttpFailure::Stuck) => {}
            Some(HttpFailure::DiesMidAnswer) => {
                parts.truncate(2);
                let reason = "Connection reset by peer (os error 104)".to_owned();
                parts.push(InFlight::Closed(lane, DisconnectReason::Lost(reason)));
            }
            Some(HttpFailure::Status(_)) | None => parts.push(InFlight::Answer(lane, AnswerPart::End)),
        }
        self.requests.push(request);
        for (at, part) in (1..).zip(parts) {
            self.send_after(self.http.delay * at, part);
        }
    }

    /// A body of speech where only texts to speak go, otherwise a stream.
    fn usual_answer(&self, lane: Lane, path: &str) -> Vec<InFlight> {
        let is_for = |name| self.mapping.request_path(name) == Some(path);
        if is_for(SendName::Speak) && !is_for(SendName::Transcribe) && !is_for(SendName::Chat) {
            let (kind, bytes) = match self.http.wav_rate_hz {
                Some(rate_hz) => ("audio/wav", wav::write_s16(&HTTP_SPEECH, rate_hz)),
                None => ("audio/pcm", bytes_of(&HTTP_SPEECH)),
            };
            let pieces = bytes.chunks(24_000).map(|piece| InFlight::Body(lane, piece.to_vec()));
            return std::iter::once(head(lane, 200, kind)).chain(pieces).collect();
        }
        let words = |words| self.mapping.example(ReceiveName::Text, words, "");
        let mut messages = HTTP_WORDS.map(words).to_vec();
        if self.purposes[&lane].1 != LanePurpose::Transcribe {
            let mut audio = String::new();
            let rate_hz = self.http.wav_rate_hz.unwrap_or(24_000);
            pcm::encode_base64(&wav::write_s16(&HTTP_SPEECH, rate_hz), &mut audio);
            let example = |event| self.mapping.example(event, "", &audio);
            messages.push(example(ReceiveName::Audio).or_else(|| example(ReceiveName::Text)));
        }
        stream(lane, 200, messages.into_iter().flatten())
    }
}

fn head(lane: Lane, status: u16, content_type: &str) -> InFlight {
    InFlight::Answer(lane, AnswerPart::Head { status, content_type: content_type.to_owned() })
}

fn stream(lane: Lane, status: u16, messages: impl Iterator<Item = String>) -> Vec<InFlight> {
    let messages = messages.map(|text| InFlight::ToBridge(lane, text));
    std::iter::once(head(lane, status, "text/event-stream")).chain(messages).collect()
}
