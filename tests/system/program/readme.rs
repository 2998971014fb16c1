//! The guides' configuration examples are valid, their links lead somewhere, the reference of mapping files is complete, and
//! first pages stay short. Tables that come from the mapping files are compared; `UPDATE_README=1 cargo test --test system
//! readme` writes them.

use voxbridge::{
    config::{FILE, KEYS},
    error::ErrorKind,
    spelling::{
        MappingKind,
        check::parse_toml,
        client::RealtimeEvent,
        explain::{explain_markdown, page},
    },
    vocabulary::{EventName, FieldRole},
};

use super::citations::{anchor, files_below};
use super::*;

const MAPPINGS_REFERENCE: &str = "mappings/reference.md";
const CLIENTS_GUIDE: &str = "mappings/clients.md";
const OPERATING_GUIDE: &str = "examples/operate/README.md";

/// The TOML file that a guide shows behind the comment `<!-- NAME -->`.
pub(crate) fn shown_file(guide: &str, name: &str) -> String {
    let text = read(guide);
    let (_, rest) = text.split_once(&format!("<!-- {name} -->\n```toml\n")).unwrap();
    rest.split_once("```\n").unwrap().0.to_owned()
}

/// The text of a file of the repository.
fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn first_pages_are_short() {
    for (page, lines_max) in
        [("README.md", 130), ("mappings/README.md", 150), (".github/CONTRIBUTING.md", 80)]
    {
        assert!(read(page).lines().count() <= lines_max, "{page}: move details beside what they are about");
    }
}

#[test]
fn readme_has_the_start_line_of_each_server() {
    let readme = read("README.md");
    let library = Library::embedded().unwrap();
    let starts: Vec<&str> = library.upstreams().filter_map(|upstream| upstream.start.as_deref()).collect();
    assert!(starts.len() >= 5, "{starts:?}");
    for start in starts {
        assert!(readme.contains(&format!("`{start}`")), "README.md lacks {start}");
    }
}

#[test]
fn links_between_pages_lead_to_files_and_headings() {
    let pages = [
        "README.md",
        ".github/CONTRIBUTING.md",
        "mappings/README.md",
        MAPPINGS_REFERENCE,
        CLIENTS_GUIDE,
        "examples/README.md",
        OPERATING_GUIDE,
        "examples/operate/files.md",
    ];
    for page in pages.map(str::to_owned).into_iter().chain(files_below("mappings/notes")) {
        let text = read(&page);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => page.clone(),
                _ => Path::new(&page).with_file_name(file).display().to_string(),
            };
            let exists = Path::new(env!("CARGO_MANIFEST_DIR")).join(&path).exists();
            let is_there = exists
                && (heading.is_empty()
                    || read(&path).lines().any(|line| line.starts_with('#') && anchor(line) == heading));
            assert!(is_there, "{page}: the link to {target} leads nowhere");
        }
    }
}

#[test]
fn shown_routes_lead_where_described() {
    let config: Config = parse_toml(CLIENTS_GUIDE, &shown_file(CLIENTS_GUIDE, "routes")).unwrap();
    let service = config.build_service().unwrap_or_else(|problem| panic!("{problem}"));
    let dialect = |path: &str, client: &str| {
        let client = service.library.client(client).unwrap();
        let route = service.routes.find(path, &client, "")?;
        Some((route.profile.name.as_str(), route.upstreams.dialects.first().name.as_str()))
    };
    assert_eq!(dialect("/robots", "minicpm-o-legacy"), Some(("relay", "minicpm-o")));
    assert_eq!(dialect("/v1/realtime", "minicpm-o-legacy"), Some(("relay", "minicpm-o-legacy")));
    assert_eq!(dialect("/v1/realtime", "minicpm-o"), Some(("relay", "minicpm-o-legacy")));
    assert_eq!(dialect("/v1/realtime", "macaw"), Some(("speech", "minicpm-o")));
    assert_eq!(
        service.routes.forced_protocol("/robots").map(|client| client.name.as_str()),
        Some("minicpm-o-legacy")
    );
}

