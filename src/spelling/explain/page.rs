//! Pages about client protocols, for people who want to plug a client in: stock clients and what to change in them, notes, and
//! what has no effect. Everything comes from the mapping file, whose stock clients the tests run.

use std::fmt::Write as _;

use super::ClientMapping;
use crate::spelling::{client::ClientFile, field::ProtocolField, tested_with::TestCell};

/// Paths of a protocol in the table of all protocols.
const TABLE_PATHS_MAX: usize = 3;

/// Profile of protocols that name none.
const USUAL_PROFILE: &str = "speech";

/// The page of one client protocol, Markdown.
#[must_use]
pub fn client_page(client: &ClientMapping) -> String {
    let mut out = format!("# {}\n\n", client.title);
    let _ = writeln!(
        out,
        "From `client/{}.toml`, printed by `voxbridge mappings page {0}`. Served {}, in the profile `{}` unless the \
         configuration says otherwise.",
        client.name,
        places_of(client, usize::MAX),
        profile_of(client)
    );
    if client.tested_with.is_empty() {
        let _ = writeln!(out, "\nNo stock client of this protocol runs in the tests.");
    } else {
        let _ = writeln!(out, "\n## Clients\n\nThese run in the tests, unmodified:\n");
        let _ = writeln!(out, "| client | what to change |\n|---|---|");
        for tested in &client.tested_with {
            let profile =
                tested.profile.as_ref().map_or_else(String::new, |name| format!(" (profile `{name}`)"));
            let _ = writeln!(out, "| {}{profile} | {} |", tested.client, tested.change);
        }
        out.push('\n');
        matrix_head(&mut out, "client");
        client.tested_with.iter().for_each(|tested| matrix_row(&mut out, &tested.client, &tested.cells));
    }
    if let Some(jobs) = &client.jobs {
        let paths: Vec<_> = jobs.paths().map(|path| format!("`{path}`")).collect();
        let _ = writeln!(out, "\n## Transcriptions of recordings\n\nBy HTTP, at {}.", paths.join(", "));
        let refused =
            jobs.refused().map(|(setting, because)| format!("- `{setting}` is refused: {because}\n"));
        let refused: String = refused.collect();
        if !refused.is_empty() {
            let _ = write!(out, "\n{refused}");
        }
    }
    if !client.notes.is_empty() {
        let _ = writeln!(out, "\n## Notes\n");
        client.notes.iter().for_each(|note| out.push_str(&format!("- {note}\n")));
    }
    let limited = limited_fields(client);
    if !limited.is_empty() {
        let _ = writeln!(
            out,
            "\n## Accepted, with no or limited effect\n\n| message | field | because |\n|---|---|---|"
        );
        for (message, field) in limited {
            let because = field.file.because.as_deref().unwrap_or_default();
            let _ = writeln!(out, "| {message} | `{}` | {because} |", field.name);
        }
    }
    if !client.never_sent.is_empty() {
        let _ = writeln!(out, "\n## Never sent\n\n| event | because |\n|---|---|");
        for (event, because) in &client.never_sent {
            let _ = writeln!(out, "| `{event}` | {because} |");
        }
    }
    out
}

/// The table of all stock clients that mapping files name, and what each does in the tests, Markdown.
#[must_use]
pub fn clients_page<'c>(clients: impl Iterator<Item = &'c ClientMapping>) -> String {
    let mut out = "# Clients and what they do in the tests\n\n\
        One row for each stock client, unmodified. From the mapping files, printed by `voxbridge mappings page`; \
        the links lead to the changes that each needs, its notes and its limits. \
        [What each protocol does on each kind of server](behaviour).\n\n"
        .to_owned();
    matrix_head(&mut out, "protocol and client");
    for client in clients {
        let page = format!("[{}]({}.md)", client.title, client.name);
        for tested in &client.tested_with {
            matrix_row(&mut out, &format!("{page}: {}", tested.client), &tested.cells);
        }
        if client.tested_with.is_empty() {
            matrix_row(&mut out, &format!("{page}: no stock client"), &[]);
        }
    }
    out
}

/// The table of all protocols for the guide beside the folder of the pages, Markdown.
#[must_use]
pub fn protocols_table<'c>(clients: impl Iterator<Item = &'c ClientMapping>) -> String {
    let mut clients: Vec<_> = clients.collect();
    clients.sort_by_key(|client| (&client.family, &client.name));
    let mut out =
        "| family | protocol | served | profile | stock clients tested |\n|---|---|---|---|---|\n".to_owned();
    for client in clients {
        let ClientFile { family, title, name, tested_with, .. } = &**client;
        let (places, profile) = (places_of(client, TABLE_PATHS_MAX), profile_of(client));
        let tested = tested_with.len();
        let _ =
            writeln!(out, "| {family} | [{title}](pages/{name}.md) | {places} | `{profile}` | {tested} |");
    }
    out
}

/// Where the protocol is served, with at most this many of its paths.
fn places_of(client: &ClientMapping, paths_max: usize) -> String {
    let mut paths: Vec<_> = client.paths.iter().take(paths_max).map(|path| format!("`{path}`")).collect();
    paths.extend((client.paths.len() > paths_max).then(|| "…".to_owned()));
    let at_paths = (!paths.is_empty()).then(|| format!("at {}", paths.join(", ")));
    let on_tcp = client.tcp.as_ref().map(|tcp| format!("by `[[tcp]]` listeners of `{}`", tcp.listener));
    let places: Vec<_> = at_paths.into_iter().chain(on_tcp).collect();
    if places.is_empty() { "to REST requests".to_owned() } else { places.join(" and ") }
}

fn profile_of(client: &ClientMapping) -> &str {
    if client.is_relayed() {
        return "relay";
    }
    client.default_profile.as_deref().unwrap_or(USUAL_PROFILE)
}

fn matrix_head(out: &mut String, first: &str) {
    let _ = write!(out, "| {first} |");
    TestCell::ALL.into_iter().for_each(|cell| out.push_str(&format!(" {} |", cell.name())));
    let _ = writeln!(out, "\n|---|{}", "---|".repeat(TestCell::ALL.len()));
}

fn matrix_row(out: &mut String, name: &str, cells: &[TestCell]) {
    let _ = write!(out, "| {name} |");
    for cell in TestCell::ALL {
        out.push_str(if cells.contains(&cell) { " yes |" } else { " |" });
    }
    out.push('\n');
}

/// Fields with a reason why they have no effect or a limited one, each with its message.
fn limited_fields(client: &ClientMapping) -> Vec<(String, &ProtocolField)> {
    let has_reason = |field: &&ProtocolField| field.file.because.is_some();
    let of_query = client.query.iter().filter(has_reason).map(|field| ("the URL's query".to_owned(), field));
    let of_commands = client.commands.iter().flat_map(|command| {
        let fields = command.fields.iter().filter(has_reason);
        fields.map(|field| (format!("`{}`", command.name), field))
    });
    let of_jobs = client.jobs.iter().flat_map(|jobs| {
        let fields = jobs.fields.iter().filter(has_reason);
        fields.map(|field| (format!("`POST {}`", &*jobs.path), field))
    });
    of_query.chain(of_commands).chain(of_jobs).collect()
}
