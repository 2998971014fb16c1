//! The ledger of an acceptance run: the figures so far, the sections to come, and the traces of the sessions behind the figures.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cli::{ClientError, output::print_line},
    verify::{
        figure::{Figure, Section, Verdict},
        report,
    },
};

/// The ledger.
pub(super) struct Ledger {
    pub(super) figures: Vec<Figure>,
    /// Sections that are not complete.
    pub(super) pending: Vec<Section>,
    dir: PathBuf,
    is_printing: bool,
    seen_traces: BTreeSet<PathBuf>,
    /// The last trace of the section.
    last_trace: Option<PathBuf>,
}

impl Ledger {
    /// An empty ledger. Traces are in `traces` of this directory.
    pub(super) fn new(dir: &Path, is_printing: bool) -> Self {
        let mut ledger = Self {
            figures: Vec::new(),
            pending: Vec::new(),
            dir: dir.to_owned(),
            is_printing,
            seen_traces: BTreeSet::new(),
            last_trace: None,
        };
        ledger.take_trace();
        ledger.last_trace = None;
        ledger
    }

    /// Creates the directory for traces, and checks that a file can be written there.
    pub(super) fn check_writable(&self) -> Result<(), ClientError> {
        let dir = self.trace_dir();
        let probe = dir.join(format!(".{}", std::process::id()));
        let written = fs::create_dir_all(&dir).and_then(|()| fs::write(&probe, ""));
        let _ = fs::remove_file(&probe);
        self.remove_empty_dirs();
        written.map_err(|reason| ClientError::UnwritableOutput { destination: dir, reason })
    }

    /// Begins a section, whose failures get no trace of the section before.
    pub(super) fn begin(&mut self, section: Section) {
        self.take_trace();
        self.last_trace = None;
        if self.is_printing {
            // The run goes on for its report when the terminal is gone.
            let _ = print_line(section.name());
        }
    }

    /// Notes that a section is complete.
    pub(super) fn complete(&mut self, section: Section) {
        self.pending.retain(|pending| *pending != section);
    }

    /// Marks the sections that are not complete as skipped for this reason.
    pub(super) fn skip_pending(&mut self, reason: &str) {
        let pending = std::mem::take(&mut self.pending);
        self.add(pending.iter().map(|section| Figure::skipped(section.name(), reason)));
    }

    pub(super) fn trace_dir(&self) -> PathBuf {
        self.dir.join("traces")
    }

    /// Adds figures. Failures get the last trace of their section, unless they have one.
    pub(super) fn add(&mut self, figures: impl IntoIterator<Item = Figure>) {
        self.take_trace();
        for mut figure in figures {
            if let Some(trace) = &self.last_trace {
                figure.set_trace(trace);
            }
            if self.is_printing {
                let _ = print_line(report::format_line(&figure));
            }
            self.figures.push(figure);
        }
    }

    /// The trace of the session that began last in this section.
    pub(super) fn take_trace(&mut self) -> Option<PathBuf> {
        let found: BTreeSet<PathBuf> = list(&self.trace_dir()).collect();
        if let Some(last) = found.difference(&self.seen_traces).last() {
            self.last_trace = Some(last.clone());
        }
        self.seen_traces.extend(found);
        self.last_trace.clone()
    }

    /// Writes a file that serves as the trace of a failure without a session.
    pub(super) fn write_trace(&self, name: &str, text: &str) -> std::io::Result<PathBuf> {
        fs::create_dir_all(self.trace_dir())?;
        let path = self.trace_dir().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Removes the traces of this run that no failure names, and directories that are empty then. Call it after the sessions.
    pub(super) fn remove_other_traces(&self, earlier: &BTreeSet<PathBuf>) {
        let is_named = |path: &PathBuf| {
            let name = path.display().to_string();
            self.figures.iter().any(|figure| figure.trace.as_ref() == Some(&name))
        };
        let others: Vec<PathBuf> =
            list(&self.trace_dir()).filter(|path| !earlier.contains(path) && !is_named(path)).collect();
        // A failed removal does no harm.
        others.iter().for_each(|path| _ = fs::remove_file(path));
        self.remove_empty_dirs();
    }

    fn remove_empty_dirs(&self) {
        let _ = fs::remove_dir(self.trace_dir());
        let _ = fs::remove_dir(&self.dir);
    }

    /// The traces that exist.
    pub(super) fn all_traces(&self) -> BTreeSet<PathBuf> {
        list(&self.trace_dir()).collect()
    }

    /// Names and traces of the failures, each trace once.
    pub(super) fn failed_traces(&self) -> Vec<(String, PathBuf)> {
        let mut traces: Vec<(String, PathBuf)> = Vec::new();
        for figure in self.figures.iter().filter(|figure| figure.verdict == Verdict::Fail) {
            let Some(trace) = figure.trace.as_ref().map(PathBuf::from) else { continue };
            match traces.iter_mut().find(|(_, known)| *known == trace) {
                Some((names, _)) => names.push_str(&format!(", {}", figure.name)),
                None => traces.push((figure.name.clone(), trace)),
            }
        }
        traces
    }
}

fn list(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::figure::Expectation;

    fn failed(name: &str) -> Figure {
        Figure::failed(name, "s", Expectation::Succeeds, "no")
    }

    #[test]
    fn figures_without_a_new_session_get_the_last_trace_of_their_section() {
        let dir = std::env::temp_dir().join(format!("voxbridge-ledger-{}", std::process::id()));
        let mut ledger = Ledger::new(&dir, false);
        assert!(ledger.check_writable().is_ok() && !dir.exists(), "nothing is left");
        ledger.begin(Section::Speech);
        let spoken = ledger.write_trace("1-spoken.jsonl", "{}").unwrap();
        assert_eq!(ledger.take_trace(), Some(spoken.clone()));
        let heard = ledger.write_trace("2-heard.jsonl", "{}").unwrap();
        let mut figure = failed("speech.word_error");
        figure.set_trace(&spoken);
        ledger.add([figure]);
        ledger.add([failed("speech.first_audio")]);
        ledger.begin(Section::Tools);
        ledger.add([failed("tools.well_formed")]);
        let names = |path: &Path| Some(path.display().to_string());
        let traces: Vec<_> = ledger.figures.iter().map(|figure| figure.trace.clone()).collect();
        assert_eq!(traces, [names(&spoken), names(&heard), None]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn sections_that_are_not_complete_are_marked() {
        let mut ledger = Ledger::new(Path::new("/nowhere"), false);
        ledger.pending = vec![Section::Speech, Section::Tools, Section::Capacity];
        ledger.complete(Section::Speech);
        ledger.skip_pending("time was over");
        let marked: Vec<_> = ledger.figures.iter().map(|it| (it.name.as_str(), it.note.as_str())).collect();
        assert_eq!(marked, [("tools", "time was over"), ("capacity", "time was over")]);
    }

    #[test]
    fn unwritable_directory_is_named() {
        let error = Ledger::new(Path::new("/proc/nowhere"), false).check_writable().unwrap_err();
        assert!(error.to_string().contains("/proc/nowhere"), "{error}");
    }
}
