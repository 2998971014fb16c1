//! Where the time until the first audio goes, in every profile on every kind of server.

use voxbridge::trace::first_audio::measure;

use super::{
    play::{Play, secs},
    *,
};

/// Clients whose sessions are measured: with binary audio, and with base64.
const CLIENTS: [&str; 2] = ["macaw", "openai-realtime"];
/// Time that the simulated servers need to open a session.
const INIT: Duration = Duration::from_millis(40);

/// The first audio in a session of this case, in which the client makes one request.
fn first_audio(case: &Case, request: Request) -> FirstAudio {
    let mut play = Play::with(case, |config| config.record = Some(AudioRetention::All));
    request.make(&mut play, "The text is of no great length, but it is heard.");
    wait_for_silence(&mut play);
    let trace = Trace::parse(play.harness.trace()).unwrap();
    let measured = measure(&trace, Library::embedded().unwrap(), epoch()).unwrap();
    assert_eq!(measured.notes, [""; 0], "{case}");
    let first = measured.answers.into_iter().next().unwrap_or_else(|| panic!("{case}: {}", play.story()));
    assert_eq!(Some(first.at), play.audio().first().map(|(at, _)| *at), "{case}");
    first
}

#[test]
fn first_audio_is_found_in_every_profile_on_every_kind_of_server_and_none_of_it_is_held_needlessly() {
    let cases = case::on_all_servers().chain(case::in_turns());
    for case in cases.filter(|case| CLIENTS.contains(&case.client.name.as_str())) {
        let Some(request) = Request::of(&case) else { continue };
        let first = first_audio(&case, request);
        let trigger = match request {
            Request::Text => Trigger::Text,
            Request::Question => Trigger::Request,
            Request::Speech => Trigger::Speech,
        };
        assert_eq!((first.trigger, first.server.as_str()), (trigger, case.server.dialect), "{case}");
        // In full duplex, the unit with the last sound is filled first: a second of audio, or a fifth for servers of OpenAI's
        // protocol. The documented legacy server begins a turn with half a second, and goes on a second later.
        let longest = match (case.converses(), case.server.name) {
            (true, "documented legacy") => secs(1) + Duration::from_millis(500),
            (true, "OpenAI" | "vLLM-Omni in turns") => Duration::from_millis(200) + INIT,
            (true, _) => secs(1),
            (false, _) => INIT,
        };
        assert!(first.beyond_model() <= longest, "{case}: {first:?}");
    }
}
