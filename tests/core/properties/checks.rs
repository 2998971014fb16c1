//! Invariants of every session, checked as it runs. Each check panics with the violation.

use voxbridge::session::SampleCounts;

use super::{hearing::Hearing, *};

/// Limit of open lanes that do not wait in a queue: one hears, one speaks, one drains, and two close while the last is dialled.
const MAX_LANES: usize = 5;
/// Limit of those that wait: one hears and one speaks, and four of each kind are not needed any more. To leave a queue costs a
/// server a worker.
const MAX_QUEUED: usize = 2 * (1 + 4);
/// The profile's `init_max_ms`, `close_max_ms`.
const INIT_MAX: Duration = Duration::from_secs(60);
const CLOSE_MAX: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Checks {
    lanes: BTreeMap<Lane, LaneState>,
    client: ClientState,
    /// The first byte of an incomplete sample.
    half: Option<u8>,
    /// All received samples in order, without muted and dropped ones.
    pub(crate) received: Vec<i16>,
    /// The segments sent upstream, as ranges in `received`.
    pub(crate) pieces: Vec<std::ops::Range<usize>>,
    /// The session was over before the last frame.
    was_over: bool,
    /// Rates, channels or samples changed in transit, so content is not checked.
    pub(crate) formats_change: bool,
    /// The frames that the client has read.
    pub(crate) hearing: Hearing,
    /// Texts that have no end yet.
    pub(crate) requested_texts: Vec<String>,
    /// Texts whose speech has begun.
    begun_texts: BTreeSet<String>,
    /// Texts were spoken, so the model received silence in place of some audio.
    silenced: bool,
    muted: u64,
    dropped: u64,
}

/// A message to a lane.
#[derive(Debug)]
pub(crate) enum LaneMessage {
    /// The unit with this number.
    Unit(u64),
    /// Any other message; `wants_audio` if it asks for audio.
    Other { kind: String, wants_audio: bool },
}

/// The profile's `unit_min_ms`.
const UNIT_MIN: Duration = Duration::from_millis(500);

/// A lane's full-duplex state.
#[derive(Debug, Default)]
struct UnitState {
    last: Option<Instant>,
    /// A unit was sent and not yet answered.
    in_flight: bool,
    /// End of the last unit in `received`.
    end: usize,
}

/// A lane's messages so far.
#[derive(Debug, Default)]
struct LaneState {
    up: bool,
    gone: bool,
    init_at: Option<Instant>,
    ready: bool,
    /// The upstream reported the end of its session.
    over: bool,
    /// The lane waits in the queue without a worker.
    queued: bool,
    close_at: Option<Instant>,
    /// The last text sent for synthesis.
    text: Option<String>,
    units: UnitState,
}

impl LaneState {
    /// True if the lane is in a queue.
    const fn waits(&self) -> bool {
        self.queued && self.init_at.is_none()
    }
}

#[derive(Debug, Default)]
struct ClientState {
    left: bool,
    in_speech: bool,
    /// The text being spoken; the inner `None` is a turn of the model.
    speaking: Option<Option<String>>,
    /// The last final's number by speaker.
    last_final: BTreeMap<String, u64>,
    session_closed: bool,
    closed: bool,
}

impl Checks {
    pub(crate) fn new(_start: Instant) -> Self {
        Self {
            lanes: BTreeMap::new(),
            client: ClientState::default(),
            half: None,
            received: Vec::new(),
            pieces: Vec::new(),
            was_over: false,
            formats_change: false,
            hearing: Hearing::default(),
            requested_texts: Vec::new(),
            begun_texts: BTreeSet::new(),
            silenced: false,
            muted: 0,
            dropped: 0,
        }
    }

    /// The client asks for a text. Returns the request's id.
    pub(crate) fn request_text(&mut self, number: u32) -> String {
        let id = format!("text {number}");
        if self.is_client_there() {
            // A new text cancels the last one, which has no end if it has not begun.
            self.requested_texts = vec![id.clone()];
        }
        id
    }

