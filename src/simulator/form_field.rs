//! Members of the objects that a server checks against the forms of its values.

/// Member of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<F> {
    pub(super) name: &'static str,
    pub(super) form: F,
    pub(super) is_required: bool,
}

pub(super) const fn required<F: Copy>(name: &'static str, form: F) -> Field<F> {
    Field { name, form, is_required: true }
}

pub(super) const fn optional<F: Copy>(name: &'static str, form: F) -> Field<F> {
    Field { name, form, is_required: false }
}
