//! Tests of the argument definitions and of the examples in the help texts.

use super::{
    examples::{MAPPINGS_EXAMPLES, SIMULATE_EXAMPLES, SPEAK_EXAMPLES, TRANSCRIBE_EXAMPLES},
    *,
};
use clap::{CommandFactory as _, error::ErrorKind};

#[test]
fn argument_definitions_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn help_examples_parse() {
    let examples = [DEMO_EXAMPLES, SERVE_EXAMPLES, SIMULATE_EXAMPLES, TRANSCRIBE_EXAMPLES, SPEAK_EXAMPLES]
        .into_iter()
        .chain([CHECK_EXAMPLES, MAPPINGS_EXAMPLES, COMPLETIONS_EXAMPLES, MAN_EXAMPLES, EXIT_CODES])
        .flat_map(str::lines);
    let mut example_count = 0;
    for line in examples.filter(|line| line.starts_with("  ")) {
        let Some((_, rest)) = line.split_once("voxbridge ") else { continue };
        // Redirections, pipes and remarks are not arguments.
        let without_remark = rest.split("  ").next().unwrap();
        let command =
            without_remark.split(['<', '>', '|']).next().unwrap().replace("\"Good morning.\"", "Hello");
        let arguments = ["voxbridge"].into_iter().chain(command.split_whitespace());
        Cli::try_parse_from(arguments).unwrap_or_else(|error| panic!("{line}: {error}"));
        example_count += 1;
    }
    assert!(example_count >= 15, "{example_count}");
}

#[test]
fn usage_errors_exit_with_code_2() {
    for line in ["", "serve --listen here", "simulate --backend gpu", "speak hello", "transcribe", "mappings"]
    {
        let arguments = ["voxbridge"].into_iter().chain(line.split_whitespace());
        assert_eq!(Cli::try_parse_from(arguments).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn serve_arguments_default_to_none_and_text_may_start_with_hyphen() {
    let CliCommand::Serve(serve) = Cli::parse_from(["voxbridge", "serve"]).command else { panic!() };
    let serve = serve.config;
    assert!(serve.config.is_none() && serve.settings.is_empty());
    let speak = Cli::parse_from(["voxbridge", "speak", "-1 degree", "-o", "-"]).command;
    assert!(matches!(speak, CliCommand::Speak(SpeakArgs { text: Some(text), .. }) if text == "-1 degree"));
    for (given, address) in [("8000", "127.0.0.1:8000"), ("localhost:1", "127.0.0.1:1")] {
        for (command, flag) in [("serve", "--listen"), ("serve", "--admin"), ("simulate", "--listen")] {
            let parsed = format!("{:?}", Cli::parse_from(["voxbridge", command, flag, given]).command);
            assert!(parsed.contains(&format!("{address:?}")), "{command} {flag} {given}: {parsed}");
        }
    }
    let version = Cli::try_parse_from(["voxbridge", "--version"]).unwrap_err();
    assert_eq!(version.kind(), ErrorKind::DisplayVersion);
}
