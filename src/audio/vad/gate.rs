//! What is too soft to be speech, so that the detector need not be asked: softer than a set level, or no louder than the room.

use super::VadConfig;

/// The gate before a detector.
#[derive(Debug)]
pub(super) struct EnergyGate {
    floor: NoiseFloor,
    /// Hops for which it stays open.
    open_hops: u32,
}

/// What the gate does with a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GateState {
    /// It may be speech.
    Open,
    /// It is not, and the one before it might have been.
    Closing,
    /// It is not.
    Closed,
}

impl EnergyGate {
    pub(super) const fn new() -> Self {
        Self { floor: NoiseFloor::UNKNOWN, open_hops: 0 }
    }

    /// What it does with a hop of that level.
    pub(super) fn update(&mut self, hop_dbfs: f32, config: &VadConfig) -> GateState {
        if self.floor.update_and_compare(hop_dbfs) && hop_dbfs >= config.gate_dbfs {
            self.open_hops = HANGOVER_HOPS;
            return GateState::Open;
        }
        let before = self.open_hops;
        self.open_hops = before.saturating_sub(1);
        match before {
            0 => GateState::Closed,
            1 => GateState::Closing,
            _ => GateState::Open,
        }
    }
}

/// How long it stays open after the last hop above it: 192 ms, longer than the weak sounds within a word. A gate at
/// −60 dBFS without it delayed starts by up to 2 s and missed a recording at −30 dB; with it, none.
const HANGOVER_HOPS: u32 = 12;

/// How loud it is when nobody speaks. A room is never silent, asking the detector about a room costs as much as asking it
/// about speech, and what it remembers of a room only confuses it: on the seven recordings in examples/speech at two levels
/// each, over white, pink and brown noise, it missed 2 of 42 at 5 dB and 8 at 0 dB when it was always asked, and 0 and 1
/// behind this gate, which was open for 47 to 62 % of the time (steady noise that wanders, as brown does, opens it).
#[derive(Debug, Clone, Copy)]
struct NoiseFloor {
    /// The softest hop, rising by [`FLOOR_RISE_DB`] a hop since.
    dbfs: f32,
    hops: u32,
}

impl NoiseFloor {
    const UNKNOWN: Self = Self { dbfs: f32::INFINITY, hops: 0 };

    /// Whether a hop of that level is more than the room.
    fn update_and_compare(&mut self, hop_dbfs: f32) -> bool {
        self.dbfs = (self.dbfs + FLOOR_RISE_DB).min(hop_dbfs).max(FLOOR_LOWEST_DBFS);
        self.hops = self.hops.saturating_add(1);
        self.hops < FLOOR_WARM_UP_HOPS || hop_dbfs > self.dbfs + SPEECH_ABOVE_FLOOR_DB
    }
}

/// How fast the floor rises: 6 dB a second, as a fan that is switched on is to be known soon.
const FLOOR_RISE_DB: f32 = 6.0 * 0.016;
/// No room is softer; what would be is digital silence.
const FLOOR_LOWEST_DBFS: f32 = -80.0;
/// Who speaks from the first moment on is not taken for the room: it is known after a second.
const FLOOR_WARM_UP_HOPS: u32 = 63;
/// What is louder than the room by this much may be speech. Hops of steady noise vary by less; where speech is as loud as the
/// noise on average its loud sounds stand out by more, and the gate stays open between them.
const SPEECH_ABOVE_FLOOR_DB: f32 = 4.0;
