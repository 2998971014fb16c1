//! The user's words: interim and final, of two turns.

use super::{play::*, *};

#[test]
fn words_arrive_interim_and_final_in_two_turns() {
    run(case::on_all_servers(), |checks| {
        let case = checks.case.clone();
        let client = case.mapped_client();
        if !client.sends_audio() || !client.gets_user_words() || case.converses() {
            return checks.gate();
        }
        let mut play = Play::open(&case);
        for (turn, samples) in [("first", first_words()), ("second", second_words())] {
            say_words(checks, &mut play, turn, samples);
        }
    });
}

/// The client speaks, and gets its words. Returns true if it does.
pub(super) fn say_words(checks: &mut Checks<'_>, play: &mut Play, turn: &str, samples: &[i16]) -> bool {
    let words = request_words(play, samples);
    let reading = play.reading();
    let has_all = !words.is_empty() && are_told(play, &words);
    checks.that(&format!("final words of the {turn} turn"), has_all, || {
        format!("the model said {words:?}; {}", play.story())
    });
    // Where each frame has one answer, words that come all at once leave no frame for an interim answer.
    let comes_at_once = play.mapping().lock_step == LockStep::EveryFrame && checks.case.is_http();
    if has_all && turn == "first" && reading.has_partials() && !comes_at_once {
        let json = play.json();
        // The model's words come in pieces.
        let is_interim = |text: &str| json.iter().any(|message| reading.is_partial(message, text));
        let all = words[0].as_str();
        let has_interim = (5..=all.len()).any(|length| is_interim(&all[..length]));
        checks.that("interim words", has_interim, || play.story());
    }
    has_all
}

/// The client speaks and waits for its words; returns those that the model said.
pub(super) fn request_words(play: &mut Play, samples: &[i16]) -> Vec<String> {
    play.set_mark();
    play.utter(samples);
    if !play.wait_for(secs(5), are_all_told)
        && let Some(end) = play.client.end_of_words()
    {
        play.send(&end);
        play.wait_for(secs(10), are_all_told);
    }
    made_words(play)
}

/// Transcripts that the model made for the current request.
pub(super) fn made_words(play: &Play) -> Vec<String> {
    let made = play.made(LanePurpose::Transcribe).into_iter();
    made.map(|made| made.text.trim().to_owned()).filter(|text| !text.is_empty()).collect()
}

fn are_all_told(play: &Play) -> bool {
    let words = made_words(play);
    !words.is_empty() && are_told(play, &words)
}

/// True if the client got each of these transcripts as a final one.
pub(super) fn are_told(play: &Play, words: &[String]) -> bool {
    let (reading, json) = (play.reading(), play.json());
    words.iter().all(|words| json.iter().any(|message| reading.is_final(message, words)))
        || (play.mapping().is_live && words.iter().all(|words| play.texts().have(words)))
}
