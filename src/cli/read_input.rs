//! Reading a file or standard input whole, within a bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::error::ClientError;

/// The bytes, and what to call where they came from. `-` is standard input.
pub(super) async fn read(file: &Path, most_bytes: u64) -> Result<(Vec<u8>, String), ClientError> {
    let stdin = file == Path::new("-");
    let what = if stdin { "standard input".to_owned() } else { file.display().to_string() };
    let file = file.to_path_buf();
    // A pipe may keep its reader waiting.
    let bytes = tokio::task::spawn_blocking(move || {
        if stdin { bounded(io::stdin().lock(), most_bytes) } else { bounded(File::open(file)?, most_bytes) }
    });
    match bytes.await.unwrap_or_else(|why| Err(io::Error::other(why))) {
        Ok(bytes) => Ok((bytes, what)),
        Err(why) => Err(ClientError::NoInput { what, why }),
    }
}

fn bounded(from: impl Read, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more tells what is too long from what just fits.
    let read = from.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > most_bytes {
        return Err(io::Error::other(format!("it has more than {most_bytes} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_too_long_or_missing_cannot_be_read() {
        assert_eq!(bounded(&[1, 2, 3][..], 3).unwrap(), [1, 2, 3]);
        assert!(bounded(&[1, 2, 3][..], 2).is_err());
        let error = read(Path::new("no/such/file.wav"), 9).await.unwrap_err();
        assert_eq!(error.exit_code(), 66);
        assert!(error.to_string().starts_with("cannot read no/such/file.wav: No such file"), "{error}");
    }
}
