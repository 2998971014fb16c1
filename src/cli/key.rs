//! The key that a client command shows: from a file or from the environment, never on the command line, where everybody sees
//! it.

use std::{fs::File, io::Read as _, path::Path};

use super::error::ClientError;
use crate::secret::Secret;

/// Where it stands in the environment.
const VARIABLE: &str = "VOXBRIDGE_KEY";
/// No key is as long.
const MAX_BYTES: u64 = 4096;

/// The key in this file, or else that of the environment; none where there is neither.
pub(super) fn shown(file: Option<&Path>) -> Result<Option<Secret>, ClientError> {
    let (what, text) = match file {
        Some(path) => (format!("--key-file {}", path.display()), read(path)?),
        None => match from_environment() {
            Some(text) => (VARIABLE.to_owned(), text),
            None => return Ok(None),
        },
    };
    let key = text.trim();
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let why = "a key is one line of visible ASCII characters without spaces";
        return Err(ClientError::BadKey { what, why });
    }
    Ok(Some(Secret::new(key)))
}

fn read(path: &Path) -> Result<String, ClientError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    read.map_err(|why| ClientError::NoInput { what: path.display().to_string(), why })?;
    Ok(text)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a secret of the environment must not stand in a command's help"
)]
fn from_environment() -> Option<String> {
    std::env::var(VARIABLE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_one_key_and_a_mistake_does_not_tell_it() {
        let path = std::env::temp_dir().join(format!("voxbridge-key-{}", std::process::id()));
        std::fs::write(&path, "  hunter2\n").unwrap();
        assert!(shown(Some(&path)).unwrap().unwrap().is("hunter2"));
        for bad in ["", " \n", "hunter2 hunter3", "hunter2\nhunter3", "hünter2"] {
            std::fs::write(&path, bad).unwrap();
            let error = shown(Some(&path)).unwrap_err();
            assert!(error.exit_code() == 2 && !error.to_string().contains("nter"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(shown(Some(&path)).unwrap_err().exit_code(), 66);
    }
}
