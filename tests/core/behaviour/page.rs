//! The pages of what passed: for each client, the cells and the kinds of servers.

use super::*;

/// Client, server and cell.
type Passed = (String, String, String);

/// Compares the page of this thread's test with what passed, or writes it if the environment has `WRITE_PAGES`.
#[allow(clippy::disallowed_methods, reason = "whoever changes a protocol has its pages written")]
pub(super) fn check(passed: &[Passed]) {
    let test = std::thread::current().name().unwrap().rsplit("::").next().unwrap().to_owned();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("mappings/pages/behaviour/{test}.md"));
    let page = page(&test, passed);
    if std::env::var_os("WRITE_PAGES").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        return fs::write(path, page).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "{} differs from what passed: `WRITE_PAGES=1 cargo test --test core {test}` writes it",
        path.display()
    );
}

fn page(test: &str, passed: &[Passed]) -> String {
    let mut servers = BTreeMap::<(&str, &str), BTreeSet<&str>>::new();
    for (client, server, cell) in passed {
        servers.entry((client, cell)).or_default().insert(server);
    }
    // Most cells of a client pass on the same servers.
    let mut rows = BTreeMap::<(&str, BTreeSet<&str>), Vec<&str>>::new();
    for ((client, cell), servers) in servers {
        rows.entry((client, servers)).or_default().push(cell);
    }
    let row = |((client, servers), cells): (&(&str, BTreeSet<&str>), &Vec<&str>)| {
        let servers = servers.iter().copied().collect::<Vec<_>>().join(", ");
        format!("| [{client}](../{client}.md) | {} | {servers} |\n", cells.join("; "))
    };
    let title = test.replace('_', " ");
    format!(
        "# {}{}\n\nThese cells passed in the suite of all protocols, in virtual time. The profile of each is in brackets.\n\n\
         | protocol | what passed | servers |\n|---|---|---|\n{}",
        title[..1].to_uppercase(),
        &title[1..],
        rows.iter().map(row).collect::<String>(),
    )
}
