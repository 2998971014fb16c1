//! `.deny.toml` allows the licence of every dependency.

use std::process::Command;

use toml::Table;

use super::*;

/// True if an SPDX expression is satisfied by `allowed_licences`. Older crates write `/` for OR.
fn is_allowed(expression: &str, allowed_licences: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    parse_or(&mut rest, allowed_licences) && rest.is_empty()
}

fn parse_or(rest: &mut &[&str], allowed_licences: &BTreeSet<String>) -> bool {
    let mut is_allowed = parse_and(rest, allowed_licences);
    while take_word(rest, "OR") {
        is_allowed |= parse_and(rest, allowed_licences);
    }
    is_allowed
}

fn parse_and(rest: &mut &[&str], allowed_licences: &BTreeSet<String>) -> bool {
    let mut is_allowed = parse_licence(rest, allowed_licences);
    while take_word(rest, "AND") {
        is_allowed &= parse_licence(rest, allowed_licences);
    }
    is_allowed
}

fn parse_licence(rest: &mut &[&str], allowed_licences: &BTreeSet<String>) -> bool {
    if take_word(rest, "(") {
        return parse_or(rest, allowed_licences) & take_word(rest, ")");
    }
    let Some((name, behind)) = rest.split_first() else { return false };
    *rest = behind;
    // A licence with an exception counts as a licence of its own.
    if !take_word(rest, "WITH") {
        return allowed_licences.contains(*name);
    }
    let Some((exception, behind)) = rest.split_first() else { return false };
    *rest = behind;
    allowed_licences.contains(&format!("{name} WITH {exception}"))
}

fn take_word(rest: &mut &[&str], word: &str) -> bool {
    let Some((first, behind)) = rest.split_first() else { return false };
    let taken = *first == word;
    if taken {
        *rest = behind;
    }
    taken
}

fn allowed_licences() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(".deny.toml");
    let file: Table = fs::read_to_string(file).unwrap().parse().unwrap();
    let list = file["licenses"]["allow"].as_array().unwrap();
    list.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn dependency_licences_are_allowed() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args([
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        "x86_64-unknown-linux-musl",
    ]);
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (packages, allowed_licences) = (metadata["packages"].as_array().unwrap(), allowed_licences());
    assert!(packages.len() > 50, "only {} packages", packages.len());
    let bad = packages
        .iter()
        .filter(|package| !is_allowed(package["license"].as_str().unwrap_or(""), &allowed_licences));
    let bad: Vec<_> = bad.map(|package| format!("{}: {}", package["name"], package["license"])).collect();
    assert!(bad.is_empty(), ".deny.toml allows none of these: {bad:#?}");
}

#[test]
fn licence_expressions_follow_spdx() {
    let allowed_licences = ["MIT", "ISC", "X WITH y"].map(str::to_owned).into();
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "GPL-3.0/MIT",
        "(GPL-3.0 OR MIT) AND ISC",
        "X WITH y",
        "GPL-3.0 AND Z OR ISC",
    ] {
        assert!(is_allowed(good, &allowed_licences), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT",
        "MIT ISC",
        "MIT WITH y",
        "X",
        "(MIT OR ISC) AND Z",
        "MIT AND",
    ] {
        assert!(!is_allowed(bad, &allowed_licences), "{bad}");
    }
}
