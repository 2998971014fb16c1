//! Files that a command writes: where they go, and that only complete ones stay.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::ClientError;
use super::inputs::Input;
use crate::secret::random_hex;

/// Where the result for one input goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Destination {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl Destination {
    /// The destination named by an option; `-` is standard output.
    pub(super) fn of(path: &Path) -> Self {
        if path == Path::new("-") { Self::Stdout } else { Self::File(path.to_path_buf()) }
    }

    /// Rejects a missing directory before minutes of work would be lost.
    pub(super) fn check(&self) -> Result<(), ClientError> {
        match self {
            Self::File(path)
                if path.parent().is_some_and(|parent| parent != Path::new("") && !parent.is_dir()) =>
            {
                let reason = io::Error::new(io::ErrorKind::NotFound, "there is no such directory");
                Err(unwritable(path, reason))
            }
            _ => Ok(()),
        }
    }

    /// Title of what is written.
    pub(super) fn title(&self) -> String {
        match self {
            Self::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            Self::Stdout => String::new(),
        }
    }

    /// Destinations of several inputs. A directory gets a file for each, under the input's name and with this extension;
    /// one that is named with a `/` at its end is created. Files of a folder keep their subfolders in it; without a directory,
    /// their results are written beside them.
    ///
    /// # Errors
    /// A directory is missing or cannot be created, or two inputs would share a file, or a result would replace an input.
    pub(super) fn for_inputs(
        inputs: &[Input],
        output: Option<&Path>,
        extension: &str,
    ) -> Result<Vec<Self>, ClientError> {
        let has_folders = inputs.iter().any(|input| input.in_folder.is_some());
        let directory = match output {
            Some(output) if output == Path::new("-") => return Ok(vec![Self::Stdout; inputs.len()]),
            Some(output) if output.is_dir() || output.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                Some(output)
            }
            Some(output) if inputs.len() > 1 || has_folders => {
                let reason = format!(
                    "--output {0} must be a directory for several inputs; write {0}/ to create one",
                    output.display()
                );
                return Err(ClientError::Usage(reason));
            }
            Some(output) => {
                let destination = Self::File(output.to_path_buf());
                destination.check()?;
                return destination.check_unused(&mut paths_of(inputs)).map(|()| vec![destination]);
            }
            None => None,
        };
        let mut taken = paths_of(inputs);
        let destination = |input: &Input| {
            let path = match (directory, &input.in_folder) {
                (Some(directory), in_folder) => {
                    let subfolder = in_folder.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
                    directory.join(subfolder).join(file_name(&input.path, extension))
                }
                (None, Some(_)) => input.path.with_file_name(file_name(&input.path, extension)),
                (None, None) => return Ok(Self::Stdout),
            };
            let destination = Self::File(path);
            destination.check_unused(&mut taken).map(|()| destination)
        };
        let destinations = inputs.iter().map(destination).collect::<Result<Vec<_>, _>>()?;
        if let Some(directory) = directory {
            let files = destinations.iter().filter_map(|destination| match destination {
                Self::File(path) => path.parent(),
                Self::Stdout => None,
            });
            for folder in files.chain([directory]) {
                fs::create_dir_all(folder).map_err(|reason| unwritable(folder, reason))?;
            }
        }
        Ok(destinations)
    }

    /// Rejects a file that another input or result has.
    fn check_unused(&self, taken: &mut HashSet<PathBuf>) -> Result<(), ClientError> {
        let Self::File(path) = self else { return Ok(()) };
        if taken.insert(resolved(path)) || is_special(path) {
            return Ok(());
        }
        let reason =
            format!("{} would replace another file of this command; rename the input", path.display());
        Err(ClientError::Usage(reason))
    }
}

/// The path without links and dots, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if parent == Path::new("") => resolved(Path::new(".")).join(name),
        (Some(parent), Some(name)) => resolved(parent).join(name),
        _ => path.to_path_buf(),
    })
}

