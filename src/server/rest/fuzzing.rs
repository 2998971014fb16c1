//! Forms, without their requests: for the fuzz targets.

use bytes::Bytes;

use super::form::{boundary_of, parts};

/// Names and contents of the fields of a form with this content type.
pub(crate) fn form_fields(content_type: &str, body: &[u8]) -> Result<Vec<(String, Bytes)>, String> {
    let boundary = boundary_of(content_type).ok_or("the content type names no boundary of a form")?;
    let parts = parts(&Bytes::copy_from_slice(body), &boundary)?;
    Ok(parts.into_iter().map(|part| (part.name, part.contents)).collect())
}