    /// The client cancels its text, which has no end if it has not begun.
    pub(crate) fn cancel_texts(&mut self) {
        let begun = &self.begun_texts;
        self.requested_texts.retain(|id| begun.contains(id));
    }

    pub(crate) fn is_client_there(&self) -> bool {
        !self.client.left && !self.client.closed
    }

    /// True if the client's session goes on.
    pub(crate) fn is_session_open(&self) -> bool {
        self.is_client_there() && !self.client.session_closed
    }

    /// Lanes that are open.
    pub(crate) fn open_lanes(&self) -> Vec<Lane> {
        self.lanes.iter().filter(|(_, state)| !state.gone).map(|(lane, _)| *lane).collect()
    }

    pub(crate) fn on_client_read(&mut self, message: &Message) {
        if !self.formats_change {
            self.hearing.on_read(message);
        }
    }

    pub(crate) fn newest_lane(&self, back: usize) -> Option<Lane> {
        self.lanes.keys().rev().nth(back).copied()
    }

    /// Checks that each lane has a number of its own and that few are open.
    pub(crate) fn on_dial(&mut self, lane: Lane) {
        assert!(self.lanes.insert(lane, LaneState::default()).is_none(), "{lane:?} is used twice");
        let (queued, others): (Vec<_>, Vec<_>) =
            self.lanes.iter().filter(|(_, state)| !state.gone).partition(|(_, state)| state.waits());
        assert!(others.len() <= MAX_LANES, "{} lanes are open: {others:?}", others.len());
        assert!(queued.len() <= MAX_QUEUED, "{} lanes wait: {queued:?}", queued.len());
    }