fn paths_of(inputs: &[Input]) -> HashSet<PathBuf> {
    inputs.iter().filter_map(|input| input.path.canonicalize().ok()).collect()
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

fn file_name(input: &Path, extension: &str) -> PathBuf {
    let is_stdin = input == Path::new("-");
    let stem = if is_stdin { Path::new("stdin") } else { input.file_stem().map_or(input, Path::new) };
    let mut name = stem.as_os_str().to_owned();
    name.push(format!(".{extension}"));
    PathBuf::from(name)
}

/// True for a device or a pipe, which must not be replaced.
pub(super) fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file())
}

/// Rejects a name that is too long before minutes of work would be lost.
pub(super) fn check_name(path: &Path) -> Result<(), ClientError> {
    match path.symlink_metadata() {
        Err(reason) if reason.kind() == io::ErrorKind::InvalidFilename => Err(unwritable(path, reason)),
        _ => Ok(()),
    }
}

/// A new hidden file in the directory of this one. Its name is short: a longer one than the file's might be refused.
pub(super) fn part_path(file: &Path) -> PathBuf {
    let random = random_hex::<8>().unwrap_or_else(|| format!("{:016x}", fastrand::u64(..)));
    file.with_file_name(format!(".voxbridge-{random}.part"))
}

pub(super) fn unwritable(destination: &Path, reason: io::Error) -> ClientError {
    ClientError::UnwritableOutput { destination: destination.to_path_buf(), reason }
}

/// A file that is being written. It appears under its name when it is complete; until then, it is a hidden file in the same
/// directory, which is removed when this is dropped.
pub(super) struct OutputFile {
    destination: PathBuf,
    /// The hidden file; `None` for standard output and for a device or a pipe, which are written directly.
    part: Option<PathBuf>,
    out: Box<dyn WriteAt + Send>,
}

/// An output. Files can also be written at an earlier position.
trait WriteAt: Write {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Waits until all bytes are on the disk.
    fn sync(&self) -> io::Result<()>;
}

