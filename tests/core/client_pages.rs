//! `mappings/pages`: a page for each client protocol, and the table of stock clients. They say what the mapping files say, and each
//! stock client has a test.

use voxbridge::spelling::{explain::page, tested_with::TestedClient};

use super::*;

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn pages_say_what_the_mapping_files_say() {
    let folder = project().join("mappings/pages");
    let library = Library::embedded().unwrap();
    let table = ("README".to_owned(), page::clients_page(library.clients().map(AsRef::as_ref)));
    let pages = library.clients().map(|client| (client.name.clone(), page::client_page(client)));
    let mut expected = BTreeSet::new();
    for (name, page) in pages.chain([table]) {
        let file = folder.join(format!("{name}.md"));
        let written = fs::read_to_string(&file).unwrap_or_default();
        let argument = if name == "README" { "" } else { &name };
        assert!(
            written == page,
            "mappings/pages/{name}.md is out of date: voxbridge mappings page {argument} > mappings/pages/{name}.md"
        );
        expected.insert(file);
    }
    let found = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(found.filter(|path| path.is_file()).collect::<BTreeSet<_>>(), expected);
}

#[test]
fn stock_clients_have_scripts_or_tests() {
    let library = Library::embedded().unwrap();
    for tested in library.clients().flat_map(|client| &client.tested_with) {
        if let Some(script) = &tested.script {
            let file = script.split(' ').next().unwrap();
            // A client in Rust is a project in a folder.
            let file = file.strip_suffix(".rs").unwrap_or(file);
            assert!(project().join("tests/families").join(file).exists(), "{script}");
        }
        for test in &tested.tests {
            assert!(has_test(test), "{}: there is no test {test}", tested.client);
        }
        assert_versions(tested);
    }
}

/// True if the file of this module has a test of this name.
fn has_test(test: &str) -> bool {
    let (module, name) = test.rsplit_once("::").unwrap();
    let file = project().join("tests").join(module.replace("::", "/")).with_extension("rs");
    let source = fs::read_to_string(file).unwrap_or_default();
    source.contains(&format!("fn {name}()"))
}

/// Checks that a client of `tests` has the versions that `tests/clients/setup` or a list of `tests/servers` installs.
fn assert_versions(tested: &TestedClient) {
    let lists = ["clients/setup", "servers/vllm-omni.txt", "servers/sglang-omni.txt"];
    let installed =
        lists.map(|list| fs::read_to_string(project().join("tests").join(list)).unwrap()).join(" ");
    let is_version =
        |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
    let words = tested.client.split([' ', ',', '(', ')']).filter(is_version);
    for version in words.filter(|_| !tested.tests.is_empty()) {
        assert!(installed.contains(version), "{}: version {version} is not installed", tested.client);
    }
}