    /// Records an upstream event. False if a driver would not deliver it.
    pub(crate) fn on_upstream_event(&mut self, _now: Instant, lane: Lane, reply: &UpstreamEvent) -> bool {
        let Some(state) = self.lanes.get_mut(&lane) else { return false };
        match reply {
            UpstreamEvent::Opened if state.gone => return false,
            UpstreamEvent::Opened => state.up = true,
            UpstreamEvent::Closed(_) => state.gone = true,
            UpstreamEvent::Text(_) if !state.up => return false,
            UpstreamEvent::Text(json) => {
                let says = |kind: &str| contains(json, &format!(r#""type":"{kind}""#));
                state.ready |= state.init_at.is_some() && says("session.created");
                state.units.in_flight &= !contains(json, r#""type":"response."#);
                state.over |= says("session.closed") || says("error");
                // A gateway that has queued a client tells it its place.
                let tells_place = contains(json, r#""position":"#);
                state.queued |= state.init_at.is_none()
                    && tells_place
                    && (says("session.queued") || says("session.queue_update"));
            }
        }
        true
    }

    /// Checks a message from the bridge to a lane.
    pub(crate) fn on_lane_message(&mut self, now: Instant, lane: Lane, json: &str) -> LaneMessage {
        let state = self.lanes.get_mut(&lane).expect("the lane was dialled");
        let value: Value = serde_json::from_str(json).expect("messages are JSON");
        let kind = value["type"].as_str().expect("the message has a type").to_owned();
        assert!(state.up && !state.gone, "{kind} on {lane:?}, whose transport is not up");
        assert!(!state.over, "{kind} on {lane:?}, whose session is over");
        assert!(state.close_at.is_none(), "{kind} on {lane:?} after session.close");
        match kind.as_str() {
            "session.init" => assert!(state.init_at.replace(now).is_none(), "{lane:?} is initialised twice"),
            "session.close" => state.close_at = Some(now),
            "input.append" => assert!(state.ready, "{lane:?} gets an append before it is ready"),
            other => panic!("unknown message {other}"),
        }
        if kind != "input.append" {
            return LaneMessage::Other { kind, wants_audio: false };
        }
        if !value["input"]["force_listen"].is_null() {
            return LaneMessage::Unit(self.check_unit(now, lane, &value["input"]));
        }
        let wants_audio = value["input"]["tts"]["enabled"] == true;
        if wants_audio {
            self.silenced = true;
            let content = &value["input"]["messages"][1]["content"];
            state.text = Some(content.as_str().expect("the text is a string").to_owned());
        } else {
            let audio =
                value["input"]["messages"][0]["content"][1]["data"].as_str().expect("the content has audio");
            self.check_question(audio);
        }
        LaneMessage::Other { kind, wants_audio }
    }

    /// Checks a unit: one second long, sent after the previous answer, and the next stretch of received
    /// audio.
    fn check_unit(&mut self, now: Instant, lane: Lane, input: &Value) -> u64 {
        let mut samples = Vec::new();
        pcm::decode_base64_f32(input["audio"].as_str().expect("the unit has audio"), &mut samples)
            .expect("the audio is float32");
        assert_eq!(samples.len(), 16_000, "a unit is a second");
        let units = &mut self.lanes.get_mut(&lane).expect("the lane was dialled").units;
        assert!(!std::mem::replace(&mut units.in_flight, true), "two units in flight on {lane:?}");
        let forced = input["force_listen"] == true;
        // An interruption is sent at once, and the next one as soon as the first is acknowledged.
        if let Some(before) = units.last.replace(now) {
            assert!(forced || now >= before + UNIT_MIN, "a unit is too early");
        }
        if !self.formats_change && !self.silenced {
            let mut unit: Vec<i16> = samples.into_iter().map(pcm::to_i16).collect();
            // Silence pads missing audio.
            unit.truncate(unit.iter().rposition(|sample| *sample != 0).map_or(0, |last| last + 1));
            units.end = find_with_gap(&self.received, &unit, units.end)
                .expect("the unit is not part of the audio received since the last one");
        }
        input["input_id"].as_str().and_then(|id| id.parse().ok()).expect("units are numbered")
    }

    /// Checks that a question is a stretch of the received audio after the last one, or extends or repeats
    /// that one.
    fn check_question(&mut self, base64: &str) {
        let mut samples = Vec::new();
        pcm::decode_base64_f32(base64, &mut samples).expect("audio is float32");
        let piece: Vec<i16> = samples.into_iter().map(pcm::to_i16).collect();
        assert!(!piece.is_empty() && piece.len() <= 16 * 30_000, "{} samples", piece.len());
        if self.formats_change {
            return;
        }
        let last = self.pieces.last().cloned().unwrap_or(0..0);
        let at =
            find(&self.received, &piece, last.start).expect("the question is not part of the received audio");
        assert!(at == last.start || at >= last.end, "samples at {at} were sent before: {last:?}");
        self.pieces.push(at..at + piece.len());
    }

    /// The bridge drops a lane's transport: once, and politely if a worker was assigned.
    pub(crate) fn on_lane_dropped(&mut self, now: Instant, lane: Lane) {
        let state = self.lanes.get_mut(&lane).expect("the lane was dialled");
        assert!(!state.gone, "{lane:?} is dropped, but its transport is gone");
        state.gone = true;
        match (state.init_at, state.close_at) {
            (_, Some(close_at)) => {
                let patient = now >= close_at + CLOSE_MAX;
                assert!(patient, "{lane:?} is dropped before its close was answered");
            }
            (Some(init_at), None) => {
                let patient = now >= init_at + INIT_MAX && !state.ready;
                assert!(state.over || patient, "{lane:?} is dropped without a goodbye");
            }
            // Both real gateways lose a worker when a queued client has gone.
            (None, None) => assert!(!state.queued || state.over, "{lane:?} leaves the queue"),
        }
    }

    /// Records a frame before the bridge gets it, since its samples may be sent upstream at once.
    pub(crate) fn before_frame(&mut self, bytes: &[u8]) {
        // The time of the frame itself may end the session.
        self.was_over = !self.is_session_open();
        let all: Vec<u8> = self.half.iter().chain(bytes).copied().collect();
        self.received.extend(all.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])));
    }

    /// Checks that the account counts every sample of the frame as received, muted or dropped.
    pub(crate) fn after_frame(
        &mut self,
        bytes: &[u8],
        before: (SampleCounts, u64),
        after: (SampleCounts, u64),
    ) {
        if self.formats_change {
            return;
        }
        let bytes_now = usize::from(self.half.is_some()) + bytes.len();
        let groups = (bytes_now / 2) as u64;
        self.half = bytes.last().copied().or(self.half).filter(|_| bytes_now % 2 == 1);
        let taken = after.0.received - before.0.received;
        let muted = after.0.muted - before.0.muted;
        let dropped = after.1 - before.1;
        if taken == 0 {
            self.received.truncate(self.received.len() - groups as usize);
        }
        if self.was_over {
            assert_eq!((taken, muted, dropped), (0, 0, 0), "the session is over");
            return;
        }
        let total = taken + muted + dropped;
        // A closing session accepts no more audio.
        assert!(total == 0 || total == groups, "{groups} samples became {taken} + {muted} + {dropped}");
        assert!([taken, muted, dropped].iter().filter(|count| **count > 0).count() <= 1);
        assert!(muted == 0 || self.client.speaking.is_some(), "muted outside speech output");
        self.muted += muted;
        self.dropped += dropped;
    }

    /// The clock is set back, so that less time has passed since the past instants.
    pub(crate) fn on_clock_set_back(&mut self, by: Duration) {
        for lane in self.lanes.values_mut() {
            for at in [&mut lane.init_at, &mut lane.close_at, &mut lane.units.last].into_iter().flatten() {
                *at -= by;
            }
        }
    }

    pub(crate) fn on_client_left(&mut self) {
        self.client.left = true;
        self.requested_texts.clear();
    }

    /// Checks at the end that the account adds up, every pair is closed and every lane is gone or about to.
    pub(crate) fn assert_ended(&self, (account, dropped): (SampleCounts, u64)) {
        if !self.formats_change {
            let sum = account.recorded + account.silent + account.pending;
            assert_eq!(account.received, sum, "{account:?}");
            assert_eq!(
                (account.received, account.muted, dropped),
                (self.received.len() as u64, self.muted, self.dropped)
            );
            let mut sent: Vec<_> = self.pieces.clone();
            sent.dedup_by(|next, last| {
                next.start == last.start && {
                    last.end = last.end.max(next.end);
                    true
                }
            });
            let sent: usize = sent.iter().map(ExactSizeIterator::len).sum();
            // Audio sent during the user's speech may have been dropped with the session.
            assert!(sent as u64 <= account.recorded + account.silent, "{account:?}, {sent} sent");
        }
        // A lane that waits in the gateway's queue stays until it has a worker, and then closes politely.
        let is_over = |lane: &LaneState| lane.gone || lane.waits();
        assert!(self.lanes.values().all(is_over), "a lane is still open: {:?}", self.lanes);
    }

    pub(crate) fn on_client_message(&mut self, message: &Message) {
        let client = &mut self.client;
        assert!(!client.left && !client.closed, "message to a client that is gone: {message:?}");
        match message {
            Message::Close(code, _) => {
                assert!(client.session_closed && *code >= 1000, "closed without session.closed");
                client.closed = true;
            }
            Message::Binary(audio) => {
                assert!(!client.session_closed && !audio.is_empty() && audio.len() % 2 == 0);
                let text = client.speaking.clone().expect("audio outside speaking_start … speaking_end");
                if !self.formats_change {
                    self.assert_voice_matches(text.as_deref(), audio);
                }
            }
            Message::Text(json) => {
                let value: Value = serde_json::from_str(json).expect("messages are JSON");
                assert!(!client.session_closed, "after session.closed: {json}");
                client.on_client_event(&value, json);
                if client.session_closed {
                    self.requested_texts.clear();
                }
                if let (Some("tts.speaking_start"), Some(id)) =
                    (value["type"].as_str(), value["request_id"].as_str())
                {
                    self.begun_texts.insert(id.to_owned());
                }
                if ["tts.speaking_end", "error"].map(Value::from).contains(&value["type"]) {
                    self.requested_texts.retain(|id| value["request_id"] != id.as_str());
                }
            }
        }
    }

    /// Checks that audio comes from a lane that was asked for exactly this text, or from a lane in
    /// conversation.
    fn assert_voice_matches(&self, text: Option<&str>, audio: &[u8]) {
        let samples = audio.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]]));
        let lane_samples = samples.map(|sample| sample / LEVELS * LEVELS);
        lane_samples
            .collect::<BTreeSet<_>>()
            .into_iter()
            .for_each(|sample| self.assert_lane_matches(text, sample));
    }

    fn assert_lane_matches(&self, text: Option<&str>, sample: i16) {
        let Some(text) = text else {
            let in_conversation = self
                .lanes
                .iter()
                .any(|(lane, state)| lane_sample(lane.0) == sample && state.units.last.is_some());
            return assert!(in_conversation, "the audio {sample} belongs to no conversation lane");
        };
        let first_sentence = text.split('.').next().unwrap_or(text);
        let is_requested = self.lanes.iter().any(|(lane, state)| {
            let has_sentence =
                state.text.as_ref().is_some_and(|text| text.contains(&format!("{first_sentence}.")));
            lane_sample(lane.0) == sample && has_sentence
        });
        assert!(is_requested, "the audio {sample} is not of {first_sentence:?}");
    }
}