#[test]
fn shown_phone_calls_are_routed_and_signed() {
    let token = scratch("readme-calls").join("twilio.token");
    fs::write(&token, "12345").unwrap();
    let shown = shown_file(CLIENTS_GUIDE, "twilio").replace("twilio.token", token.to_str().unwrap());
    let config: Config = parse_toml(CLIENTS_GUIDE, &shown).unwrap();
    let service = config.build_service().unwrap_or_else(|problem| panic!("{problem}"));
    let profile = |path: &str, client: &str| {
        let client = service.library.client(client).unwrap();
        service.routes.find(path, &client, "any").map(|route| route.profile.name.clone())
    };
    assert_eq!(profile("/twilio", "twilio").as_deref(), Some("conversation"));
    assert_eq!(profile("/v1/realtime", "macaw").as_deref(), Some("speech"));
}

#[test]
fn shown_configurations_are_valid() {
    let dir = scratch("readme-operators");
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    for name in ["cert.pem", "clients.pem", "gpu-1.pem", "bridge.pem"] {
        fs::write(dir.join(name), &cert).unwrap();
    }
    for name in ["key.pem", "bridge.key"] {
        fs::write(dir.join(name), &key).unwrap();
    }
    for name in ["admin-token", "gpu-1.token", "twilio.token"] {
        fs::write(dir.join(name), "no-secret-but-as-long-as-one").unwrap();
    }
    fs::write(dir.join("keys.toml"), "[[key]]\nname = \"robots\"\nkey = \"no-secret-either-but-long\"\n")
        .unwrap();
    fs::write(dir.join("webhook.secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    fs::write(dir.join("devices.toml"), "\"aa:bb:cc:dd:ee:ff\" = \"no-secret-either-but-long\"\n").unwrap();
    fs::write(dir.join("voxbridge.toml"), shown_file(OPERATING_GUIDE, "operators")).unwrap();
    let config = Config::read(&dir.join("voxbridge.toml")).unwrap();
    config.build_service().unwrap_or_else(|problem| panic!("{problem}"));
    config.check().unwrap();
}

#[test]
fn guide_names_keys_and_which_of_them_need_a_restart() {
    let guide = read(OPERATING_GUIDE);
    let reload = guide.split("\n## ").find(|section| section.starts_with("Reload")).unwrap();
    for key in KEYS.iter().filter(|key| key.path != FILE) {
        let name = key.path.trim_end_matches(".*").rsplit('.').next().unwrap();
        let option = key.option.as_ref().map(|option| format!("--{}", option.name()));
        assert!(guide.contains(name) || option.is_some_and(|option| guide.contains(&option)), "{}", key.path);
        let section = key.path.split_once('.').map_or(key.path, |(section, _)| section);
        let is_named =
            |name: &str| reload.contains(&format!("`{name}`")) || reload.contains(&format!("[{name}]"));
        assert!(!key.needs_restart || is_named(key.path) || is_named(section), "{}", key.path);
    }
}

#[test]
fn shown_tables_match_program_output() {
    let library = Library::embedded().unwrap();
    let (client, profile) = (library.client("macaw").unwrap(), library.profile("speech").unwrap());
    let printed = explain_markdown(&client, &profile, &library.upstream("minicpm-o").unwrap());
    // The reference has its own headings.
    let tables = printed.split_once("## ").unwrap().1;
    let tables = format!("### {}", tables.replace("\n## ", "\n### "));

    let protocols = page::protocols_table(library.clients().map(AsRef::as_ref));
    for (guide, name, table) in [
        (MAPPINGS_REFERENCE, "explain", tables),
        (MAPPINGS_REFERENCE, "roles", role_table()),
        (CLIENTS_GUIDE, "protocols", protocols),
    ] {
        check_table(guide, name, &table);
    }
}

/// Compares a generated table of a guide, or writes it if the environment has `UPDATE_README`.
fn check_table(guide: &str, name: &str, table: &str) {
    let shown = read(guide);
    let (before, rest) = shown.split_once(&format!("<!-- {name} -->\n")).unwrap();
    let (_, after) = rest.split_once(&format!("<!-- /{name} -->")).unwrap();
    let expected = format!("{before}<!-- {name} -->\n{table}<!-- /{name} -->{after}");
    if std::env::var_os("UPDATE_README").is_some() {
        return fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(guide), expected).unwrap();
    }
    assert_eq!(shown, expected, "{guide}: run UPDATE_README=1 cargo test --test system readme");
}

