//! Options for keys of the configuration, made from the table of keys, and what they and their variables set.

use std::path::PathBuf;

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, ValueHint,
    builder::{
        PathBufValueParser, PossibleValue, PossibleValuesParser, RangedU64ValueParser, StringValueParser,
        TypedValueParser as _, ValueParser,
    },
    parser::ValueSource,
};
use toml::Value;

use crate::config::{FILE, KEYS, KeyOption, OptionValues, Setting, complete_address, path_text};

/// Options of `voxbridge serve`, `check` and `doctor`, which override the configuration file.
pub type ConfigArgs = KeyArgs<false>;

/// Options of the log.
pub type LogArgs = KeyArgs<true>;

/// Options for all keys that have one, or for those of the log alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyArgs<const LOG_ALONE: bool> {
    /// Configuration file.
    pub config: Option<PathBuf>,
    /// Keys that options and variables set.
    pub settings: Vec<Setting>,
}

impl<const LOG_ALONE: bool> KeyArgs<LOG_ALONE> {
    /// The options, each with the path of its key.
    fn options() -> impl Iterator<Item = (&'static str, &'static KeyOption)> {
        let keys = KEYS.iter().filter(|key| !LOG_ALONE || key.path.starts_with("log."));
        keys.filter_map(|key| Some((key.path, key.option.as_ref()?)))
    }
}

impl<const LOG_ALONE: bool> Args for KeyArgs<LOG_ALONE> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::options().map(|(_, option)| argument(option)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const LOG_ALONE: bool> FromArgMatches for KeyArgs<LOG_ALONE> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut args = Self::default();
        for (path, option) in Self::options() {
            match path {
                FILE => args.config = matches.get_one::<PathBuf>(option.name()).cloned(),
                path => args.settings.extend(setting(path, option, matches)),
            }
        }
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Value of an option or its variable, if given.
fn setting(path: &'static str, option: &KeyOption, matches: &ArgMatches) -> Option<Setting> {
    let source = match matches.value_source(option.name())? {
        ValueSource::CommandLine => format!("--{}", option.name()),
        ValueSource::EnvVariable => option.variable.to_owned(),
        _ => return None,
    };
    let value = match option.values {
        OptionValues::Switch => true.into(),
        OptionValues::Texts | OptionValues::Addresses => {
            Value::Array(matches.get_many(option.name())?.cloned().collect())
        }
        _ => matches.get_one::<Value>(option.name())?.clone(),
    };
    Some(Setting { path, value, source })
}

fn argument(option: &KeyOption) -> Arg {
    let argument = Arg::new(option.name()).long(option.name()).help(option.help);
    let Some(value_name) = option.value_name() else { return argument.action(ArgAction::SetTrue) };
    let argument = argument.env(option.variable).hide_env_values(true);
    let argument = argument.value_name(value_name).value_parser(parser(option.values));
    match option.values {
        OptionValues::Texts | OptionValues::Addresses => {
            argument.action(ArgAction::Append).value_delimiter(',')
        }
        OptionValues::Path => argument.value_hint(ValueHint::AnyPath),
        OptionValues::OneOf(_) => argument.hide_possible_values(true),
        _ => argument,
    }
}

/// Parses an option's value to that of the key.
fn parser(values: OptionValues) -> ValueParser {
    match values {
        OptionValues::Text | OptionValues::Texts => StringValueParser::new().map(Value::from).into(),
        OptionValues::Address | OptionValues::Addresses => {
            (|text: &str| complete_address(text).map(Value::from)).into()
        }
        OptionValues::ConfigFile => PathBufValueParser::new().into(),
        OptionValues::Path => {
            PathBufValueParser::new().try_map(|path| path_text(path).map(Value::from)).into()
        }
        OptionValues::Number => RangedU64ValueParser::<u64>::new().map(to_integer).into(),
        OptionValues::Threads => (|text: &str| parse_thread_count(text).map(to_integer)).into(),
        OptionValues::OneOf(words) => {
            let words = words.iter().map(|(word, help)| PossibleValue::new(*word).help(*help));
            PossibleValuesParser::new(words).map(Value::from).into()
        }
        OptionValues::Switch => clap::value_parser!(bool),
    }
}

/// A number as TOML holds it. Keys with a number have lower limits.
fn to_integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Parses a number of threads. The configuration check enforces the upper bound.
fn parse_thread_count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "expected a number of threads, 1 or more".to_owned())
}
