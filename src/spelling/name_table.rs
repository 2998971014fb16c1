//! Values by the names of an enum, each at its name's number: sessions look them up all the time.

/// Values of some of the names.
#[derive(Debug, Clone)]
pub(super) struct NameTable<V>(Vec<Option<V>>);

impl<V> NameTable<V> {
    /// The value of the name with this number.
    pub(super) fn get(&self, number: usize) -> Option<&V> {
        self.0.get(number)?.as_ref()
    }

    /// The values in the order of their names.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().flatten()
    }
}

impl<V> Default for NameTable<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// From the numbers of the names, and their values.
impl<V> FromIterator<(usize, V)> for NameTable<V> {
    fn from_iter<I: IntoIterator<Item = (usize, V)>>(values: I) -> Self {
        let mut table = Vec::new();
        for (number, value) in values {
            if table.len() <= number {
                table.resize_with(number + 1, || None);
            }
            table[number] = Some(value);
        }
        Self(table)
    }
}
