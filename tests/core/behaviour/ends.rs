//! Ends of a session, from either side; and the replacement of a conversation's upstream session.

use voxbridge::{
    spelling::client::{EventSlot, ReportedAs, Verb},
    vocabulary::{CloseReason, Slot},
};

use super::{play::*, speech::made_samples, *};

/// A session without work ends within this time; with work, within the drain time.
const END_MAX: Duration = secs(60);

/// Waits for the end of the session; true if it comes.
fn wait_for_end(play: &mut Play) -> bool {
    play.harness.run_until(|harness: &Harness| harness.finished, END_MAX).is_some()
}

/// Checks the last messages of a session that ends for this reason.
fn check_end(checks: &mut Checks<'_>, play: &Play, cell: &str, why: CloseReason) {
    let (mapping, reading) = (play.mapping(), play.reading());
    let spelling = mapping.close(why).unwrap();
    let has_close = play.close().is_some_and(|(code, text)| reading.is_end((code, &text), why));
    let json = play.json();
    let events = mapping.event(EventName::SessionClosed).iter();
    let says_reason = events.clone().any(|it| it.template.uses_slot(EventSlot::Event(Slot::Reason)));
    let is_reported = spelling.reported_as == ReportedAs::SessionClosed && says_reason;
    let is_told = !is_reported
        || json.iter().any(|message| {
            mapping.is_event(EventName::SessionClosed, Slot::Reason, &spelling.reason, &message.to_string())
        });
    checks.that(cell, play.harness.finished && has_close && is_told, || play.story());
}

#[test]
fn client_ends_its_session_and_gets_all_that_it_said() {
    run(case::on_usual_server(), |checks| {
        let case = checks.case.clone();
        let mut play = Play::open(&case);
        let has_words = play.client.sends_audio() && play.client.gets_user_words() && !case.converses();
        let finishes = play.mapping().has_verb(Verb::Finish);
        play.set_mark();
        if has_words {
            play.say(first_words());
        }
        let Some(goodbye) = play.client.goodbye() else {
            play.harness.close_client();
            let ended = wait_for_end(&mut play);
            return checks.that("a client that leaves", ended, || play.story());
        };
        play.send(&goodbye);
        let _ended = wait_for_end(&mut play);
        if has_words && finishes {
            let words = made_words(&play);
            let all = !words.is_empty() && are_told(&play, &words);
            checks.that("words before the end", all, || format!("{words:?}; {}", play.story()));
        }
        let is_cancel = !finishes && !play.mapping().has_verb(Verb::Close);
        let why = if is_cancel { CloseReason::ClientCancel } else { CloseReason::ClientClose };
        check_end(checks, &play, "the client's end", why);
    });
}

#[test]
fn client_that_leaves_in_an_answer_leaves_nothing_behind() {
    run(case::on_all_servers(), |checks| {
        let case = checks.case.clone();
        let mut play = Play::open(&case);
        match Request::of(&case) {
            Some(request) => {
                request.make(&mut play, "The client leaves before all of this has been said.");
                play.wait_for(secs(10), Play::hears);
            }
            None => play.utter(first_words()),
        }
        if !play.is_over() {
            play.harness.close_client();
        }
        let ended = wait_for_end(&mut play);
        // Another bridge ends its own sessions a little later.
        play.harness.run_until(|harness| harness.connections() == 0, END_MAX);
        let is_clean = ended && (case.is_http() || play.harness.connections() == 0);
        checks.that("a client that leaves in an answer", is_clean, || {
            format!("{} connections; {}", play.harness.connections(), play.story())
        });
    });
}

#[test]
fn stopping_server_finishes_what_has_begun() {
    run(case::on_usual_server(), |checks| {
        let case = checks.case.clone();
        let mut idle = Play::open(&case);
        idle.set_mark();
        idle.harness.drain();
        let _ended = wait_for_end(&mut idle);
        check_end(checks, &idle, "a drain", CloseReason::Shutdown);
        let mut play = Play::open(&case);
        if play.client.sends_audio() && play.client.gets_user_words() && !case.converses() {
            play.set_mark();
            play.say(first_words());
            // Audio without a commit is not transcribed.
            if let Some(end) = play.client.end_of_words().filter(|_| play.client.formats.commits) {
                play.send(&end);
            }
            play.harness.drain();
            let _ended = wait_for_end(&mut play);
            let words = made_words(&play);
            let all = !words.is_empty() && are_told(&play, &words);
            checks.that("words in a drain", all, || format!("{words:?}; {}", play.story()));
            check_end(checks, &play, "a drain in an utterance", CloseReason::Shutdown);
        } else if let Some(request) = Request::of(&case) {
            request.make(&mut play, "This is said although the server stops.");
            play.wait_for(secs(10), Play::hears);
            play.harness.drain();
            let _ended = wait_for_end(&mut play);
            let (heard_s, made_s) = (play.heard_s(), made_samples(&play, request) as f64 / 24_000.0);
            let whole = made_s > 0.5 && heard_s > made_s - 0.03;
            checks.that("speech in a drain", whole, || {
                format!("{heard_s:.3} of {made_s:.3} s; {}", play.story())
            });
            check_end(checks, &play, "a drain in an answer", CloseReason::Shutdown);
        } else {
            checks.gate();
        }
    });
}

#[test]
fn conversation_goes_on_in_another_upstream_session() {
    run(case::on_all_servers(), |checks| {
        let case = checks.case.clone();
        let Some(request) = Request::of(&case).filter(|_| case.converses()) else { return checks.gate() };
        let mut play = Play::open(&case);
        request.make(&mut play, "");
        wait_for_silence(&mut play);
        let dials = play.harness.dial_count();
        play.harness.order_rollover();
        play.wait(secs(6));
        let is_replaced = play.harness.dial_count() > dials;
        request.make(&mut play, "");
        wait_for_silence(&mut play);
        let heard_s = play.heard_s();
        checks.that("an answer after a rollover", is_replaced && heard_s > 0.9, || {
            format!("replaced: {is_replaced}, {heard_s:.3} s; {}", play.story())
        });
    });
}
