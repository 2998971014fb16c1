//! Lists the files of `mappings/` for the program, and sets `BUILT_VERSION`: the version, with the commit in release builds of
//! a git checkout. Cargo passes it to the programs that it runs, where names with `VOXBRIDGE_` are options.

use std::{env, fs, io, path::Path, process::Command};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=src/build.rs");
    list_mappings()?;
    let commit = commit().map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo:rustc-env=BUILT_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
    Ok(())
}

/// Writes `embedded_mappings.rs`: an array of the path and text of every mapping file, in the order of their paths.
#[allow(clippy::disallowed_methods, reason = "cargo names the directories in the environment")]
fn list_mappings() -> io::Result<()> {
    let variable = |name| env::var(name).map_err(io::Error::other);
    let mappings = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("mappings");
    let mut files = Vec::new();
    for kind in ["client", "profile", "upstream"] {
        println!("cargo:rerun-if-changed=mappings/{kind}");
        for file in fs::read_dir(mappings.join(kind))? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                files.push((format!("{kind}/{name}"), path));
            }
        }
    }
    files.sort();
    let entry = |(file, path): &(String, _)| format!("({file:?}, include_str!({path:?})),\n");
    let entries: String = files.iter().map(entry).collect();
    fs::write(Path::new(&variable("OUT_DIR")?).join("embedded_mappings.rs"), format!("&[\n{entries}]"))
}

/// The commit. `None` for development builds, which every commit would rebuild as a whole, and for a source archive, also
/// if it lies within another repository.
#[allow(clippy::disallowed_methods, reason = "cargo passes the profile in the environment")]
fn commit() -> Option<String> {
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug")
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
