//! Files that a command works on: those named on its command line, and those in folders.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::ClientError;

/// A file to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Input {
    /// Where it is; `-` for standard input.
    pub(super) path: PathBuf,
    /// Its path within the folder that the command line names; `None` for a file that it names itself.
    pub(super) in_folder: Option<PathBuf>,
}

impl Input {
    /// A file that the command line names.
    pub(super) const fn named(path: PathBuf) -> Self {
        Self { path, in_folder: None }
    }

    /// A file that was found in a folder.
    fn in_folder(root: &Path, path: PathBuf) -> Self {
        let in_folder = path.strip_prefix(root).ok().map(Path::to_path_buf);
        Self { path, in_folder }
    }
}

/// Selects files of a folder, which the command line does not name one by one.
#[derive(Debug, Clone, Copy)]
pub(super) struct FolderFiles {
    /// Endings of their names.
    pub(super) endings: &'static [&'static str],
    /// Takes those in subfolders, too.
    pub(super) is_recursive: bool,
}

impl FolderFiles {
    /// The files of a command line: folders are replaced by their files, in the order of their names.
    ///
    /// # Errors
    /// A folder that is named cannot be read, or has no such file.
    pub(super) fn expand(self, named: &[PathBuf]) -> Result<Vec<Input>, ClientError> {
        let mut inputs = Vec::new();
        for path in named {
            if !path.is_dir() {
                inputs.push(Input::named(path.clone()));
                continue;
            }
            let before = inputs.len();
            self.add_files(path, path, &mut inputs)?;
            if inputs.len() == before {
                let deeper = if self.is_recursive { "" } else { "; -r looks into its subfolders, too" };
                let endings = self.endings.join(", .");
                let reason = format!("{} has no files named .{endings}{deeper}", path.display());
                return Err(ClientError::Usage(reason));
            }
        }
        Ok(inputs)
    }

    fn add_files(self, root: &Path, folder: &Path, inputs: &mut Vec<Input>) -> Result<(), ClientError> {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(reason) if folder == root => {
                let source_name = folder.display().to_string();
                return Err(ClientError::UnreadableInput { source_name, reason });
            }
            Err(_) => {
                // As an input, it fails with the same reason, and is counted.
                inputs.push(Input::in_folder(root, folder.to_path_buf()));
                return Ok(());
            }
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            // Hidden files are not meant, and links to folders may lead in circles.
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if self.is_recursive {
                    self.add_files(root, &path, inputs)?;
                }
            } else if self.takes(&path) && path.is_file() {
                inputs.push(Input::in_folder(root, path));
            }
        }
        Ok(())
    }

    fn takes(self, path: &Path) -> bool {
        let ending = path.extension().unwrap_or_default();
        self.endings.iter().any(|known| ending.eq_ignore_ascii_case(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_give_their_files_in_order_and_subfolders_on_request() {
        let root = std::env::temp_dir().join(format!("voxbridge-inputs-{}", std::process::id()));
        fs::create_dir_all(root.join("b")).unwrap();
        for name in ["z.MP3", "a.wav", "notes.txt", ".hidden.wav", "b/c.wav"] {
            fs::write(root.join(name), "x").unwrap();
        }
        let expand = |endings: &'static [&'static str], is_recursive: bool, named: &[PathBuf]| {
            FolderFiles { endings, is_recursive }.expand(named)
        };
        let found = |is_recursive: bool| {
            let inputs = expand(&["wav", "mp3"], is_recursive, std::slice::from_ref(&root)).unwrap();
            inputs.into_iter().map(|input| input.in_folder.unwrap().display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found(false), ["a.wav", "z.MP3"]);
        assert_eq!(found(true), ["a.wav", "b/c.wav", "z.MP3"]);
        let named = [PathBuf::from("-"), root.join("notes.txt")];
        assert_eq!(expand(&["wav"], false, &named).unwrap(), named.map(Input::named));
        let error = expand(&["flac", "ogg"], false, &[root.join("b")]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(
            error
                .to_string()
                .ends_with("b has no files named .flac, .ogg; -r looks into its subfolders, too")
        );
        fs::remove_dir_all(root).unwrap();
    }
}
