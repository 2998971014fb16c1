//! Environment variables that look like voxbridge's and are none: misspelt ones would be ignored without a word.

use clap::CommandFactory as _;

use super::{Cli, key::KEY_VARIABLE};
use crate::{config::Config, suggestion::did_you_mean};

/// Beginning of the names of voxbridge's variables.
const PREFIX: &str = "VOXBRIDGE_";

/// Variable of the scripts in `examples/engines`.
const FETCH_NOTHING: &str = "VOXBRIDGE_FETCH_NOTHING";

/// Warnings about variables of this process that no option has and that the configuration does not name.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    warnings_about(names, config)
}

fn warnings_about(names: impl Iterator<Item = String>, config: &Config) -> Vec<String> {
    let mut known = known_variables(&Cli::command());
    known.extend([KEY_VARIABLE, FETCH_NOTHING].map(str::to_owned));
    let of_upstreams = config.upstream.iter().map(|upstream| &upstream.token_env);
    let of_signature = config.access.signature.iter().map(|signature| &signature.token_env);
    known.extend(of_upstreams.chain(of_signature).chain([&config.admin.token_env]).flatten().cloned());
    let is_unknown =
        |name: &String| name.starts_with(PREFIX) && !is_of_kubernetes(name) && !known.contains(name);
    let mut unknown: Vec<String> = names.filter(is_unknown).collect();
    unknown.sort();
    let warn = |name: String| {
        // The common beginning would make all of them look alike.
        let known = || known.iter().filter_map(|known| known.strip_prefix(PREFIX));
        let hint = did_you_mean(&name[PREFIX.len()..], known()).replacen('`', &format!("`{PREFIX}"), 1);
        format!("the environment variable {name} is unknown and ignored{hint}")
    };
    unknown.into_iter().map(warn).collect()
}

/// The variables of all options of a command and its subcommands.
fn known_variables(command: &clap::Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(|option| option.get_env()?.to_str().map(str::to_owned));
    own.chain(command.get_subcommands().flat_map(known_variables)).collect()
}

/// True for the variables that Kubernetes sets for a service whose name begins with `voxbridge`
/// (kubernetes.io/docs/concepts/services-networking/service, "Environment variables").
fn is_of_kubernetes(name: &str) -> bool {
    name.contains("_SERVICE_") || name.ends_with("_PORT") || name.contains("_PORT_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UpstreamConfig;

    #[test]
    fn unknown_variables_are_named_with_the_nearest_one() {
        let upstream = UpstreamConfig {
            token_env: Some("VOXBRIDGE_GPU_1".to_owned()),
            ..UpstreamConfig::with_default_dialect()
        };
        let config = Config { upstream: vec![upstream], ..Config::default() };
        let warnings = |name: &str| warnings_about([name.to_owned()].into_iter(), &config);
        for known in ["VOXBRIDGE_UPSTREAM", "VOXBRIDGE_KEY", "VOXBRIDGE_ADMIN", "VOXBRIDGE_GPU_1", "HOME"] {
            assert_eq!(warnings(known), [""; 0], "{known}");
        }
        for set_by_kubernetes in ["VOXBRIDGE_SERVICE_HOST", "VOXBRIDGE_PORT", "VOXBRIDGE_ADMIN_PORT_9000_TCP"]
        {
            assert_eq!(warnings(set_by_kubernetes), [""; 0], "{set_by_kubernetes}");
        }
        let unknown = "is unknown and ignored";
        for (name, hint) in [
            ("VOXBRIDGE_LANGAUGE", ", did you mean `VOXBRIDGE_LANGUAGE`?"),
            ("VOXBRIDGE_UPSTREAMS", ", did you mean `VOXBRIDGE_UPSTREAM`?"),
            ("VOXBRIDGE_COLOUR", ""),
        ] {
            assert_eq!(warnings(name), [format!("the environment variable {name} {unknown}{hint}")]);
        }
    }
}
