//! Output of the commands. When the reader of standard output is gone, as after `| head -1`, a command ends without a
//! message; when the reader of standard error is gone, its messages are dropped.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use super::error::ClientError;

/// Prints to standard output.
///
/// # Errors
/// [`ClientError::UnwritableOutput`]; see [`ClientError::is_closed_pipe`].
pub(super) fn print(text: impl Display) -> Result<(), ClientError> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(ClientError::unwritable_stdout)
}

/// Prints a line to standard output.
///
/// # Errors
/// As for [`print()`].
pub(super) fn print_line(line: impl Display) -> Result<(), ClientError> {
    print(format_args!("{line}\n"))
}

/// Prints a message about the command to standard error.
pub(super) fn print_message(message: impl Display) {
    // There is no other place to report a failure to.
    let _ = writeln!(io::stderr(), "voxbridge: {message}");
}

/// Replaces control characters by spaces: one line of text that is safe to print on a terminal.
pub(super) fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}
