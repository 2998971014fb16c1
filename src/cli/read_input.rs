//! Reads a whole file or standard input, up to a maximum size.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::ClientError;
use super::files::input_name;

/// Upper bound of a recording that is kept in memory.
pub(super) const INPUT_MAX_BYTES: u64 = 2 << 30;

/// Reads a file, or standard input for `-`.
pub(super) async fn read_input(file: &Path, max_bytes: u64) -> Result<Vec<u8>, ClientError> {
    let is_stdin = file == Path::new("-");
    let source_name = input_name(file);
    let file = file.to_path_buf();
    // Reading from a pipe may block.
    let bytes = tokio::task::spawn_blocking(move || {
        if is_stdin {
            read_at_most(io::stdin().lock(), max_bytes)
        } else {
            read_at_most(File::open(file)?, max_bytes)
        }
    });
    let bytes = bytes.await.unwrap_or_else(|reason| Err(io::Error::other(reason)));
    bytes.map_err(|reason| ClientError::UnreadableInput { source_name, reason })
}

/// Fails if none of these files exists, before a server is asked for anything. With some of them, the work begins.
pub(super) fn check_inputs(files: &[PathBuf]) -> Result<(), ClientError> {
    let missing = files.iter().map(|file| match std::fs::metadata(file) {
        Err(reason) if file != Path::new("-") => Some((input_name(file), reason)),
        _ => None,
    });
    let missing = missing.collect::<Option<Vec<_>>>().and_then(|missing| missing.into_iter().next());
    missing.map_or(Ok(()), |(source_name, reason)| Err(ClientError::UnreadableInput { source_name, reason }))
}

fn read_at_most(source: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than the maximum shows that the input is too long.
    let length = source.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if length as u64 > max_bytes {
        return Err(io::Error::other(format!("larger than {max_bytes} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn oversized_or_missing_input_is_rejected() {
        assert_eq!(read_at_most(&[1, 2, 3][..], 3).unwrap(), [1, 2, 3]);
        assert!(read_at_most(&[1, 2, 3][..], 2).is_err());
        let error = read_input(Path::new("no/such/file.wav"), 9).await.unwrap_err();
        assert_eq!(error.exit_code(), 66);
        assert!(error.to_string().starts_with("cannot read no/such/file.wav: No such file"), "{error}");
    }

    #[test]
    fn inputs_are_rejected_only_if_all_are_missing() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        for known in [&["-"][..], &["no/such.wav", "src/lib.rs"], &[]] {
            check_inputs(&paths(known)).unwrap();
        }
        let error = check_inputs(&paths(&["no/such.wav", "no/other.wav"])).unwrap_err();
        assert!(error.to_string().starts_with("cannot read no/such.wav: "), "{error}");
    }
}
