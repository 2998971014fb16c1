//! Servers in trouble: stuck, refusing, dying, slow. The client gets a result or an error within a bound, and what it asks for
//! later is done.

use super::{play::*, *};
use crate::harness::HttpFailure;

/// Every request has a result or an error after this time: a queue may last for 120 s, and a request is asked twice.
const ANSWER_MAX: Duration = secs(300);

/// Trouble of a server.
struct Trouble {
    name: &'static str,
    /// Faults of the simulated server.
    faults: &'static [&'static str],
    refused_handshakes: usize,
    http: Option<HttpFailure>,
    /// Number of requests in trouble; many for trouble that lasts.
    times: usize,
    /// Every client has it on every server and in every profile. Other trouble makes no difference there.
    is_everywhere: bool,
}

const LASTS: usize = 1000;

const fn trouble(
    name: &'static str,
    faults: &'static [&'static str],
    http: Option<HttpFailure>,
    times: usize,
) -> Trouble {
    Trouble { name, faults, refused_handshakes: 0, http, times, is_everywhere: false }
}

const TROUBLES: &[Trouble] = &[
    trouble("stuck", &["never-answers"], Some(HttpFailure::Stuck), LASTS).everywhere(),
    Trouble { refused_handshakes: LASTS, ..trouble("refuses", &[], Some(HttpFailure::Status(403)), LASTS) },
    Trouble { refused_handshakes: 1, ..trouble("refuses once", &[], Some(HttpFailure::Status(503)), 1) },
    trouble("queue that never moves", &["stuck-queue"], None, LASTS).everywhere(),
    trouble("full queue", &["queue-full"], Some(HttpFailure::Status(503)), LASTS),
    trouble("busy", &["busy"], None, LASTS),
    trouble("dies before it is ready", &["die-before-created"], None, LASTS),
    trouble("dies in answers", &["die-mid-answer", "die-mid-turn"], Some(HttpFailure::DiesMidAnswer), LASTS),
    trouble(
        "dies in an answer",
        &["die-mid-answer,times=1", "die-mid-turn,times=1"],
        Some(HttpFailure::DiesMidAnswer),
        1,
    )
    .everywhere(),
    trouble(
        "breaks off an answer",
        &["drop-mid-answer,times=1", "drop-mid-turn,times=1"],
        Some(HttpFailure::DiesMidAnswer),
        1,
    ),
];

impl Trouble {
    /// True if the server of this case can be in this trouble.
    fn fits(&self, case: &Case) -> bool {
        let is_tried = self.is_everywhere || (case.is_usual() && case.has_default_profile());
        is_tried
            && match case.is_http() {
                true => self.http.is_some(),
                false => !self.faults.is_empty() || self.refused_handshakes > 0,
            }
    }

    const fn everywhere(self) -> Self {
        Self { is_everywhere: true, ..self }
    }

    fn apply(&self, config: &mut HarnessConfig) {
        config.simulator.faults = self.faults.iter().map(|fault| fault.parse().unwrap()).collect();
        config.refused_handshakes = self.refused_handshakes;
        config.http = HttpScript { failure: self.http, failures: self.times, ..HttpScript::default() };
    }
}

/// What a client asks for in trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Words,
    Voice(Request),
}

impl Wish {
    fn of(case: &Case) -> Option<Self> {
        let client = case.mapped_client();
        if client.sends_audio() && client.gets_user_words() && !case.converses() {
            return Some(Self::Words);
        }
        Request::of(case).map(Self::Voice)
    }

    fn make(self, play: &mut Play) {
        match self {
            Self::Words => {
                play.set_mark();
                play.utter(first_words());
            }
            Self::Voice(request) => request.make(play, "This is said in bad times."),
        }
    }

    fn is_granted(self, play: &Play) -> bool {
        match self {
            Self::Words => {
                let words = made_words(play);
                !words.is_empty()
                    && words.last().is_some_and(|last| are_told(play, std::slice::from_ref(last)))
            }
            // All of it: the scripted server speaks for 1 s, the others for at least 1.98 s.
            Self::Voice(_) => play.heard_s() > if play.case.is_http() { 0.95 } else { 1.9 },
        }
    }
}

#[test]
fn trouble_of_a_server_ends_in_a_result_or_an_error() {
    run(case::on_all_servers(), |checks| {
        let case = checks.case.clone();
        let Some(wish) = Wish::of(&case) else { return checks.gate() };
        for trouble in TROUBLES {
            if trouble.fits(&case) {
                endure(checks, &case, wish, trouble);
            } else {
                checks.gate();
            }
        }
    });
}

fn endure(checks: &mut Checks<'_>, case: &Case, wish: Wish, trouble: &Trouble) {
    let mut play = Play::with(case, |config| trouble.apply(config));
    wish.make(&mut play);
    play.mark_from_start();
    let name = format!("server in trouble: {}", trouble.name);
    let is_done = |play: &Play| wish.is_granted(play) || !play.errors().is_empty() || play.is_over();
    let done = play.wait_for(ANSWER_MAX, is_done);
    // The error may be a notice, and the result or the end follow.
    play.wait_for(secs(10), |play| wish.is_granted(play) || play.is_over());
    checks.that(&name, done && (wish.is_granted(&play) || are_errors_told(&play)), || play.story());
    if trouble.times == LASTS {
        play.harness.end_trouble();
    }
    // A request that comes in the same queue, or while the server still does another, may fail, too.
    let mut is_granted = false;
    for _ in 0..3 {
        if is_granted || play.is_over() {
            break;
        }
        wish.make(&mut play);
        let done = play.wait_for(ANSWER_MAX, is_done);
        play.wait_for(secs(10), |play| wish.is_granted(play) || play.is_over());
        is_granted = wish.is_granted(&play);
        let is_answered = is_granted || are_errors_told(&play);
        checks.that(&format!("{name}: what comes after"), done && is_answered, || play.story());
    }
    let is_served = is_granted || play.is_over();
    checks.that(&format!("{name}: recovery"), is_served, || play.story());
    if !play.is_over() {
        match play.client.goodbye() {
            Some(goodbye) => play.send(&goodbye),
            None => play.harness.close_client(),
        }
    }
    let ended = play.harness.run_until(Harness::is_over, secs(180)).is_some();
    checks.that(&format!("{name}: the end"), ended, || play.story());
}

/// True if there was an error, and the client got each in the form of its protocol, if that has one.
fn are_errors_told(play: &Play) -> bool {
    let (reading, errors, json) = (play.reading(), play.errors(), play.json());
    let is_told = |error| match play.close() {
        Some((code, _)) if reading.is_close_of(code, error) => true,
        _ => !reading.spells(error) || json.iter().any(|message| reading.is_error(message, error)),
    };
    !errors.is_empty() && errors.iter().all(is_told)
}

#[test]
fn slow_server_is_waited_for() {
    run(case::on_all_servers(), |checks| {
        let case = checks.case.clone();
        // An utterance takes two upstream sessions at a time: one for its words, and one for the answer.
        let is_narrow = case.server.has_one_session && case.answers();
        let Some(wish) = Wish::of(&case).filter(|_| !is_narrow) else { return checks.gate() };
        let mut play = Play::with(&case, |config| {
            let timing = &mut config.simulator.timing;
            timing.init = secs(6);
            timing.first_delta = secs(6);
            timing.text_delta = secs(2);
            timing.speech_second = secs(4);
            config.http.delay = secs(3);
        });
        wish.make(&mut play);
        let done = play.wait_for(secs(120), |play| wish.is_granted(play));
        checks.that("a server that trickles", done && play.errors().is_empty(), || play.story());
    });
}
