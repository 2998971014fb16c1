//! API key of a client command. It comes from a file or from the environment, because other users can read command lines.

use std::{fs::File, io::Read as _, path::Path};

use super::error::ClientError;
use crate::secret::Secret;

/// Environment variable with the key.
pub(super) const KEY_VARIABLE: &str = "VOXBRIDGE_KEY";
/// Upper bound of a key file; keys are shorter.
const KEY_FILE_MAX_BYTES: u64 = 4096;

/// Loads the key from `file`, else from the environment; `None` if there is neither.
pub(super) fn load_key(file: Option<&Path>) -> Result<Option<Secret>, ClientError> {
    let (source_name, text) = match file {
        Some(path) => (format!("--key-file {}", path.display()), read_key_file(path)?),
        None => match key_from_environment() {
            Some(text) => (KEY_VARIABLE.to_owned(), text),
            None => return Ok(None),
        },
    };
    let key = text.trim();
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let reason = "a key is one line of visible ASCII characters without spaces";
        return Err(ClientError::InvalidKey { source_name, reason });
    }
    Ok(Some(Secret::new(key)))
}

fn read_key_file(path: &Path) -> Result<String, ClientError> {
    let mut text = String::new();
    let result = File::open(path).and_then(|file| file.take(KEY_FILE_MAX_BYTES).read_to_string(&mut text));
    result
        .map_err(|reason| ClientError::UnreadableInput { source_name: path.display().to_string(), reason })?;
    Ok(text)
}

#[expect(
    clippy::disallowed_methods,
    reason = "clap would print a secret from the environment in the help text"
)]
fn key_from_environment() -> Option<String> {
    std::env::var(KEY_VARIABLE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_key_file_is_rejected_without_revealing_key() {
        let path = std::env::temp_dir().join(format!("voxbridge-key-{}", std::process::id()));
        std::fs::write(&path, "  hunter2\n").unwrap();
        assert!(load_key(Some(&path)).unwrap().unwrap().matches("hunter2"));
        for bad in ["", " \n", "hunter2 hunter3", "hunter2\nhunter3", "hünter2"] {
            std::fs::write(&path, bad).unwrap();
            let error = load_key(Some(&path)).unwrap_err();
            assert!(error.exit_code() == 2 && !error.to_string().contains("nter"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(load_key(Some(&path)).unwrap_err().exit_code(), 66);
    }
}
