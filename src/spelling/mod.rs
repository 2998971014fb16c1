//! Mapping files: the spelling of client protocols and upstream dialects, and in [`profile`] the meaning that profiles give to
//! verbs.
//!
//! To change here: a new key, with its check; `mappings/reference.md` describes it. A new protocol or profile is a
//! file in `mappings/`, which the build script lists. Not here: what follows from a key, which its reader does.
//!
//! Files are read and compiled once at startup. They hold names, paths, types, units, limits, prompts and event
//! tables; behaviour is Rust code. The schema of the three kinds is `mappings/reference.md`.

pub mod check;
pub mod client;
pub mod compatibility;
pub mod error_spelling;
pub mod explain;
pub mod extract;
pub mod field;
pub mod language;
mod name_table;
pub mod profile;
pub mod relay;
pub mod scaffold;
pub mod template;
pub mod tested_with;
pub mod upstream;
pub mod url_path;

use crate::{named_enum::named_enum, suggestion::suggest_known};
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use serde::Deserialize;

use self::{check::Document, client::PathConflict};
pub use self::{check::FileError, client::ClientMapping, profile::Profile, upstream::UpstreamMapping};

named_enum! {
    /// Kind of mapping file.
    pub enum MappingKind {
        /// Spelling of a client protocol.
        Client = "client",
        /// Spelling of an upstream dialect.
        Upstream = "upstream",
        /// Profile: what the client's verbs mean to the model.
        Profile = "profile",
    }
}

/// Mapping files embedded in the program, all of `mappings/`: path and text, in the order of their paths.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/embedded_mappings.rs"));

/// Names of the embedded mappings of a kind.
pub fn embedded_names(kind: MappingKind) -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().filter_map(move |(file, _)| {
        let (folder, name) = file.split_once('/')?;
        name.strip_suffix(".toml").filter(|_| folder == kind.name())
    })
}

/// All loaded mappings, by kind and name.
#[derive(Debug, Default, Clone)]
pub struct Library {
    clients: BTreeMap<String, Arc<ClientMapping>>,
    upstreams: BTreeMap<String, Arc<UpstreamMapping>>,
    profiles: BTreeMap<String, Arc<Profile>>,
    /// File and text of each.
    sources: BTreeMap<(MappingKind, String), Arc<(String, String)>>,
}

impl Library {
    /// The embedded mappings. They are compiled once.
    ///
    /// # Errors
    /// An error in an embedded file; a test rules this out.
    pub fn embedded() -> Result<Self, FileError> {
        static COMPILED: OnceLock<Library> = OnceLock::new();
        if let Some(library) = COMPILED.get() {
            return Ok(library.clone());
        }
        let mut library = Self::default();
        library.add_all(EMBEDDED.iter().map(|(file, text)| ((*file).into(), (*text).into())).collect())?;
        Ok(COMPILED.get_or_init(|| library).clone())
    }

    /// Adds the files of a directory, ordered so that each profile follows the one it extends.
    ///
    /// # Errors
    /// The errors of all files, and conflicts between them.
    pub fn add_all(&mut self, mut files: Vec<(String, String)>) -> Result<(), FileError> {
        let mut problems: Vec<FileError> = Vec::new();
        let mut added: BTreeMap<(MappingKind, String), String> = BTreeMap::new();
        while !files.is_empty() {
            let ready = files.iter().position(|(file, source)| {
                Document::parse(file, source).and_then(|document| self.base_of(&document)).is_ok()
            });
            // Report no further errors in files that extend an invalid one, except TOML syntax errors.
            if ready.is_none() && !problems.is_empty() {
                let unreadable = |(file, source): &(String, String)| Document::parse(file, source).err();
                problems.extend(files.iter().filter_map(unreadable));
                break;
            }
            let (file, source) = files.remove(ready.unwrap_or(0));
            match self.add_and_identify(&file, &source) {
                Err(problem) => problems.push(problem),
                Ok(what) => match added.get(&what) {
                    None => drop(added.insert(what, file)),
                    Some(other) => {
                        let message = format!("{other} already defines {} {:?}", what.0.name(), what.1);
                        let document = Document::parse(&file, &source);
                        problems.extend(document.map(|document| document.problem_at_key(&["name"], message)));
                    }
                },
            }
        }
        problems.extend(self.path_conflicts());
        FileError::combine(problems.into_iter().flat_map(FileError::flatten))
    }

