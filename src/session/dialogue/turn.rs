//! One turn of the model: its text, its response ids, and how much of it was heard.

use std::{collections::VecDeque, time::Instant};

use crate::session::{
    floor::{Floor, SpeechSource, TurnTranscript},
    output_filter::OutputFilter,
    pace::Pace,
    tools::Tools,
};
use crate::{
    audio::MODEL_RATE_HZ,
    vocabulary::{ClientEvent, Speaker, SpeechId, TokenUsage, ToolCall, heard_words},
};

/// Remembered response ids of one turn. Late output is at most one unit late.
const RESPONSE_IDS_MAX: usize = 4;
/// Bound on the text of one turn; the model would need an hour to speak it.
const TEXT_MAX_BYTES: usize = 64 * 1024;

/// Turn in progress.
#[derive(Debug, Default)]
pub(in crate::session) struct AssistantTurn {
    pub(in crate::session) request_id: String,
    pub(in crate::session) segment_id: u32,
    /// The client gets its words.
    is_reported: bool,
    pub(in crate::session) text: String,
    /// Length of the text at the last partial transcript.
    pub(in crate::session) reported_bytes: usize,
    /// Samples of its audio so far.
    pub(in crate::session) audio_samples: u64,
    /// The last samples, which were dropped because they were too far ahead of playback.
    pub(in crate::session) dropped_samples: u64,
    /// Names it on the floor, from its first audio on.
    pub(in crate::session) playing: Option<SpeechId>,
    /// Calls of tools, each with its entry's number. They are reported with its end.
    pub(in crate::session) calls: Vec<(u32, ToolCall)>,
    /// Tokens that it took, once it has ended.
    pub(in crate::session) usage: TokenUsage,
    /// The model stopped at the bound on the answer's length.
    pub(in crate::session) hit_limit: bool,
    pub(super) response_ids: VecDeque<Box<str>>,
}

impl AssistantTurn {
    /// Starts a turn, whose words the client gets if it `is_reported`, and tells the client.
    pub(in crate::session) fn start(by_client: bool, is_reported: bool, tools: &mut Tools) -> Self {
        let segment_id = tools.segment_ids.next_id();
        tools.floor.out.push_client(ClientEvent::AnswerStarted { segment_id, by_client });
        Self {
            request_id: format!("turn_{:08x}", tools.lanes.rng().u32(..)),
            segment_id,
            is_reported,
            ..Self::default()
        }
    }

    /// Adds a response id. The C++ back-end uses a new one for each unit.
    pub(super) fn add_response_id(&mut self, id: Option<&str>) {
        let Some(id) = id.filter(|id| self.response_ids.back().is_none_or(|last| **last != **id)) else {
            return;
        };
        if self.response_ids.len() == RESPONSE_IDS_MAX {
            self.response_ids.pop_front();
        }
        self.response_ids.push_back(id.into());
    }

    /// Adds filtered text.
    pub(in crate::session) fn push_text(&mut self, filter: &mut OutputFilter, delta: &str) {
        if self.text.len() < TEXT_MAX_BYTES {
            filter.push(delta, &mut self.text);
        }
    }

    /// Adds words whose audio begins now, and reports them.
    pub(in crate::session) fn add_spoken_words(&mut self, words: &str, tools: &mut Tools) {
        if self.text.len() < TEXT_MAX_BYTES {
            self.text.push_str(words);
        }
        if tools.settings.partials && self.text.trim().len() > self.reported_bytes {
            self.reported_bytes = self.text.len();
            tools.floor.out.push_client(self.partial());
        }
    }

    /// Cuts the words whose audio was not made, because no more audio follows. The pace of a voice is only estimated, so all
    /// words stay if most of their audio was made.
    pub(in crate::session) fn cut_unmade_words(&mut self) {
        let (made_ms, expected_ms) = (self.audio_ms(), Pace::USUAL.length_ms(&self.text));
        if made_ms * 4 < expected_ms * 3 {
            self.text.truncate(heard_words(&self.text, made_ms, expected_ms).len());
        }
    }

    pub(in crate::session) fn audio_ms(&self) -> u64 {
        self.audio_samples * 1000 / u64::from(MODEL_RATE_HZ)
    }

