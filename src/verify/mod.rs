//! How well a server does: word errors of a transcript beside its reference, in [`words`].

pub mod words;
