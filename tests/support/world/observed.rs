//! Observations of a harness: the client's frames, and the traffic between the bridge and the server.

use bytes::Bytes;
use serde_json::Value;
use voxbridge::{
    audio::pcm,
    session::{EndReason, Measurement, Observation},
    vocabulary::{DisconnectReason, Lane},
};

use super::harness::{Harness, StepMeter};

/// A frame that the client received.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientFrame {
    Event(Value),
    Binary(Bytes),
    Close(u16, String),
}

impl ClientFrame {
    /// The event's type, `binary` or `close CODE`.
    pub fn name(&self) -> String {
        match self {
            Self::Event(event) => event["type"].as_str().unwrap_or("?").to_owned(),
            Self::Binary(_) => "binary".to_owned(),
            Self::Close(code, _) => format!("close {code}"),
        }
    }
}

/// An event between bridge and gateway, at the bridge's time.
#[derive(Debug, Clone, PartialEq)]
pub enum Traffic {
    /// The bridge dials.
    Dialled(Lane),
    /// The lane is up.
    Opened(Lane),
    /// From the bridge.
    Sent(Lane, String),
    /// From the gateway.
    Received(Lane, String),
    /// A piece of the body of an answer by HTTP.
    Body(Lane, Vec<u8>),
    /// The bridge dropped the transport.
    Dropped(Lane),
    /// The transport was lost.
    Closed(Lane, DisconnectReason),
}

impl<M: StepMeter> Harness<M> {
    /// Number of workers that the gateway has lost, because a client left the queue.
    pub fn lost_workers(&self) -> usize {
        self.server.lost_worker_count()
    }

    /// Number of connections that the bridge has dialled.
    pub fn dial_count(&self) -> usize {
        self.traffic.iter().filter(|(_, traffic)| matches!(traffic, Traffic::Dialled(_))).count()
    }

    /// Number of the gateway's connections.
    pub fn connections(&self) -> usize {
        self.server.connection_count()
    }

    /// True if the session reported that a drain cut off speech or an answer.
    pub fn was_cut_off(&self) -> bool {
        let cut_off = Observation::Measured(Measurement::SessionEnding(EndReason::CutOff));
        self.observations.contains(&cut_off)
    }

    /// Everything measured so far.
    pub fn measurements(&self) -> Vec<Measurement> {
        let measured = self.observations.iter().filter_map(|observation| match observation {
            Observation::Measured(measurement) => Some(*measurement),
            _ => None,
        });
        measured.collect()
    }

    /// Every event so far.
    pub fn all_events(&self) -> impl Iterator<Item = &Value> {
        self.log.iter().filter_map(|(_, frame)| match frame {
            ClientFrame::Event(event) => Some(event),
            _ => None,
        })
    }

    /// Every event of this type so far.
    pub fn events(&self, name: &str) -> Vec<&Value> {
        self.all_events().filter(|event| event["type"] == name).collect()
    }

    /// Names of the client's frames by [`ClientFrame::name`]; a run of binary frames counts as one.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.log.iter().map(|(_, frame)| frame.name()).collect();
        names.dedup_by(|next, last| next == "binary" && last == "binary");
        names
    }

    /// All audio the client received, int16.
    pub fn audio(&self) -> Vec<i16> {
        self.binary_frames().flat_map(|frame| pcm::s16le_samples(frame)).collect()
    }

    /// The bytes of all binary frames that the client received.
    pub fn bytes(&self) -> Vec<u8> {
        self.binary_frames().flatten().copied().collect()
    }

    fn binary_frames(&self) -> impl Iterator<Item = &Bytes> {
        self.log.iter().filter_map(|(_, frame)| match frame {
            ClientFrame::Binary(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// The gateway's messages, as JSON.
    pub fn received_json(&self) -> impl Iterator<Item = Value> {
        self.traffic.iter().filter_map(|(_, traffic)| match traffic {
            Traffic::Received(_, text) => serde_json::from_str(text).ok(),
            _ => None,
        })
    }

    /// Messages of the bridge that contain this text.
    pub fn sent_containing(&self, text: &str) -> Vec<&str> {
        let sent = self.traffic.iter().filter_map(|(_, traffic)| match traffic {
            Traffic::Sent(_, message) if message.contains(text) => Some(message.as_str()),
            _ => None,
        });
        sent.collect()
    }

    /// Messages of every chat turn that asked for an answer; transcripts have another length penalty.
    pub fn answer_requests(&self) -> Vec<Value> {
        let sent = self.sent_containing("length_penalty").into_iter();
        let sent = sent.filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let is_answer = |message: &Value| message["input"]["generation"]["length_penalty"] == 1.1;
        sent.filter(is_answer).map(|message| message["input"]["messages"].clone()).collect()
    }

    /// Number of gateway messages that contain this text.
    pub fn received_count(&self, text: &str) -> usize {
        let has =
            |traffic: &Traffic| matches!(traffic, Traffic::Received(_, message) if message.contains(text));
        self.traffic.iter().filter(|(_, traffic)| has(traffic)).count()
    }
}
