//! Makes the C library's allocator give memory back after a burst.
//!
//! By default glibc raises the size from which it asks the system for a block of its own, whenever such a block is freed.
//! After a few long messages even blocks of 16 MiB come from its pools, which it rarely shrinks: fifty clients with
//! unfinished messages left half a gigabyte behind. A fixed size prevents that. glibc reads it from the environment before
//! `main`, so the process starts itself anew with it, once; it keeps its id, its descriptors and its arguments.

use std::{env, os::unix::process::CommandExt as _, process::Command};

/// glibc's variable (mallopt(3)).
const THRESHOLD_VARIABLE: &str = "MALLOC_MMAP_THRESHOLD_";
/// Blocks from this size on are the system's, bytes. A second of the model's audio as base64 has 128 000, so no message of ordinary
/// traffic is as long; the items that a client may have stored are.
const THRESHOLD_BYTES: &str = "163840";

/// Starts this process anew with the setting, unless it is set. Returns if that is not needed or not possible.
pub fn restart_with_fixed_threshold() {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) || env::var_os(THRESHOLD_VARIABLE).is_some() {
        return;
    }
    let (Ok(program), mut arguments) = (env::current_exe(), env::args_os()) else { return };
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // Without the setting the server works as well; it only keeps more memory.
    let _ = command.args(arguments).env(THRESHOLD_VARIABLE, THRESHOLD_BYTES).exec();
}
