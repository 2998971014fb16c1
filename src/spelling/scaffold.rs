//! Generates commented mapping files for `mappings new`.

use toml::de::DeTable;

use super::{Library, MappingKind};

const CLIENT: &str = include_str!("scaffold/client.toml");
const UPSTREAM: &str = include_str!("scaffold/upstream.toml");
const PROFILE: &str = include_str!("scaffold/profile.toml");
const RELAY: &str = include_str!("scaffold/relay.toml");

/// Generates a starting point of this kind; a client protocol with or without speech to the client.
///
/// # Errors
/// An invalid name, or one that is already in use.
pub fn generate(
    library: &Library,
    kind: MappingKind,
    name: &str,
    has_speech: bool,
) -> Result<String, String> {
    check_name_is_free(library, kind, name)?;
    Ok(match kind {
        MappingKind::Client => client_start(has_speech).replace("NAME", name),
        _ if !has_speech => {
            return Err(format!("a mapping of kind {} has no speech to leave out", kind.name()));
        }
        MappingKind::Upstream => UPSTREAM.replace("NAME", name),
        MappingKind::Profile => extend_profile(library, "speech", name)?,
    })
}

/// Generates a file from an existing mapping: a copy, or for a profile, a profile that extends it.
///
/// # Errors
/// An invalid name, one that is already in use, or an unknown mapping.
pub fn generate_from(library: &Library, kind: MappingKind, from: &str, name: &str) -> Result<String, String> {
    check_name_is_free(library, kind, name)?;
    if kind == MappingKind::Profile {
        return extend_profile(library, from, name);
    }
    let source = library.source(kind, from).ok_or_else(|| format!("unknown {} {from:?}", kind.name()))?;
    let title = format!("{name:?}");
    let mut changes = vec![(vec!["name"], title.clone()), (vec!["title"], title)];
    if kind == MappingKind::Client {
        changes.push((vec!["paths"], format!("[\"/{name}\"]")));
        let jobs = library.client(from)?.jobs.as_ref().map(|jobs| {
            let uploads =
                jobs.uploads.as_ref().map(|uploads| (vec!["jobs", "uploads", "path"], &*uploads.path));
            let paths = uploads.into_iter().chain([(vec!["jobs", "path"], &*jobs.path)]);
            paths.map(|(key, path)| (key, format!("\"/{name}{path}\""))).collect::<Vec<_>>()
        });
        changes.extend(jobs.into_iter().flatten());
    }
    replace_values(source, &changes).map_err(|error| error.to_string())
}

/// The file of a client protocol. Its lines between `#< speech` and `#>` are for protocols with speech to the client.
fn client_start(has_speech: bool) -> String {
    let mut is_speech = false;
    let is_kept = |line: &&str| {
        let is_mark = line.starts_with("#<") || line.starts_with("#>");
        is_speech = if is_mark { line.starts_with("#<") } else { is_speech };
        !is_mark && (has_speech || !is_speech)
    };
    CLIENT.split_inclusive('\n').filter(is_kept).collect()
}

fn extend_profile(library: &Library, base: &str, name: &str) -> Result<String, String> {
    let profile = library.profile(base)?;
    let start = if profile.is_relay() { RELAY } else { PROFILE };
    Ok(start.replace("NAME", name).replace("BASE", base).replace("MODE", profile.mode.name()))
}

/// Replaces the values of some keys in place, each given with the sections around it.
fn replace_values(source: &str, changes: &[(Vec<&str>, String)]) -> Result<String, toml::de::Error> {
    let document = DeTable::parse(source)?;
    let span = |(key, value): &(Vec<&str>, String)| {
        let (last, sections) = key.split_last()?;
        let table = sections
            .iter()
            .try_fold(document.get_ref(), |table, section| table.get(*section)?.get_ref().as_table())?;
        Some((table.get(*last)?.span(), value.clone()))
    };
    let mut spans: Vec<_> = changes.iter().filter_map(span).collect();
    spans.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut copy = source.to_owned();
    spans.into_iter().for_each(|(span, value)| copy.replace_range(span, &value));
    Ok(copy)
}

/// Checks the name, which will stand in URLs and on command lines.
fn check_name_is_free(library: &Library, kind: MappingKind, name: &str) -> Result<(), String> {
    let fits =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_.".contains(letter);
    if name.is_empty()
        || name.len() > 64
        || !name.chars().all(fits)
        || !name.starts_with(|first: char| first.is_ascii_alphanumeric())
    {
        return Err(format!(
            "{name:?} is not a valid name: use lowercase letters, digits and `-`, such as my-protocol"
        ));
    }
    if library.source(kind, name).is_some() {
        return Err(format!("{} {name} already exists; `mappings show {name}` prints it", kind.name()));
    }
    let path = format!("/{name}");
    match library.clients_at(&path).next().filter(|_| kind == MappingKind::Client) {
        Some(other) => Err(format!("client {} already uses path {path}; choose another name", other.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generated_file_passes_check() {
        let embedded = Library::embedded().unwrap();
        for (kind, has_speech) in [
            (MappingKind::Client, true),
            (MappingKind::Client, false),
            (MappingKind::Upstream, true),
            (MappingKind::Profile, true),
        ] {
            let source = generate(&embedded, kind, "my-own", has_speech).unwrap();
            assert!(!source.contains("NAME") && source.lines().count() < 140, "{source}");
            assert!(!source.contains("#<") && !source.contains("#>"), "{source}");
            assert_eq!(
                source.contains("speaking_ended") || kind != MappingKind::Client,
                has_speech,
                "{source}"
            );
            let mut library = embedded.clone();
            assert_eq!(library.add_and_identify("my-own.toml", &source), Ok((kind, "my-own".to_owned())));
            assert!(generate(&library, kind, "my-own", has_speech).unwrap_err().contains("already"));
        }
    }

    #[test]
    fn every_mapping_can_be_copied_under_another_name() {
        let embedded = Library::embedded().unwrap();
        for (kind, name, ..) in embedded.files() {
            let source = generate_from(&embedded, kind, name, "my-own").unwrap();
            let mut library = embedded.clone();
            library
                .add_all(vec![("my-own.toml".to_owned(), source)])
                .unwrap_or_else(|problem| panic!("{name}: {problem}"));
            assert!(library.is_embedded(kind, name) && !library.is_embedded(kind, "my-own"), "{name}");
            if kind == MappingKind::Client {
                assert_eq!(
                    library.clients_at("/my-own").next().map(|client| client.name.as_str()),
                    Some("my-own")
                );
            }
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        let library = Library::embedded().unwrap();
        for name in ["", "Mine", "my own", "a/b", "-a", "ä", &"a".repeat(65)] {
            assert!(generate(&library, MappingKind::Client, name, true).is_err(), "{name:?}");
        }
        assert!(generate(&library, MappingKind::Profile, "mine", false).unwrap_err().contains("no speech"));
    }
}