    /// Finds client protocols that share a path but cannot be told apart there.
    fn path_conflicts(&self) -> Vec<FileError> {
        // Embedded ones first, so that the error points to the user's file.
        let mut clients: Vec<_> = self.clients.values().collect();
        clients.sort_by_key(|client| !self.is_embedded(MappingKind::Client, &client.name));
        let mut problems = Vec::new();
        for (at, client) in clients.iter().enumerate() {
            let first = |key: fn(&ClientMapping, &ClientMapping) -> Option<PathConflict>| {
                clients[..at].iter().find_map(|other| Some((other, key(client, other)?)))
            };
            let conflicts = [first(ClientMapping::path_conflict), first(ClientMapping::job_conflict)];
            for (other, PathConflict { key, missing }) in conflicts.into_iter().flatten() {
                let message = format!(
                    "client {} is served at the same path, and {missing} distinguishes the two; choose another path",
                    other.name
                );
                problems.extend(self.problem_of_client(&client.name, key, message));
            }
        }
        problems
    }

    /// An error at a key of a client's file.
    fn problem_of_client(&self, name: &str, key: &[&str], message: String) -> Option<FileError> {
        let (file, source) = self.sources.get(&(MappingKind::Client, name.to_owned())).map(AsRef::as_ref)?;
        Some(Document::parse(file, source).ok()?.problem_at_key(key, message))
    }

    /// Compiles a file and adds it, replacing a mapping of the same kind and name.
    ///
    /// # Errors
    /// All errors of the file.
    pub fn add(&mut self, file: &str, source: &str) -> Result<(), FileError> {
        self.add_and_identify(file, source).map(drop)
    }

    /// Like [`Library::add`], but returns the kind and name of the mapping.
    ///
    /// # Errors
    /// All errors of the file.
    pub fn add_and_identify(&mut self, file: &str, source: &str) -> Result<(MappingKind, String), FileError> {
        #[derive(Deserialize)]
        struct KindHeader {
            kind: MappingKind,
        }
        let document = Document::parse(file, source)?;
        let header: KindHeader = document.read()?;
        let name = match header.kind {
            MappingKind::Client => {
                let mapping = compile_or_all_errors(header.kind, &document, ClientMapping::compile)?;
                insert(&mut self.clients, mapping.name.clone(), mapping)
            }
            MappingKind::Upstream => {
                let mapping = compile_or_all_errors(header.kind, &document, UpstreamMapping::compile)?;
                insert(&mut self.upstreams, mapping.name.clone(), mapping)
            }
            MappingKind::Profile => {
                let base = self.base_of(&document)?;
                let compile = |document: &Document<'_>| Profile::compile(document, base.as_deref());
                let mapping = compile_or_all_errors(header.kind, &document, compile)?;
                self.check_no_cycle(&document, &mapping)?;
                insert(&mut self.profiles, mapping.name.clone(), mapping)
            }
        };
        self.sources.insert((header.kind, name.clone()), Arc::new((file.to_owned(), source.to_owned())));
        if header.kind == MappingKind::Profile {
            self.recompile_dependents(&name)?;
        }
        Ok((header.kind, name))
    }

    /// The profile that the given profile file extends.
    fn base_of(&self, document: &Document<'_>) -> Result<Option<Arc<Profile>>, FileError> {
        let Some(name) = Profile::base_of(document)? else { return Ok(None) };
        let at = document.source.find("extends").unwrap_or(0);
        self.profile(&name).map(Some).map_err(|words| document.problem(at, words))
    }

    /// A profile may extend the one it replaces, but no inheritance cycle is allowed.
    fn check_no_cycle(&self, document: &Document<'_>, mapping: &Profile) -> Result<(), FileError> {
        let (mut name, mut next) = (&mapping.name, mapping.extends.as_ref());
        while let Some(base) = next.filter(|base| *base != name) {
            if *base == mapping.name {
                let at = document.source.find("extends").unwrap_or(0);
                let message = format!("`{base}` would extend itself through `{name}`");
                return Err(document.problem(at, message));
            }
            (name, next) = (base, self.profiles.get(base).and_then(|base| base.extends.as_ref()));
        }
        Ok(())
    }

    /// Recompiles the profiles that extend a changed profile.
    fn recompile_dependents(&mut self, name: &str) -> Result<(), FileError> {
        let extends =
            |dependent: &&Arc<Profile>| dependent.extends.as_deref() == Some(name) && dependent.name != name;
        let dependents: Vec<String> =
            self.profiles.values().filter(extends).map(|dependent| dependent.name.clone()).collect();
        for dependent in dependents {
            if let Some((file, source)) =
                self.sources.get(&(MappingKind::Profile, dependent)).map(|source| (**source).clone())
            {
                self.add(&file, &source)?;
            }
        }
        Ok(())
    }

