//! The client table of README, and those of the pages in `mappings/pages`. Tests run each client with the code of its row, so
//! that no row shows code that fails.

use std::fs;

use super::{client_programs::clients_dir, *};

/// Addresses that the rows show.
const SHOWN_ADDRESSES: [&str; 2] = ["127.0.0.1:8000", "localhost:8000"];

/// A row of the table: a client, and what to change in it.
pub(crate) struct ReadmeRow {
    client: String,
    change: String,
}

/// The rows of a page.
fn rows(page: &str) -> Vec<ReadmeRow> {
    let page = fs::read_to_string(project().join(page)).unwrap();
    let (_, table) = page.split_once("| client | what to change |\n|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches('|').split_once(" | ").unwrap());
    cells
        .map(|(client, change)| ReadmeRow { client: client.trim().into(), change: change.trim().into() })
        .collect()
}

/// README's row of the client whose name begins like this.
pub(crate) fn row(client: &str) -> ReadmeRow {
    only_row("README.md", client)
}

/// The row of the client whose name begins like this, on the page of a protocol.
pub(crate) fn page_row(protocol: &str, client: &str) -> ReadmeRow {
    only_row(&format!("mappings/pages/{protocol}.md"), client)
}

fn only_row(page: &str, client: &str) -> ReadmeRow {
    let mut found = rows(page).into_iter().filter(|row| row.client.starts_with(client));
    let row = found.next().unwrap_or_else(|| panic!("{page} has no row for {client}"));
    assert!(found.next().is_none(), "{page} has several rows for {client}");
    row
}

impl ReadmeRow {
    /// The row's pieces of code.
    fn pieces(&self) -> impl Iterator<Item = &str> {
        self.change.split('`').skip(1).step_by(2)
    }

    /// The row's code for a server at this address: a line for each of the first `pieces` of it.
    fn lines_for(&self, address: impl ToString, pieces: usize) -> String {
        let code = self.pieces().take(pieces).collect::<Vec<_>>().join("\n");
        let is_shown = SHOWN_ADDRESSES.iter().any(|shown| code.contains(shown));
        assert!(is_shown, "the row of {} has no address: {code}", self.client);
        SHOWN_ADDRESSES.iter().fold(code, |code, shown| code.replace(shown, &address.to_string()))
    }

    /// The row's first piece of code, for a server at this address.
    pub(crate) fn code_for(&self, address: impl ToString) -> String {
        self.lines_for(address, 1)
    }

    /// All the row's code, for a server at this address: the last line makes the client.
    pub(crate) fn program_for(&self, address: SocketAddr) -> String {
        self.lines_for(address, usize::MAX)
    }

    /// The row's text, which has a path instead of an address.
    pub(crate) fn path(&self, before: &str, after: char) -> &str {
        let (_, rest) =
            self.change.split_once(before).unwrap_or_else(|| panic!("no {before}: {}", self.change));
        &rest[..rest.find(after).unwrap()]
    }

    /// The installed packages of this kind that the row speaks of: the newest of each major version that it names.
    pub(crate) fn packages(&self, folder: &str, kind: &str) -> Vec<String> {
        let major = |word: &str| word.split('.').next()?.parse().ok();
        let majors: Vec<u32> = self.client.split([' ', ',']).filter_map(major).collect();
        assert!(!majors.is_empty(), "{} names no version", self.client);
        let installed: Vec<String> = fs::read_dir(clients_dir().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let package = |major: &u32| {
            let start = format!("{kind}-{major}.");
            let found = installed.iter().find(|name| name.starts_with(&start));
            found.unwrap_or_else(|| panic!("tests/clients/setup installs no {start}")).clone()
        };
        majors.iter().map(package).collect()
    }
}

/// The anchor that GitHub gives a heading.
fn anchor_of(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Each row with code is run: a test of this program asks for it by `row("NAME")`. The others lead to a guide.
#[test]
fn every_row_is_run_by_a_test() {
    let sources = fs::read_dir(project().join("tests/speech")).unwrap();
    let files = sources.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let sources: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut asked = sources.split("row(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let asked: Vec<&str> = asked.by_ref().filter(|name| !name.is_empty()).collect();
    for row in rows("README.md") {
        let ReadmeRow { client, change } = &row;
        let is_run = asked.iter().any(|name| client.starts_with(name));
        assert!(is_run || row.pieces().next().is_none(), "no test runs the row of {client}");
        for link in change.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let (guide, anchor) = link.split_once('#').unwrap();
            let guide = fs::read_to_string(project().join(guide)).unwrap();
            let mut headings = guide.lines().filter(|line| line.starts_with('#')).map(anchor_of);
            assert!(headings.any(|heading| heading == anchor), "{client}: no heading for {link}");
        }
    }
}

/// The page of MiniCPM-o's own API shows paths: each mode's session is set up.
#[tokio::test(flavor = "multi_thread")]
async fn own_api_opens_its_modes_at_the_shown_path() {
    let bench = Bench::start().await;
    let page = fs::read_to_string(project().join("mappings/pages/minicpm-o.md")).unwrap();
    let shown = page.lines().find(|line| line.starts_with("- Clients change host and port")).unwrap();
    let mut pieces = shown.split('`').skip(1).step_by(2);
    let first = pieces.next().unwrap();
    let (path, _) = first.split_once('=').unwrap();
    let others = pieces.map(|mode| format!("{path}={mode}"));
    let paths: Vec<String> = [first.to_owned()].into_iter().chain(others).collect();
    assert_eq!(paths.len(), 3, "{paths:?}");
    for path in paths {
        let mut client = bench.dial(&path).await;
        client.wait_for_event("session.queue_done").await;
        client.send_json(json!({"type": "session.init", "payload": {}})).await;
        client.wait_for_event("session.created").await;
    }
}
