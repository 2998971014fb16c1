//! Works on several files, some at a time. A file that fails does not stop the others; a lost server does. Texts for standard
//! output are printed in the order of the files.

use std::collections::BTreeMap;
use std::future::ready;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use futures_util::{StreamExt as _, stream};

use super::error::{ClientError, EXIT_FAILED, EXIT_UNAVAILABLE};
use super::view::Terminal;

/// Most files that a message names.
const NAMED_MAX: usize = 5;

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

/// Says which results exist already, and how many files are left. `hint` is what helps those who want them anew.
pub(super) fn report_done(done: &[String], left: usize, what: &str, hint: &str) {
    if !done.is_empty() {
        Terminal::stderr().print_message(done_text(done, left, what, hint));
    }
}

fn done_text(done: &[String], left: usize, what: &str, hint: &str) -> String {
    let (count, total) = (done.len(), done.len() + left);
    let names = if count <= NAMED_MAX { format!(": {}", done.join(", ")) } else { String::new() };
    format!("{count} of {total} {what} already{names}; {hint}")
}

/// Texts for standard output, which wait for those of the files before them. Dropped, it prints those that still wait.
struct OrderedTexts<'t> {
    terminal: &'t Terminal,
    /// Number of the file whose text is printed next.
    next: usize,
    /// Texts by the numbers of their files. The text of a file that failed is empty.
    waiting: BTreeMap<usize, String>,
}

impl OrderedTexts<'_> {
    fn add(&mut self, number: usize, text: String) -> Result<(), ClientError> {
        self.waiting.insert(number, text);
        while let Some(text) = self.waiting.remove(&self.next) {
            self.next += 1;
            self.terminal.print(text)?;
        }
        Ok(())
    }
}

impl Drop for OrderedTexts<'_> {
    fn drop(&mut self) {
        for text in self.waiting.values() {
            // Nothing can be done for a reader that is gone.
            let _ = self.terminal.print(text);
        }
    }
}

/// Runs all jobs, `parallel` at a time. `done` is what happened to a file that succeeded. After the server was lost, no job
/// begins.
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
    let (begun, is_lost) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut texts = OrderedTexts { terminal, next: 0, waiting: BTreeMap::new() };
    let run = |(number, job): (usize, FileJob<F>)| {
        begun.fetch_add(1, Relaxed);
        async move { (number, job.name, job.work.await) }
    };
    let jobs = stream::iter(jobs).enumerate().take_while(|_| ready(!is_lost.load(Relaxed)));
    let mut results = jobs.map(run).buffer_unordered(parallel.max(1));
    while let Some((number, name, result)) = results.next().await {
        let text = match result {
            Ok(text) => text,
            Err(error) if error.is_closed_pipe() => return Err(error),
            Err(error) if total == 1 => return Err(error.in_file(name)),
            Err(error) => {
                is_lost.fetch_or(error.is_of_lost_server(), Relaxed);
                codes.push(error.exit_code());
                terminal.print_message(error.in_file(name));
                String::new()
            }
        };
        texts.add(number, text)?;
    }
    let not_begun = total - begun.load(Relaxed);
    let exit_code = match codes.as_slice() {
        [] => {
            if total > 1 {
                terminal.print_message(format_args!("{done} {total} of {total} files"));
            }
            return Ok(());
        }
        _ if not_begun > 0 => EXIT_UNAVAILABLE,
        // A code that holds for all failures says more than "failed".
        [first, rest @ ..] if rest.iter().all(|code| code == first) => *first,
        _ => EXIT_FAILED,
    };
    Err(ClientError::FilesFailed { failed: codes.len(), not_begun, total, exit_code })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(codes: &[u8]) -> Result<(), ClientError> {
        let error = |code: u8| match code {
            0 => Ok(String::new()),
            65 => Err(ClientError::InvalidText("no text".to_owned())),
            69 => Err(ClientError::NoUpstreamSession("gone".to_owned())),
            _ => Err(ClientError::NoAudio),
        };
        let job = |code: &u8| FileJob { name: format!("file {code}"), work: ready(error(*code)) };
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

    #[tokio::test]
    async fn no_file_begins_after_the_server_was_lost() {
        let error = run(&[0, 69, 0, 0, 0, 0]).await.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.exit_code(), 69);
        assert!(text.starts_with("1 of 6 files failed, and ") && text.contains(" were not begun"), "{text}");
    }

    #[tokio::test]
    async fn job_after_a_long_one_begins_before_that_ends() {
        let (began, mut others) = tokio::sync::mpsc::unbounded_channel();
        let job = |number: usize| {
            let began = began.clone();
            async move {
                began.send(number).unwrap();
                // The first one takes for ever.
                if number == 0 { std::future::pending().await } else { Ok(String::new()) }
            }
        };
        let jobs = (0..4).map(|number| FileJob { name: number.to_string(), work: job(number) }).collect();
        let terminal = Terminal::hidden();
        let running = run_all(jobs, 2, &terminal, "spoke");
        let last = async { while others.recv().await != Some(3) {} };
        tokio::select! {
            _ = running => panic!("the first one has ended"),
            () = last => {}
        }
    }

    #[test]
    fn results_that_exist_are_named_if_they_are_few() {
        let names = |count: usize| (0..count).map(|number| format!("{number}.txt")).collect::<Vec<_>>();
        assert_eq!(
            done_text(&names(2), 1, "texts are spoken", "hint"),
            "2 of 3 texts are spoken already: 0.txt, 1.txt; hint"
        );
        assert_eq!(
            done_text(&names(6), 0, "texts are spoken", "hint"),
            "6 of 6 texts are spoken already; hint"
        );
    }
}
