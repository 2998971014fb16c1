//! The model's voice: every sample reaches the client, however slowly it reads, and stops at a cancel or an interruption.

use super::{play::*, *};

/// A text of 4 s.
const TEXT: &str = "The first text is of no great length, but it is heard.";
/// A text of 14 s.
const LONG_TEXT: &str = "The second text is so long that there is time to stop it before its end. It goes on and on, and \
    says the same again and again: nothing that anyone would want to hear. Here it ends.";
/// More audio than that may be missing or added: a resampler's delay.
const TOLERANCE_S: f64 = 0.03;

/// What the client asks for to hear the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// A text is spoken.
    Text,
    /// A question in writing is answered.
    Question,
    /// The user's speech is answered.
    Speech,
}

impl Request {
    /// How the client hears the model in this case; `None` if it cannot.
    pub(super) fn of(case: &Case) -> Option<Self> {
        let client = case.mapped_client();
        if !client.gets_audio() {
            return None;
        }
        match (case.converses(), case.answers()) {
            (true, _) => client.sends_audio().then_some(Self::Speech),
            (_, true) if client.asks_texts() => Some(Self::Question),
            (_, true) => client.sends_audio().then_some(Self::Speech),
            _ => client.speaks_texts().then_some(Self::Text),
        }
    }

    fn purpose(self, case: &Case) -> LanePurpose {
        match self {
            Self::Text => LanePurpose::Speak,
            Self::Question | Self::Speech if case.profile.dialogue.is_some() => LanePurpose::Converse,
            Self::Question | Self::Speech => LanePurpose::Answer,
        }
    }

    /// Makes the request.
    pub(super) fn make(self, play: &mut Play, text: &str) {
        play.set_mark();
        match self {
            Self::Text => {
                let messages = play.client.text(text).unwrap();
                play.send_all(&messages);
            }
            Self::Question => {
                let messages = play.client.question(text).unwrap();
                play.send_all(&messages);
            }
            Self::Speech => play.utter(first_words()),
        }
    }
}

/// Samples that the model made for the current request.
pub(super) fn made_samples(play: &Play, request: Request) -> usize {
    play.made(request.purpose(&play.case)).iter().map(|made| made.samples).sum()
}

/// Waits until the model and the client are silent.
pub(super) fn wait_for_silence(play: &mut Play) {
    let quiet = secs(3);
    play.wait_for(secs(60), |play| {
        let last = play.audio().last().map(|(at, _)| *at);
        last.is_some_and(|at| play.harness.now() > at + quiet)
    });
}

/// Checks that the client has heard all that the model made.
fn check_whole(checks: &mut Checks<'_>, play: &Play, request: Request, cell: &str) -> bool {
    let (heard_s, made_s) = (play.heard_s(), made_samples(play, request) as f64 / 24_000.0);
    let format = &play.mapping().audio_out;
    // Opus has a packet more, because its encoder is behind.
    let frames = if format.encoding == Encoding::Opus { 2.0 } else { 1.0 };
    let fill_s = match play.client.formats.encoding_out {
        // The delays of encoder and decoder, and the rest of the last frame; twice, because a first sentence may be spoken alone.
        Encoding::Mp3 => 2.0 * (1057.0 + 1152.0) / f64::from(play.client.formats.rate_out_hz),
        _ => frames * f64::from(format.frame_ms.unwrap_or(0)) / 1000.0,
    };
    let is_whole = made_s > 0.5 && heard_s > made_s - TOLERANCE_S && heard_s < made_s + fill_s + TOLERANCE_S;
    checks.that(cell, is_whole, || format!("{heard_s:.3} of {made_s:.3} s; {}", play.story()));
    is_whole
}

/// Checks that the client has got the words of the answer that it heard, if its protocol has them.
fn check_model_words(checks: &mut Checks<'_>, play: &Play, request: Request) {
    let names = [
        EventName::TranscriptFinal,
        EventName::TranscriptPartial,
        EventName::AnswerSentence,
        EventName::AnswerDelta,
    ];
    let has_words = names.into_iter().any(|name| !play.mapping().event(name).is_empty());
    if request == Request::Text || !(has_words || play.client.is_rust()) {
        return checks.gate();
    }
    let made = play.made(request.purpose(&play.case)).into_iter();
    let words = made.map(|made| made.text).collect::<Vec<_>>().join(" ");
    let has_all = !words.trim().is_empty() && play.texts().have(&words);
    checks.that("words of the model", has_all, || format!("{words:?}; {}", play.story()));
}

