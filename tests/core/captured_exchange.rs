//! One captured exchange: the client's messages with their times, and the real server's answers.

use super::*;

/// Sample at which the speech recording starts to speak. Until 6.8 s its pauses are at most 0.1 s.
const SPEECH_START: usize = 16 * 200;

/// A captured exchange.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapturedExchange {
    /// Path and query of the connection.
    pub(crate) connect: String,
    /// Simulator settings that reproduce the exchange.
    #[serde(default)]
    pub(crate) simulate: SimulatorOverrides,
    steps: Vec<CapturedStep>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulatorOverrides {
    #[serde(default)]
    pub(crate) faults: Vec<String>,
    /// Time to the first delta, ms.
    pub(crate) first_delta_ms: Option<u64>,
    pub(crate) speech_second_ms: Option<u64>,
    pub(crate) workers: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct CapturedStep {
    /// Time since the connection was made, ms.
    t: u64,
    #[serde(flatten)]
    kind: StepKind,
}

/// A client action or a server answer.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum StepKind {
    /// A text frame; `%s` stands for a long run of one letter.
    SendLong {
        send: String,
        repeat: (String, usize),
    },
    Send {
        send: String,
    },
    SendZeroBytes {
        send_zero_bytes: usize,
    },
    /// Audio described as sounds with their lengths in ms, in frames, at this multiple of real time (0: at
    /// once).
    Audio {
        audio: Vec<(String, u64)>,
        frame_ms: u64,
        rate: f64,
    },
    #[expect(dead_code, reason = "the key alone tells the kind")]
    ClientClose {
        client_close: u16,
    },
    Event {
        event: Map<String, Value>,
    },
    /// A run of binary frames.
    #[expect(dead_code, reason = "the key alone tells the kind")]
    Binary {
        frames: usize,
        bytes: usize,
    },
    Close {
        close: u16,
        reason: String,
    },
    /// The connection ended without a close frame.
    #[expect(dead_code, reason = "the key alone tells the kind")]
    Lost {
        lost: bool,
    },
    #[expect(dead_code, reason = "the key alone tells the kind")]
    Http {
        http_status: u16,
    },
}

/// An action of the client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClientAction {
    Text(String),
    Binary(Vec<u8>),
    Close,
}

/// A server answer. A run of binary frames or of partials is one item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ServerItem {
    Event(Map<String, Value>),
    Binary,
    Close(u16, String),
    /// The connection ended without a close frame, or the upgrade failed.
    Lost,
}

impl ServerItem {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Event(event) => event["type"].as_str().unwrap_or("?").to_owned(),
            Self::Binary => "binary".to_owned(),
            Self::Close(code, _) => format!("close {code}"),
            Self::Lost => "lost".to_owned(),
        }
    }
}

impl CapturedExchange {
    /// Every exchange in a folder, by name.
    pub(crate) fn all(folder: &str) -> BTreeMap<String, Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
        let read = |entry: std::io::Result<fs::DirEntry>| {
            let path = entry.unwrap().path();
            let exchange = serde_json::from_str(&fs::read_to_string(&path).unwrap());
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, exchange.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        };
        fs::read_dir(&folder).unwrap().map(read).collect()
    }

    /// The client's actions and their times.
    pub(crate) fn client_actions(&self) -> Vec<(Duration, ClientAction)> {
        let mut sounds = SoundSource::default();
        let mut client_actions: Vec<(Duration, ClientAction)> = Vec::new();
        for CapturedStep { t, kind } in &self.steps {
            let at = Duration::from_millis(*t);
            match kind {
                StepKind::Send { send } => client_actions.push((at, ClientAction::Text(send.clone()))),
                StepKind::SendLong { send, repeat: (letter, times) } => {
                    client_actions.push((at, ClientAction::Text(send.replace("%s", &letter.repeat(*times)))));
                }
                StepKind::SendZeroBytes { send_zero_bytes } => {
                    client_actions.push((at, ClientAction::Binary(vec![0; *send_zero_bytes])));
                }
                StepKind::Audio { audio, frame_ms, rate } => {
                    let samples: Vec<i16> =
                        audio.iter().flat_map(|(kind, ms)| sounds.render(kind, *ms)).collect();
                    let pace = if *rate > 0.0 { *frame_ms as f64 / rate } else { 0.0 };
                    for (index, frame) in samples.chunks((16 * frame_ms) as usize).enumerate() {
                        let later = Duration::from_secs_f64(pace * index as f64 / 1000.0);
                        client_actions.push((at + later, ClientAction::Binary(bytes_of(frame))));
                    }
                }
                StepKind::ClientClose { .. } => client_actions.push((at, ClientAction::Close)),
                _ => {}
            }
        }
        client_actions.sort_by_key(|(at, _)| *at);
        client_actions
    }

    /// The real server's answers.
    pub(crate) fn server_answers(&self) -> Vec<ServerItem> {
        let items = self.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Event { event } => Some(ServerItem::Event(event.clone())),
            StepKind::Binary { .. } => Some(ServerItem::Binary),
            StepKind::Close { close, reason } => Some(ServerItem::Close(*close, reason.clone())),
            StepKind::Lost { .. } | StepKind::Http { .. } => Some(ServerItem::Lost),
            _ => None,
        });
        collapse_runs(items.collect())
    }
}

/// Collapses each run of binary frames into one item, and each run of partials into its last one.
pub(crate) fn collapse_runs(mut items: Vec<ServerItem>) -> Vec<ServerItem> {
    items.dedup_by(|next, last| {
        let run =
            next.name() == last.name() && matches!(next.name().as_str(), "binary" | "transcript.partial");
        if run {
            std::mem::swap(next, last);
        }
        run
    });
    items
}

/// Source of the recipes' sounds. Speech continues where it stopped.
#[derive(Default)]
struct SoundSource {
    spoken: usize,
}

impl SoundSource {
    fn render(&mut self, kind: &str, ms: u64) -> Vec<i16> {
        let length = (16 * ms) as usize;
        let sound: Vec<i16> = match kind {
            "zeros" => vec![0; length],
            "noise" => {
                (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 28) as i16 - 8).collect()
            }
            "speech" => {
                let from = SPEECH_START + self.spoken;
                self.spoken += length;
                recording("librivox_0870_16k.wav").into_iter().skip(from).take(length).collect()
            }
            "jfk" => recording("jfk_16k.wav").into_iter().take(length).collect(),
            other => panic!("unknown sound {other}"),
        };
        assert_eq!(sound.len(), length, "the recording is too short for {kind}");
        sound
    }
}