impl ClientState {
    fn on_client_event(&mut self, value: &Value, json: &str) {
        match value["type"].as_str().expect("the message has a type") {
            "vad.speech_start" => assert!(!std::mem::replace(&mut self.in_speech, true), "{json}"),
            "vad.speech_end" => assert!(std::mem::replace(&mut self.in_speech, false), "{json}"),
            "tts.speaking_start" => {
                let turn = value["request_id"].as_str().is_some_and(|id| id.starts_with("turn_"));
                let text = value["text"].as_str().expect("the event names the text").to_owned();
                assert!(self.speaking.replace(Some(text).filter(|_| !turn)).is_none(), "{json}");
            }
            "tts.speaking_end" => assert!(self.speaking.take().is_some(), "{json}"),
            "transcript.final" => {
                let segment_id = value["segment_id"].as_u64().expect("the event has a segment number");
                let last = self.last_final.insert(speaker_of(value), segment_id);
                assert!(last.is_none_or(|last| segment_id > last), "finals out of order: {json}");
            }
            "transcript.partial" => {
                let last = self.last_final.get(&speaker_of(value)).copied();
                assert!(value["segment_id"].as_u64() > last, "a partial after its final: {json}");
                let model = value["speaker"] == "assistant";
                assert!(model || self.in_speech, "a partial outside speech_start … speech_end: {json}");
            }
            "session.closed" => {
                assert!(!self.in_speech, "speech_start has no end");
                assert!(self.speaking.is_none(), "speaking_start has no end");
                self.session_closed = true;
            }
            _ => {}
        }
    }
}

fn speaker_of(value: &Value) -> String {
    value["speaker"].as_str().expect("the event names the speaker").to_owned()
}

/// Position of `piece` in `all` at or after `from`.
fn find(all: &[i16], piece: &[i16], from: usize) -> Option<usize> {
    (from..=all.len().checked_sub(piece.len())?).find(|at| &all[*at..at + piece.len()] == piece)
}

/// End of `unit` in `all` at or after `from`: contiguous, or with a gap after audio that an earlier lane
/// never answered.
fn find_with_gap(all: &[i16], unit: &[i16], from: usize) -> Option<usize> {
    if let Some(at) = find(all, unit, from) {
        return Some(at + unit.len());
    }
    let at = find(all, &unit[..unit.len().min(16)], from)?;
    let same = unit.iter().zip(&all[at..]).take_while(|(one, other)| one == other).count();
    find(all, &unit[same..], at + same).map(|rest| rest + unit.len() - same)
}
