//! Bodies for lanes: messages, answers and lost connections of one upstream session, in every dialect, and event streams.

use std::time::{Duration, Instant};

use super::{FuzzFrames, LIBRARY, assert_json};
use voxbridge::{
    upstream::{lane::LaneCodec, sse::EventStream},
    vocabulary::{
        AnswerPart, ChatTurn, ConversationInit, DisconnectReason, Frame, LaneEvent, LanePurpose, LaneRequest,
        Message, Mode, ToolOffer, UnitInput, VoiceSample,
    },
};

/// Most actions and messages of a codec after one input.
const ACTIONS_MAX: usize = 64;

pub(super) const CONTENT_TYPES: [&str; 8] = [
    "",
    "application/json",
    "text/event-stream",
    "audio/wav",
    "audio/pcm; rate=24000; channels=1",
    "audio/L16;rate=0;channels=9",
    "text/plain",
    "audio/pcm;rate=4294967295",
];

const PURPOSES: [(LanePurpose, Mode); 5] = [
    (LanePurpose::Transcribe, Mode::Chat),
    (LanePurpose::Speak, Mode::Chat),
    (LanePurpose::Answer, Mode::Chat),
    (LanePurpose::Converse, Mode::Audio),
    (LanePurpose::Converse, Mode::Video),
];

/// One lane of the dialect and purpose that the first byte chooses. Each frame that follows is a message of the upstream; an
/// empty binary one is an act of the session, and one that begins with ff the head of an HTTP answer.
pub fn lane_frames(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let mappings: Vec<_> = LIBRARY.upstreams().collect();
    let mapping = mappings[usize::from(*first) % mappings.len()].clone();
    let (purpose, mode) = PURPOSES[usize::from(*first) / mappings.len() % PURPOSES.len()];
    if !mapping.can(purpose, mode) {
        return;
    }
    let mut lane = FuzzLane::new(LaneCodec::new(mapping, mode, purpose), request(purpose));
    for (step, frame) in FuzzFrames(rest).enumerate() {
        lane.now += Duration::from_millis(20);
        match frame {
            Frame::Binary([]) => lane.act(step),
            Frame::Binary([0xff, status, ..]) => lane.begin_answer(*status),
            frame => lane.decode(frame),
        }
        lane.check_actions();
    }
}

/// The session's request to a lane of this purpose.
fn request(purpose: LanePurpose) -> LaneRequest {
    match purpose {
        LanePurpose::Speak => LaneRequest::Speak {
            before_voice: "\"".into(),
            after_voice: "\\".into(),
            request: "\n".into(),
            text: "\t".into(),
            voice: None,
            voice_name: None,
        },
        LanePurpose::Converse => LaneRequest::Append(UnitInput {
            audio: vec![1; 16_000].into(),
            input_id: "i".into(),
            force_listen: false,
            frame: None,
        }),
        LanePurpose::Answer => LaneRequest::Chat(Box::new(ChatTurn {
            before_voice: String::new(),
            instructions: "\"".into(),
            messages: Vec::new(),
            speaks: true,
            voice: None,
            voice_name: None,
            max_tokens: 10,
            temperature: None,
            tools: ToolOffer::default(),
        })),
        LanePurpose::Transcribe | LanePurpose::Relay => {
            LaneRequest::Transcribe { prompt: "\"".into(), audio: vec![1, -1].into() }
        }
    }
}

struct FuzzLane {
    codec: LaneCodec,
    request: LaneRequest,
    now: Instant,
}

impl FuzzLane {
    fn new(mut codec: LaneCodec, request: LaneRequest) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "an instant must come from somewhere; only differences count"
        )]
        let now = Instant::now();
        codec.handle_opened(now);
        Self { codec, request, now }
    }

    fn decode(&mut self, frame: Frame<'_>) {
        let bytes = match frame {
            Frame::Text(text) => text.len(),
            Frame::Binary(bytes) => bytes.len(),
        };
        let mut samples = 0;
        self.codec.decode(self.now, frame, |event, _| {
            if let LaneEvent::Audio(audio) | LaneEvent::Done { audio, .. } = event {
                samples += audio.len();
            }
        });
        // Audio at 8 kHz is resampled to 24 kHz; some of an earlier message may wait.
        assert!(samples <= 3 * bytes + 4096, "{samples} samples of {bytes} bytes");
    }

    fn begin_answer(&mut self, status: u8) {
        let content_type = CONTENT_TYPES[usize::from(status) % CONTENT_TYPES.len()].to_owned();
        let status = [200, 200, 200, 400, 429, 500, 0, 206][usize::from(status) / 32];
        self.codec.handle_answer(AnswerPart::Head { status, content_type }, |_, _| ());
    }

    /// Does one of the session's acts, in turn.
    fn act(&mut self, step: usize) {
        let command = match step % 7 {
            0 if matches!(self.request, LaneRequest::Append(_)) => {
                let init = ConversationInit {
                    prompt: "\"".into(),
                    config: "{}".into(),
                    voice: None,
                    voice_name: None,
                };
                LaneRequest::InitConversation(Box::new(init))
            }
            0 => LaneRequest::Init(Some(VoiceSample::new([0]))),
            1 | 2 => self.request.clone(),
            3 => {
                self.codec.handle_end(self.now, &DisconnectReason::Lost("reset".to_owned()));
                self.codec.handle_opened(self.now);
                return;
            }
            4 => {
                self.now = self.codec.deadline().unwrap_or(self.now).max(self.now);
                return self.codec.handle_timeout(self.now);
            }
            5 => return self.codec.handle_answer(AnswerPart::End, |_, _| ()),
            _ => [LaneRequest::Cancel, LaneRequest::Close][step / 7 % 2].clone(),
        };
        self.codec.encode(self.now, command, |message| {
            if let Message::Text(json) = message {
                assert_json(&json);
            }
        });
    }

    fn check_actions(&mut self) {
        let actions = std::iter::from_fn(|| self.codec.pop_action()).take(ACTIONS_MAX).count();
        assert!(actions < ACTIONS_MAX, "{actions} actions after one input");
    }
}

/// An event stream in pieces, each after its length in one byte, has the events of the whole stream.
pub fn event_stream(data: &[u8]) {
    let (mut rest, mut pieces) = (data, Vec::new());
    while let [length, tail @ ..] = rest {
        let (piece, after) = tail.split_at(tail.len().min(usize::from(*length)));
        pieces.push(piece);
        rest = after;
    }
    let whole = pieces.concat();
    assert_eq!(events(pieces), events([&whole[..]]));
}

fn events<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<String> {
    let (mut stream, mut events, mut taken) = (EventStream::default(), Vec::new(), 0);
    for piece in pieces {
        stream.push(piece);
        taken += piece.len();
        events.extend(std::iter::from_fn(|| stream.pop()));
        // A byte that is no UTF-8 becomes three.
        assert!(stream.held_bytes() <= 3 * taken);
    }
    events.extend(stream.finish());
    events
}
