//! The messages of one URL on disk, a file each, so that they survive the process.
//!
//! A file is written under another name, synchronised, and renamed when it is whole. Names begin with the time, so that their order
//! is that of the messages. All functions read or write files, so they belong on a thread that may block.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tracing::warn;

use super::message::WebhookMessage;
use crate::{net::http_request::RequestTarget, server::unix_now, trace::redact::fnv1a_digest};

/// Most messages of a URL, and their bytes. What comes then is dropped.
const FILES_MAX: usize = 10_000;
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Extension of a whole message, and of one that is being written.
const WHOLE: &str = "json";
const PARTIAL: &str = "partial";

/// The messages of one URL.
pub(super) struct Spool {
    dir: PathBuf,
    usage: Mutex<Usage>,
}

/// Space that the messages take.
#[derive(Debug, Default)]
struct Usage {
    files: usize,
    bytes: u64,
    /// Number of the next file, for messages of the same millisecond.
    next: u32,
}

/// A message on disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpooledMessage {
    file: PathBuf,
    bytes: u64,
}

/// Why a message is not on disk.
#[derive(Debug)]
pub(super) enum SpoolError {
    /// The spool is full.
    Full,
    Io(io::Error),
}

impl Spool {
    /// Opens the spool of a URL in this directory. Gives the messages that an earlier process left, oldest first.
    ///
    /// # Errors
    /// The directory cannot be made or read.
    pub(super) fn open(dir: &Path, target: &RequestTarget) -> io::Result<(Self, Vec<SpooledMessage>)> {
        let dir = dir.join(spool_name(target));
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let (mut messages, mut usage) = (Vec::new(), Usage::default());
        for entry in fs::read_dir(&dir)? {
            let file = entry?.path();
            match file.extension().and_then(|extension| extension.to_str()) {
                Some(WHOLE) => {
                    let bytes = fs::metadata(&file)?.len();
                    (usage.files, usage.bytes) = (usage.files + 1, usage.bytes + bytes);
                    messages.push(SpooledMessage { file, bytes });
                }
                Some(PARTIAL) => fs::remove_file(&file)?,
                _ => {}
            }
        }
        messages.sort_unstable();
        Ok((Self { dir, usage: Mutex::new(usage) }, messages))
    }

    /// Writes messages, and waits until the disk has them.
    pub(super) fn write(&self, messages: &[WebhookMessage]) -> Vec<Result<SpooledMessage, SpoolError>> {
        let written: Vec<_> = messages.iter().map(|message| self.write_partial(message)).collect();
        // The first synchronisation carries most of the others.
        let whole = |partial: Result<(File, SpooledMessage), SpoolError>| {
            let (file, message) = partial?;
            let renamed = file
                .sync_data()
                .and_then(|()| fs::rename(message.file.with_extension(PARTIAL), &message.file));
            renamed.map_err(|error| {
                self.remove(&message);
                SpoolError::Io(error)
            })?;
            Ok(message)
        };
        let whole: Vec<_> = written.into_iter().map(whole).collect();
        if let Err(error) = File::open(&self.dir).and_then(|dir| dir.sync_all()) {
            warn!(%error, dir = %self.dir.display(), "webhooks: the spool was not synchronised");
        }
        whole
    }

