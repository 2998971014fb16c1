//! The command line explains itself, and its examples work.

use super::{
    examples::{SPEAK_EXAMPLES, TRANSCRIBE_EXAMPLES},
    *,
};
use clap::{CommandFactory as _, error::ErrorKind};

#[test]
fn the_definitions_are_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_example_of_the_help_parses() {
    let examples = [DEMO_EXAMPLES, SERVE_EXAMPLES, SIMULATE_EXAMPLES, TRANSCRIBE_EXAMPLES, SPEAK_EXAMPLES]
        .into_iter()
        .chain([CHECK_EXAMPLES, MAPPINGS_EXAMPLES, EXIT_CODES])
        .flat_map(str::lines);
    let mut seen = 0;
    for line in examples.filter(|line| line.starts_with("  ")) {
        let Some((_, rest)) = line.split_once("voxbridge ") else { continue };
        // Redirections, pipes and the words beside an example belong to the reader, not to the program.
        let cut = rest.split("  ").next().unwrap();
        let command = cut.split(['<', '>', '|']).next().unwrap().replace("\"Good morning.\"", "Hello");
        let words = ["voxbridge"].into_iter().chain(command.split_whitespace());
        Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        seen += 1;
    }
    assert!(seen >= 15, "{seen}");
}

#[test]
fn wrong_use_is_exit_code_2() {
    for line in ["", "serve --listen here", "simulate --backend gpu", "speak hello", "transcribe", "mappings"]
    {
        let words = ["voxbridge"].into_iter().chain(line.split_whitespace());
        assert_eq!(Cli::try_parse_from(words).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn nothing_said_about_serving_is_nothing_and_a_text_may_begin_with_a_hyphen() {
    let Command::Serve(serve) = Cli::parse_from(["voxbridge", "serve"]).command else { panic!() };
    assert!(serve.upstream.is_empty() && serve.listen.is_none() && serve.log.level.is_none());
    let speak = Cli::parse_from(["voxbridge", "speak", "-1 degree", "-o", "-"]).command;
    assert!(matches!(speak, Command::Speak(SpeakArgs { text, .. }) if text == "-1 degree"));
    let version = Cli::try_parse_from(["voxbridge", "--version"]).unwrap_err();
    assert_eq!(version.kind(), ErrorKind::DisplayVersion);
}
