//! The model's answers: their words and audio on the way to the session, their ends and cancellation, and how much was heard.

use std::time::Instant;

use serde_json::json;

use super::{
    VllmOmni, cancellation, message,
    speech_gate::{Activity, SpeechGate},
    units::UNIT_END,
};
use crate::{
    upstream::{behaviour::EventSink, output_rate::OutputRate, played_answer::PlayedAnswer},
    vocabulary::{LaneEvent, MessageMeta, Sound},
};

/// Audio that waits for its words, which follow it.
#[derive(Debug, Default)]
pub(super) struct HeldAudio {
    pub(super) response_id: Box<str>,
    pub(super) samples: Vec<f32>,
}

impl HeldAudio {
    /// Adds the end of an answer's audio.
    pub(super) fn end_with(&mut self, response_id: &str, samples: Vec<f32>) {
        if !samples.is_empty() {
            self.response_id = response_id.into();
            self.samples.extend(samples);
        }
    }
}

impl VllmOmni {
    /// Keeps audio until its words are known, so that the session gets the words first, as from other servers.
    pub(super) fn hold_audio(
        &mut self,
        now: Instant,
        samples: &[f32],
        meta: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        self.emit_held(now, emit);
        self.held =
            HeldAudio { response_id: meta.response_id.unwrap_or_default().into(), samples: samples.to_vec() };
    }

    pub(super) fn emit_held(&mut self, now: Instant, emit: &mut EventSink<'_>) {
        if !self.held.samples.is_empty() {
            let id = self.held.response_id.clone();
            self.speak(now, "", Some(&id), emit);
        }
    }

    /// Emits words of the model and the audio that came before them.
    pub(super) fn speak(
        &mut self,
        now: Instant,
        text: &str,
        response_id: Option<&str>,
        emit: &mut EventSink<'_>,
    ) {
        let samples = std::mem::take(&mut self.held).samples;
        let Some(gate) = &mut self.gate else {
            return self.emit_speech(now, text, &samples, response_id, emit);
        };
        let activity = gate.note(text, &samples);
        let id = gate.answer_id();
        match activity {
            Activity::Speaks => self.emit_speech(now, text, &samples, Some(&id), emit),
            Activity::Stops => {
                self.end_answer(MessageMeta { response_id: Some(&id), ..MessageMeta::default() }, emit);
            }
            Activity::Listens => self.answer_unit(LaneEvent::Listen, None, emit),
        }
    }

    fn emit_speech(
        &mut self,
        now: Instant,
        text: &str,
        samples: &[f32],
        response_id: Option<&str>,
        emit: &mut EventSink<'_>,
    ) {
        self.answer_unit(UNIT_END, None, emit);
        self.note_output(now, response_id.unwrap_or_default(), samples.len());
        let meta = MessageMeta { response_id, ..MessageMeta::default() };
        if !text.is_empty() {
            emit(LaneEvent::Text(text), meta);
        }
        if !samples.is_empty() {
            emit(LaneEvent::Audio(Sound::Samples(samples)), meta);
        }
    }

    fn note_output(&mut self, now: Instant, id: &str, samples: usize) {
        if self.answer.as_ref().is_none_or(|answer| *answer.response_id != *id) {
            self.report_playback(now);
            self.answer = Some(PlayedAnswer::new(now, id));
        }
        if let Some(answer) = &mut self.answer {
            answer.push(now, samples);
        }
    }

    /// The server has ended an answer: the model has, or a cancellation.
    pub(super) fn end_answer(
        &mut self,
        MessageMeta { response_id, hit_limit, .. }: MessageMeta<'_>,
        emit: &mut EventSink<'_>,
    ) {
        self.gate.iter_mut().for_each(SpeechGate::stop);
        let cancelled_by = self.cancelling.take();
        let hit_limit = hit_limit && cancelled_by.is_none();
        if let Some(answer) = &mut self.answer {
            answer.is_complete = true;
        }
        let unit = self.unit.take();
        let input_id = cancelled_by.or(unit.map(|unit| unit.id));
        emit(
            LaneEvent::Listen,
            MessageMeta { input_id: input_id.as_deref(), response_id, hit_limit, ..MessageMeta::default() },
        );
    }

    /// Stops the model. The server may have begun an answer that has not arrived, so that the message names none.
    pub(super) fn cancel_answer(&mut self, now: Instant, unit: &str, emit: &mut impl FnMut(String)) {
        if let Some(gate) = &mut self.gate {
            self.held = HeldAudio::default();
            return gate.interrupt();
        }
        if let Some(report) = self.take_playback_report(now) {
            self.outbox.admit_control(report, self.link.is_up()).into_iter().for_each(&mut *emit);
        }
        self.held = HeldAudio::default();
        self.output_rate = OutputRate::default();
        if self.cancelling.replace(unit.into()).is_none() {
            self.outbox.admit_control(cancellation(), self.link.is_up()).into_iter().for_each(emit);
        }
    }

    /// Tells the server how much of the answer was heard. It keeps in its history only that, and frees the rest.
    pub(super) fn report_playback(&mut self, now: Instant) {
        if let Some(report) = self.take_playback_report(now)
            && let Some(report) = self.outbox.admit_control(report, self.link.is_up())
        {
            self.send(now, report);
        }
    }

    fn take_playback_report(&mut self, now: Instant) -> Option<String> {
        let answer = self.answer.take().filter(|answer| answer.samples > 0 && self.gate.is_none())?;
        let heard_ms = answer.heard_ms(now);
        Some(message(&json!({
            "type": "playback.ack", "response_id": answer.response_id, "item_id": format!("item_{}", answer.response_id),
            "played_ms": heard_ms, "committed_ms": heard_ms,
        })))
    }

    /// When the answer has been played, as far as the clock can tell.
    pub(super) fn played_at(&self) -> Option<Instant> {
        self.answer.as_ref().filter(|answer| answer.is_complete).map(PlayedAnswer::ends_at)
    }
}