/// The model speaks long enough to be stopped.
fn talkative(config: &mut HarnessConfig) {
    config.simulator.turn_units = 10;
    config.simulator.answers = vec![LONG_TEXT.to_owned(); 3];
}

#[test]
fn speech_is_whole_at_any_pace_of_reading() {
    run(case::on_all_servers(), |checks| {
        let case = checks.case.clone();
        let Some(request) = Request::of(&case) else { return checks.gate() };
        let mut play = Play::open(&case);
        request.make(&mut play, TEXT);
        wait_for_silence(&mut play);
        if !check_whole(checks, &play, request, "speech is whole") {
            return;
        }
        check_model_words(checks, &play, request);
        let bytes: usize = play.harness.received.iter().map(|(_, message)| bytes(message)).sum();
        // Bytes a second of playback, with room for the messages between.
        let pace = (bytes as f64 / play.heard_s() * 1.1) as u64;
        request.make(&mut play, LONG_TEXT);
        play.harness.set_reading_rate(pace);
        wait_for_silence(&mut play);
        check_whole(checks, &play, request, "speech is whole at the pace of playback");
        if case.converses() {
            // A conversation goes on while its client does not read: what is too late is not said.
            return;
        }
        request.make(&mut play, LONG_TEXT);
        play.wait_for(secs(10), Play::hears);
        play.harness.set_reading_rate(0);
        // Some clients have to show within a minute that they are there.
        let idle = Duration::from_millis(case.client.audio_in.idle_ms).checked_sub(secs(15));
        play.harness.advance(idle.map_or(secs(60), |idle| idle.min(secs(60))));
        play.harness.set_reading_rate(pace * 4);
        play.wait(secs(6));
        wait_for_silence(&mut play);
        check_whole(checks, &play, request, "speech is whole after a pause of reading");
        let has_ended = play.is_over();
        checks.that("a client that pauses is kept", !has_ended, || play.story());
    });
}

#[test]
fn cancel_ends_speech_at_once_and_the_session_goes_on() {
    run(case::on_all_servers(), |checks| {
        let case = checks.case.clone();
        let Some(request) = Request::of(&case) else { return checks.gate() };
        let mut play = Play::with(&case, talkative);
        let asks = play.client.cancels_by_asking() && case.converses()
            || play.client.cancels_by_request() && case.answers();
        let Some(cancel) = play.client.cancel().filter(|_| !asks) else { return checks.gate() };
        request.make(&mut play, LONG_TEXT);
        let has_begun = play.wait_for(secs(20), Play::hears);
        play.harness.advance(Duration::from_millis(300));
        play.send(&cancel);
        let heard_s = play.heard_s();
        play.wait(secs(4));
        let later_s = play.heard_s() - heard_s;
        let is_silent = has_begun && later_s < 0.011;
        checks.that("cancel", is_silent, || format!("{later_s:.3} s after the cancel; {}", play.story()));
        request.make(&mut play, TEXT);
        wait_for_silence(&mut play);
        let heard_s = play.heard_s();
        checks.that("speech after a cancel", heard_s > 0.9, || format!("{heard_s:.3} s; {}", play.story()));
    });
}

#[test]
fn user_who_speaks_interrupts_the_model_and_is_answered() {
    run(case::on_all_servers(), |checks| {
        let case = checks.case.clone();
        let request = Request::of(&case).filter(|_| case.mapped_client().sends_audio());
        let (Some(request), true) = (request, case.profile.barge_in().is_some()) else {
            return checks.gate();
        };
        let mut play = Play::with(&case, talkative);
        request.make(&mut play, LONG_TEXT);
        let has_begun = play.wait_for(secs(20), Play::hears);
        play.wait(Duration::from_millis(500));
        let until = play.harness.now() + Duration::from_millis(1500);
        play.say(second_words());
        let begun = play.harness.now();
        let late = play.audio().iter().filter(|(at, _)| *at > until && *at < begun).count();
        checks.that("interruption", has_begun && late == 0, || {
            format!("{late} messages of audio while the user speaks; {}", play.story())
        });
        play.set_mark();
        play.wait(Duration::from_millis(1200));
        wait_for_silence(&mut play);
        let heard_s = play.heard_s();
        checks
            .that("answer to an interruption", heard_s > 0.9, || format!("{heard_s:.3} s; {}", play.story()));
    });
}

const fn bytes(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) => bytes.len(),
        Message::Close(..) => 0,
    }
}
