//! Sets `VOXBRIDGE_VERSION`: the version, with the commit in release builds of a git checkout.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=src/build.rs");
    let commit = commit().map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo:rustc-env=VOXBRIDGE_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
}

/// The commit. `None` for development builds, which every commit would rebuild as a whole, and for a source archive, also
/// if it lies within another repository.
#[allow(clippy::disallowed_methods, reason = "cargo passes the profile in the environment")]
fn commit() -> Option<String> {
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug")
        || !git(&["rev-parse", "--show-prefix"])?.is_empty()
    {
        return None;
    }
    println!("cargo:rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "--short", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