    /// The words whose audio was kept, and the length of that audio, ms.
    pub(in crate::session) fn kept_words(&self) -> (&str, u64) {
        let text = self.text.trim();
        let kept_ms = (self.audio_samples - self.dropped_samples) * 1000 / u64::from(MODEL_RATE_HZ);
        match self.dropped_samples {
            0 => (text, kept_ms),
            _ => (heard_words(text, kept_ms, self.audio_ms()), kept_ms),
        }
    }

    /// True if its words are reported as they come.
    pub(super) const fn has_partials(&self, tools: &Tools) -> bool {
        self.is_reported && tools.settings.partials
    }

    /// Its words, for the final transcript.
    fn transcript(&self, tools: &Tools) -> TurnTranscript {
        let text = self.text.trim().to_owned();
        TurnTranscript {
            segment_id: self.segment_id,
            audio_ms: self.audio_ms(),
            is_reported: self.is_reported,
            has_partials: tools.settings.partials && self.reported_bytes > 0,
            text,
            calls: self.calls.clone(),
            usage: self.usage,
            hit_limit: self.hit_limit,
        }
    }

    /// Partial transcript of the text so far.
    pub(in crate::session) fn partial(&self) -> ClientEvent {
        ClientEvent::TranscriptPartial {
            speaker: Speaker::Assistant,
            text: self.text.trim().to_owned(),
            segment_id: self.segment_id,
            audio_ms: self.audio_ms(),
            start_ms: 0,
        }
    }

    /// Plays audio of the model.
    pub(in crate::session) fn push_audio(&mut self, now: Instant, samples: &[f32], floor: &mut Floor) {
        self.audio_samples += samples.len() as u64;
        let turn = *self.playing.get_or_insert_with(|| {
            let (id, text) = (self.request_id.clone(), self.text.trim().to_owned());
            floor.begin_turn(now, self.segment_id, id, text)
        });
        self.dropped_samples += floor.push_audio(now, turn, samples) as u64;
    }

    /// Puts a turn without audio behind the turns that are still played, so that the ends of turns keep their order.
    pub(super) fn follow_earlier(&mut self, now: Instant, floor: &mut Floor) {
        if self.playing.is_none() && floor.is_busy_with(SpeechSource::Model) {
            self.playing =
                Some(floor.begin_turn(now, self.segment_id, self.request_id.clone(), String::new()));
        }
    }

    /// Reports a complete turn: its words now, and its final transcript when it has been played. A turn that was never
    /// played gets it now.
    pub(in crate::session) fn report_complete(&self, tools: &mut Tools) {
        let mut transcript = self.transcript(tools);
        let Some(playing) = self.playing else {
            return transcript.all_events().for_each(|event| tools.floor.out.push_client(event));
        };
        if self.has_partials(tools) && self.text.len() > self.reported_bytes {
            tools.floor.out.push_client(self.partial());
            transcript.has_partials = true;
        }
        tools.floor.set_transcript(playing, transcript);
    }

    /// Reports a turn that is cut: what was heard of it, as soon as the floor discards it.
    pub(in crate::session) fn report_cut(&self, tools: &mut Tools) {
        let transcript = self.transcript(tools);
        match self.playing {
            Some(playing) => tools.floor.set_transcript(playing, transcript),
            None => tools.floor.out.push_if_any(transcript.unheard_event()),
        }
    }

    /// The end of a turn that was never played. The floor reports the end of the others.
    pub(in crate::session) fn end(&self, cancelled: bool) -> Option<ClientEvent> {
        let Self { segment_id, usage, hit_limit, .. } = *self;
        let audio_ms = self.audio_ms();
        let end = ClientEvent::AnswerEnded { segment_id, cancelled, audio_ms, usage, hit_limit };
        self.playing.is_none().then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_whose_audio_was_not_made_are_cut_from_a_lost_turn() {
        let text = "One two three four five six seven eight nine ten";
        for (audio_ms, kept) in
            [(0, ""), (600, "One two"), (1300, "One two three four five"), (2200, text), (9000, text)]
        {
            let mut turn = AssistantTurn {
                segment_id: 1,
                is_reported: true,
                text: text.to_owned(),
                audio_samples: audio_ms * u64::from(MODEL_RATE_HZ) / 1000,
                ..AssistantTurn::default()
            };
            turn.cut_unmade_words();
            assert_eq!(turn.text.trim(), kept, "{audio_ms} ms");
        }
    }
}
