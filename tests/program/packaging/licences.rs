//! Every dependency's licence is one that `.deny.toml` allows.

use std::{collections::BTreeSet, path::Path, process::Command};

use serde_json::Value;
use toml::Table;

/// Whether an SPDX expression holds when the licences of `allowed` are given; `/` is how crates once wrote OR.
fn holds(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest, allowed) && rest.is_empty()
}

fn either(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut holds = both(rest, allowed);
    while take(rest, "OR") {
        holds |= both(rest, allowed);
    }
    holds
}

fn both(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut holds = one(rest, allowed);
    while take(rest, "AND") {
        holds &= one(rest, allowed);
    }
    holds
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    if take(rest, "(") {
        return either(rest, allowed) & take(rest, ")");
    }
    let Some((name, behind)) = rest.split_first() else { return false };
    *rest = behind;
    // An exception is a licence of its own name.
    if !take(rest, "WITH") {
        return allowed.contains(*name);
    }
    let Some((exception, behind)) = rest.split_first() else { return false };
    *rest = behind;
    allowed.contains(&format!("{name} WITH {exception}"))
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    let Some((first, behind)) = rest.split_first() else { return false };
    let taken = *first == word;
    if taken {
        *rest = behind;
    }
    taken
}

fn allowed() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(".deny.toml");
    let file: Table = std::fs::read_to_string(file).unwrap().parse().unwrap();
    let list = file["licenses"]["allow"].as_array().unwrap();
    list.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn dependencies_may_be_given_on() {
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
    let (packages, allowed) = (metadata["packages"].as_array().unwrap(), allowed());
    assert!(packages.len() > 50, "only {} packages", packages.len());
    let bad = packages.iter().filter(|package| !holds(package["license"].as_str().unwrap_or(""), &allowed));
    let bad: Vec<_> = bad.map(|package| format!("{}: {}", package["name"], package["license"])).collect();
    assert!(bad.is_empty(), ".deny.toml allows none of these: {bad:#?}");
}

#[test]
fn expressions_are_read_as_spdx_says() {
    let allowed = ["MIT", "ISC", "X WITH y"].map(str::to_owned).into();
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "GPL-3.0/MIT",
        "(GPL-3.0 OR MIT) AND ISC",
        "X WITH y",
        "GPL-3.0 AND Z OR ISC",
    ] {
        assert!(holds(good, &allowed), "{good}");
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
        assert!(!holds(bad, &allowed), "{bad}");
    }
}