impl WriteAt for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.write_all(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

impl WriteAt for io::Stdout {
    fn write_at(&mut self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl OutputFile {
    /// Begins the file.
    pub(super) fn create(destination: &Destination) -> Result<Self, ClientError> {
        let path = match destination {
            Destination::Stdout => {
                let destination = PathBuf::from("standard output");
                return Ok(Self { destination, part: None, out: Box::new(io::stdout()) });
            }
            Destination::File(path) => path,
        };
        check_name(path)?;
        let special = is_special(path);
        // A link stays; what it points to is replaced.
        let destination = path.canonicalize().unwrap_or_else(|_| path.clone());
        let part = (!special).then(|| part_path(&destination));
        let opened = match &part {
            Some(part) => File::create(part),
            None => File::options().write(true).open(&destination),
        };
        let out = opened.map_err(|reason| unwritable(path, reason))?;
        Ok(Self { destination, part, out: Box::new(out) })
    }

    /// Writes a whole file.
    pub(super) fn write_all_to(destination: &Destination, bytes: &[u8]) -> Result<(), ClientError> {
        let mut file = Self::create(destination)?;
        file.write(bytes)?;
        file.finish()
    }

    /// Appends bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.out.write_all(bytes).map_err(|reason| unwritable(&self.destination, reason))
    }

    /// True if earlier bytes can be replaced.
    pub(super) const fn is_replaceable(&self) -> bool {
        self.part.is_some()
    }

    /// Replaces earlier bytes, if this is an ordinary file.
    pub(super) fn replace(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        match &self.part {
            Some(_) => {
                self.out.write_at(offset, bytes).map_err(|reason| unwritable(&self.destination, reason))
            }
            None => Ok(()),
        }
    }

    /// Ends the file; it now has its name, and is on the disk.
    pub(super) fn finish(mut self) -> Result<(), ClientError> {
        let written = match &self.part {
            Some(_) => self.out.flush().and_then(|()| self.out.sync()),
            None => self.out.flush(),
        };
        let finished = written.and_then(|()| match self.part.take() {
            Some(part) => fs::rename(&part, &self.destination).inspect_err(|_| drop(fs::remove_file(&part))),
            None => Ok(()),
        });
        finished.map_err(|reason| unwritable(&self.destination, reason))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            let _ = fs::remove_file(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("voxbridge-output-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn inputs_get_files_in_a_directory_and_never_share_one() {
        let directory = scratch("plan");
        let inputs = |names: &[&str]| names.iter().map(|name| Input::named(name.into())).collect::<Vec<_>>();
        let plan =
            |names: &[&str], output: &Path| Destination::for_inputs(&inputs(names), Some(output), "srt");
        let file = |name: &str| Destination::File(directory.join(name));
        assert_eq!(
            plan(&["a/talk.mp3", "b.c.wav", "-"], &directory).unwrap(),
            ["talk.srt", "b.c.srt", "stdin.srt"].map(file)
        );
        let own = directory.join("own.srt");
        assert_eq!(plan(&["a.mp3"], &own).unwrap(), [Destination::File(own.clone())]);
        assert_eq!(
            plan(&["a.mp3", "b.mp3"], Path::new("-")).unwrap(),
            [Destination::Stdout, Destination::Stdout]
        );
        for (names, output) in [(&["a/x.mp3", "b/x.wav"][..], &directory), (&["a.mp3", "b.mp3"], &own)] {
            assert_eq!(plan(names, output).unwrap_err().exit_code(), 2, "{names:?}");
        }
        let of_folder = |folder: &str| {
            let path = directory.join(folder).join("a.mp3");
            Input { path, in_folder: Some("a.mp3".into()) }
        };
        let twice = Destination::for_inputs(&["", "."].map(of_folder), None, "srt").unwrap_err();
        assert!(twice.exit_code() == 2 && twice.to_string().contains("a.srt would replace"), "{twice}");
        fs::write(&own, "an input").unwrap();
        assert_eq!(
            plan(&[own.to_str().unwrap()], &directory).unwrap_err().exit_code(),
            2,
            "replaces its input"
        );
        let new = directory.join("new/deep/");
        assert_eq!(plan(&["a.mp3"], &new).unwrap(), [file("new/deep/a.srt")]);
        assert!(new.is_dir(), "the directory is not created");
        let of_folder = Input { path: "talks/deep/a.mp3".into(), in_folder: Some("deep/a.mp3".into()) };
        let plan_folder =
            |output: Option<&Path>| Destination::for_inputs(std::slice::from_ref(&of_folder), output, "srt");
        assert_eq!(plan_folder(None).unwrap(), [Destination::File("talks/deep/a.srt".into())]);
        assert_eq!(plan_folder(Some(&directory)).unwrap(), [file("deep/a.srt")]);
        assert!(directory.join("deep").is_dir(), "the subfolder is not created");
        assert_eq!(plan_folder(Some(&own)).unwrap_err().exit_code(), 2);
        let error = plan(&["a.mp3", "b.mp3"], &directory.join("none")).unwrap_err().to_string();
        assert!(error.ends_with("none/ to create one"), "{error}");
        assert!(
            plan(&["a.mp3"], Path::new("/nowhere/x.srt"))
                .unwrap_err()
                .to_string()
                .contains("no such directory")
        );
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn only_complete_files_get_their_name() {
        let directory = scratch("complete");
        let destination = Destination::File(directory.join("a.txt"));
        fs::write(directory.join("a.txt"), "old").unwrap();
        let mut file = OutputFile::create(&destination).unwrap();
        file.write(b"new text").unwrap();
        file.replace(0, b"N").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(directory.join("a.txt")).unwrap(), "old");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "the part stays");
        OutputFile::write_all_to(&destination, b"new").unwrap();
        assert_eq!(fs::read_to_string(directory.join("a.txt")).unwrap(), "new");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        let long = directory.join("x".repeat(255));
        OutputFile::write_all_to(&Destination::File(long.clone()), b"long").unwrap();
        assert_eq!(fs::read_to_string(long).unwrap(), "long");
        let longer = OutputFile::create(&Destination::File(directory.join("x".repeat(256))));
        assert!(longer.err().unwrap().to_string().contains("too long"));
        // A device is written, and not replaced by a file.
        OutputFile::write_all_to(&Destination::File("/dev/null".into()), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        fs::remove_dir_all(directory).unwrap();
    }
}
