//! Values of a TOML table by path, such as `tls.cert`. In a pattern, `*` stands for each entry of a list, or each name of
//! a section.

use toml::{Table, Value};

/// The value at a path, in which the entries of a list have their index.
pub(super) fn get<S: AsRef<str>>(table: &Table, path: impl IntoIterator<Item = S>) -> Option<&Value> {
    let mut path = path.into_iter();
    let first = table.get(path.next()?.as_ref())?;
    path.try_fold(first, |value, key| match value {
        Value::Array(entries) => entries.get(key.as_ref().parse::<usize>().ok()?),
        value => value.get(key.as_ref()),
    })
}

/// Sets the values of a pattern, or removes them. Adds sections, but no entries.
pub(super) fn put(table: &mut Table, pattern: &str, value: Option<&Value>) {
    let Some((key, rest)) = pattern.split_once('.') else {
        match value {
            Some(value) => table.insert(pattern.to_owned(), value.clone()),
            None => table.remove(pattern),
        };
        return;
    };
    if value.is_some() && !rest.starts_with('*') {
        table.entry(key).or_insert_with(|| Table::new().into());
    }
    match (table.get_mut(key), rest.strip_prefix("*.")) {
        (Some(Value::Array(entries)), Some(rest)) => {
            entries.iter_mut().filter_map(Value::as_table_mut).for_each(|entry| put(entry, rest, value));
        }
        (Some(Value::Table(section)), None) => put(section, rest, value),
        _ => {}
    }
}

/// Calls `act` for each value of a pattern, with the name of its entry, or its number counted from 1.
pub(super) fn for_each(table: &mut Table, pattern: &str, act: &mut dyn FnMut(&str, &mut Value)) {
    let (key, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
    if let Some(value) = table.get_mut(key) {
        visit(value, rest, "", act);
    }
}

/// `pattern` is empty for the value itself.
fn visit(value: &mut Value, pattern: &str, entry: &str, act: &mut dyn FnMut(&str, &mut Value)) {
    let (key, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
    match (key, value) {
        ("", value) => act(entry, value),
        ("*", Value::Array(entries)) => {
            entries
                .iter_mut()
                .zip(1..)
                .for_each(|(value, number)| visit(value, rest, &number.to_string(), act));
        }
        ("*", Value::Table(names)) => {
            names.iter_mut().for_each(|(name, value)| visit(value, rest, name, act));
        }
        (key, value) => value.get_mut(key).into_iter().for_each(|value| visit(value, rest, entry, act)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str =
        "a = 1\nlist = [{ b = 2 }, { b = 3, c = 4 }]\nnames = { x = 5, \"y.z\" = 6 }\ndeep = { er.d = 7 }\n";

    #[test]
    fn values_are_found_by_path_and_by_pattern() {
        let mut table: Table = TOML.parse().unwrap();
        for (path, value) in
            [("a", Some(1)), ("list.1.c", Some(4)), ("deep.er.d", Some(7)), ("list.0.c", None)]
        {
            assert_eq!(get(&table, path.split('.')).and_then(Value::as_integer), value, "{path}");
        }
        for (pattern, found) in [
            ("a", "=1"),
            ("list.*.b", "1=2 2=3"),
            ("list.*.c", "2=4"),
            ("names.*", "x=5 y.z=6"),
            ("deep.er.d", "=7"),
            ("none.*.b", ""),
            ("a.b", ""),
        ] {
            let mut visited = Vec::new();
            for_each(&mut table, pattern, &mut |entry, value| visited.push(format!("{entry}={value}")));
            assert_eq!(visited.join(" "), found, "{pattern}");
        }
    }

    #[test]
    fn values_are_set_and_removed() {
        for (pattern, value, key, changed) in [
            ("a", Some(8), "a", "8"),
            ("a", None, "a", ""),
            ("new.b", Some(8), "new", "{ b = 8 }"),
            ("list.*.c", Some(8), "list", "[{ b = 2, c = 8 }, { b = 3, c = 8 }]"),
            ("list.*.c", None, "list", "[{ b = 2 }, { b = 3 }]"),
            ("none.b", None, "none", ""),
            ("none.*.b", Some(8), "none", ""),
        ] {
            let mut table: Table = TOML.parse().unwrap();
            put(&mut table, pattern, value.map(Value::Integer).as_ref());
            let found = table.get(key).map(ToString::to_string);
            assert_eq!(found.unwrap_or_default(), changed, "{pattern}");
        }
    }
}
