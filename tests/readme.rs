//! The README's table is what `mappings explain` prints. `UPDATE_README=1 cargo test --test readme` writes it.

use std::{fs, path::Path};

use voxbridge::mapping::{Library, explain::explain};

#[test]
fn the_table_is_what_the_program_prints() {
    let library = Library::embedded().unwrap();
    let (client, profile) = (library.client("macaw").unwrap(), library.profile("speech").unwrap());
    let printed = explain(&client, &profile, &library.upstream("minicpm-o").unwrap());
    // The README has headings of its own.
    let tables = printed.split_once("## ").unwrap().1;
    let tables = format!("### {}", tables.replace("\n## ", "\n### "));

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once("<!-- explain -->\n").unwrap();
    let (inside, after) = rest.split_once("<!-- /explain -->").unwrap();
    if std::env::var_os("UPDATE_README").is_some() {
        fs::write(&path, format!("{before}<!-- explain -->\n{tables}<!-- /explain -->{after}")).unwrap();
        return;
    }
    assert_eq!(inside, tables, "run UPDATE_README=1 cargo test --test readme");
}