    /// Finds a client protocol by name.
    ///
    /// # Errors
    /// A message with the nearest known name.
    pub fn client(&self, name: &str) -> Result<Arc<ClientMapping>, String> {
        find(&self.clients, "client protocol", name)
    }

    /// Finds an upstream dialect by name.
    ///
    /// # Errors
    /// A message with the nearest known name.
    pub fn upstream(&self, name: &str) -> Result<Arc<UpstreamMapping>, String> {
        find(&self.upstreams, "upstream dialect", name)
    }

    /// Finds a profile by name.
    ///
    /// # Errors
    /// A message with the nearest known name.
    pub fn profile(&self, name: &str) -> Result<Arc<Profile>, String> {
        find(&self.profiles, "profile", name)
    }

    /// Client protocols served at a URL path, sorted by name. A path with parameters counts only if no protocol has exactly
    /// this one.
    pub fn clients_at(&self, path: &str) -> impl Iterator<Item = &Arc<ClientMapping>> {
        let is_exact = self.clients.values().any(|client| client.has_path(path));
        self.clients.values().filter(move |client| match is_exact {
            true => client.has_path(path),
            false => client.path_parameters(path).is_some(),
        })
    }

    /// All client protocols.
    pub fn clients(&self) -> impl Iterator<Item = &Arc<ClientMapping>> {
        self.clients.values()
    }

    /// All profiles.
    pub fn profiles(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.profiles.values()
    }

    /// All upstream dialects.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<UpstreamMapping>> {
        self.upstreams.values()
    }

    /// Source text of a mapping.
    #[must_use]
    pub fn source(&self, kind: MappingKind, name: &str) -> Option<&str> {
        self.sources.get(&(kind, name.to_owned())).map(|source| source.1.as_str())
    }

    /// True if the mapping is the embedded one.
    #[must_use]
    pub fn is_embedded(&self, kind: MappingKind, name: &str) -> bool {
        let source = self.source(kind, name);
        EMBEDDED.iter().any(|(_, embedded)| Some(*embedded) == source)
    }

    /// True if the mapping replaces an embedded one.
    #[must_use]
    pub fn replaces_embedded(&self, kind: MappingKind, name: &str) -> bool {
        let file = format!("{}/{name}.toml", kind.name());
        EMBEDDED.iter().any(|(embedded, _)| *embedded == file)
            && self.sources.get(&(kind, name.to_owned())).is_some_and(|source| source.0 != file)
    }

    /// Names of a profile and of the profiles it extends, in order.
    #[must_use]
    pub fn inheritance_chain(&self, profile: &str) -> Vec<String> {
        let mut names = vec![profile.to_owned()];
        let base = |name: &String| self.profiles.get(name).and_then(|profile| profile.extends.clone());
        while let Some(next) = names.last().and_then(base).filter(|next| !names.contains(next)) {
            names.push(next);
        }
        names
    }

    /// All files: kind, name, file path and source text.
    pub fn files(&self) -> impl Iterator<Item = (MappingKind, &str, &str, &str)> {
        self.sources.iter().map(|((kind, name), it)| (*kind, name.as_str(), it.0.as_str(), it.1.as_str()))
    }
}

/// Compiles a mapping, or reports all errors of its file.
fn compile_or_all_errors<T>(
    kind: MappingKind,
    document: &Document<'_>,
    compile: impl Fn(&Document<'_>) -> Result<T, FileError>,
) -> Result<T, FileError> {
    compile(document).map_err(|first| {
        let model = match kind {
            MappingKind::Client => include_str!("../../mappings/client/macaw.toml"),
            MappingKind::Upstream => include_str!("../../mappings/upstream/minicpm-o.toml"),
            MappingKind::Profile => include_str!("../../mappings/profile/speech.toml"),
        };
        // The entries of a command, a field, an event or the like depend on each other.
        let related_keys = 2;
        let compile = |document: &Document<'_>| compile(document).map(drop);
        let all = check::all_errors::find_all(document, model, related_keys, compile);
        FileError::combine(all.errors).err().unwrap_or(first)
    })
}

fn insert<T>(map: &mut BTreeMap<String, Arc<T>>, name: String, mapping: T) -> String {
    map.insert(name.clone(), Arc::new(mapping));
    name
}

fn find<T>(map: &BTreeMap<String, Arc<T>>, what: &str, name: &str) -> Result<Arc<T>, String> {
    map.get(name).cloned().ok_or_else(|| {
        let known = suggest_known(name, || map.keys().map(String::as_str));
        format!("unknown {what} `{name}`{known}")
    })
}

#[cfg(test)]
mod tests;