/// The table of the roles of fields.
fn role_table() -> String {
    let rows = FieldRole::ALL.iter().map(|role| {
        let name = serde_json::to_value(role).unwrap();
        format!("| `{}` | {} | {} |\n", name.as_str().unwrap(), role.unit(), role.meaning().trim())
    });
    format!("| role | unit | meaning |\n|---|---|---|\n{}", rows.collect::<String>())
}

/// The built-in files of a kind.
fn built_in_files(kind: MappingKind) -> Vec<toml::Table> {
    let library = Library::embedded().unwrap();
    let files = library.files().filter(|(found, ..)| *found == kind);
    files.map(|(.., source)| source.parse().unwrap()).collect()
}

/// The name of an enum's value in mapping files.
fn snake_case(value: impl std::fmt::Debug) -> String {
    let name = format!("{value:?}");
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// All values of the key `name` in a table and the tables and lists in it.
fn values_of(name: &str, value: &toml::Value, found: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            found.extend(table.get(name).and_then(toml::Value::as_str).map(str::to_owned));
            table.values().for_each(|value| values_of(name, value, found));
        }
        toml::Value::Array(items) => items.iter().for_each(|value| values_of(name, value, found)),
        _ => {}
    }
}

#[test]
fn mappings_reference_has_every_event_with_its_slots_and_every_error() {
    let reference = read(MAPPINGS_REFERENCE);
    let (_, events) = reference.split_once("**Events** and their slots").unwrap();
    let (events, _) = events.split_once("**Errors**").unwrap();
    for event in EventName::ALL {
        let name = format!("`{}`", snake_case(event));
        let mut rows = events.lines().filter(|line| line.starts_with("| `"));
        let row = rows.find(|line| line.split(" | ").next().is_some_and(|cell| cell.contains(&name)));
        let row = row.unwrap_or_else(|| panic!("no row for {name}"));
        let is_like_another = row.contains("| as `");
        for slot in event.own_slots().iter().filter(|_| !is_like_another) {
            assert!(row.contains(&format!("`{}`", slot.name())), "{name} has a slot {}: {row}", slot.name());
        }
    }
    let kinds = ErrorKind::SESSION_KINDS.iter().map(|kind| kind.name());
    for name in kinds.chain(RealtimeEvent::ALL.iter().map(|event| event.name())) {
        assert!(reference.contains(&format!("`{name}`")), "nothing about {name}");
    }
}

#[test]
fn mappings_reference_has_every_key_verb_and_role_of_the_built_in_files() {
    let reference = read(MAPPINGS_REFERENCE);
    let mut words = Vec::new();
    for file in built_in_files(MappingKind::Client) {
        words.extend(file.keys().filter(|key| !file[key.as_str()].is_table()).cloned());
        for table in ["signs", "realtime"].iter().filter_map(|name| file.get(*name)?.as_table()) {
            words.extend(table.keys().cloned());
        }
        for key in ["verb", "to"] {
            values_of(key, &toml::Value::Table(file.clone()), &mut words);
        }
    }
    for file in built_in_files(MappingKind::Profile) {
        words.push(file["name"].as_str().unwrap().to_owned());
        for table in ["answer", "barge_in", "playout"].iter().filter_map(|name| file.get(*name)?.as_table()) {
            words.extend(table.keys().cloned());
        }
    }
    words.sort();
    words.dedup();
    let is_missing = |word: &&String| {
        [format!("`{word}`"), format!("[{word}]")].iter().all(|spelled| !reference.contains(spelled))
    };
    let missing: Vec<_> = words.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
