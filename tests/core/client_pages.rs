//! `mappings/pages`: a page for each client protocol with stock clients, and their table. They say what the mapping files say.

use std::{collections::BTreeSet, fs, path::Path};

use voxbridge::mapping::{Library, explain::page};

#[test]
fn pages_say_what_the_mapping_files_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mappings/pages");
    let library = Library::embedded().unwrap();
    let clients: Vec<_> = library.clients().filter(|client| !client.tested_with.is_empty()).collect();
    let table = ("README".to_owned(), page::clients_page(clients.iter().map(|client| &***client)));
    let pages = clients.iter().map(|client| (client.name.clone(), page::client_page(client)));
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
    let found: BTreeSet<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found, expected);
}
