//! One suite for all client protocols: each goes through the same cells, made from its mapping alone, in virtual time.
//!
//! A cell is left out only if the mapping, or the profile and the server with it, cannot do what the cell is about. A new mapping
//! file is in the suite by itself. All failures are listed, each with its client, server, profile and cell. What passed is in
//! `mappings/pages/behaviour/`, a file for each test; `WRITE_PAGES=1 cargo test --test core behaviour` writes them.
//!
//! To change here: what is expected of every protocol. Not here: what one protocol does beyond that.

mod case;
mod ends;
mod first_audio;
mod messages;
mod page;
mod play;
mod speech;
mod tools;
mod trouble;
mod words;

use std::fmt::Write as _;

use case::Case;
use speech::{Request, wait_for_silence};
use voxbridge::{
    spelling::{ClientMapping, client::LockStep},
    vocabulary::EventName,
};
use voxbridge_test_support::world::client::MappedClient;
use words::{are_told, made_words};

use super::*;

/// Cells that fail, and why: client, server, part of the cell's name, reason. One that passes must leave the list.
const KNOWN: &[(&str, &str, &str, &str)] = &[];

/// Results of the cells of one test.
#[derive(Default)]
struct Results {
    /// Client, server and cell of those that passed.
    passed: Vec<(String, String, String)>,
    /// The same of those that failed, and how.
    failed: Vec<(String, String, String, String)>,
    gated: usize,
}

/// The checks of one case.
struct Checks<'r> {
    case: Case,
    results: &'r mut Results,
}

impl Checks<'_> {
    /// Notes whether a cell passed.
    fn that(&mut self, cell: &str, holds: bool, detail: impl FnOnce() -> String) {
        let (client, server) = (self.case.client.name.clone(), self.case.server.name.to_owned());
        let cell = format!("{} ({})", cell, self.case.profile.name);
        match holds {
            true => self.results.passed.push((client, server, cell)),
            false => {
                let mut detail = detail();
                detail.truncate(detail.char_indices().nth(1200).map_or(detail.len(), |(at, _)| at));
                self.results.failed.push((client, server, cell, detail));
            }
        }
    }

    /// Notes that the case cannot do what a cell is about.
    const fn gate(&mut self) {
        self.results.gated += 1;
    }
}

/// Runs the cells of one test in every case, and fails with all that failed.
#[allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "the test runner shows how much was tried, and says for which client"
)]
fn run(cases: impl IntoIterator<Item = Case>, cells: impl Fn(&mut Checks<'_>)) {
    let only = std::env::var("BEHAVIOUR_CLIENT").ok();
    let only_server = std::env::var("BEHAVIOUR_SERVER").ok();
    let mut results = Results::default();
    for case in cases {
        let is_client = only.as_ref().is_none_or(|only| *only == case.client.name);
        if is_client && only_server.as_ref().is_none_or(|only| *only == case.server.name) {
            let what = case.to_string();
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                cells(&mut Checks { case: case.clone(), results: &mut results });
            }));
            if let Err(panic) = caught {
                let words = panic.downcast_ref::<String>().cloned();
                let words = words.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
                let words = words.unwrap_or_default();
                results.failed.push((case.client.name.clone(), case.server.name.to_owned(), what, words));
            }
        }
    }
    let is_known = |(client, server, cell): (&String, &String, &String)| {
        KNOWN.iter().any(|known| known.0 == client && known.1 == server && cell.contains(known.2))
    };
    let mut report = String::new();
    for (client, server, cell, detail) in &results.failed {
        if !is_known((client, server, cell)) {
            writeln!(report, "{client} on {server}: {cell}: {detail}").unwrap();
        }
    }
    for (client, server, cell) in &results.passed {
        if is_known((client, server, cell)) {
            writeln!(report, "{client} on {server}: {cell} passes, and is listed as known to fail").unwrap();
        }
    }
    if only.is_none() && only_server.is_none() {
        page::check(&results.passed);
    }
    let (passed, gated, failed) = (results.passed.len(), results.gated, results.failed.len());
    println!("{passed} cells passed, {failed} failed, {gated} left out");
    assert!(report.is_empty(), "\n{report}");
}
