//! Works on several files: some at a time, results in order. A file that fails does not stop the others.

use std::path::Path;

use futures_util::{StreamExt as _, stream};

use super::error::{ClientError, EXIT_FAILED};
use super::view::Terminal;

/// The work on one file.
pub(super) struct FileJob<F> {
    /// Name for messages.
    pub(super) name: String,
    /// Returns the text for standard output.
    pub(super) work: F,
}

/// The name of an input for messages.
pub(super) fn input_name(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() }
}

/// Runs all jobs, `parallel` at a time. `done` is what happened to a file that succeeded.
///
/// # Errors
/// The error of a single file, or [`ClientError::FilesFailed`].
pub(super) async fn run_all<F: Future<Output = Result<String, ClientError>>>(
    jobs: Vec<FileJob<F>>,
    parallel: usize,
    terminal: &Terminal,
    done: &str,
) -> Result<(), ClientError> {
    let total = jobs.len();
    let mut codes = Vec::new();
    let named = |job: FileJob<F>| async { (job.name, job.work.await) };
    let mut results = stream::iter(jobs).map(named).buffered(parallel.max(1));
    while let Some((name, result)) = results.next().await {
        match result {
            Ok(printed) => terminal.print(printed)?,
            Err(error) if error.is_closed_pipe() => return Err(error),
            Err(error) if total == 1 => return Err(error.in_file(name)),
            Err(error) => {
                codes.push(error.exit_code());
                terminal.print_message(error.in_file(name));
            }
        }
    }
    match codes.as_slice() {
        [] => {
            if total > 1 {
                terminal.print_message(format_args!("{done} {total} of {total} files"));
            }
            Ok(())
        }
        // A code that holds for all failures says more than "failed".
        [first, rest @ ..] => {
            let exit_code = if rest.iter().all(|code| code == first) { *first } else { EXIT_FAILED };
            Err(ClientError::FilesFailed { failed: codes.len(), total, exit_code })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(codes: &[u8]) -> Result<(), ClientError> {
        let error = |code: u8| match code {
            0 => Ok(String::new()),
            65 => Err(ClientError::InvalidText("no text".to_owned())),
            _ => Err(ClientError::NoAudio),
        };
        let job =
            |code: &u8| FileJob { name: format!("file {code}"), work: std::future::ready(error(*code)) };
        run_all(codes.iter().map(job).collect(), 2, &Terminal::hidden(), "spoke").await
    }

    #[tokio::test]
    async fn failed_files_are_counted_and_a_common_exit_code_stays() {
        run(&[0, 0]).await.unwrap();
        for (codes, exit_code, message) in [
            (&[65][..], 65, "file 65: no text"),
            (&[0, 65, 65], 65, "2 of 3 files failed"),
            (&[65, 0, 1], 1, "2 of 3 files failed"),
        ] {
            let error = run(codes).await.unwrap_err();
            assert_eq!((error.exit_code(), error.to_string().as_str()), (exit_code, message));
        }
    }
}