    fn write_partial(&self, message: &WebhookMessage) -> Result<(File, SpooledMessage), SpoolError> {
        let bytes = message.body.len() as u64;
        let number = self.reserve(bytes)?;
        let name = format!("{:013}-{number:010}-{}.{WHOLE}", unix_now().as_millis(), message.id);
        let spooled = SpooledMessage { file: self.dir.join(name), bytes };
        let partial = spooled.file.with_extension(PARTIAL);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&partial);
        let written = file.and_then(|mut file| file.write_all(&message.body).map(|()| file));
        match written {
            Ok(file) => Ok((file, spooled)),
            Err(error) => {
                self.remove(&spooled);
                Err(SpoolError::Io(error))
            }
        }
    }

    /// Takes room for a message. Gives the number of its file.
    fn reserve(&self, bytes: u64) -> Result<u32, SpoolError> {
        let mut usage = self.usage();
        if usage.files >= FILES_MAX || usage.bytes + bytes > BYTES_MAX {
            return Err(SpoolError::Full);
        }
        let number = usage.next;
        *usage = Usage { files: usage.files + 1, bytes: usage.bytes + bytes, next: number.wrapping_add(1) };
        Ok(number)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub(super) fn read(&self, message: &SpooledMessage) -> io::Result<WebhookMessage> {
        let body = fs::read(&message.file)?;
        Ok(WebhookMessage { id: message.id().into(), body: Bytes::from(body) })
    }

    /// Removes a message, whole or partial.
    pub(super) fn remove(&self, message: &SpooledMessage) {
        for path in [message.file.clone(), message.file.with_extension(PARTIAL)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn!(%error, file = %path.display(), "webhooks: a message stays in the spool, and is sent again after a restart");
                }
                _ => {}
            }
        }
        let mut usage = self.usage();
        (usage.files, usage.bytes) =
            (usage.files.saturating_sub(1), usage.bytes.saturating_sub(message.bytes));
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        // Every change leaves valid numbers, so a poisoned lock holds some.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpooledMessage {
    /// The message's id, which is the last part of the file's name.
    pub(super) fn id(&self) -> &str {
        let name = self.file.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        name.splitn(3, '-').last().unwrap_or(name)
    }
}

/// Name of the directory of a URL's messages: another URL gets none of them.
fn spool_name(target: &RequestTarget) -> String {
    fnv1a_digest(format!("{}{}", target.endpoint.authority, target.path).as_bytes())
}

/// Warns of messages for URLs that are not configured any more.
pub(super) fn warn_of_unknown_urls(dir: &Path, targets: &[RequestTarget]) {
    let known: Vec<String> = targets.iter().map(spool_name).collect();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_known = known.iter().any(|name| entry.file_name() == **name);
        let messages = fs::read_dir(entry.path()).map_or(0, Iterator::count);
        if !is_known && messages > 0 {
            warn!(messages, dir = %entry.path().display(), "webhooks of a URL that is not configured any more wait: delete the directory, or set the URL again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        net::{Endpoint, http_request::websocket_uri},
        server::webhooks::tests::scratch,
    };

    fn target(path: &str) -> RequestTarget {
        let uri = websocket_uri(&format!("http://127.0.0.1:9{path}")).unwrap();
        RequestTarget::new(Endpoint::from_uri(&uri, None).unwrap(), &uri, Vec::new())
    }

    fn message(number: usize) -> WebhookMessage {
        WebhookMessage { id: format!("msg_{number}").into(), body: format!("{{\"number\":{number}}}").into() }
    }

    fn ids(messages: &[SpooledMessage]) -> Vec<&str> {
        messages.iter().map(SpooledMessage::id).collect()
    }

    #[test]
    fn messages_are_found_again_in_their_order_and_only_by_their_url() {
        let dir = scratch("spool-order");
        let (spool, found) = Spool::open(&dir, &target("/a")).unwrap();
        assert!(found.is_empty());
        let written = spool.write(&(0..20).map(message).collect::<Vec<_>>());
        let written: Vec<_> = written.into_iter().map(Result::unwrap).collect();
        // The process was killed while it wrote.
        fs::write(written[3].file.with_file_name("0.partial"), "{").unwrap();
        spool.remove(&written[7]);
        let (spool, found) = Spool::open(&dir, &target("/a")).unwrap();
        let expected: Vec<String> = (0..20).filter(|at| *at != 7).map(|at| format!("msg_{at}")).collect();
        assert_eq!(ids(&found), expected);
        assert_eq!(spool.read(&found[2]).unwrap().body, message(2).body);
        assert_eq!(fs::read_dir(&spool.dir).unwrap().count(), 19);
        assert!(Spool::open(&dir, &target("/b")).unwrap().1.is_empty());
    }

    #[test]
    fn full_spool_takes_no_message_until_one_leaves() {
        let dir = scratch("spool-full");
        let (spool, _) = Spool::open(&dir, &target("/")).unwrap();
        let first = spool.write(&[message(0)]).pop().unwrap().unwrap();
        for full in [(FILES_MAX, 0), (1, BYTES_MAX)] {
            (spool.usage().files, spool.usage().bytes) = full;
            assert!(matches!(spool.write(&[message(1)])[0], Err(SpoolError::Full)), "{full:?}");
        }
        spool.remove(&first);
        assert!(spool.write(&[message(1)])[0].is_ok());
    }
}
